"""The recorded words of a task, as a worker gets them that replays by itself, to run its agent again.

Invariant: the worker makes the same replay of them as a run in the server makes of the whole log. Events that it does
not need stay in the server: acts of operators, and outcomes that come with the worker's own words anyway.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from dragoman.engine.runs.places import in_other_branch
from dragoman.engine.runs.replay import Replay, replay_of
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    Logged,
    MessageReceived,
    Stepped,
    Submitted,
)
from dragoman.model.task import TaskHead

ELSEWHERE = "elsewhere"
"""The form of a step's result that is a file: the worker gets it when it tells the step again."""

ReadLog = Callable[[bool], Awaitable[Sequence[Logged]]]
"""Reads the log of a task, with or without its artifacts."""


def shown_event(event: Event, *, artifacts: bool) -> Event | None:
    """An event as the worker gets it; None if it has no use for it. Most have no use for `artifacts`."""
    match event:
        case Intervened():
            return None
        case ArtifactChunk():
            return event if artifacts else None
        case Stepped(result=result) if any(part.raw is not None or part.file is not None for part in result):
            return replace(event, result=(), form=ELSEWHERE)
        case Delegated():
            return replace(event, message=None, artifacts=())
        case _:
            return event


async def read_replay(head: TaskHead, read: ReadLog) -> Replay:
    """The replay of a task that an earlier worker has worked on."""
    log = await read(False)
    if any(map(_is_in_branch, log)):
        log = await read(True)  # what one branch has said may stand before the words of another one
    return replay_of(head, log, crashed=True)[1]


def _is_in_branch(logged: Logged) -> bool:
    event = logged.event
    if isinstance(event, Submitted | MessageReceived | Intervened) or event.placed is None:
        return False
    places: Iterable[str] = (event.placed.place, *(taken.place for taken in event.placed.taken))
    return any(map(in_other_branch, places))
