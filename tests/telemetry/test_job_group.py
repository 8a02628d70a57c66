"""JobGroup: what ends a job, what starts it again, and when it counts as sound."""

import asyncio
import logging
from typing import Any

import pytest

from dragoman.telemetry import job_group
from dragoman.telemetry.job_group import ONCE, JobFailures, JobGroup

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_group, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(job_group, "SOUND_S", 0.05)


async def test_a_job_whose_wait_was_canceled_by_somebody_else_is_started_again() -> None:
    """A CancelledError of a future is no cancellation of the job that waits for it: the job would be gone for good."""
    failures, starts, running = JobFailures(), 0, asyncio.Event()

    async def work() -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost
        running.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        job = JobGroup(group, failures).keep("odd", work)
        await running.wait()
        assert failures.counts == {"odd": 1}
        assert failures.describe() == {"odd": "failed once, runs again"}
        job.cancel()
        await asyncio.wait((job,))
        assert job.cancelled()
        assert failures.describe() == {}, "a job that has ended fails no more"


async def test_a_job_that_is_canceled_while_it_pauses_ends() -> None:
    failures = JobFailures()

    async def work() -> None:
        raise KeyError("planted")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        job = JobGroup(group, failures).keep("odd", work)
        while not failures.stopped():
            await asyncio.sleep(0)
        job.cancel()
        await asyncio.wait((job,))
    assert failures.stopped() == frozenset()


async def test_a_job_that_fails_as_it_is_canceled_ends_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """It would be started again otherwise, and the server would wait for it for ever as it stops."""
    failures, running, starts = JobFailures(), asyncio.Event(), 0

    async def work() -> None:
        nonlocal starts
        starts += 1
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("planted")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        job = JobGroup(group, failures).keep("odd", work)
        await running.wait()
        job.cancel()
        await asyncio.wait((job,))
    assert (job.cancelled(), starts, failures.describe()) == (True, 1, {})
    assert failures.counts == {"odd": 1}
    assert "the job odd failed as it was stopped: KeyError" in caplog.text


async def test_a_job_that_has_run_for_a_while_is_sound_and_fails_for_the_first_time_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dragoman.jobs")
    failures, again = JobFailures(), asyncio.Event()

    async def work() -> None:
        if failures.counts["odd"]:
            await again.wait()
            again.clear()
        raise KeyError("planted")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        job = JobGroup(group, failures).keep("odd", work)
        while "the job odd works again" not in caplog.text:
            await asyncio.sleep(0.01)
        assert failures.describe() == {}
        again.set()
        while failures.counts["odd"] == 1:
            await asyncio.sleep(0.01)
        assert failures.describe()["odd"].startswith("failed once")
        job.cancel()
    assert caplog.text.count("the job odd failed, it is started again in 0.01 s: KeyError") == 2


async def test_each_kind_of_fault_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    failures, kinds = JobFailures(), [KeyError, KeyError, ValueError, ValueError]

    async def work() -> None:
        if kinds:
            raise kinds.pop(0)("planted")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        JobGroup(group, failures).keep("odd", work)
    told = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert told == ["KeyError", "ValueError"]
    assert failures.counts == {"odd": 4}


async def test_work_that_is_done_once_costs_itself_alone(caplog: pytest.LogCaptureFixture) -> None:
    failures = JobFailures()

    async def work() -> Any:
        raise KeyError("planted")

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        jobs = JobGroup(group, failures)
        await jobs.create_task(work(), name="beside partner")
        canceled = jobs.create_task(asyncio.sleep(DEADLINE_S))
        canceled.cancel()
    assert failures.counts == {ONCE: 1}
    assert "beside partner failed: KeyError" in caplog.text
