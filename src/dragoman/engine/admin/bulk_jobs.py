"""Bulk jobs: acts on all tasks that a query finds, carried out beside the requests.

    waiting ──► finding ──► working ──► ended
                   │           ├──► stopped       an operator asked for it, at whatever server
                   └───────────┴──► failed        the store does not answer, or refuses the query

A job whose server has said nothing for `BEAT_LOST_MS` counts as interrupted. An operator of the server knows the jobs
of all teams.

Invariant: a task is changed only if its state fits the request at that moment. A job has one entry in the audit trail,
with its query and the number of tasks found, before it changes anything. Its progress is a shared entry, so that every
replica shows it and can stop it; a job itself ends with its process.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress

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
from dragoman.store.api import OutcomeUnknown, Store, StoreError
from dragoman.store.shared import SharedEntry, decode_entry

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 2
JOBS_MAX = 20
"""Most jobs of one team, or of the operators of the server, that wait or are under way on one server."""

TELL_S = 1.0
"""How often a job that goes on tells how far it is, and looks whether it shall stop."""

BEAT_MS = 10_000
"""How often a job says that it is there, though nothing has changed."""

KEPT_MS = 86_400_000
BEAT_LOST_MS = 30_000
"""After this silence a job counts as interrupted."""

QUERY_CHARACTERS = 500
"""Most characters of a query in the audit trail."""

Match = Callable[[BulkRequest], AsyncGenerator[Sequence[TaskLine], None]]
"""Finds the tasks, page by page; a page may be empty. Raises A2AError, StoreError."""

Change = Callable[[Operator, BulkRequest, str], Awaitable[bool]]
"""Changes one task; returns False if its state does not fit any more. Raises A2AError, StoreError, OutcomeUnknown."""


class JobBeat(Struct, frozen=True):
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
        self._jobs: dict[str, BulkJob] = {}
        """The jobs of this process that go on, or whose end is not told yet, by key."""
        self._told: dict[str, JobBeat] = {}
        """What was told of each of them last."""
        self._telling = asyncio.Lock()
        """Else an earlier word about a job might be written after its last one."""
        self._stopped: set[str] = set()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def start(self, asked: Asked[BulkRequest], match: Match, change: Change, notes: AccessNotes) -> BulkJob:
        """Begin a job. Raises UnsupportedOperation if too many wait, or StoreError."""
        own = _key(asked.operator, "")
        if sum(job.open for key, job in self._jobs.items() if key.startswith(own)) >= JOBS_MAX:
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
        self._jobs[key] = job
        try:
            await self._tell(key)
        except BaseException:
            self._forget(key)
            raise
        self._waiting.put_nowait(BulkWork(asked.given, asked.operator, job, match, change, notes))
        return job

    async def list(self, asked: Asked[BulkQuery]) -> BulkJobs:
        """The jobs that the operator may know, or one of them. Raises StoreError."""
        wanted = asked.given.id
        found = [self._read(entry) for entry in await self._shared.scan(_prefix(asked.operator))]
        jobs = [job for job in found if job is not None and wanted in ("", job.id)]
        return BulkJobs(jobs=tuple(sorted(jobs, key=lambda job: job.id, reverse=True)))

    async def stop(self, asked: Asked[None]) -> BulkJob:
        """Ask for the end of a job. Raises TaskNotFound, or StoreError."""
        for entry in await self._shared.scan(_prefix(asked.operator)):
            job = self._read(entry)
            if job is None or job.id != asked.id:
                continue
            if job.open or job.state == "interrupted":  # its server may only be slow to say something
                await self._shared.put(_stop_key(entry.key), b"", KEPT_MS)
                self._stop(entry.key)
            return self._jobs.get(entry.key, job)
        raise TaskNotFound(asked.id)

    def _read(self, entry: SharedEntry) -> BulkJob | None:
        known = self._jobs.get(entry.key)
        if known is not None:
            return known
        beat = decode_entry(entry, JobBeat)
        if beat is None:
            return None
        lost = beat.job.open and self._clock.now_ms() - beat.at_ms > BEAT_LOST_MS
        return replace(beat.job, state="interrupted") if lost else beat.job

    # -- work ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out jobs for ever."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_telling())
                for _ in range(JOBS_AT_ONCE):
                    group.create_task(self._work())
        except asyncio.CancelledError:  # the server ends, and so do the jobs that wait
            for key in tuple(self._jobs):
                await self._end(key)
            raise

    async def _work(self) -> None:
        while True:
            work = await self._waiting.get()
            key = _key(work.operator, work.job.id)
            if key not in self._jobs or not self._jobs[key].open:
                continue  # it was stopped before it began
            try:
                await self._carry_out(key, work)
            except A2AError as error:
                self._fail(key, error.message)
            except StoreError as error:
                self._fail(key, error.reason)
            finally:
                await self._end(key)

    async def _carry_out(self, key: str, work: BulkWork) -> None:
        """Raises A2AError, StoreError."""
        request = work.request
        self._change(key, state="finding")
        found, more = await self._find(key, work)
        if key in self._stopped:
            return self._change(key, state="stopped")
        if request.dry_run:
            return self._change(key, state="ended", more=more)
        subject = f"{request.query[:QUERY_CHARACTERS]}: {len(found)}"
        work.notes.note(work.operator, f"tasks.bulk-{request.action}", subject=subject)
        self._change(key, state="working", more=more)
        left = iter(found)
        async with asyncio.TaskGroup() as group:
            for _ in range(CHANGES_AT_ONCE):
                group.create_task(self._change_tasks(key, work, left))
        return self._change(key, state="stopped" if key in self._stopped else "ended")

    async def _find(self, key: str, work: BulkWork) -> tuple[Sequence[str], bool]:
        """The tasks that fit, up to the limit, and whether there are more. Ends early if the job shall stop."""
        limit = work.request.limit
        found: dict[str, None] = {}  # a task whose state changes meanwhile may come twice
        async with aclosing(work.match(work.request)) as pages:
            async for page in pages:
                found |= dict.fromkeys(line.id for line in page)
                self._change(key, found=min(len(found), limit))
                if len(found) > limit or key in self._stopped:
                    break
        return tuple(found)[:limit], len(found) > limit

    async def _change_tasks(self, key: str, work: BulkWork, left: Iterator[str]) -> None:
        for task_id in left:
            if key in self._stopped:
                return
            try:
                done = await work.change(work.operator, work.request, task_id)
            except (A2AError, StoreError, OutcomeUnknown) as error:
                job = self._jobs[key]
                failures = (*job.failures, ChangeFailure(id=task_id, reason=_reason(error)))[:FAILURES_MAX]
                self._change(key, failed=job.failed + 1, failures=failures)
            else:
                job = self._jobs[key]
                self._change(key, **({"done": job.done + 1} if done else {"skipped": job.skipped + 1}))

    def _change(self, key: str, **facts: object) -> None:
        self._jobs[key] = replace(self._jobs[key], **facts)

    async def _end(self, key: str) -> None:
        """Tell how a job has ended: it is interrupted if it had no other end."""
        if self._jobs[key].open:
            self._change(key, state="interrupted")
        with suppress(StoreError):  # then it is told later
            await self._tell(key)

    def _stop(self, key: str) -> None:
        """Let a job of this process end soon, if it goes on."""
        job = self._jobs.get(key)
        if job is not None and job.open:
            self._stopped.add(key)
            if job.state == "waiting":
                self._change(key, state="stopped")

    def _fail(self, key: str, reason: str) -> None:
        log.warning("the job %s has failed: %s", self._jobs[key].id, reason)
        self._change(key, state="failed")

    async def _keep_telling(self) -> None:
        """Tell how far the jobs are, also those that wait, and look whether they shall stop."""
        while True:
            await asyncio.sleep(TELL_S)
            for key in tuple(self._jobs):
                with suppress(StoreError):
                    await self._tell(key)
                    if await self._shared.get(_stop_key(key)) is not None:
                        self._stop(key)

    async def _tell(self, key: str) -> None:
        """Write how a job stands, unless that is known. Then a job that is over is forgotten. Raises StoreError."""
        async with self._telling:
            job, told, now_ms = self._jobs.get(key), self._told.get(key), self._clock.now_ms()
            if job is None:
                return
            if told is None or job is not told.job or now_ms - told.at_ms >= BEAT_MS:
                beat = JobBeat(job, now_ms)
                await self._shared.put(key, msgspec.msgpack.encode(beat), KEPT_MS)
                self._told[key] = beat
            if not job.open:
                self._forget(key)

    def _forget(self, key: str) -> None:
        self._jobs.pop(key, None)
        self._told.pop(key, None)
        self._stopped.discard(key)


def _reason(error: A2AError | StoreError | OutcomeUnknown) -> str:
    match error:
        case A2AError():
            return error.message
        case StoreError():
            return error.reason
        case _:
            return "the connection to the store was lost: it may have been changed, or not"


def _prefix(operator: Operator) -> str:
    """The beginning of the keys of all jobs that an operator may know. No id of a team has a slash."""
    return f"bulk/{operator.team}/" if operator.team else "bulk/"


def _key(operator: Operator, job_id: str) -> str:
    return f"bulk/{operator.team}/{job_id}"


def _stop_key(key: str) -> str:
    return f"stop-{key}"
