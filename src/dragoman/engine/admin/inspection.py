"""Inspector: an operator's view of the tasks in a store, whoever owns them.

Invariant: it only reads, and no answer costs more for more tasks in the store. A search goes on page by page. Messages
are shortened, and nothing in an answer is a secret: webhooks are counted, and a runner's notes to itself are left out.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.engine.policy import page_token, read_page_token
from dragoman.model.errors import InvalidParams, TaskNotFound
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    Submitted,
)
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.parts import TEXT_CHARACTERS, beginning
from dragoman.model.task import TERMINAL, Phase, Progress, Usage, phase_of
from dragoman.store.api import ListOrder, ListQuery, Owners, Store, TaskRow, TaskSearch

SEARCHES = 5
"""How often one page asks the store to look through tasks for a filter that no index answers. Its cursor goes on where
that stopped."""

PAGE_BYTES = 4 << 20
"""Most stored bytes that are read for one page of tasks."""

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.ASCII)

StateWord = Literal[
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"
]

STATES_BY_WORD = {word: state for state, word in SPELLED.items()}

SearchText = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS)]

Seconds = Annotated[float, Meta(ge=0, le=1e10)]

TaskOrder = Literal["newest-changed", "oldest-changed", "newest-created", "oldest-created", "longest-running"]
"""The order of a list of tasks. `longest-running` lists those that are submitted or working, the first made first."""

BY_CREATION = ("newest-created", "oldest-created")
"""The orders in which a page looks through tasks, so that any filter can be used."""


class TaskFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that fit every field that is set. Ages are those of the status, in seconds.

    `key` is the id of the key that the task was made with, which tasks from before keys were noted do not have. `text`
    is contained in the first 200 characters of the first message; the case of the letters a to z does not count.
    """

    state: StateWord | None = None
    agent: str | None = None
    principal: str | None = None
    key: str | None = None
    context: str | None = None
    dialect: str | None = None
    text: SearchText | None = None
    older_than_s: Seconds | None = None
    newer_than_s: Seconds | None = None

    @property
    def empty(self) -> bool:
        """Whether every task fits."""
        return all(getattr(self, name) is None for name in TaskFilter.__struct_fields__)


class TaskLine(Struct, frozen=True, kw_only=True):
    """A task in a list. `status_at` is when its status last changed, `age_s` how many seconds ago that was.

    `state` is what its caller sees; for `phase` see `model.task.Phase`. `holder` is the process that runs it, if one
    does. `text` begins the first message. `unreadable`: the store holds bytes of the task that cannot be decoded. A
    list shows that only if its head is among them. `key` is the id of the key that the task was made with; null for
    other credentials, and for tasks from before keys were noted.
    """

    id: str
    state: StateWord
    phase: Phase
    agent: str
    principal: str
    context: str
    dialect: str
    text: str
    created_at: str
    status_at: str
    age_s: float
    holder: str | None = None
    cancel_requested: bool = False
    parent: str | None = None
    unreadable: bool = False
    key: str | None = None


class TaskLines(Struct, frozen=True, kw_only=True):
    """A page of tasks, newest status first unless another order was asked for. `next_cursor` is empty on the last page.

    With `key`, `dialect` or `text`, which no index answers, the newest made are first. In the order of creation a page
    may have fewer tasks than asked for, or none, although more follow. `total` counts the tasks on all pages; it is
    null in that order and with `older_than_s`.
    """

    tasks: tuple[TaskLine, ...]
    next_cursor: str = ""
    total: int | None = None


class ArtifactLine(Struct, frozen=True, kw_only=True):
    """An artifact of a task, without its content."""

    id: str
    name: str | None
    parts: int
    open: bool


class TaskReport(Struct, frozen=True, kw_only=True):
    """All that an operator sees of one task. `text` begins the first message, `status_text` that of the status.

    `trace` is the id of the trace that the task belongs to, as it came with the call or was made by the server.
    """

    task: TaskLine
    mount: str
    seq: int
    epoch: int
    skill: str | None
    text: str
    status_text: str
    messages: int
    artifacts: tuple[ArtifactLine, ...]
    webhooks: int
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    trace: str | None = None


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """An event of a task. `at` is null for events that carry no time: they came after the one before them.

    An event of the kind `operator` tells who made the next change, which is the `action`; `text` is why.
    """

    seq: int
    at: str | None
    kind: Literal["submitted", "message", "status", "artifact", "delegated", "noted", "operator"]
    state: StateWord | None = None
    text: str = ""
    artifact: str | None = None
    agent: str | None = None
    task: str | None = None
    progress: Progress | None = None
    operator: str | None = None
    action: str | None = None


