"""The events that agents' words come to, whether the agent runs here or in a worker process.

Invariant: nothing is read or decided here. The first chunk of an artifact is made by `Replay.begin`, and the end of a
task by `endings.closing`.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.dialects.extensions import SLEEP
from dragoman.engine.runs.endings import agent_message
from dragoman.engine.words import Say
from dragoman.model.events import Placed, StatusChanged
from dragoman.model.ids import timestamp, timestamp_ms
from dragoman.model.message import Part
from dragoman.model.task import Progress, TaskHead, TaskState, Usage


def report(head: TaskHead, word: Say, used: Usage | None, now_ms: int) -> StatusChanged:
    """A report, with the tokens used until then. Its progress has the text of its message."""
    message = agent_message(head, word.parts) if word.parts else None
    steps = word.progress
    progress = None if steps is None else Progress(*steps, message.text if message is not None else "")
    return StatusChanged(TaskState.WORKING, timestamp(now_ms), message, progress, used, metadata=word.metadata)


def asleep(
    wakes_ms: int, used: Usage | None, now_ms: int, *, place: str = "", wakes_on_message: bool = False
) -> StatusChanged:
    """The status with which a task goes to sleep, and that says when it wakes."""
    return StatusChanged(
        TaskState.WORKING,
        timestamp(now_ms),
        usage=used,
        metadata={SLEEP: {"until": timestamp(wakes_ms)}},
        placed=Placed(place, wakes_ms=wakes_ms, wakes_on_message=wakes_on_message),
    )


def over_at_once(sleep: StatusChanged) -> StatusChanged:
    """The status of a sleep that is over when it begins."""
    assert sleep.placed is not None
    placed = replace(sleep.placed, wakes_ms=timestamp_ms(sleep.timestamp))
    return replace(sleep, metadata={SLEEP: {"until": sleep.timestamp}}, placed=placed)


def question(
    head: TaskHead,
    parts: Sequence[Part],
    used: Usage | None,
    now_ms: int,
    *,
    auth: bool,
    child_id: str = "",
    place: str = "",
) -> StatusChanged:
    """A question to the caller. One that is passed on refers to the task that asks, so that a replay recognises it."""
    message = agent_message(head, parts)
    if child_id:
        message = replace(message, reference_task_ids=(child_id,))
    state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
    return StatusChanged(state, timestamp(now_ms), message, usage=used, placed=Placed(place) if place else None)
