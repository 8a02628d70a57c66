"""Windows end when they are to, many at once, and grow where the loop does not keep up."""

import asyncio
import time

from dragoman.agents.coalescing import GROWN_MAX, SHARES, Windows

LENGTH_S = 0.06


async def test_a_window_ends_in_its_time_and_never_later_than_it_is_long() -> None:
    windows = Windows(LENGTH_S)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(5):
        await windows.opened()
    assert loop.time() - began >= LENGTH_S * (SHARES - 1) / SHARES - 0.005


async def test_windows_that_begin_together_end_together() -> None:
    windows = Windows(LENGTH_S)
    first, second = windows.opened(), windows.opened()
    await first
    assert second.done()


async def test_a_window_may_be_ended_earlier() -> None:
    windows = Windows(LENGTH_S)
    ended, canceled, last = windows.opened(), windows.opened(), windows.opened()
    ended.set_result(None)
    canceled.cancel()
    await last
    assert windows.length_s >= LENGTH_S


async def test_without_a_length_there_is_no_window() -> None:
    assert Windows(0.0).opened().done()


async def test_windows_grow_while_the_loop_is_late_and_no_further_than_they_may() -> None:
    windows = Windows(LENGTH_S)
    for _ in range(12):
        window = windows.opened()
        time.sleep(LENGTH_S * 2)  # the loop has something else to do
        await window
    assert LENGTH_S * 1.5 < windows.length_s <= LENGTH_S * (1 + GROWN_MAX)
