"""Records: the audit trail, as operators read it.

Invariant: reading the trail is an entry of its own.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.dialects.json_bounds import EXACT_MAX
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import timestamp
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry, AuditFilter, AuditPage


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest entries that fit every field that is set, at most `limit`, before `cursor`. Times count from 1970.

    `action` is an action, or the word before the dot of administrative ones. `text` is a part of any field. With
    `forward` they are the oldest, after `cursor`.
    """

    principal: str | None = None
    key: str | None = None
    action: str | None = None
    agent: str | None = None
    text: Annotated[str, Meta(max_length=200)] | None = None
    refused: bool = False
    since_ms: Annotated[int, Meta(ge=0, le=EXACT_MAX)] = 0
    until_ms: Annotated[int, Meta(ge=0, le=EXACT_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    cursor: str = ""
    forward: bool = False


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
    key: str


class AuditLines(Struct, frozen=True, kw_only=True):
    """Entries of the audit trail, oldest first. `next_cursor` is empty on the last page."""

    entries: tuple[AuditLine, ...]
    next_cursor: str = ""


class Records:
    """Reads the audit trail."""

    def __init__(self, store: Store, notes: AccessNotes) -> None:
        self._store = store
        self._notes = notes

    async def audit(self, operator: Operator, query: AuditQuery) -> AuditLines:
        """Entries of the audit trail. Raises A2AError."""
        work = self._page(query)
        page = await self._notes.noted(operator, "audit.list", work)
        cursor = "" if page.next_cursor is None else str(page.next_cursor)
        return AuditLines(entries=tuple(map(_audit_line, page.entries)), next_cursor=cursor)

    async def _page(self, query: AuditQuery) -> AuditPage:
        number = query.cursor if query.cursor.isascii() and query.cursor.isdigit() and len(query.cursor) < 19 else ""
        if query.cursor and not number:
            raise InvalidParams("cursor", "comes from another list: leave it out for the first page")
        wanted = AuditFilter(
            principal=query.principal,
            key=query.key,
            action=query.action,
            agent=query.agent,
            text=query.text,
            refused=query.refused,
            since_ms=query.since_ms,
            until_ms=query.until_ms,
        )
        return await self._store.audit.page(wanted, query.limit, int(number) if number else None, forward=query.forward)


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
        key=entry.key,
    )
