"""Playback: the log of a task with its whole content, and as clients of each dialect read it, for an operator.

Invariant: it only reads. A frame is made by the very functions that make the streams of callers, for a caller who
follows the task from its first event on and reads each event as soon as it is written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from dragoman.dialects.api import Dialect
from dragoman.dialects.resolve import SYSTEMS
from dragoman.engine.inspection import LOG_BYTES, StateWord
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
from dragoman.model.lifecycle import SPELLED, Fold
from dragoman.model.message import Artifact, Message
from dragoman.model.task import TERMINAL, Progress, TaskHead, Usage
from dragoman.store.api import Store

DIALECTS: Mapping[str, Dialect] = {system.dialect.name: system.dialect for system in SYSTEMS}

TREE_TASKS = 100
"""Most tasks of one tree of delegations."""

Linked = Callable[[Event], Event]
"""Replaces bytes of an event that are in the blob store by URLs to get them from."""


class LogEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with all that it holds. `at` is null for events that carry no time: they came after the one before them.

    `message` and `artifact` are those of A2A 1.0; with `append` the parts continue the artifact of that id. `agent` and
    `task` are those that the work was delegated to. `operator`, `action` and `reason` are those of an intervention.
    """

    seq: int
    at: str | None
    kind: Literal["submitted", "message", "status", "artifact", "delegated", "noted", "operator"]
    state: StateWord | None = None
    message: Message | None = None
    artifact: Artifact | None = None
    append: bool = False
    last_chunk: bool = False
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    agent: str | None = None
    task: str | None = None
    operator: str | None = None
    action: Literal["answer", "cancel"] | None = None
    reason: str = ""


class Recording(Struct, frozen=True, kw_only=True):
    """Events of a task in their order, with their content. More follow if `next_after` is not null.

    `seq` is the number of the last event of the task. `ended`: no event will follow that one. `pruned`: events after
    the place that was asked for have been deleted.
    """

    events: tuple[LogEvent, ...]
    seq: int
    ended: bool
    pruned: bool = False
    next_after: int | None = None


class WireFrames(Struct, frozen=True, kw_only=True):
    """The frames of one event in one dialect, each as the JSON that a stream carries. Some events have none there."""

    seq: int
    frames: tuple[str, ...]


class Wire(Struct, frozen=True, kw_only=True):
    """The same events as the streams of several dialects carry them, by the dialect's name."""

    dialects: dict[str, tuple[WireFrames, ...]]
    seq: int
    ended: bool
    next_after: int | None = None


class TreeTask(Struct, frozen=True, kw_only=True):
    """A task of a tree of delegations. `ended_at` is null while it is open."""

    id: str
    parent: str | None
    agent: str
    state: StateWord
    created_at: str
    ended_at: str | None = None


class Tree(Struct, frozen=True, kw_only=True):
    """A task, those that it delegated, and so on, each after its parent. `more`: there are others beyond the limit."""

    tasks: tuple[TreeTask, ...]
    more: bool = False


