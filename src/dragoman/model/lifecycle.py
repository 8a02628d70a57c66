"""Lifecycle: the table of state transitions, and the fold of a log of events into a record.

Invariant: pure. No other place decides a transition, and there is no other way from events to a record.
"""

from collections.abc import Iterable
from typing import Any, assert_never

from msgspec.structs import replace

from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    Logged,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, STATES, TERMINAL, Record, TaskHead, TaskState, TaskStatus, Usage

_SUBMITTED = TaskState.SUBMITTED  # a look into an enumeration takes as long as a call (CPython 3.11)

SETTLED = TERMINAL | INTERRUPTED
"""States in which a blocking call is answered (A2A 1.0 §3.2.2)."""

FOLLOWS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: frozenset(STATES),
    TaskState.WORKING: frozenset(STATES) - {TaskState.SUBMITTED},
    TaskState.INPUT_REQUIRED: TERMINAL | {TaskState.WORKING},
    TaskState.AUTH_REQUIRED: TERMINAL | {TaskState.WORKING},
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.REJECTED: frozenset(),
}
"""The states that may follow a state; `submitted` and `working` may follow themselves, to report."""

SPELLED = {state: state.value.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in TaskState}
"""States as metrics have them: `completed`, `input-required`."""


class Fold:
    """Folds a task's log into its record. Adding an event costs the event; `record()` costs the task, once per seq.

    Consecutive plain text of one artifact becomes one part, as clients join it for display, so that a snapshot of n
    chunks does not hold n parts.
    """

    __slots__ = ("_artifacts", "_base", "_head", "_history", "_made", "_rest", "duration_ms", "seq", "status")

    def __init__(self, head: TaskHead, record: Record | None = None) -> None:
        self._head = head
        self._made = record
        self._base = record  # taken apart only if an event follows
        self._rest = record
        """A record of this task: what events seldom change is as it stands. The other fields are out of date."""
        self._history: list[Message] = []
        self._artifacts: dict[str, Artifact | _Pile] = {}
        """An artifact that came whole is itself."""
        if record is None:
            self.seq = 0
            self.status: TaskStatus | None = None
            self.duration_ms: int | None = None
        else:
            self.seq, self.status, self.duration_ms = record.seq, record.status, record.duration_ms

    @property
    def usage(self) -> Usage | None:
        """The tokens used so far, as the newest status with a number of them says."""
        return None if self._rest is None else self._rest.usage

    @property
    def note(self) -> dict[str, str] | None:
        """The newest notes, by their names."""
        return None if self._rest is None else self._rest.note

    @property
    def unreadable(self) -> bool:
        """Whether the store holds bytes of the task that cannot be decoded."""
        return self._rest is not None and self._rest.unreadable

    @property
    def wakes_on_message(self) -> bool:
        """Whether the newest status is a sleep that ends with a further message."""
        return self._rest is not None and self._rest.wakes_on_message

    @property
    def steps(self) -> int:
        """How many steps and sleeps the agent has recorded."""
        return 0 if self._rest is None else self._rest.steps

    @property
    def question(self) -> Message | None:
        """The open question, for an answer to which the task waits; None if there is none, or it has no words."""
        status = self.status
        return status.message if status is not None and status.state in INTERRUPTED else None

    def note_of(self, name: str) -> str:
        """The newest note with that name; empty if there is none."""
        note = self.note
        return "" if note is None else note.get(name, "")

    def _take_apart(self, record: Record) -> None:
        self._base = None
        self._history = list(record.history)
        for artifact in record.artifacts:
            key = artifact.artifact_id
            is_open, chunked = key in record.open_artifacts, key in record.chunked_artifacts
            self._artifacts[key] = _Pile(artifact, is_open, chunked) if is_open or chunked else artifact
        if record.artifacts:
            self._rest = replace(record, artifacts=())  # it would hold those that are replaced

    def add(self, seq: int, event: Event) -> None:
        """Add the event that follows `self.seq`. Raises ValueError if the log does not begin with Submitted."""
        # Every event of every task passes here: `isinstance` takes a third of the time of a `match` with classes.
        if self._base is not None:
            self._take_apart(self._base)
        self.seq = seq
        self._made = None
        if isinstance(event, StatusChanged):
            self._add_status(event)
        elif isinstance(event, ArtifactChunk):
            self._add_chunk(event)
        elif isinstance(event, Submitted):
            self._history.append(event.message)
            self.status = status = TaskStatus(state=_SUBMITTED, timestamp=event.timestamp)
            if self._rest is None:
                self._made = self._rest = Record(head=self._head, seq=seq, status=status, history=(event.message,))
        elif isinstance(event, MessageReceived):
            if self.status is not None and self.status.state in INTERRUPTED and self.status.message is not None:
                self._history.append(self.status.message)  # the question stands before its answer
            self._history.append(event.message)
        elif isinstance(event, Noted):
            self._change(note={**(self.note or {}), **event.note})
        elif isinstance(event, Stepped):
            self._change(steps=self.steps + 1, usage=event.usage or self.usage)
        elif not isinstance(event, Delegated | StepBegun | Intervened):
            assert_never(event)

    def _add_status(self, event: StatusChanged) -> None:
        before, placed, state, rest = self.status, event.placed, event.state, self._rest
        if before is not None and before.state in INTERRUPTED:
            waited_ms = max(0, timestamp_ms(event.timestamp) - timestamp_ms(before.timestamp))
            self._change(revised=True, waited_ms=self._known().waited_ms + waited_ms)
        self.status = TaskStatus(state=state, message=event.message, timestamp=event.timestamp)
        if event.progress is not None:
            self._change(progress=event.progress)
        if event.usage is not None:
            self._change(usage=event.usage)
        wakes_on_message = placed is not None and placed.wakes_on_message
        if wakes_on_message is not (rest is not None and rest.wakes_on_message):
            self._change(wakes_on_message=wakes_on_message)
        if placed is not None and placed.wakes_ms is not None:
            self._change(steps=self.steps + 1)
        if state in TERMINAL:
            self.duration_ms = event.duration_ms
            for kept in self._artifacts.values():
                if isinstance(kept, _Pile):
                    kept.close()

    def _add_chunk(self, event: ArtifactChunk) -> None:
        artifact, last_chunk = event.artifact, event.last_chunk
        key = artifact.artifact_id
        known = self._artifacts.get(key)
        if known is None or not event.append:
            if known is not None:
                self._change(revised=True)
            whole = last_chunk and not event.append
            self._artifacts[key] = artifact if whole else _Pile(artifact, not last_chunk, True)
            return
        if not isinstance(known, _Pile):
            known = self._artifacts[key] = _Pile(known, False, False)
        known.add(artifact, last_chunk)

    def _known(self) -> Record:
        if self._rest is None:
            raise ValueError("a log begins with Submitted")
        return self._rest

    def _change(self, **changes: Any) -> None:
        """Change what events seldom change."""
        self._rest = replace(self._known(), **changes)

    def ahead(self, events: Iterable[Event] = ()) -> "Fold":
        """A copy of this fold with more events, which does not change this one. The text is joined once, not twice."""
        if self._base is not None:
            self._take_apart(self._base)
        ahead = Fold.__new__(Fold)
        ahead._head, ahead._made, ahead._base, ahead._rest = self._head, self._made, None, self._rest
        ahead.seq, ahead.status, ahead.duration_ms = self.seq, self.status, self.duration_ms
        ahead._history = self._history.copy()
        ahead._artifacts = artifacts = self._artifacts.copy()
        for key, kept in artifacts.items():
            if isinstance(kept, _Pile):
                artifacts[key] = kept.copy()
        for seq, event in enumerate(events, self.seq + 1):
            ahead.add(seq, event)
        return ahead

    @property
    def open_artifacts(self) -> tuple[str, ...]:
        """The ids of the artifacts that are not complete yet."""
        if self._base is not None:
            return self._base.open_artifacts
        return tuple(key for key, kept in self._artifacts.items() if isinstance(kept, _Pile) and kept.open)

    def holds(self, artifact_id: str) -> bool:
        """Whether there is an artifact with this id."""
        if self._base is not None:
            return any(artifact.artifact_id == artifact_id for artifact in self._base.artifacts)
        return artifact_id in self._artifacts

    def replaces(self, event: Event) -> bool:
        """Whether an event that is about to be added starts an artifact anew that there is already."""
        return isinstance(event, ArtifactChunk) and not event.append and self.holds(event.artifact.artifact_id)

    @property
    def joined_artifacts(self) -> tuple[str, ...]:
        """The ids of the complete artifacts that came in chunks."""
        if self._base is not None:
            still_open = self._base.open_artifacts
            return tuple(key for key in self._base.chunked_artifacts if key not in still_open)
        piles = ((key, kept) for key, kept in self._artifacts.items() if isinstance(kept, _Pile))
        return tuple(key for key, pile in piles if pile.chunked and not pile.open)

    def record(self) -> Record:
        """The task as it stands at `self.seq`. Raises ValueError if the log does not begin with Submitted."""
        if self._made is None:
            if self.status is None:
                raise ValueError("a log begins with Submitted")
            artifacts: list[Artifact] = []
            still_open: list[str] = []
            chunked: list[str] = []
            for key, kept in self._artifacts.items():
                if not isinstance(kept, _Pile):
                    artifacts.append(kept)
                    continue
                artifacts.append(kept.artifact())
                if kept.open:
                    still_open.append(key)
                if kept.chunked:
                    chunked.append(key)
            self._made = replace(
                self._known(),
                seq=self.seq,
                status=self.status,
                artifacts=tuple(artifacts),
                history=tuple(self._history),
                duration_ms=self.duration_ms,
                open_artifacts=tuple(still_open),
                chunked_artifacts=tuple(chunked),
            )
        return self._made