class Timeline(Struct, frozen=True, kw_only=True):
    """Events of a task in their order. More follow if `next_after` is not null: ask again with it as `after`.

    `seq` is the number of the last event of the task. `ended`: no event will follow that one. `pruned`: events after
    the place that was asked for have been deleted, or cannot be read.
    """

    events: tuple[TimelineEntry, ...]
    seq: int
    ended: bool
    pruned: bool = False
    next_after: int | None = None


class Inspector:
    """Reads the tasks of everybody from a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        places: FoldedPlaces | None = None,
        idle: Callable[[str], bool] = lambda task_id: False,
    ) -> None:
        """`places` may be shared with other readers of the same store. `idle` knows the runs here: see `phase_of`."""
        self._idle = idle
        self._store = store
        self._clock = clock
        self._places = places or FoldedPlaces(store)

    async def list(self, wanted: TaskFilter, limit: int, cursor: str = "", order: TaskOrder | None = None) -> TaskLines:
        """A page of the tasks that fit. Without an `order`, the newest status is first, or the newest made if only a
        search can find them.

        Raises InvalidParams for a foreign cursor and for filters that do not go with the order, or StoreError.
        """
        chosen = _order(wanted, order)
        before = _read_cursor(cursor, chosen) if cursor else None
        now_ms = self._clock.now_ms()
        if chosen in BY_CREATION:
            return await self._search(wanted, limit, chosen, None if before is None else before[0], now_ms)
        until_ms = None if wanted.older_than_s is None else _ago_ms(wanted.older_than_s, now_ms)
        if before is None and until_ms is not None and chosen == "newest-changed":
            before = until_ms, ""
        listed = await self._store.list_rows(
            ListQuery(
                owner=Owners.ALL if wanted.principal is None else wanted.principal,
                agent=wanted.agent,
                context_id=wanted.context,
                state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
                order=ListOrder(chosen),
                limit=limit,
                before=before,
                max_bytes=PAGE_BYTES,
            )
        )
        rows = [row for row in listed.rows if until_ms is None or row.status_ms < until_ms]
        last = rows[-1] if listed.more and rows and len(rows) == len(listed.rows) else None
        return TaskLines(
            tasks=tuple(self._line(row, now_ms) for row in rows),
            next_cursor="" if last is None else _cursor(last.status_ms, chosen, last.head.id),
            total=None if until_ms is not None else listed.total,
        )

    async def _search(
        self, wanted: TaskFilter, limit: int, order: TaskOrder, after: int | None, now_ms: int
    ) -> TaskLines:
        found: list[TaskRow] = []
        for _ in range(SEARCHES):
            page = await self._store.search(
                TaskSearch(
                    owner=Owners.ALL if wanted.principal is None else wanted.principal,
                    agent=wanted.agent,
                    context_id=wanted.context,
                    state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                    dialect=wanted.dialect,
                    key=wanted.key,
                    text=wanted.text,
                    status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
                    status_before_ms=None if wanted.older_than_s is None else _ago_ms(wanted.older_than_s, now_ms),
                    oldest=order == "oldest-created",
                    limit=limit - len(found),
                    after=after,
                )
            )
            found += page.rows
            after = page.after
            if after is None or len(found) == limit:
                break
        return TaskLines(
            tasks=tuple(self._line(row, now_ms) for row in found),
            next_cursor="" if after is None else _cursor(after, order),
        )

    async def show(self, task_id: str) -> TaskReport:
        """One task. Raises TaskNotFound, or StoreError."""
        stored = await self._store.load_snapshot(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        record = await self._places.stand(stored)
        text = beginning(record.history[0].parts) if record.history else ""
        row = TaskRow(
            head=stored.head,
            state=stored.state,
            status_ms=stored.status_ms,
            holder=stored.holder,
            cancel_requested=stored.cancel_requested,
            text=text,
            unreadable=record.unreadable,
        )
        said = record.status.message
        return TaskReport(
            task=self._line(row, self._clock.now_ms()),
            mount=stored.head.mount,
            seq=stored.seq,
            epoch=stored.epoch,
            skill=stored.head.skill,
            text=text,
            status_text="" if said is None else beginning(said.parts),
            messages=len(record.history),
            artifacts=tuple(
                ArtifactLine(
                    id=artifact.artifact_id,
                    name=artifact.name,
                    parts=len(artifact.parts),
                    open=artifact.artifact_id in record.open_artifacts,
                )
                for artifact in record.artifacts
            ),
            webhooks=len(await self._store.outbox.configs(task_id)) if stored.pushed else 0,
            progress=record.progress,
            usage=record.usage,
            duration_ms=record.duration_ms,
            trace=_trace(stored.head.traceparent),
        )

    async def log(self, task_id: str, after: int, limit: int) -> Timeline:
        """At most `limit` events after seq `after`. Raises TaskNotFound, or StoreError."""
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        _, seq, state = known
        logged = (await self._store.read(task_id, after, LOG_BYTES))[:limit]
        last = logged[-1].seq if logged else after
        return Timeline(
            events=tuple(map(timeline_entry, logged)),
            seq=seq,
            ended=state in TERMINAL,
            pruned=(logged[0].seq > after + 1) if logged else after < seq,
            next_after=last if logged and last < seq else None,
        )

    def _line(self, row: TaskRow, now_ms: int) -> TaskLine:
        head = row.head
        return TaskLine(
            id=head.id,
            state=SPELLED[row.state],  # type: ignore[arg-type]  # the words of StateWord
            phase=phase_of(row.state, idle=row.holder is None or self._idle(head.id)),
            agent=head.agent,
            principal=head.owner,
            context=head.context_id,
            dialect=head.dialect,
            text=row.text,
            created_at=head.created_at,
            status_at=timestamp(row.status_ms),
            age_s=max(0, now_ms - row.status_ms) / 1000,
            holder=row.holder,
            cancel_requested=row.cancel_requested,
            parent=head.parent,
            unreadable=row.unreadable,
            key=head.key or None,
        )


def _trace(traceparent: str | None) -> str | None:
    """The trace id in a `traceparent` (W3C Trace Context §3.2.2)."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return None if found is None else found[1]


