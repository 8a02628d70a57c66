"""Supervisor: starts the runs of this process, hands them their callers' messages and leases, and lets them go.

Invariant: a task has at most one run in this process. A run that does not stop is left behind, and its later writes are
refused (invariant 5).
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from dragoman.engine import policy
from dragoman.engine.api import Runner
from dragoman.engine.auto_runs import AutoRuns
from dragoman.engine.code_versions import CodeVersions
from dragoman.engine.ends import GONE_TEXT, TaskEnds
from dragoman.engine.errands import Errands
from dragoman.engine.leases import TaskLeases
from dragoman.engine.log import Log, read_whole
from dragoman.engine.observer import Execution, Observer
from dragoman.engine.runs.auto_run import AutoRun
from dragoman.engine.runs.endings import agent_error
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.replay import NOTHING, Replay, replay_of
from dragoman.engine.runs.run import RunPhase, TaskRun
from dragoman.engine.runs.services import RunServices
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import Unavailable
from dragoman.model.events import Logged
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.task import TaskState
from dragoman.store.api import Fenced, Refused, StoreError
from dragoman.store.blobs.api import BlobMissing
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.runs")

UNASKED = frozenset((RunPhase.WORKING, RunPhase.OVERDUE))
"""The states of a run that was not asked to end its task as canceled."""


class Supervisor:
    """Owns the asyncio tasks of all runs of this process. They count as work of the `errands`.

    `leases` says which tasks run here, and `runs` are the runs. A run begins with an agent of `leases.served`, and
    keeps it. `ends` ends tasks in place of their runs, and `versions` hands on those that began with other code.
    """

    def __init__(
        self,
        leases: TaskLeases,
        runs: Runs,
        tasks: Tasks,
        ends: TaskEnds,
        versions: CodeVersions,
        errands: Errands,
        auto_runs: AutoRuns,
        services: RunServices,
        observer: Observer | None = None,
    ) -> None:
        self.leases = leases
        self.runs = runs
        self.ends = ends
        self.errands = errands
        self.stopping = services.stopping
        self.loop = services.loop
        """The loop of the runs. Asking asyncio for it costs a system call (getpid, CPython 3.11)."""
        self._versions = versions
        self._tasks = tasks
        self._auto_runs = auto_runs
        self._services = services
        self._observer = observer

    def refusal(self) -> Unavailable:
        """Why no work can be taken now."""
        if self.stopping.begun:
            return policy.stopping()
        return Unavailable("the server has lost touch with its store: send again in a moment", 5)

    # -- runs --------------------------------------------------------------------------------------------------------

    def works_on(self, task_id: str) -> bool:
        """Whether a run of this process works on the task. One that has lost it does not."""
        run = self.runs.of_id(task_id)
        return run is not None and run.phase is not RunPhase.FENCED

    def attends_to(self, task_id: str) -> bool:
        """As `works_on`, or an errand of this process does."""
        return self.works_on(task_id) or self.errands.has(task_id)

    def changes(self, task_id: str) -> bool:
        """Whether an errand or a write of this process may still give the task a run, or take it from here."""
        task = self._tasks.known(task_id)
        return self.errands.has(task_id) or (task is not None and task.writes.busy)

    @property
    def may_write_tasks(self) -> bool:
        """Whether a run may still become a task, as it may during a drain."""
        return not (self.errands.closed or self.leases.fenced)

    def start(
        self,
        runner: Runner,
        task: Log,
        message: Message,
        replay: Replay | None = None,
        auto: AutoRun | None = None,
    ) -> None:
        """Run a task that has been leased. Without a `replay` it has just been written, with `auto` by that run.

        After the drain the task is left to the next start, while this process is fenced to those who claim it.
        """
        observer = self._observer
        if observer is not None and replay is None:
            observer.submitted(task.head.agent)
        if self.errands.closed or self.leases.fenced or task.row.holder != self.leases.holder:
            if auto is not None:
                auto.drop()
            return
        head = task.head
        execution: Execution | None = None
        if auto is not None:
            execution = self._auto_runs.take_execution(auto)
        if observer is not None and execution is None:
            execution = observer.executing(head, runner)
        traced = None if execution is None else execution.traceparent
        run = TaskRun(
            runner,
            task,
            message,
            replay or NOTHING,
            self._services,
            replay is None,
            traced or head.traceparent,
            execution,
            None if auto is None else auto.resume,
            None if auto is None else auto.run,
        )
        self.runs.add(run, self)
        context = None if execution is None else execution.context
        asyncio_task = self.loop.create_task(run.run_to_end(), context=context)
        run.begin(asyncio_task)
        self.errands.active.add(asyncio_task)
        asyncio_task.add_done_callback(partial(self._done, run, task, execution))

    def _done(self, run: TaskRun, task: Log, execution: Execution | None, done: "asyncio.Task[None]") -> None:
        if execution is not None:
            execution.finished(SPELLED[task.row.state])
        self.errands.active.discard(done)
        error = None if done.cancelled() else done.exception()
        run.release()
        phase = run.phase
        if phase is RunPhase.FENCED:
            self._report_lost(task)
        if error is not None and not self.errands.closed:
            self.errands.give_up_on(task, error)
        elif phase is RunPhase.UNWRITTEN and not self.errands.closed:
            self.errands.do_late(task, lambda: self.errands.fail(task, policy.UNWRITTEN_TEXT, run.lease))
        elif done.cancelled() and phase in UNASKED and not (task.terminal or self.errands.closed):
            self._end_canceled(task, run.lease)
        self.runs.remove(run)
        if task.followers.waiters or task.followers.parked:
            task.followers.wake()

    def _report_lost(self, task: Log) -> None:
        """Say that another server has taken a task over that was run here."""
        agent = task.head.agent
        log.info(
            "agent %s: another server has leased task %s, which was run here", agent, task.head.id, extra=about(agent)
        )
        if self._observer is not None:
            self._observer.lease_lost(agent)

    def drop_suspended(self, task: Log) -> None:
        """Keep the suspended run of a task no longer, nor that of a task that sleeps. Its next run does not wait until
        the agent has cleaned up."""
        run = self.runs.of(task)
        if run is not None and run.asleep:
            self.runs.leave_behind(run)
        elif run is not None and run.suspended:
            if self.leases.shared:
                self.errands.do(task, lambda: self._disown(task))  # first: it keeps the task in memory
            self.runs.leave_behind(run)

    async def _disown(self, task: Log) -> None:
        """Keep the run of a task no longer. If the lease was offered meanwhile, run its agent again."""
        if await self.leases.disown(task):
            self.errands.pass_over(task.head.id)

    def queued(self, task: Log) -> None:
        """Note that a task was made that other replicas run, or workers do."""
        if self._observer is not None:
            self._observer.submitted(task.head.agent)
        self.leases.tell(task, None)

    def answer(self, task: Log, message: Message | None) -> None:
        """Resume a task that has been leased anew, with the caller's answer, or None if no answer is wanted any more.

        Its suspended run goes on, or a new one replays.
        """
        run = self.runs.of(task)
        if run is not None:
            if run.resume(message):
                return
            self.runs.leave_behind(run)
        self._start_replay(task, crashed=message is None)

    def leased_anew(self, task: Log) -> bool:
        """See `engine.followers.RunKeeper`."""
        leases, run = self.leases, self.runs.of(task)
        if run is None or run.log is not task:
            return False
        if task.row.holder == leases.holder and run.resumes_under(task.row.epoch) and leases.takes_work:
            self.errands.do(task, lambda: self._accept(task))
            return True
        run.lose(Fenced(task.head.id))
        return False

    def remembers_more(self, task: Log) -> bool:
        """See `engine.followers.RunKeeper`."""
        run = self.runs.of(task)
        if run is None or run.log is not task or not (run.runner.traits.restartable or task.fold.steps):
            return False
        return run.sink.remembers_more

    async def _accept(self, task: Log) -> None:
        """Accept a lease that was offered for a suspended run, and let it go on with what the caller said."""

        def accepted() -> None:
            run = self.runs.of(task)
            if run is None or not run.resume_offered():
                if run is not None:
                    self.runs.leave_behind(run)
                self._start_replay(task, crashed=False)

        epoch = task.row.epoch
        try:
            await self.leases.accept(task, accepted)
        except Refused:
            if (run := self.runs.of(task)) is not None and run.lease < epoch:
                self.runs.leave_behind(run)

    def deliver(self, task: Log, message: Message, answers: bool = False) -> None:
        """See `engine.followers.RunKeeper`. Callers' messages to a working task come this way, too."""
        run = self.runs.of(task)
        if run is not None:
            run.receive(message, answers)

    async def take_back(self, task: Log, child_id: str) -> None:
        """Withdraw the question that the task asks on behalf of its child, if that is the one now open."""
        await self.leases.take_back(task, child_id, lambda: self.answer(task, None))

    async def resume(self, task: Log, *, crashed: bool) -> None:
        """Resume a task that this process has claimed. Raises StoreError, or Refused if the lease is lost again."""
        run = self.runs.of(task)
        if run is not None and run.resumes_under(task.row.epoch):
            await self._accept(task)
        elif not self._versions.fit(task):
            if run is not None:
                self.runs.leave_behind(run)
            await self._versions.hand_on(task, task.row.epoch)
        elif await self.leases.use_claim(task):
            if run is not None:
                self.runs.leave_behind(run)
            self._start_replay(task, crashed=crashed)

    def _start_replay(self, task: Log, *, crashed: bool) -> None:
        epoch = task.row.epoch
        self.errands.do(task, lambda: self._replay(task, epoch, crashed=crashed))

    async def _replay(self, task: Log, epoch: int, *, crashed: bool) -> None:
        read = 0  # how far the log reached when it was last read
        while True:
            whole, damaged, fits = await self._read_log(task), False, True
            try:
                async with task.writes.turn(task):  # an end that is being written comes first, and so does a message
                    leased_here = task.row.holder == self.leases.holder and task.row.epoch == epoch
                    if self.runs.of(task) is not None or not leased_here or self.errands.closed:
                        return  # it has a run here, or has ended, or has been leased anew
                    last = whole[-1].seq if whole and whole[0].seq == 1 else read
                    if read < last < task.seq:
                        read = last
                        continue
                    if last < task.seq:  # events that the store had said to be there cannot be read
                        damaged = True
                    elif not (
                        fits := self._versions.fit(task)
                    ):  # the agents were replaced, or the lease came with an answer
                        pass
                    elif (runner := self.leases.served.runners.get(task.head.agent)) is not None:
                        prefix = (logged for logged in whole if logged.seq <= task.seq)  # the rest comes with a refresh
                        message, replay = replay_of(task.head, prefix, crashed=crashed)
                        self.start(runner, task, message, replay)
                        return
                if not fits:
                    await self._versions.hand_on(task, epoch)
                    return
                text, reason = (policy.UNREADABLE_TEXT, "unreadable") if damaged else (GONE_TEXT, "interrupted")
                await self.ends.end(task, TaskState.FAILED, text, reason, epoch=epoch)
            except StoreError as error:
                log.warning("task %s waits: %s", task.head.id, error)
                await asyncio.sleep(self._services.retry_s)
            else:
                return

    async def _read_log(self, task: Log) -> tuple[Logged, ...]:
        """The whole log as an agent sees it, with the bytes of its files."""
        while True:
            try:
                return await self._services.files.log(await read_whole(task))
            except BlobMissing:
                raise
            except StoreError as error:
                log.warning("task %s waits: its log cannot be read: %s", task.head.id, error)
                await asyncio.sleep(self._services.retry_s)

    def _end_canceled(self, task: Log, epoch: int) -> None:
        """End a task whose agent canceled the asyncio task of its own run: the engine notes why before it does that.

        If the group has ended, the server goes down, and it was not the agent.
        """

        async def blame() -> None:
            end = agent_error(task.head, "canceled its own run:", asyncio.CancelledError())
            (said,) = end.parts
            await self.ends.end(task, end.state, said.text or "", end.reason, epoch=epoch)

        with suppress(RuntimeError):
            self.errands.do(task, blame)

    # -- the end of all -------------------------------------------------------------------------------

    def fence(self) -> None:
        """Stop all runs without writing anything, because others may take their tasks. Nothing begins meanwhile."""
        self.leases.fence()
        log.warning("the store has not heard of this server for too long: its %d runs stop", len(self.runs))
        for run in self.runs:
            try:
                self.runs.leave_behind(run)
            except Exception:  # one run must not keep the others at work
                log.exception("task %s: its run cannot be stopped", run.head.id)

    async def wait_for(self, runners: Iterable[Runner]) -> None:
        """Wait until no run of these agents is left. A suspended one is kept for `suspend_max_s`."""
        those = tuple(runners)
        left = [run.task for run in self.runs if run.runner in those]
        begun = [task for task in left if task is not None] + self._auto_runs.of(those)
        if begun:
            await asyncio.wait(begun)
