"""Records: the audit trail, as operators read it.

Invariant: reading the trail is an entry of its own.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.engine.handlers.access import AccessNotes, Operator
from dragoman.model.ids import timestamp
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest entries that fit every field that is set, at most `limit`. `since_ms` counts from 1970."""

    principal: str | None = None
    refused: bool = False
    since_ms: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class AuditLine(Struct, frozen=True, kw_only=True):
    """An entry of the audit trail: see `store.audit.AuditEntry`."""

    at: str
    principal: str
    action: str
    agent: str
    task: str
    subject: str
    peer: str
    allowed: bool
    reason: str


class AuditLines(Struct, frozen=True, kw_only=True):
    """Entries of the audit trail, oldest first."""

    entries: tuple[AuditLine, ...]


class Records:
    """Reads the audit trail."""

    def __init__(self, store: Store, notes: AccessNotes) -> None:
        self._store = store
        self._notes = notes

    async def audit(self, operator: Operator, query: AuditQuery) -> AuditLines:
        """Entries of the audit trail. Raises A2AError."""
        work = self._store.audit.read(
            principal=query.principal, refused_only=query.refused, since_ms=query.since_ms, limit=query.limit
        )
        entries = await self._notes.noted(operator, "audit.list", work)
        return AuditLines(entries=tuple(map(_audit_line, entries)))


def _audit_line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        at=timestamp(entry.at_ms),
        principal=entry.principal,
        action=entry.action,
        agent=entry.agent,
        task=entry.task_id,
        subject=entry.subject,
        peer=entry.peer,
        allowed=entry.allowed,
        reason=entry.reason,
    )
