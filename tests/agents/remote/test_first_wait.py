"""The wait that may outlive its run: what is waited for never notices."""

import asyncio
from typing import Any, TypeVar

import pytest

from dragoman.agents.remote.first_wait import FirstWait

T = TypeVar("T")


class Work:
    """Waits twice, and notes what happens to it."""

    def __init__(self) -> None:
        self.gates = [asyncio.Event(), asyncio.Event()]
        self.noted: list[str] = []

    async def do(self) -> str:
        try:
            for number, gate in enumerate(self.gates):
                await asyncio.sleep(0)
                await gate.wait()
                self.noted.append(f"{number}")
        except asyncio.CancelledError:
            self.noted.append("canceled")
            raise
        return "done"


async def begin(wait: FirstWait[T]) -> "asyncio.Task[T]":
    async def awaited() -> T:
        return await wait

    task = asyncio.create_task(awaited())
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_is_left_goes_on_where_it_was() -> None:
    work = Work()
    wait = FirstWait(work.do(), lambda: True)
    work.gates[0].set()
    await cancel(await begin(wait))
    assert (wait.left, work.noted) == (True, ["0"])
    rest = asyncio.create_task(wait.rest())
    for _ in range(5):
        await asyncio.sleep(0)
    work.gates[1].set()
    assert await rest == "done"
    assert (wait.left, work.noted) == (False, ["0", "1"])


async def test_the_rest_is_canceled_as_anything_else() -> None:
    work = Work()
    wait = FirstWait(work.do(), lambda: True)
    await cancel(await begin(wait))
    work.gates[0].set()
    rest = asyncio.create_task(wait.rest())
    for _ in range(5):
        await asyncio.sleep(0)
    await cancel(rest)
    assert work.noted == ["0", "canceled"]


async def test_work_that_is_not_left_is_canceled() -> None:
    work = Work()
    wait = FirstWait(work.do(), lambda: False)
    await cancel(await begin(wait))
    assert (wait.left, work.noted) == (False, ["canceled"])


async def test_the_rest_ends_when_it_is_canceled_after_a_timeout_of_the_work() -> None:
    loop, gate, noted = asyncio.get_running_loop(), asyncio.Event(), list[str]()
    limit = asyncio.timeout(None)

    async def dial() -> None:
        try:
            async with limit:
                await gate.wait()
                await asyncio.Event().wait()
        except TimeoutError:
            noted.append("once more")
            await asyncio.Event().wait()

    wait = FirstWait(dial(), lambda: True)
    await cancel(await begin(wait))
    rest = asyncio.create_task(wait.rest())
    gate.set()
    limit.reschedule(loop.time())  # the task that it would cancel is over
    for _ in range(9):
        await asyncio.sleep(0)
    rest.cancel()
    assert await asyncio.wait((rest,), timeout=10) == ({rest}, set())
    assert rest.cancelled()


@pytest.mark.parametrize("leaves", [True, False])
async def test_the_loop_lets_go_of_what_is_awaited_before_the_work_is_canceled(leaves: bool) -> None:
    connecting, noted = asyncio.get_running_loop().create_future(), list[str]()
    connecting.add_done_callback(lambda _: noted.append("let go"))

    async def dial() -> None:
        try:
            await connecting
        finally:
            noted.append("closed")

    wait = FirstWait(dial(), lambda: leaves)
    await cancel(await begin(wait))
    if leaves:
        rest = asyncio.create_task(wait.rest())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cancel(rest)
    assert noted == ["let go", "closed"]


async def test_a_result_an_error_and_a_timeout_come_through() -> None:
    async def fails() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    work = Work()
    for gate in work.gates:
        gate.set()
    assert await FirstWait(work.do(), lambda: True) == "done"
    with pytest.raises(TimeoutError):
        await FirstWait(fails(), lambda: False)
