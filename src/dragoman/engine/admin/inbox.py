"""Inbox: the tasks that wait for a person, with what they ask.

Invariant: it only reads. A page costs the tasks on it and the delegated tasks that wait, however many tasks there are.
"""

from dragoman.admin.tasks import Inbox, InboxLine, InboxQuery, TaskOrder
from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.inspection import Inspector, page_cursor, read_cursor
from dragoman.engine.admin.playback import cut_message
from dragoman.model.errors import TaskNotFound
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TaskState
from dragoman.store.api import ListedRows, ListOrder, ListQuery, Owners, TaskRow

ORDER: TaskOrder = "oldest-changed"


async def list_inbox(places: FoldedPlaces, inspector: Inspector, query: InboxQuery) -> Inbox:
    """A page of the tasks that wait. Raises InvalidParams for a foreign cursor, or StoreError."""
    store = places.store
    before = read_cursor(query.cursor, ORDER) if query.cursor else None
    passed_on = await _find_passed_on(places)
    limit = query.limit + len(passed_on) if query.limit else 0
    pages = [await _waiting(places, state, limit, before) for state in sorted(INTERRUPTED)]
    rows = sorted((row for page in pages for row in page.rows), key=lambda row: (row.status_ms, row.head.id))
    shown = [row for row in rows if row.head.id not in passed_on][: query.limit]
    more = any(page.more for page in pages) or len(shown) < sum(row.head.id not in passed_on for row in rows)
    now_ms = store.clock.now_ms()
    lines = [line for row in shown if (line := await _line(places, inspector, row, now_ms)) is not None]
    return Inbox(
        waiting=tuple(lines),
        total=max(0, sum(page.total for page in pages) - len(passed_on)),
        next_cursor=page_cursor(shown[-1].status_ms, ORDER, shown[-1].head.id) if more and shown else "",
    )


async def _waiting(places: FoldedPlaces, state: TaskState, limit: int, before: tuple[int, str] | None) -> ListedRows:
    return await places.store.list_rows(
        ListQuery(
            owner=Owners.ALL,
            agent=None,
            state=state,
            order=ListOrder.OLDEST_CHANGED,
            limit=max(1, limit),
            before=before,
        )
    )


async def _find_passed_on(places: FoldedPlaces) -> frozenset[str]:
    """The ids of delegated tasks that wait, and so does the task that delegated them: it asks in their place."""
    found: set[str] = set()
    waits: dict[str, bool] = {}
    for head in await places.store.asking():
        assert head.parent is not None, "only delegated tasks are asked for"
        if head.parent not in waits:
            parent = await places.store.head(head.parent)
            waits[head.parent] = parent is not None and parent[2] in INTERRUPTED
        if waits[head.parent]:
            found.add(head.id)
    return frozenset(found)


async def _line(places: FoldedPlaces, inspector: Inspector, row: TaskRow, now_ms: int) -> InboxLine | None:
    """A task with what it asks; None if it has gone on, or is gone."""
    stored = await places.store.load_snapshot(row.head.id)
    if stored is None or stored.state not in INTERRUPTED:
        return None
    try:
        record = await places.stand(stored)
    except TaskNotFound:
        return None
    if not record.unreadable and record.state not in INTERRUPTED:
        return None
    question = record.status.message
    signs_in = row.state is TaskState.AUTH_REQUIRED
    return InboxLine(
        task=inspector.line(row, now_ms),
        asks="sign-in" if signs_in else "approval" if asks_approval(question) else "question",
        question=None if question is None else cut_message(question)[0],
    )


def asks_approval(question: Message | None) -> bool:
    """Whether a question asks for approval of a call: as models ask it, or as the adapters of frameworks do."""
    for part in () if question is None else question.parts:
        call = part.metadata or {}
        if ("toolCallId" in call and "args" in call) or (isinstance(part.data, dict) and "approval" in part.data):
            return True
    return False