def is_plain_text(part: Part) -> bool:
    """Whether a part is nothing but text, which may go on in the next chunk."""
    return part.text is not None and part.media_type is None and part.metadata is None and part.filename is None


class _Pile:
    """An artifact in progress: its parts, with the text at the end still in pieces."""

    __slots__ = ("_first", "_made", "_parts", "_texts", "chunked", "open")

    def __init__(self, artifact: Artifact, is_open: bool, chunked: bool) -> None:
        self._first = artifact
        self._parts: list[Part] = []
        self._texts: list[str] = []
        self.add(artifact, not is_open)
        self._made: Artifact | None = artifact
        self.chunked = chunked

    def add(self, artifact: Artifact, last_chunk: bool) -> None:
        """Add a chunk."""
        self._made = None
        self.open = not last_chunk
        self.chunked = True
        for index, part in enumerate(artifact.parts):
            text = part.text if is_plain_text(part) else None
            if index or text is None:
                self._join()  # only the first part of a chunk continues the text before it
            if text is None:
                self._parts.append(part)
            else:
                self._texts.append(text)

    def close(self) -> None:
        """No chunk follows."""
        self.open = False

    def copy(self) -> "_Pile":
        """A copy to which more can be added. Pieces of text are joined first, so that the copy does not double them."""
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        other = _Pile.__new__(_Pile)
        other._first, other._made, other.open, other.chunked = self._first, self._made, self.open, self.chunked
        other._parts = list(self._parts)
        other._texts = list(self._texts)
        return other

    def _join(self) -> None:
        if self._texts:
            self._parts.append(Part(text="".join(self._texts)))
            self._texts.clear()

    def artifact(self) -> Artifact:
        if self._made is None:
            parts = self._parts
            if self._texts:
                self._texts = ["".join(self._texts)]
                parts = [*parts, Part(text=self._texts[0])]
            self._made = replace(self._first, parts=tuple(parts))
        return self._made


def fold(head: TaskHead, record: Record | None, events: Iterable[Logged]) -> Record:
    """Fold the events that follow `record` onto it; None is the empty log."""
    result = Fold(head, record)
    for logged in events:
        result.add(logged.seq, logged.event)
    return result.record()
