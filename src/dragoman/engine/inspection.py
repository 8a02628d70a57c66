"""Inspector: an operator's view of the tasks in a store, whoever owns them.

Invariant: it only reads, and no answer costs more for more tasks in the store. A search goes on page by page. Messages
are shortened, and nothing in an answer is a secret: webhooks are counted, and a runner's notes to itself are left out.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

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
from dragoman.model.lifecycle import SPELLED, fold
from dragoman.model.message import Message
from dragoman.model.parts import TEXT_CHARACTERS, beginning
from dragoman.model.task import TERMINAL, Progress, Usage
from dragoman.store.api import ListQuery, Owners, Store, Stored, TaskRow, TaskSearch

SEARCHES = 5
"""How often one page asks the store to look through tasks for a filter that no index answers. Its cursor goes on where
that stopped."""

SEARCHED = "search"
"""Stands in a cursor for the id of a task, if the cursor goes on with a search."""

PAGE_BYTES = 4 << 20
"""Most stored bytes that are read for one page of tasks."""

LOG_BYTES = 1 << 20
"""Most stored bytes that are read for one page of a log."""

StateWord = Literal[
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"
]

STATES_BY_WORD = {word: state for state, word in SPELLED.items()}

SearchText = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS)]

Seconds = Annotated[float, Meta(ge=0, le=1e10)]


class TaskFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that fit every field that is set. Ages are those of the status, in seconds.

    `text` is contained in the first 200 characters of the first message; the case of the letters a to z does not count.
    """

    state: StateWord | None = None
    agent: str | None = None
    principal: str | None = None
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

    `holder` is the process that runs it, if one does. `text` begins the first message.
    """

    id: str
    state: StateWord
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


class TaskLines(Struct, frozen=True, kw_only=True):
    """A page of tasks, newest status first. `next_cursor` is empty on the last page.

    With `dialect` or `text`, which no index answers, the newest made are first, and a page may have fewer tasks than
    asked for, or none, although more follow. `total` counts the tasks on all pages; it is null with these filters and
    with `older_than_s`.
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
    """All that an operator sees of one task. `text` begins the first message, `status_text` that of the status."""

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
    the place that was asked for have been deleted.
    """

    events: tuple[TimelineEntry, ...]
    seq: int
    ended: bool
    pruned: bool = False
    next_after: int | None = None


class Inspector:
    """Reads the tasks of everybody from a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, wanted: TaskFilter, limit: int, cursor: str = "") -> TaskLines:
        """A page of the tasks that fit. Raises InvalidParams for a foreign cursor, or StoreError."""
        searches = wanted.dialect is not None or wanted.text is not None
        before = read_page_token(cursor) if cursor else None
        if before is not None and (before[1] == SEARCHED) is not searches:
            raise InvalidParams("cursor", "comes from a list with other filters: leave it out for the first page")
        now_ms = self._clock.now_ms()
        if searches:
            return await self._search(wanted, limit, None if before is None else before[0], now_ms)
        bounded = wanted.older_than_s is not None
        if before is None and wanted.older_than_s is not None:
            before = _ago_ms(wanted.older_than_s, now_ms), ""
        listed = await self._store.list(
            ListQuery(
                owner=Owners.ALL if wanted.principal is None else wanted.principal,
                agent=wanted.agent,
                context_id=wanted.context,
                state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
                limit=limit,
                before=before,
                history=0,
                max_bytes=PAGE_BYTES,
            )
        )
        last = listed.tasks[-1] if listed.more and listed.tasks else None
        return TaskLines(
            tasks=tuple(_line(_row(stored), now_ms) for stored in listed.tasks),
            next_cursor="" if last is None else page_token(last.status_ms, last.head.id),
            total=None if bounded else listed.total,
        )

    async def _search(self, wanted: TaskFilter, limit: int, below: int | None, now_ms: int) -> TaskLines:
        found: list[TaskRow] = []
        for _ in range(SEARCHES):
            page = await self._store.search(
                TaskSearch(
                    owner=Owners.ALL if wanted.principal is None else wanted.principal,
                    agent=wanted.agent,
                    context_id=wanted.context,
                    state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                    dialect=wanted.dialect,
                    text=wanted.text,
                    status_after_ms=None if wanted.newer_than_s is None else _ago_ms(wanted.newer_than_s, now_ms),
                    status_before_ms=None if wanted.older_than_s is None else _ago_ms(wanted.older_than_s, now_ms),
                    limit=limit - len(found),
                    below=below,
                )
            )
            found += page.rows
            below = page.below
            if below is None or len(found) == limit:
                break
        return TaskLines(
            tasks=tuple(_line(row, now_ms) for row in found),
            next_cursor="" if below is None else page_token(below, SEARCHED),
        )

    async def show(self, task_id: str) -> TaskReport:
        """One task. Raises TaskNotFound, or StoreError."""
        stored = await self._store.load(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        record = fold(stored.head, stored.snapshot, stored.events)
        said = record.status.message
        return TaskReport(
            task=_line(_row(stored), self._clock.now_ms()),
            mount=stored.head.mount,
            seq=stored.seq,
            epoch=stored.epoch,
            skill=stored.head.skill,
            text=beginning(record.history[0].parts) if record.history else "",
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


def _line(row: TaskRow, now_ms: int) -> TaskLine:
    head = row.head
    return TaskLine(
        id=head.id,
        state=SPELLED[row.state],  # type: ignore[arg-type]  # the words of StateWord
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
    )


def _row(stored: Stored) -> TaskRow:
    """A task without its log. Its text is what the store has read of the history."""
    said: Sequence[Message] = stored.snapshot.history if stored.snapshot is not None else ()
    if stored.snapshot is None and stored.events and isinstance(first := stored.events[0].event, Submitted):
        said = (first.message,)
    return TaskRow(
        head=stored.head,
        state=stored.state,
        status_ms=stored.status_ms,
        holder=stored.holder,
        cancel_requested=stored.cancel_requested,
        text=beginning(said[0].parts) if said else "",
    )


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
