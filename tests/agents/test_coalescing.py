"""Windows end when they are to, many at once, and last until what was given out before is committed."""

import asyncio

from dragoman.agents.coalescing import GROWN_MAX, SAMPLED, SHARES, Windows

LENGTH_S = 0.06


class Committing:
    """A run of which a write is under way, until it is told."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.idle = False

    def landing(self, done: "asyncio.Future[None]") -> None:
        """As a run has it."""
        if self.idle:
            if not done.done():
                done.set_result(None)
        else:
            self.waiting.append(done)

    def commit(self) -> None:
        """What was under way is committed."""
        self.idle = True
        for done in self.waiting:
            if not done.done():
                done.set_result(None)


def begun(windows: Windows, run: Committing | None = None) -> "asyncio.Future[None]":
    window: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    windows.begin(window, run)
    return window


async def test_a_window_ends_in_its_time_and_never_later_than_it_is_long() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(5):
        await begun(Windows(LENGTH_S))
    assert loop.time() - began >= LENGTH_S * (SHARES - 1) / SHARES - 0.005


async def test_windows_that_begin_together_end_together() -> None:
    windows = Windows(LENGTH_S)
    first, second = begun(windows), begun(windows)
    await first
    assert second.done()


async def test_a_window_may_be_ended_earlier() -> None:
    windows = Windows(LENGTH_S)
    ended, canceled, last = begun(windows), begun(windows), begun(windows)
    ended.set_result(None)
    canceled.cancel()
    await last


async def test_without_a_length_a_window_is_over_at_once() -> None:
    assert begun(Windows(0.0)).done()


async def test_a_window_lasts_until_what_was_given_out_is_committed() -> None:
    windows, run = Windows(LENGTH_S), Committing()
    window, other = begun(windows, run), begun(windows)
    await other
    assert not window.done()
    run.commit()
    async with asyncio.timeout(5):
        await window


async def test_windows_grow_while_commits_take_long_and_no_further_than_they_may() -> None:
    windows, loop = Windows(LENGTH_S), asyncio.get_running_loop()
    lengths = [windows.length_s]
    for _ in range(20 * SAMPLED):
        run = Committing()
        loop.call_later(LENGTH_S * 2, run.commit)
        begun(windows, run)
    async with asyncio.timeout(5):
        await begun(windows, run)
    lengths.append(windows.length_s)
    for _ in range(60 * SAMPLED):
        run = Committing()
        run.commit()
        begun(windows, run)
    async with asyncio.timeout(5):
        await begun(windows)
    lengths.append(windows.length_s)
    assert lengths == [LENGTH_S, LENGTH_S * GROWN_MAX, LENGTH_S]
