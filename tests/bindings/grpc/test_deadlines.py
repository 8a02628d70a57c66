"""Deadlines of waits: one timer for all, and no wait that is canceled for another reason counts as late."""

import asyncio

import pytest

from dragoman.bindings.grpc.deadlines import Deadlines

pytestmark = pytest.mark.anyio


async def wait(deadlines: Deadlines, event: asyncio.Event, wait_s: float) -> str:
    task = asyncio.current_task()
    assert task is not None
    deadlines.begin(task, wait_s)
    try:
        await event.wait()
    except asyncio.CancelledError:
        if deadlines.is_late(task):
            return "late"
        raise
    finally:
        deadlines.end(task)
    return "in time"


async def test_waits_end_at_their_deadlines() -> None:
    deadlines, event = Deadlines(), asyncio.Event()
    long = asyncio.create_task(wait(deadlines, event, 600))
    short = [asyncio.create_task(wait(deadlines, event, 0.01 * n)) for n in range(1, 5)]
    assert await asyncio.gather(*short) == ["late"] * 4
    event.set()
    assert await long == "in time"


async def test_a_task_that_others_cancel_is_not_late() -> None:
    deadlines, event = Deadlines(), asyncio.Event()
    waiting = asyncio.create_task(wait(deadlines, event, 600))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_task_that_is_late_can_wait_again() -> None:
    deadlines, event = Deadlines(), asyncio.Event()
    assert await wait(deadlines, event, 0.01) == "late"
    event.set()
    assert await wait(deadlines, event, 600) == "in time"
