"""The audit trail as operators read it.

Invariant: pure values.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.admin.question import Question
from dragoman.dialects.json_bounds import EXACT_MAX


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest entries that fit every field that is set, at most `limit`, before `cursor`. Times count from 1970.

    Without `reads` an entry fits only if something was changed, or refused. `action` is an action, or the word before
    the dot of administrative ones. `text` is a part of any field. With `forward` they are the oldest, after `cursor`.
    """

    principal: str | None = None
    key: str | None = None
    action: str | None = None
    agent: str | None = None
    text: Annotated[str, Meta(max_length=200)] | None = None
    refused: bool = False
    reads: bool = True
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


LIST_AUDIT = Question(
    name="listAudit",
    of_teams=True,
    path="/audit",
    summary="List entries of the audit trail, oldest first.",
    given=AuditQuery,
    answer=AuditLines,
    action="audit.list",
    stored=True,
    quiet=True,
    lines="entries",
)