def _order(wanted: TaskFilter, order: TaskOrder | None) -> TaskOrder:
    """The order of a list. Raises InvalidParams if the filters do not go with it."""
    searches = any(each is not None for each in (wanted.key, wanted.dialect, wanted.text))
    if order is None:
        return "newest-created" if searches else "newest-changed"
    if searches and order not in BY_CREATION:
        raise InvalidParams(
            "order", f"must be {' or '.join(BY_CREATION)} with text, key or dialect, which no index answers"
        )
    if wanted.older_than_s is not None and order == "longest-running":
        raise InvalidParams("older_than_s", "does not go with the order longest-running: choose oldest-changed")
    return order


def _cursor(number: int, order: TaskOrder, task_id: str = "") -> str:
    return page_token(number, f"{order}/{task_id}")


def _read_cursor(cursor: str, order: TaskOrder) -> tuple[int, str]:
    """The number and the id in a cursor. Raises InvalidParams if it is not of a list in this order."""
    number, place = read_page_token(cursor)
    made_in, _, task_id = place.partition("/")
    if made_in != order:
        raise InvalidParams("cursor", "comes from a list with other filters: leave it out for the first page")
    return number, task_id


def _ago_ms(age_s: float, now_ms: int) -> int:
    return now_ms - int(age_s * 1000)


def timeline_entry(logged: Logged) -> TimelineEntry:
    """An event as operators see it."""
    event: Event = logged.event
    match event:
        case Submitted(message=message, timestamp=at):
            return TimelineEntry(seq=logged.seq, at=at, kind="submitted", state="submitted", text=_text(message))
        case MessageReceived(message=message, timestamp=at):
            return TimelineEntry(seq=logged.seq, at=at, kind="message", text=_text(message))
        case StatusChanged():
            return TimelineEntry(
                seq=logged.seq,
                at=event.timestamp,
                kind="status",
                state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                text=_text(event.message),
                progress=event.progress,
            )
        case ArtifactChunk(artifact=artifact):
            shown = beginning(artifact.parts)
            return TimelineEntry(seq=logged.seq, at=None, kind="artifact", artifact=artifact.artifact_id, text=shown)
        case Delegated():
            return TimelineEntry(
                seq=logged.seq,
                at=event.timestamp,
                kind="delegated",
                state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                agent=event.agent,
                task=event.task_id or None,
                text=_text(event.message),
            )
        case Noted():
            return TimelineEntry(seq=logged.seq, at=None, kind="noted")
        case Intervened():
            return TimelineEntry(
                seq=logged.seq,
                at=event.timestamp,
                kind="operator",
                text=event.reason[:TEXT_CHARACTERS],
                operator=event.operator,
                action=event.action,
            )


def _text(message: Message | None) -> str:
    return "" if message is None else beginning(message.parts)
