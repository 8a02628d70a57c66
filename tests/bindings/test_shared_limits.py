"""The counters and the thread that all requests share."""

import asyncio
import threading

import pytest
from msgspec.structs import replace

from dragoman.bindings.calls import weigh
from dragoman.bindings.limits import Offload, Unread
from dragoman.model.errors import TooManyRequests, Unavailable
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import TaskState
from tests.bindings.conftest import DEADLINE_S
from tests.store.cases.bench import record


def test_a_caller_who_does_not_read_is_refused_and_others_are_not() -> None:
    unread = Unread(100, 10)
    unread.take("ann", 60)
    with pytest.raises(TooManyRequests, match="max_unread_bytes") as refused:
        unread.take("ann", 41)
    assert refused.value.retry_after_s > 0
    unread.take("bob", 100)
    unread.take("ann", 40)
    unread.release("ann", 60)
    unread.take("ann", 60)
    assert unread.bytes == 200


def test_all_callers_together_have_twice_as_much() -> None:
    unread = Unread(100, 10)
    unread.take("ann", 100)
    unread.take("bob", 100)
    with pytest.raises(Unavailable):
        unread.take("eve", 1)
    unread.release("bob", 100)
    unread.take("eve", 100)


def test_a_single_answer_of_any_size_is_taken() -> None:
    unread = Unread(100, 10)
    unread.take("ann", 1000)
    with pytest.raises(TooManyRequests):
        unread.take("ann", 1)
    with pytest.raises(Unavailable):
        unread.take("bob", 1)
    unread.release("ann", 1000)
    assert unread.bytes == 0
    unread.take("bob", 1000)


def test_an_answer_weighs_what_its_caller_is_shown() -> None:
    file = Part(raw=b"0" * 3000)
    sent = Message(message_id="m", role=Role.USER, parts=(file,))
    done = replace(record("t1", 5, TaskState.COMPLETED, parts=(file,)), history=(sent, sent))
    assert [weigh(done, length) for length in (None, 2, 1, 0)] == [12_000, 12_000, 8_000, 4_000]


async def test_pages_are_made_one_at_a_time_for_each_caller() -> None:
    unread, go, made = Unread(100, 10), asyncio.Event(), list[str]()

    async def page(caller: str) -> None:
        await unread.begin_page(caller)
        made.append(caller)
        await go.wait()
        unread.end_page(caller)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        for caller in ("ann", "ann", "bob"):
            tasks.create_task(page(caller))
        while len(made) < 2:
            await asyncio.sleep(0)
        assert made == ["ann", "bob"]
        assert unread.bytes == 20
        go.set()
    assert made == ["ann", "bob", "ann"]
    assert unread.bytes == 0
    unread.take("ann", 91)
    with pytest.raises(TooManyRequests):
        await unread.begin_page("ann")
    unread.release("ann", 91)
    await unread.begin_page("ann")
    assert unread.bytes == 10


async def test_jobs_are_done_one_at_a_time_while_the_loop_goes_on() -> None:
    offload, begun, go = Offload(), threading.Event(), threading.Event()
    working: list[int] = []

    def job(number: int) -> int:
        working.append(number)
        begun.set()
        assert go.wait(DEADLINE_S)
        assert working[-1] == number  # no other has begun meanwhile
        return threading.get_ident()

    async with asyncio.timeout(DEADLINE_S):
        jobs = [asyncio.create_task(offload.run(lambda number=number: job(number))) for number in range(3)]
        while not begun.is_set():
            await asyncio.sleep(0)
        go.set()
        threads = set(await asyncio.gather(*jobs))
    assert working == [0, 1, 2]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_what_a_job_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await Offload().run(lambda: 1 // 0)