class Playback:
    """Reads the logs of everybody from a store."""

    def __init__(self, store: Store, linked: Linked = lambda event: event) -> None:
        self._store = store
        self._linked = linked

    async def content(self, task_id: str, after: int, limit: int) -> Recording:
        """At most `limit` events after seq `after`. Raises TaskNotFound, or StoreError."""
        _, seq, ended = await self._head(task_id)
        logged = (await self._store.read(task_id, after, LOG_BYTES))[:limit]
        last = logged[-1].seq if logged else after
        return Recording(
            events=tuple([self._entry(each) for each in logged]),
            seq=seq,
            ended=ended,
            pruned=(logged[0].seq > after + 1) if logged else after < seq,
            next_after=last if logged and last < seq else None,
        )

    async def wire(self, task_id: str, dialects: Sequence[str], after: int, limit: int) -> Wire:
        """At most `limit` events after seq `after`, in these dialects; fewer once the frames have `LOG_BYTES`.

        The events before them are read as well, for dialects whose frames show the whole task. Raises InvalidParams for
        an unknown dialect, TaskNotFound, or StoreError.
        """
        chosen = [_dialect(name) for name in dict.fromkeys(dialects)]
        head, seq, ended = await self._head(task_id)
        fold = Fold(head)
        found: dict[str, list[WireFrames]] = {dialect.name: [] for dialect in chosen}
        last, left, size = 0, limit, 0
        while left and (page := await self._store.read(task_id, last, LOG_BYTES)):
            for stored in page:
                logged = Logged(stored.seq, self._linked(stored.event))
                last = logged.seq
                replaces = fold.replaces(logged.event)
                if fold.seq or isinstance(logged.event, Submitted):  # a pruned log has nothing to fold onto
                    fold.add(logged.seq, logged.event)
                if logged.seq <= after:
                    continue
                for dialect in chosen:
                    frames = _frames(dialect, head, fold, logged, replaces=replaces)
                    found[dialect.name].append(WireFrames(seq=logged.seq, frames=frames))
                    size += sum(map(len, frames))
                left = left - 1 if size < LOG_BYTES else 0
                if not left:
                    break
        return Wire(
            dialects={name: tuple(frames) for name, frames in found.items()},
            seq=seq,
            ended=ended,
            next_after=last if last < seq else None,
        )

    async def tree(self, task_id: str) -> Tree:
        """The task with those that were delegated from it, at most `TREE_TASKS`. Raises TaskNotFound, or StoreError."""
        await self._head(task_id)  # or there is no such task
        found: list[TreeTask] = []
        known_ids = {task_id}  # the ids that another server gave to its tasks may form a circle
        ahead: list[tuple[str, str | None]] = [(task_id, None)]
        while ahead and len(found) < TREE_TASKS:
            here, parent = ahead.pop(0)
            known = await self._store.head(here)
            if known is None:
                continue  # it has been deleted since
            head, _, state = known
            children: dict[str, None] = {}
            ended_at = None
            after = 0
            while page := await self._store.read(here, after, LOG_BYTES):
                after = page[-1].seq
                for logged in page:
                    match logged.event:
                        case Delegated(task_id=child) if child:
                            children[child] = None
                        case StatusChanged(state=reached, timestamp=at) if reached in TERMINAL:
                            ended_at = at
            children.update(dict.fromkeys(child.id for child in await self._store.children(here)))
            found.append(
                TreeTask(
                    id=here,
                    parent=parent,
                    agent=head.agent,
                    state=SPELLED[state],  # type: ignore[arg-type]  # the words of StateWord
                    created_at=head.created_at,
                    ended_at=ended_at,
                )
            )
            ahead += [(child, here) for child in children if child not in known_ids]
            known_ids |= children.keys()
        return Tree(tasks=tuple(found), more=bool(ahead))

    async def _head(self, task_id: str) -> tuple[TaskHead, int, bool]:
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        head, seq, state = known
        return head, seq, state in TERMINAL

    def _entry(self, logged: Logged) -> LogEvent:
        seq, event = logged.seq, self._linked(logged.event)
        match event:
            case Submitted(message=message, timestamp=at):
                return LogEvent(seq=seq, at=at, kind="submitted", state="submitted", message=message)
            case MessageReceived(message=message, timestamp=at):
                return LogEvent(seq=seq, at=at, kind="message", message=message)
            case StatusChanged():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="status",
                    state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                    message=event.message,
                    progress=event.progress,
                    usage=event.usage,
                    duration_ms=event.duration_ms,
                )
            case ArtifactChunk(artifact=artifact):
                return LogEvent(
                    seq=seq,
                    at=None,
                    kind="artifact",
                    artifact=artifact,
                    append=event.append,
                    last_chunk=event.last_chunk,
                )
            case Delegated():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="delegated",
                    state=SPELLED[event.state],  # type: ignore[arg-type]  # the words of StateWord
                    agent=event.agent,
                    task=event.task_id or None,
                    message=event.message,
                    usage=event.usage,
                )
            case Noted():
                return LogEvent(seq=seq, at=None, kind="noted")
            case Intervened():
                return LogEvent(
                    seq=seq,
                    at=event.timestamp,
                    kind="operator",
                    operator=event.operator,
                    action=event.action,
                    reason=event.reason,
                )


def _dialect(name: str) -> Dialect:
    found = DIALECTS.get(name)
    if found is None:
        raise InvalidParams("dialects", f"{name[:50]!r} is none: choose from {', '.join(DIALECTS)}, with commas")
    return found


def _frames(dialect: Dialect, head: TaskHead, fold: Fold, logged: Logged, *, replaces: bool) -> tuple[str, ...]:
    event = logged.event
    if isinstance(event, Submitted):  # every stream begins with the task, in the dialect's own way
        snapshot = dialect.encode_snapshot(fold.record(), None)
        return (_enveloped(dialect, snapshot),) if snapshot else ()
    record = fold.record() if fold.seq and (replaces or dialect.wants_record(event)) else None
    return tuple([_enveloped(dialect, frame) for frame in dialect.encode_event(head, event, record)])


def _enveloped(dialect: Dialect, frame: bytes) -> str:
    before, after = dialect.around_frame(b'"1"')
    return (before + frame + after).decode("utf-8", "replace")
