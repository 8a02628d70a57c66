"""Lifecycle: the table of state transitions, and the fold of a log of events into a record.

Invariant: pure. No other place decides a transition, and there is no other way from events to a record.
"""

from collections.abc import Iterable
from typing import assert_never

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
from dragoman.model.task import INTERRUPTED, STATES, TERMINAL, Record, TaskHead, TaskState, TaskStatus

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

    __slots__ = (
        "_artifacts",
        "_base",
        "_head",
        "_history",
        "_made",
        "_progress",
        "duration_ms",
        "note",
        "revised",
        "seq",
        "status",
        "steps",
        "unreadable",
        "usage",
        "waited_ms",
        "wakes_on_message",
    )

    def __init__(self, head: TaskHead, record: Record | None = None) -> None:
        self._head = head
        self._made = record
        self.seq = 0 if record is None else record.seq
        self.status = None if record is None else record.status
        self.duration_ms = None if record is None else record.duration_ms
        self._base = record  # taken apart only if an event follows
        self._history: list[Message] = []
        self._artifacts: dict[str, _Pile] = {}
        self._progress = None if record is None else record.progress
        self.usage = None if record is None else record.usage
        self.note = None if record is None else record.note
        """The newest notes, by their names."""
        self.unreadable = record is not None and record.unreadable
        self.wakes_on_message = record is not None and record.wakes_on_message
        """Whether the newest status is a sleep that ends with a further message."""
        self.steps = 0 if record is None else record.steps
        """How many steps and sleeps the agent has recorded."""
        self.revised = record is not None and record.revised
        """Whether an artifact was replaced, or the task went on after a question."""
        self.waited_ms = 0 if record is None else record.waited_ms
        """How long the task waited for its caller, in the questions that are answered."""

    @property
    def question(self) -> Message | None:
        """The open question, for an answer to which the task waits; None if there is none, or it has no words."""
        status = self.status
        return status.message if status is not None and status.state in INTERRUPTED else None

    def note_of(self, name: str) -> str:
        """The newest note with that name; empty if there is none."""
        return "" if self.note is None else self.note.get(name, "")

    def _take_apart(self, record: Record) -> None:
        self._base = None
        self._history = list(record.history)
        for artifact in record.artifacts:
            key = artifact.artifact_id
            self._artifacts[key] = _Pile(artifact, key in record.open_artifacts, key in record.chunked_artifacts)

    def add(self, seq: int, event: Event) -> None:
        """Add the event that follows `self.seq`."""
        if self._base is not None:
            self._take_apart(self._base)
        self.seq = seq
        self._made = None
        match event:
            case ArtifactChunk(artifact, append, last_chunk):
                pile = self._artifacts.get(artifact.artifact_id) if append else None
                if pile is None:
                    if not append and artifact.artifact_id in self._artifacts:
                        self.revised = True
                    self._artifacts[artifact.artifact_id] = _Pile(artifact, not last_chunk, append or not last_chunk)
                else:
                    pile.add(artifact, last_chunk)
            case StatusChanged():
                if self.status is not None and self.status.state in INTERRUPTED:
                    self.revised = True
                    self.waited_ms += max(0, timestamp_ms(event.timestamp) - timestamp_ms(self.status.timestamp))
                self.status = TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)
                self._progress = event.progress or self._progress
                self.usage = event.usage or self.usage
                self.wakes_on_message = event.placed is not None and event.placed.wakes_on_message
                if event.placed is not None and event.placed.wakes_ms is not None:
                    self.steps += 1
                if event.state in TERMINAL:
                    self.duration_ms = event.duration_ms
                    for pile in self._artifacts.values():
                        if pile.open:
                            pile.close()
            case MessageReceived(message, _):
                if self.status is not None and self.status.state in INTERRUPTED and self.status.message is not None:
                    self._history.append(self.status.message)  # the question stands before its answer
                self._history.append(message)
            case Submitted(message, at):
                self._history.append(message)
                self.status = TaskStatus(state=TaskState.SUBMITTED, timestamp=at)
            case Noted(note):
                self.note = {**(self.note or {}), **note}
            case Stepped():
                self.steps += 1
                self.usage = event.usage or self.usage
            case Delegated() | StepBegun() | Intervened():
                pass
            case _:
                assert_never(event)

    def ahead(self, events: Iterable[Event] = ()) -> "Fold":
        """A copy of this fold with more events, which does not change this one. The text is joined once, not twice."""
        if self._base is not None:
            self._take_apart(self._base)
        ahead = Fold.__new__(Fold)
        ahead._head, ahead._made, ahead._base, ahead._progress = self._head, self._made, None, self._progress
        ahead.seq, ahead.status, ahead.duration_ms, ahead.usage = self.seq, self.status, self.duration_ms, self.usage
        ahead.note = self.note
        ahead.unreadable = self.unreadable
        ahead.wakes_on_message = self.wakes_on_message
        ahead.steps = self.steps
        ahead.revised = self.revised
        ahead.waited_ms = self.waited_ms
        ahead._history = list(self._history)
        ahead._artifacts = {key: pile.copy() for key, pile in self._artifacts.items()} if self._artifacts else {}
        for seq, event in enumerate(events, self.seq + 1):
            ahead.add(seq, event)
        return ahead

    @property
    def open_artifacts(self) -> tuple[str, ...]:
        """The ids of the artifacts that are not complete yet."""
        if self._base is not None:
            return self._base.open_artifacts
        return tuple(key for key, pile in self._artifacts.items() if pile.open)

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
        return tuple(key for key, pile in self._artifacts.items() if pile.chunked and not pile.open)

    def record(self) -> Record:
        """The task as it stands at `self.seq`."""
        if self._made is None:
            if self.status is None:
                raise ValueError("a log begins with Submitted")
            artifacts: list[Artifact] = []
            still_open: list[str] = []
            chunked: list[str] = []
            for key, pile in self._artifacts.items():
                artifacts.append(pile.artifact())
                if pile.open:
                    still_open.append(key)
                if pile.chunked:
                    chunked.append(key)
            self._made = Record(
                head=self._head,
                seq=self.seq,
                status=self.status,
                artifacts=tuple(artifacts),
                history=tuple(self._history),
                progress=self._progress,
                usage=self.usage,
                duration_ms=self.duration_ms,
                open_artifacts=tuple(still_open),
                chunked_artifacts=tuple(chunked),
                note=self.note,
                unreadable=self.unreadable,
                wakes_on_message=self.wakes_on_message,
                steps=self.steps,
                revised=self.revised,
                waited_ms=self.waited_ms,
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
