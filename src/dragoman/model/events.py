"""Events: the history of a task, in order, numbered 1, 2, 3 … for each task.

Invariant: an event is complete in itself. The store assigns its seq, which never changes.
"""

import re
from typing import Any, Literal

from msgspec import UNSET, Struct

from dragoman.model.errors import InvalidParams
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import TERMINAL, Progress, TaskState, Usage


class TakenMessage(Struct, frozen=True, array_like=True, gc=False):
    """The question at `place` has the message with that id as its answer."""

    place: str
    message_id: str


class Placed(Struct, frozen=True, array_like=True, gc=False):
    """The record that an event keeps of the numbered words of its run (`engine/runs/places.py`). Callers never see it.

    `place` is that of the question or the delegation that the event is about. `taken` are the messages that questions
    took since the event before, because they had come before the question was written. `replaces` is set for a chunk
    that takes the place of what a run that died had said of the artifact: all after that seq. Its first `kept` parts
    repeat what was said before, and so do the first `kept_characters` of the part after them. `wakes_ms` is set for a
    status with which the task goes to sleep: when it wakes, in milliseconds since the epoch. A further message wakes it
    earlier if it `wakes_on_message`.
    """

    place: str = ""
    taken: tuple[TakenMessage, ...] = ()
    replaces: int | None = None
    kept: int = 0
    wakes_ms: int | None = None
    wakes_on_message: bool = False
    kept_characters: int = 0


class Submitted(Struct, frozen=True, array_like=True, tag="s", gc=False):
    """The task was made, with the message that made it. Always seq 1 and only seq 1.

    With `places` the numbered words of its runs are recorded with their places; without, as in the logs of earlier
    versions, they are counted.
    """

    message: Message
    timestamp: str
    places: bool = False

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return self.message.parts


class MessageReceived(Struct, frozen=True, array_like=True, tag="m", gc=False):
    """The caller sent a further message to the task; it goes into the history.

    `metadata` is that of the request, which no dialect shows. It is for the agent.
    """

    message: Message
    timestamp: str
    metadata: dict[str, Any] | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return self.message.parts


class StatusChanged(Struct, frozen=True, array_like=True, tag="t", gc=False):
    """The agent, or the server on its behalf, moved the task to `state`, or reported while in it.

    `progress` and `usage` come from the run; `duration_ms` comes with terminal states.
    """

    state: TaskState
    timestamp: str
    message: Message | None = None
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    metadata: dict[str, Any] | None = None
    placed: Placed | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return () if self.message is None else self.message.parts


class ArtifactChunk(Struct, frozen=True, array_like=True, tag="a", gc=False):
    """A chunk of an artifact, or all of it.

    With `append` its parts follow those of the artifact; without, it replaces the artifact with its id. `last_chunk`
    closes the artifact (A2A 1.0 §4.2.2).
    """

    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    placed: Placed | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return self.artifact.parts


class Delegated(Struct, frozen=True, array_like=True, tag="d", gc=False):
    """The outcome of a task that was delegated to `agent`. It is for the agent's replay; callers never see it.

    `number` counts the run's delegations from 1. `state` and `message` are those of the other task's status at that
    time. `task_id` is empty if no task was made: then `state` is rejected, and `message` says why.
    """

    number: int
    agent: str
    task_id: str
    state: TaskState
    timestamp: str
    message: Message | None = None
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage | None = None
    placed: Placed | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        said = () if self.message is None else self.message.parts
        return (*(part for artifact in self.artifacts for part in artifact.parts), *said)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The output: the parts of its artifacts in order, or those of its message if it has no artifacts."""
        if self.artifacts or self.message is None:
            return tuple(part for artifact in self.artifacts for part in artifact.parts)
        return self.message.parts

    @property
    def text(self) -> str:
        """The text of the output."""
        return "".join(part.text for part in self.parts if part.text is not None)

    @property
    def data(self) -> Any:
        """Its first data part, None if there is none."""
        return next((part.data for part in self.parts if part.data is not UNSET), None)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts that are files: `raw` bytes, or a `url` to get them from."""
        return tuple(part for part in self.parts if part.raw is not None or part.url is not None)


class Noted(Struct, frozen=True, array_like=True, tag="n", gc=False):
    """A note of the task's runner to itself, which survives a restart. Callers never see it.

    A later value of a name replaces the earlier one.
    """

    note: dict[str, str]
    placed: Placed | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return ()


class StepFailure(Struct, frozen=True, array_like=True, gc=False):
    """The failure of a step: the name of the exception's class, and its text."""

    type: str
    text: str


class StepBegun(Struct, frozen=True, array_like=True, tag="b", gc=False):
    """A step is about to be executed that must not be executed twice. Callers never see it.

    Without a `Stepped` of the same place after it, nobody knows whether the step was executed.
    """

    name: str
    timestamp: str
    placed: Placed

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return ()


class Stepped(Struct, frozen=True, array_like=True, tag="p", gc=False):
    """The outcome of a step of the agent, which a later run gets in place of executing it. Callers never see it.

    `key` is the agent's own name for this one among steps of one `name`; empty if it gave none. It was executed
    `attempts` times from `began` to `timestamp`. `usage` are the tokens that the task had used by then. `result` holds
    the value in the `form` that its reader knows (`agents/python/step_values.py`), unless there is a `failure`.
    """

    name: str
    key: str
    began: str
    timestamp: str
    placed: Placed
    attempts: int = 1
    form: str = ""
    result: tuple[Part, ...] = ()
    failure: StepFailure | None = None
    usage: Usage | None = None

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return self.result


class Intervened(Struct, frozen=True, array_like=True, tag="o", gc=False):
    """An operator answered the task, or asked for its cancel. Callers never see it.

    `operator` is the id of the operator's principal, `reason` the operator's own words. The answer itself follows as
    `MessageReceived`. A cancel may come too late: then another end follows than `canceled`.
    """

    operator: str
    action: Literal["answer", "cancel"]
    timestamp: str
    reason: str = ""

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts that the event holds."""
        return ()


Unseen = MessageReceived | Delegated | Noted | StepBegun | Stepped | Intervened
"""Events that no stream and no webhook shows: a caller's own messages, what an agent records for itself, and what
concerns operators."""

Event = Submitted | StatusChanged | ArtifactChunk | Unseen


class Logged(Struct, eq=False, gc=False):
    """An event with its seq. `frames` caches its encodings by dialect key, so that each is made once.

    `size` is about how many bytes the event holds, for bounds on events in memory.
    """

    seq: int
    event: Event
    size: int = 0
    frames: dict[str, tuple[bytes, ...]] = {}  # msgspec copies an empty default for each instance

    @property
    def terminal(self) -> bool:
        """Whether the event ends its task."""
        return isinstance(self.event, StatusChanged) and self.event.state in TERMINAL


_EVENT_ID = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,7}))?", re.ASCII)


def seq_and_frame(event_id: str) -> tuple[int, int]:
    """Parse the id of the last event a caller saw: `7` is (7, 0), all of it; `7.2` is (7, 2), its first two frames.

    Raises InvalidParams if this server did not make the id.
    """
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        raise InvalidParams(
            "Last-Event-ID", "not an id that this server gave: use the last `id:` of the stream, like 7 or 7.2"
        )
    return int(found[1]), int(found[2] or 0)
