"""Threads for plain functions: how many, who waits, and what canceling does."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from dragoman.agents.python.threads import Crossing, Threads
from tests.kit.waiting import until

DEADLINE_S = 60.0


class Work:
    """Work that says when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()

    def __call__(self, crossing: Crossing[str]) -> str:
        self.begun.set()
        assert self.go.wait(DEADLINE_S)
        self.ended.set()
        return "done"

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, DEADLINE_S)


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.go.set()


async def test_the_result_comes_back() -> None:
    threads = Threads(1)
    name = await threads.run(lambda crossing: threading.current_thread().name)
    assert name == "dragoman-skill"
    assert threads.taken == 0


async def test_an_exception_comes_back_and_gives_the_thread_back() -> None:
    def fail(crossing: Crossing[None]) -> None:
        raise ValueError("why")

    threads = Threads(1)
    with pytest.raises(ValueError, match="why"):
        await threads.run(fail)
    assert threads.taken == 0


async def test_sys_exit_in_a_thread_is_an_error_like_any_other() -> None:
    def leave(crossing: Crossing[None]) -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        await Threads().run(leave)


async def test_context_variables_reach_the_thread() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("seen")
    assert await Threads().run(lambda crossing: variable.get()) == "seen"


async def test_a_thread_awaits_on_the_loop() -> None:
    async def where() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    assert await Threads().run(lambda crossing: crossing.call(where)) == threading.get_ident()


async def test_an_exception_on_the_loop_is_raised_where_the_thread_called() -> None:
    async def fail() -> None:
        raise ValueError("why")

    def catch(crossing: Crossing[str]) -> str:
        try:
            crossing.call(fail)
        except ValueError as error:
            return str(error)
        return "nothing"

    assert await Threads().run(catch) == "why"


async def test_a_call_on_the_loop_itself_is_refused_instead_of_hanging() -> None:
    crossing: Crossing[None] = Crossing()
    with pytest.raises(RuntimeError, match="not on the event loop"):
        crossing.call(lambda: asyncio.sleep(0))


async def test_when_all_are_taken_runs_queue_in_order() -> None:
    threads = Threads(1)
    begun: list[int] = []
    works = [Work() for _ in range(3)]

    def numbered(number: int) -> Callable[[Crossing[str]], str]:
        def work(crossing: Crossing[str]) -> str:
            begun.append(number)
            return works[number](crossing)

        return work

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(threads.run(numbered(number)))
        await works[0].has_begun()
        assert threads.full
        assert threads.taken == threads.maximum == 1
        assert begun == [0]
        for work in works:
            work.go.set()
    assert begun == [0, 1, 2]


async def test_a_run_canceled_in_the_queue_takes_nothing(work: Work) -> None:
    threads = Threads(1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(threads.run(work))
        await work.has_begun()
        second = group.create_task(threads.run(Work()))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        assert threads.taken == 1
        work.go.set()
        assert await first == "done"
    assert threads.taken == 0


async def test_a_run_canceled_as_its_turn_comes_hands_it_on(work: Work) -> None:
    threads = Threads(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(threads.run(work))
        await work.has_begun()
        second = group.create_task(threads.run(lambda crossing: "second"))
        third = group.create_task(threads.run(lambda crossing: "third"))
        await asyncio.sleep(0)
        work.go.set()
        assert await asyncio.to_thread(work.ended.wait, DEADLINE_S)
        second.cancel()
        assert await asyncio.wait_for(third, DEADLINE_S) == "third"
    assert threads.taken == 0


async def test_a_canceled_thread_is_left_behind_until_it_ends(work: Work) -> None:
    threads = Threads(2)
    run = asyncio.ensure_future(threads.run(work))
    await work.has_begun()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (threads.taken, threads.left_behind) == (1, 1)
    work.go.set()
    await until(lambda: threads.taken == 0)
    assert threads.left_behind == 0


async def test_the_next_call_of_a_canceled_thread_ends_it() -> None:
    threads = Threads()
    caught: list[type[BaseException]] = []
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()

    def call_forever(crossing: Crossing[None]) -> None:
        try:
            while True:
                crossing.call(begin)
        except asyncio.CancelledError as error:
            assert crossing.canceled
            caught.append(type(error))
            raise

    run = asyncio.ensure_future(threads.run(call_forever))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: threads.taken == 0)
    assert caught == [asyncio.CancelledError]


async def test_canceling_reaches_a_thread_that_waits_on_the_loop() -> None:
    threads = Threads()
    waiting = asyncio.Event()

    async def wait_forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    run = asyncio.ensure_future(threads.run(lambda crossing: crossing.call(wait_forever)))
    await waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: threads.taken == 0)
    assert threads.left_behind == 0


async def test_a_call_after_the_end_is_canceled() -> None:
    kept: list[Crossing[None]] = []
    await Threads().run(kept.append)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.to_thread(kept[0].call, lambda: asyncio.sleep(0))


def test_a_thread_that_outlives_its_loop_gives_its_place_back(work: Work) -> None:
    threads = Threads(1)

    async def leave() -> None:
        run = asyncio.ensure_future(threads.run(work))
        await work.has_begun()
        run.cancel()
        await asyncio.wait([run])

    async def come_again() -> str:
        work.go.set()
        return await asyncio.wait_for(threads.run(lambda crossing: "again"), DEADLINE_S)

    asyncio.run(leave())
    assert threads.left_behind == 1
    assert asyncio.run(come_again()) == "again"
    assert (threads.taken, threads.left_behind) == (0, 0)


def test_threads_are_daemons() -> None:
    assert asyncio.run(Threads().run(lambda crossing: threading.current_thread().daemon))


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="threads_max 0"):
        Threads(0)
