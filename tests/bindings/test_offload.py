"""Large JSON is read beside the loop, one at a time."""

import asyncio
import threading

import pytest

from dragoman.bindings.offload import Offload
from tests.bindings.conftest import DEADLINE_S


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
