"""Watching a task that was delegated: until when, and what is told of it meanwhile.

Invariant: what came of the task is told in its order, and before anybody hears that it has ended.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.engine.api import Delegation, Hear
from dragoman.engine.files import Files
from dragoman.engine.live import LiveTask, wait_until
from dragoman.engine.tail import Tail
from dragoman.model.events import ArtifactChunk, Logged, StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import INTERRUPTED, TaskState

if TYPE_CHECKING:
    from dragoman.engine.runs import TaskRun


class Watch:
    """Tells of a task what has come of it: its progress to the parent's caller, its chunks to the parent's agent."""

    def __init__(
        self, run: "TaskRun", tail: Tail, files: Files, order: Delegation, hear: Hear | None, reported: int
    ) -> None:
        """What came up to seq `reported` has been reported in the parent, by an earlier run."""
        self.tail = tail
        self._run = run
        self._files = files
        self._order = order
        self._hear = hear
        self._reported = reported
        self._begun = reported if hear is None else 0
        self._told = 0

    def behind(self, child: LiveTask) -> bool:
        """Whether there is something that has not been told."""
        return max(self._told, self._begun) < child.seq

    async def next(self, wait_s: float | None) -> None:
        """Wait for what comes next, and tell it."""
        for item in await self.tail.next(wait_s) or ():
            if isinstance(item, Logged):
                self._told = item.seq
                await self._tell(item)

    async def _tell(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ArtifactChunk) and self._hear is not None:
            await self._hear(await self._files.chunk(event))
        elif isinstance(event, StatusChanged) and event.state is TaskState.WORKING and self._order.progress:
            if logged.seq <= self._reported or (event.message is None and event.progress is None):
                return
            parts = await self._files.parts(event.message.parts) if event.message is not None else ()
            steps = None if event.progress is None else (event.progress.current, event.progress.total)
            await self._run.status(_marked(self._order.agent, parts), progress=steps)


def _marked(agent: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What another agent said, with its name before it."""
    if parts and parts[0].text is not None:
        return (replace(parts[0], text=f"{agent}: {parts[0].text}"), *parts[1:])
    return (Part(text=f"{agent}:"), *parts)


async def moved(child: LiveTask, watch: Watch | None, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
    """Wait until the task has ended, or asks, and that has been told; False if there is no time left."""
    while True:
        if (child.terminal or child.state in INTERRUPTED) and (watch is None or not watch.behind(child)):
            return child.terminal or deadline is None or loop.time() < deadline
        if deadline is not None and loop.time() >= deadline:
            return False
        if watch is not None:
            await watch.next(None if deadline is None else max(0.0, deadline - loop.time()))
        elif deadline is None:
            await child.wait(loop)
        else:
            await wait_until(child, loop, deadline)
