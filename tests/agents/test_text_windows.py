"""Windows end when they are to, many at once, and last until what was given out before is committed."""

import asyncio

from dragoman.agents.text_windows import BUSY, EARLY, GROWN_MAX, LOOK_S, SHARES, Windows
from tests.virtual_time import in_virtual_time

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
        """The text that was under way is committed."""
        self.idle = True
        for done in self.waiting:
            if not done.done():
                done.set_result(None)


def begun(windows: Windows, run: Committing | None = None) -> "asyncio.Future[None]":
    window: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    windows.begin(window, run)
    return window


@in_virtual_time
async def test_no_window_is_shorter_than_it_is_said_to_be_whenever_it_begins() -> None:
    loop, windows = asyncio.get_running_loop(), Windows(LENGTH_S)
    lasted: list[float] = []

    def over(began: float) -> None:
        lasted.append(loop.time() - began)

    waiting = []
    async with asyncio.timeout(60):
        for _ in range(3 * SHARES):  # at all points between those at which windows end
            window, began = begun(windows), loop.time()
            window.add_done_callback(lambda _, began=began: over(began))
            waiting.append(window)
            await asyncio.sleep(LENGTH_S / SHARES / 3)
        await asyncio.gather(*waiting)
    await asyncio.sleep(0)
    assert min(lasted) >= LENGTH_S - 0.001


@in_virtual_time
async def test_windows_that_begin_together_end_together() -> None:
    windows = Windows(LENGTH_S)
    first, second = begun(windows), begun(windows)
    await first
    assert second.done()


@in_virtual_time
async def test_a_window_may_be_ended_earlier() -> None:
    windows = Windows(LENGTH_S)
    ended, canceled, last = begun(windows), begun(windows), begun(windows)
    ended.set_result(None)
    canceled.cancel()
    await last


@in_virtual_time
async def test_without_a_length_a_window_is_over_at_once() -> None:
    assert begun(Windows(0.0)).done()


@in_virtual_time
async def test_a_window_lasts_until_what_was_given_out_is_committed() -> None:
    windows, run = Windows(LENGTH_S), Committing()
    window, other = begun(windows, run), begun(windows)
    await other
    assert not window.done()
    run.commit()
    async with asyncio.timeout(60):
        await window


class Thread:
    """A thread that is at work for a part of the time."""

    def __init__(self) -> None:
        self.busy = 0.0
        self._used_s = 0.0
        self._asked_s = asyncio.get_running_loop().time()

    def used_s(self) -> float:
        """For how long it has worked."""
        now_s = asyncio.get_running_loop().time()
        self._used_s += self.busy * (now_s - self._asked_s)
        self._asked_s = now_s
        return self._used_s


async def settled(windows: Windows) -> float:
    """How long windows are after a while."""
    async with asyncio.timeout(60):
        for _ in range(12):
            await asyncio.sleep(LOOK_S)
            await begun(windows)
    return windows.length_s


@in_virtual_time
async def test_windows_grow_while_the_thread_is_busy_and_no_further_than_they_may() -> None:
    thread = Thread()
    windows = Windows(LENGTH_S, thread.used_s)
    lengths = [windows.length_s]
    for busy in (1.0, 0.1):
        thread.busy = busy
        lengths.append(await settled(windows))
    assert lengths == [LENGTH_S, LENGTH_S * GROWN_MAX, LENGTH_S]


@in_virtual_time
async def test_a_thread_with_time_left_leaves_windows_as_long_as_they_are() -> None:
    thread = Thread()
    thread.busy = BUSY / 2
    assert await settled(Windows(LENGTH_S, thread.used_s)) == LENGTH_S


@in_virtual_time
async def test_long_windows_end_one_after_the_other_and_not_too_early() -> None:
    thread, loop = Thread(), asyncio.get_running_loop()
    thread.busy = 1.0
    windows = Windows(LENGTH_S, thread.used_s)
    await settled(windows)
    began, ends = loop.time(), set()
    waiting = [begun(windows) for _ in range(30)]
    for window in waiting:
        window.add_done_callback(lambda _: ends.add(round((loop.time() - began) / (LENGTH_S / SHARES))))
    async with asyncio.timeout(60):
        await asyncio.gather(*waiting)
    await asyncio.sleep(0)
    assert len(ends) >= SHARES
    assert min(ends) >= EARLY * GROWN_MAX * SHARES - 1
