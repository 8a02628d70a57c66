"""Inspector: an operator's view of the tasks in a store, whoever owns them.

Invariant: it only reads, and no answer costs more for more tasks in the store. Messages are shortened, and nothing in
an answer is a secret: webhooks are counted, and a runner's notes to itself are left out.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.engine.policy import page_token, read_page_token
from dragoman.model.errors import TaskNotFound
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
from dragoman.model.message import Message, Part
from dragoman.model.task import TERMINAL, Progress, Usage
from dragoman.store.api import ListQuery, Owners, Store, Stored

TEXT_CHARACTERS = 200
"""Most characters that are shown of a message."""

SCAN_TASKS = 1000
"""Most tasks that one page looks at for a filter that no index answers. Its cursor goes on where it stopped."""

SCAN_PAGE = 200
"""The fewest tasks that are read at once for such a filter."""

PAGE_BYTES = 4 << 20
"""Most stored bytes that are read for one page of tasks."""

LOG_BYTES = 1 << 20
"""Most stored bytes that are read for one page of a log."""

StateWord = Literal[
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"
]

STATES_BY_WORD = {word: state for state, word in SPELLED.items()}

Seconds = Annotated[float, Meta(ge=0, le=1e10)]


class TaskFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that fit every field that is set. Ages are those of the status, in seconds."""

    state: StateWord | None = None
    agent: str | None = None
    principal: str | None = None
    context: str | None = None
    dialect: str | None = None
    older_than_s: Seconds | None = None
    newer_than_s: Seconds | None = None

    @property
    def empty(self) -> bool:
        """Whether every task fits."""
        return all(getattr(self, name) is None for name in TaskFilter.__struct_fields__)


class TaskLine(Struct, frozen=True, kw_only=True):
    """A task in a list. `status_at` is when its status last changed, `age_s` how many seconds ago that was.

    `holder` is the process that runs it, if one does.
    """

    id: str
    state: StateWord
    agent: str
    principal: str
    context: str
    dialect: str
    created_at: str
    status_at: str
    age_s: float
    holder: str | None = None
    cancel_requested: bool = False
    parent: str | None = None


class TaskLines(Struct, frozen=True, kw_only=True):
    """A page of tasks, newest status first. `next_cursor` is empty on the last page.

    With a filter that no index answers, a page may have fewer tasks than asked for, or none, although more follow.
    `total` counts the tasks on all pages; it is null with such a filter.
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
        now_ms = self._clock.now_ms()
        before = read_page_token(cursor) if cursor else None
        if before is None and wanted.older_than_s is not None:
            before = now_ms - int(wanted.older_than_s * 1000), ""
        after_ms = None if wanted.newer_than_s is None else now_ms - int(wanted.newer_than_s * 1000)
        found: list[TaskLine] = []
        scanned, more, total = 0, True, None
        while more and len(found) < limit and scanned < SCAN_TASKS:
            listed = await self._store.list(
                ListQuery(
                    owner=Owners.ALL if wanted.principal is None else wanted.principal,
                    agent=wanted.agent,
                    context_id=wanted.context,
                    state=None if wanted.state is None else STATES_BY_WORD[wanted.state],
                    status_after_ms=after_ms,
                    limit=limit if wanted.dialect is None else max(limit, SCAN_PAGE),
                    before=before,
                    history=0,
                    max_bytes=PAGE_BYTES,
                )
            )
            total, more = listed.total, listed.more
            for place, stored in enumerate(listed.tasks, 1):
                before = stored.status_ms, stored.head.id
                scanned += 1
                if wanted.dialect in (None, stored.head.dialect):
                    found.append(_line(stored, now_ms))
                    if len(found) == limit:
                        more = more or place < len(listed.tasks)
                        break
        bounded = wanted.older_than_s is not None or wanted.dialect is not None
        return TaskLines(
            tasks=tuple(found),
            next_cursor=page_token(*before) if more and before is not None else "",
            total=None if bounded else total,
        )

    async def show(self, task_id: str) -> TaskReport:
        """One task. Raises TaskNotFound, or StoreError."""
        stored = await self._store.load(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        record = fold(stored.head, stored.snapshot, stored.events)
        said = record.status.message
        return TaskReport(
            task=_line(stored, self._clock.now_ms()),
            mount=stored.head.mount,
            seq=stored.seq,
            epoch=stored.epoch,
            skill=stored.head.skill,
            text=_begin(record.history[0].parts) if record.history else "",
            status_text="" if said is None else _begin(said.parts),
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
            events=tuple(map(_entry, logged)),
            seq=seq,
            ended=state in TERMINAL,
            pruned=(logged[0].seq > after + 1) if logged else after < seq,
            next_after=last if logged and last < seq else None,
        )


def _line(stored: Stored, now_ms: int) -> TaskLine:
    head = stored.head
    return TaskLine(
        id=head.id,
        state=SPELLED[stored.state],  # type: ignore[arg-type]  # the words of StateWord
        agent=head.agent,
        principal=head.owner,
        context=head.context_id,
        dialect=head.dialect,
        created_at=head.created_at,
        status_at=timestamp(stored.status_ms),
        age_s=max(0, now_ms - stored.status_ms) / 1000,
        holder=stored.holder,
        cancel_requested=stored.cancel_requested,
        parent=head.parent,
    )


def _entry(logged: Logged) -> TimelineEntry:
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
            shown = _begin(artifact.parts)
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
    return "" if message is None else _begin(message.parts)


def _begin(parts: tuple[Part, ...]) -> str:
    """The beginning of the text in `parts`."""
    return " ".join(part.text[:TEXT_CHARACTERS] for part in parts if part.text)[:TEXT_CHARACTERS]
