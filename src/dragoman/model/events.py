"""Events: what happened to a task, in order, numbered 1, 2, 3 … per task.

Invariant: an event is complete in itself; its seq is given by the store and never changes.
"""

from typing import Any

from msgspec import Struct

from dragoman.model.message import Artifact, Message
from dragoman.model.task import TERMINAL, Progress, TaskState, Usage


class Submitted(Struct, frozen=True, array_like=True, tag="s"):
    """The task was made, with the message that made it. Always seq 1 and only seq 1."""

    message: Message
    timestamp: str


class MessageReceived(Struct, frozen=True, array_like=True, tag="m"):
    """The caller sent a further message to the task; it goes into the history."""

    message: Message
    timestamp: str


class StatusChanged(Struct, frozen=True, array_like=True, tag="t"):
    """The agent, or the server on its behalf, moved the task to `state`, or reported from within it.

    `progress` and `usage` are what the run reported with it; `duration_ms` comes with terminal states.
    """

    state: TaskState
    timestamp: str
    message: Message | None = None
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    metadata: dict[str, Any] | None = None


class ArtifactChunk(Struct, frozen=True, array_like=True, tag="a"):
    """A part of an artifact, or all of it.

    With `append` its parts follow those the artifact has; without, it replaces the artifact of that id. `last_chunk`
    closes the artifact (A2A 1.0 §4.2.2).
    """

    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


Event = Submitted | MessageReceived | StatusChanged | ArtifactChunk


class Logged(Struct, eq=False):
    """An event with its seq. `frames` caches its encodings by dialect key, so that each is made once.

    `size` is about how many bytes it holds; whoever keeps events in memory counts with it.
    """

    seq: int
    event: Event
    size: int = 0
    frames: dict[str, tuple[bytes, ...]] = {}  # msgspec makes an empty default anew for each

    @property
    def terminal(self) -> bool:
        """Whether the task ends with this event."""
        return isinstance(self.event, StatusChanged) and self.event.state in TERMINAL
