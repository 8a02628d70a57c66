"""The wait that may outlive its run: what is waited for never notices."""

import asyncio

import pytest

from dragoman.agents.remote.first_wait import FirstWait


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


async def begin(wait: FirstWait[str]) -> "asyncio.Task[str]":
    async def awaited() -> str:
        return await wait

    task = asyncio.create_task(awaited())
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def cancel(task: "asyncio.Task[str]") -> None:
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
