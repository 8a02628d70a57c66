"""Events: what happened to a task, in order, numbered 1, 2, 3 … per task.

Invariant: an event is complete in itself; its seq is given by the store and never changes.
"""

import re
from typing import Any

from msgspec import Struct

from dragoman.model.errors import InvalidParams
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


_EVENT_ID = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,7}))?", re.ASCII)


def seq_and_frame(event_id: str) -> tuple[int, int]:
    """What a caller says it saw last: `7` is (7, 0), all of event 7; `7.2` is (7, 2), the first two frames of it.

    Raises InvalidParams if it is no id of ours.
    """
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        raise InvalidParams(
            "Last-Event-ID", "not an id that this server gave: use the last `id:` of the stream, like 7 or 7.2"
        )
    return int(found[1]), int(found[2] or 0)
