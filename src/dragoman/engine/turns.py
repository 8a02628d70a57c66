"""Turns: of a task with webhooks one write is under way at a time.

Invariant: writes begin in the order in which they were submitted, each when those before it have landed.
"""

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dragoman.engine.audience import Audience

if TYPE_CHECKING:
    from dragoman.engine.live import LiveTask


def begin_next(live: "LiveTask", audience: Audience) -> None:
    """Begin the write that has waited longest, if none is under way."""
    while audience.turns and live.in_flight == len(audience.turns):
        audience.turns.popleft()()


@asynccontextmanager
async def turn(live: "LiveTask", audience: Audience) -> AsyncIterator[None]:
    """Wait until all that was submitted before has landed; what is submitted meanwhile waits until the block ends.

    `audience` is that of the task.
    """
    mine: Future[None] = get_running_loop().create_future()

    def begin() -> None:
        if mine.done():  # whoever wanted it has left
            live.turn_over()
        else:
            mine.set_result(None)

    audience.turns.append(begin)
    live.in_flight += 1
    begin_next(live, audience)
    try:
        await mine
        yield
    finally:
        if not mine.cancelled():  # else it has not begun
            live.turn_over()
