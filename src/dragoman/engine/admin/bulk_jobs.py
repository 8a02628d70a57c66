"""Bulk jobs: acts on all tasks that a query finds, carried out beside the requests.

    waiting ──► finding ──► working ──► ended
                   │           ├──► stopped       an operator asked for it, at whatever server
                   └───────────┴──► failed        the store does not answer

A job whose server has said nothing for `BEAT_LOST_MS` counts as interrupted.

Invariant: a task is changed only if its state fits the request at that moment. A job has one entry in the audit trail,
with its query and the number of tasks found, before it changes anything. Its progress is a shared entry, so that every
replica shows it and can stop it; a job itself ends with its process.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.admin.bulk import FAILURES_MAX, BulkJob, BulkJobs, BulkQuery, BulkRequest
from dragoman.admin.tasks import ChangeFailure, TaskLine
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.task_batches import CHANGES_AT_ONCE
from dragoman.model.errors import A2AError, TaskNotFound, UnsupportedOperation
from dragoman.model.ids import Clock, new_id, timestamp
from dragoman.store.api import Store, StoreError
from dragoman.store.shared import SharedEntry, decode_entry

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 2
JOBS_MAX = 20
"""Most jobs that wait or are under way on one server."""

TELL_S = 1.0
"""How often a job tells how far it is."""

KEPT_MS = 86_400_000
BEAT_LOST_MS = 30_000
"""After this silence a job counts as interrupted."""

QUERY_CHARACTERS = 500
"""Most characters of a query in the audit trail."""

Match = Callable[[BulkRequest], AsyncIterator[TaskLine]]
Change = Callable[[Operator, BulkRequest, str], Awaitable[bool]]
"""Changes one task; returns False if its state does not fit any more. Raises A2AError."""


class Beat(Struct, frozen=True):
    """A job as its process wrote it at a time."""

    job: BulkJob
    at_ms: int


class BulkWork(Struct, frozen=True):
    """A job with what it needs."""

    request: BulkRequest
    operator: Operator
    job: BulkJob
    match: Match
    change: Change
    notes: AccessNotes


class BulkRunner:
    """Carries out the jobs of one server, a few at a time, and knows those of all."""

    def __init__(self, store: Store) -> None:
        self._shared = store.shared
        self._clock: Clock = store.clock
        self._waiting: asyncio.Queue[BulkWork] = asyncio.Queue()
        self._open: dict[str, BulkJob] = {}
        """The jobs of this process that go on, by key."""
        self._stopped: set[str] = set()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def start(self, asked: Asked[BulkRequest], match: Match, change: Change, notes: AccessNotes) -> BulkJob:
        """Begin a job. Raises UnsupportedOperation if too many wait, or StoreError."""
        if len(self._open) >= JOBS_MAX:
            raise UnsupportedOperation(f"{JOBS_MAX} such jobs are under way: wait for one, or stop one")
        job = BulkJob(
            id=new_id(),
            action=asked.given.action,
            query=asked.given.query,
            by=asked.operator.principal,
            state="waiting",
            started_at=timestamp(self._clock.now_ms()),
            dry_run=asked.given.dry_run,
        )
        key = _key(asked.operator, job.id)
        await self._tell(key, job)
        self._open[key] = job
        self._waiting.put_nowait(BulkWork(asked.given, asked.operator, job, match, change, notes))
        return job

    async def list(self, asked: Asked[BulkQuery]) -> BulkJobs:
        """The jobs of the operator's team, or of the server. Raises StoreError."""
        found = await self._shared.scan(_key(asked.operator, asked.given.id))
        jobs = [job for entry in reversed(found) if (job := self._read(entry)) is not None]
        return BulkJobs(jobs=tuple(jobs))

    async def stop(self, asked: Asked[None]) -> BulkJob:
        """Ask for the end of a job. Raises TaskNotFound, or StoreError."""
        key = _key(asked.operator, asked.id)
        entry = await self._shared.get(key)
        job = None if entry is None else self._read(entry)
        if job is None:
            raise TaskNotFound(asked.id)
        if job.open:
            self._stopped.add(key)
            await self._shared.put(_stop_key(key), b"", KEPT_MS)
        return job

    def _read(self, entry: SharedEntry) -> BulkJob | None:
        known = self._open.get(entry.key)
        if known is not None:
            return known
        beat = decode_entry(entry, Beat)
        if beat is None:
            return None
        lost = beat.job.open and self._clock.now_ms() - beat.at_ms > BEAT_LOST_MS
        return replace(beat.job, state="interrupted") if lost else beat.job

    # -- work ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out jobs for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(JOBS_AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            work = await self._waiting.get()
            key = _key(work.operator, work.job.id)
            telling = asyncio.create_task(self._keep_telling(key))
            try:
                await self._carry_out(key, work)
            except StoreError as error:
                log.warning("the job %s has failed: %s", work.job.id, error)
                self._change(key, state="failed")
            finally:
                telling.cancel()
                job = self._open[key]
                with suppress(StoreError):
                    await self._tell(key, replace(job, state="interrupted") if job.open else job)
                del self._open[key]
                self._stopped.discard(key)

    async def _carry_out(self, key: str, work: BulkWork) -> None:
        request, found = work.request, list[str]()
        self._change(key, state="finding")
        async for line in work.match(request):
            if key in self._stopped:
                return self._change(key, state="stopped")
            if len(found) == request.limit:
                self._change(key, more=True)
                break
            found.append(line.id)
            self._change(key, found=len(found))
        if request.dry_run:
            return self._change(key, state="ended")
        subject = f"{request.query[:QUERY_CHARACTERS]}: {len(found)}"
        work.notes.note(work.operator, f"tasks.bulk-{request.action}", subject=subject)
        self._change(key, state="working")
        left = iter(found)
        async with asyncio.TaskGroup() as group:
            for _ in range(CHANGES_AT_ONCE):
                group.create_task(self._change_tasks(key, work, left))
        self._change(key, state="stopped" if key in self._stopped else "ended")

    async def _change_tasks(self, key: str, work: BulkWork, left: Iterator[str]) -> None:
        for task_id in left:
            if key in self._stopped:
                return
            try:
                done = await work.change(work.operator, work.request, task_id)
            except (A2AError, StoreError) as error:
                job, reason = self._open[key], error.message if isinstance(error, A2AError) else error.reason
                failures = (*job.failures, ChangeFailure(id=task_id, reason=reason))[:FAILURES_MAX]
                self._change(key, failed=job.failed + 1, failures=failures)
            else:
                job = self._open[key]
                self._change(key, **({"done": job.done + 1} if done else {"skipped": job.skipped + 1}))

    def _change(self, key: str, **facts: object) -> None:
        self._open[key] = replace(self._open[key], **facts)

    async def _keep_telling(self, key: str) -> None:
        """Tell how far a job is, and look whether it shall stop."""
        while True:
            await asyncio.sleep(TELL_S)
            with suppress(StoreError):
                await self._tell(key, self._open[key])
                if await self._shared.get(_stop_key(key)) is not None:
                    self._stopped.add(key)

    async def _tell(self, key: str, job: BulkJob) -> None:
        await self._shared.put(key, msgspec.msgpack.encode(Beat(job, self._clock.now_ms())), KEPT_MS)


def _key(operator: Operator, job_id: str) -> str:
    """The key of a job, and the beginning of the keys of all. No id of a team has a slash."""
    return f"bulk/{operator.team}/{job_id}"


def _stop_key(key: str) -> str:
    return f"stop-{key}"
