"""Records: the audit trail, as operators read it.

Invariant: it only reads.
"""

from dragoman.admin.audit import AuditLine, AuditLines, AuditQuery
from dragoman.admin.table import QUESTIONS
from dragoman.engine.handlers.admission import KINDS
from dragoman.engine.handlers.audit import READS
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import timestamp
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry, AuditFilter

OPERATORS_READS = tuple(
    action
    for question in QUESTIONS
    for action in (question.action, question.followed)
    if isinstance(action, str) and action.endswith(READS) and not action.endswith(".export")
)

FOLLOW_EVENTS = "events.follow"
FOLLOW_TASK = "tasks.follow"
"""The actions of streams to operators."""

CALLERS_READS = tuple(kind.action for kind in KINDS.values() if kind.action.startswith(("Get", "List", "Subscribe")))

ONLY_READ = tuple(dict.fromkeys((*OPERATORS_READS, FOLLOW_EVENTS, FOLLOW_TASK, *CALLERS_READS)))
"""The actions that change nothing. An export of all that is known of somebody is no everyday reading."""


async def list_audit(store: Store, query: AuditQuery) -> AuditLines:
    """Entries of the audit trail. Raises InvalidParams for a foreign cursor, or StoreError."""
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
        without=() if query.reads else ONLY_READ,
    )
    cursor = int(number) if number else None
    page = await store.audit.page(wanted, query.limit, cursor, forward=query.forward)
    return AuditLines(
        entries=tuple(map(_audit_line, page.entries)),
        next_cursor="" if page.next_cursor is None else str(page.next_cursor),
    )


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
