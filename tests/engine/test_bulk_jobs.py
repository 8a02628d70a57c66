"""Bulk jobs of one server as another one on the same store sees them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dragoman.admin.bulk import BulkJob, BulkQuery, BulkRequest
from dragoman.admin.tasks import TaskLine
from dragoman.engine.admin import bulk_jobs
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.bulk_jobs import BulkRunner
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
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


async def match(_: BulkRequest) -> AsyncIterator[TaskLine]:
    for number in range(TASKS):
        yield TaskLine(
            **dict.fromkeys(
                ("agent", "principal", "context", "dialect", "title", "text", "created_at", "status_at"), ""
            ),
            id=f"t{number}",
            state="working",
            phase="running",
            age_s=0.0,
        )


async def until(look: Callable[[], Awaitable[BulkJob]], *states: str) -> BulkJob:
    async with asyncio.timeout(DEADLINE_S):
        while (job := await look()).state not in states:
            await asyncio.sleep(0)
        return job


async def test_another_server_shows_a_job_and_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_jobs, "TELL_S", 0.0)
    clock, trail, gate = SetClock(), Trail(), asyncio.Event()
    store = open_store("memory:", clock)
    await store.open("h1")
    changed: list[str] = []

    async def change(_: Operator, __: BulkRequest, task_id: str) -> bool:
        await gate.wait()
        changed.append(task_id)
        return True

    here, there = BulkRunner(store), BulkRunner(store)
    running = asyncio.create_task(here.run())
    try:
        asked = Asked(OPS, BulkRequest(action="cancel", agent="echo"))
        started = await here.start(asked, match, change, AccessNotes(trail, clock))

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
                clock.ms += 1
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

    async def change(_: Operator, __: BulkRequest, ___: str) -> bool:
        return True

    try:
        runner, asked = BulkRunner(store), Asked(OPS, BulkRequest(action="delete", agent="echo"))
        await runner.start(asked, match, change, AccessNotes(Trail(), clock))
        with pytest.raises(UnsupportedOperation):
            await runner.start(asked, match, change, AccessNotes(Trail(), clock))
    finally:
        await store.close()
