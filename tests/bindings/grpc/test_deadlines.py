"""Deadlines of waits: one timer for all, a bound on slow ones, and no wait that others cancel counts as late."""

import asyncio

import pytest

from dragoman.bindings.grpc.deadlines import SLOW_MAX, SLOW_S, STEP_S, Deadlines
from dragoman.model.errors import A2AError, RequestTimeout, Unavailable
from tests.virtual_time import in_virtual_time


async def wait(deadlines: Deadlines, event: asyncio.Event, wait_s: float) -> type[A2AError] | None:
    """The kind of error that ended the wait, None if it was the event."""
    task = asyncio.current_task()
    assert task is not None
    deadlines.begin(task, wait_s)
    try:
        await event.wait()
    except asyncio.CancelledError:
        if (refusal := deadlines.refusal(task)) is None:
            raise
        return type(refusal)
    finally:
        deadlines.end(task)
    return None


@in_virtual_time
async def test_waits_end_at_their_deadlines() -> None:
    loop, deadlines, event = asyncio.get_running_loop(), Deadlines(), asyncio.Event()
    for wait_s in (0.01, 0.3, 30.0):
        began_s = loop.time()
        assert await wait(deadlines, event, wait_s) is RequestTimeout
        assert wait_s <= loop.time() - began_s <= wait_s + STEP_S
    event.set()
    assert await wait(deadlines, event, 30.0) is None


@in_virtual_time
async def test_a_short_wait_beside_long_ones_ends_in_time() -> None:
    loop, deadlines, event = asyncio.get_running_loop(), Deadlines(), asyncio.Event()
    long = asyncio.create_task(wait(deadlines, event, 30.0))
    await asyncio.sleep(5)
    began_s = loop.time()
    assert await wait(deadlines, event, 0.1) is RequestTimeout
    assert loop.time() - began_s <= 0.1 + STEP_S
    event.set()
    assert await long is None


@in_virtual_time
async def test_a_task_that_others_cancel_is_not_late() -> None:
    deadlines, event = Deadlines(), asyncio.Event()
    waiting = asyncio.create_task(wait(deadlines, event, 30.0))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@in_virtual_time
async def test_only_so_many_requests_may_be_slow_and_the_first_ones_go_on() -> None:
    deadlines, event = Deadlines(), asyncio.Event()
    first = [asyncio.create_task(wait(deadlines, event, 30.0)) for _ in range(SLOW_MAX)]
    await asyncio.sleep(0.1)
    others = [asyncio.create_task(wait(deadlines, event, 30.0)) for _ in range(5)]
    assert await asyncio.gather(*others) == [Unavailable] * 5
    assert not any(task.done() for task in first)
    quick = asyncio.create_task(wait(deadlines, event, 30.0))
    await asyncio.sleep(SLOW_S / 2)
    event.set()
    assert await asyncio.gather(quick, *first) == [None] * (SLOW_MAX + 1)
    event.clear()
    assert await wait(deadlines, event, 30.0) is RequestTimeout
