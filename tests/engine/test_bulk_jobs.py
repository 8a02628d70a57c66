"""Bulk jobs of one server as another one on the same store sees them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.admin.bulk import BulkJob, BulkQuery, BulkRequest
from dragoman.admin.tasks import TaskLine
from dragoman.engine.admin import bulk_jobs
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.bulk_jobs import BulkRunner
from dragoman.model.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from dragoman.model.task import Phase
from dragoman.store.api import OutcomeUnknown, Store, StoreError
from dragoman.store.audit import AuditEntry
from dragoman.store.open import open_store
from tests.kit.waiting import DEADLINE_S
from tests.store.cases.bench import SetClock

OPS = Operator("key:ops")
TASKS = 40


class Trail:
    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def note(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


def line(number: int) -> TaskLine:
    names = ("agent", "principal", "context", "dialect", "title", "text", "created_at", "status_at")
    words: dict[str, Any] = dict.fromkeys(names, "")
    return TaskLine(**words, id=f"t{number}", state="working", phase=Phase.RUNNING, age_s=0.0)


async def match(_: BulkRequest) -> AsyncGenerator[Sequence[TaskLine], None]:
    yield [line(number) for number in range(TASKS)]


async def change(_: Operator, __: BulkRequest, ___: str) -> bool:
    return True


async def until(look: Callable[[], Awaitable[BulkJob]], *states: str) -> BulkJob:
    async with asyncio.timeout(DEADLINE_S):
        while (job := await look()).state not in states:
            await asyncio.sleep(0)
        return job


@asynccontextmanager
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[BulkRunner, Store, SetClock]]:
    """Jobs of a server that carries them out, and their store."""
    monkeypatch.setattr(bulk_jobs, "TELL_S", 0.0)
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("h1")
    runner = BulkRunner(store)
    running = asyncio.create_task(runner.run())
    try:
        yield runner, store, clock
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


CANCEL = Asked(OPS, BulkRequest(action="cancel", agent="echo"))


def looking(runner: BulkRunner, job_id: str, operator: Operator = OPS) -> Callable[[], Awaitable[BulkJob]]:
    async def look() -> BulkJob:
        (job,) = (await runner.list(Asked(operator, BulkQuery(id=job_id)))).jobs
        return job

    return look


async def test_another_server_shows_a_job_and_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_jobs, "TELL_S", 0.0)
    clock, trail, gate = SetClock(), Trail(), asyncio.Event()
    store = open_store("memory:", clock)
    await store.open("h1")
    changed: list[str] = []

    async def change_late(_: Operator, __: BulkRequest, task_id: str) -> bool:
        await gate.wait()
        changed.append(task_id)
        return True

    here, there = BulkRunner(store), BulkRunner(store)
    running = asyncio.create_task(here.run())
    try:
        asked = Asked(OPS, BulkRequest(action="cancel", agent="echo"))
        started = await here.start(asked, match, change_late, AccessNotes(trail, clock))

        async def look() -> BulkJob:
            (job,) = (await there.list(Asked(OPS, BulkQuery(id=started.id)))).jobs
            return job

        async def version(job_id: str) -> int:
            (entry,) = await store.shared.scan(f"bulk//{job_id}")
            return entry.version

        assert (await until(look, "working")).found == TASKS
        assert [(entry.action, entry.subject) for entry in trail.entries] == [("tasks.bulk-cancel", "agent=echo: 40")]
        others = Operator("key:lead", team="red")
        assert (await there.list(Asked(others, BulkQuery()))).jobs == ()
        with pytest.raises(TaskNotFound):
            await there.stop(Asked(others, None, started.id))
        await there.stop(Asked(OPS, None, started.id))
        told = await version(started.id)
        async with asyncio.timeout(DEADLINE_S):
            while await version(started.id) < told + 2:  # it looks for a stop between two words about itself
                clock.ms += bulk_jobs.BEAT_MS
        gate.set()
        job = await until(look, "stopped")
        assert job.done == len(changed) < TASKS
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def test_a_server_takes_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_jobs, "JOBS_MAX", 1)
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("h1")
    try:
        runner, asked = BulkRunner(store), Asked(OPS, BulkRequest(action="delete", agent="echo"))
        await runner.start(asked, match, change, AccessNotes(Trail(), clock))
        with pytest.raises(UnsupportedOperation):
            await runner.start(asked, match, change, AccessNotes(Trail(), clock))
        of_team = Asked(Operator("key:lead", team="red"), asked.given)
        await runner.start(of_team, match, change, AccessNotes(Trail(), clock))  # others take no room from a team
    finally:
        await store.close()


async def test_a_job_that_waits_goes_on_being_there_and_can_be_stopped_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    async def change_late(_: Operator, __: BulkRequest, ___: str) -> bool:
        return await gate.wait()

    async with server(monkeypatch) as (here, store, clock):
        there, notes = BulkRunner(store), AccessNotes(Trail(), clock)
        first = [await here.start(CANCEL, match, change_late, notes) for _ in range(bulk_jobs.JOBS_AT_ONCE)]
        last = await here.start(CANCEL, match, change, notes)
        for job in first:
            await until(looking(there, job.id), "working")
        clock.ms += 2 * bulk_jobs.BEAT_LOST_MS
        async with asyncio.timeout(DEADLINE_S):
            await until(looking(there, last.id), "waiting")
        await there.stop(Asked(OPS, None, last.id))
        assert (await until(looking(there, last.id), "stopped")).done == 0
        gate.set()
        for job in first:
            assert (await until(looking(there, job.id), "ended")).done == TASKS


async def test_a_query_that_is_refused_fails_its_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: BulkRequest) -> AsyncGenerator[Sequence[TaskLine], None]:
        if CANCEL.given.empty:
            yield ()
        raise InvalidParams("principal", "is not in the team")

    async with server(monkeypatch) as (runner, _, clock):
        notes = AccessNotes(Trail(), clock)
        refused, other = [await runner.start(CANCEL, each, change, notes) for each in (refuse, match)]
        assert (await until(looking(runner, refused.id), "failed", "interrupted")).state == "failed"
        assert (await until(looking(runner, other.id), "ended", "interrupted")).done == TASKS


async def test_a_job_that_finds_nothing_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def seek(_: BulkRequest) -> AsyncGenerator[Sequence[TaskLine], None]:
        while True:
            await asyncio.sleep(0)
            yield ()

    async with server(monkeypatch) as (runner, _, clock):
        job = await runner.start(CANCEL, seek, change, AccessNotes(Trail(), clock))
        await until(looking(runner, job.id), "finding")
        await runner.stop(Asked(OPS, None, job.id))
        await until(looking(runner, job.id), "stopped")


async def test_a_task_that_is_found_twice_counts_once_and_one_that_cannot_be_changed_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def match_twice(_: BulkRequest) -> AsyncGenerator[Sequence[TaskLine], None]:
        yield [line(0), line(1)]
        yield [line(1), line(2)]

    async def change_most(_: Operator, __: BulkRequest, task_id: str) -> bool:
        if task_id == "t1":
            raise OutcomeUnknown
        return True

    async with server(monkeypatch) as (runner, _, clock):
        wanted = Asked(OPS, BulkRequest(action="cancel", agent="echo", limit=3))
        job = await runner.start(wanted, match_twice, change_most, AccessNotes(Trail(), clock))
        job = await until(looking(runner, job.id), "ended", "interrupted")
        assert (job.state, job.found, job.done, job.failed, job.more) == ("ended", 3, 2, 1, False)


async def test_an_operator_of_the_server_stops_the_jobs_of_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(monkeypatch) as (runner, _, clock):
        team = Operator("key:lead", team="red")
        others = await runner.start(CANCEL, match, change, AccessNotes(Trail(), clock))
        job = await runner.start(Asked(team, CANCEL.given), match, change, AccessNotes(Trail(), clock))
        assert [each.id for each in (await runner.list(Asked(OPS, BulkQuery()))).jobs] == [job.id, others.id]
        assert [each.id for each in (await runner.list(Asked(team, BulkQuery()))).jobs] == [job.id]
        assert (await runner.list(Asked(OPS, BulkQuery(id=job.id[:8])))).jobs == ()
        assert (await runner.stop(Asked(OPS, None, job.id))).id == job.id


async def test_the_end_of_a_job_is_told_once_the_store_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(monkeypatch) as (runner, store, clock):
        put, away = store.shared.put, asyncio.Event()

        async def fail(key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
            if away.is_set():
                raise StoreError("away")
            return await put(key, value, ttl_ms, version=version)

        monkeypatch.setattr(store.shared, "put", fail)
        job = await runner.start(CANCEL, match, change, AccessNotes(Trail(), clock))
        away.set()
        await until(looking(runner, job.id), "ended")
        away.clear()
        await until(looking(BulkRunner(store), job.id), "ended")


async def test_a_job_whose_server_is_silent_counts_as_interrupted() -> None:
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("h1")
    try:
        job = await BulkRunner(store).start(CANCEL, match, change, AccessNotes(Trail(), clock))
        clock.ms += bulk_jobs.BEAT_LOST_MS
        assert (await looking(BulkRunner(store), job.id)()).state == "waiting"
        clock.ms += 1
        assert (await looking(BulkRunner(store), job.id)()).state == "interrupted"
    finally:
        await store.close()
