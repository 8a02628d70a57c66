"""Supervisor: starts runs, hands them their callers' messages, stops them, and ends tasks in their place.

Invariant: a task has at most one run in this process. It ends once, by the first end to be committed. After that a run
that does not stop is left behind, and its later writes are refused (invariant 5).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from dragoman.engine import policy
from dragoman.engine.api import Runner
from dragoman.engine.bounds import Bounds
from dragoman.engine.effects import CancelChildren, ClaimSoon, Effects
from dragoman.engine.errands import Errands
from dragoman.engine.files import Files
from dragoman.engine.hints import Hints
from dragoman.engine.leases import TaskLeases
from dragoman.engine.observer import Execution, Observer
from dragoman.engine.policy import EngineSettings
from dragoman.engine.rules import Decision, EndTask
from dragoman.engine.runs.auto_run import AutoRun, Decided
from dragoman.engine.runs.endings import OVERDUE, agent_error, closing, failed, overdue_text
from dragoman.engine.runs.history import History
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.replay import NOTHING, Replay, replay_of
from dragoman.engine.runs.run import RunPhase, TaskRun
from dragoman.engine.runs.services import RunServices
from dragoman.engine.task_log import Stopping, TaskLog, read_whole
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import Unavailable
from dragoman.model.events import Logged
from dragoman.model.ids import Clock
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import Fenced, Refused, Store, StoreError
from dragoman.store.blobs.api import BlobMissing
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")

LEAVE_S = 1.0
"""How long the end of a drain waits for canceled agents, and tries to write the ends of their tasks. It is half of the
time that the server keeps of its grace period for closing (`server.shutdown`)."""

CANCEL_S = 0.1
"""The least time that a canceled agent has before it counts as one that does not stop."""

FAIL_AGAIN_S = 1.0
"""How long after a task's end could not be written it is tried again; twice as long each time, up to `FAIL_MAX_S`."""

FAIL_MAX_S = 60.0
"""The longest time between two tries."""

UNASKED = frozenset((RunPhase.WORKING, RunPhase.OVERDUE))
"""The states of a run that was not asked to end its task as canceled."""

INTERRUPTED_TEXT = "The run was interrupted by a restart of the server."
"""The text for the caller of a task whose run died with its process and cannot be repeated."""

GONE_TEXT = "The run was interrupted, and its agent is not served any more."
"""The text for a task that was to be run again, but whose agent is gone."""


class Supervisor:
    """Owns the asyncio tasks of all runs of this process, and of the work beside them ("errands").

    `leases` says which tasks run here, and `runs` are the runs. A run begins with an agent of `leases.served`, and
    keeps it. `effects` get what has to follow elsewhere in the engine. `hints` are there if other engines write to the
    store.
    """

    def __init__(
        self,
        leases: TaskLeases,
        runs: Runs,
        tasks: Tasks,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        *,
        server: str,
        files: Files,
        past: History,
        effects: Effects,
        observer: Observer | None = None,
        hints: Hints | None = None,
    ) -> None:
        self.leases = leases
        self.runs = runs
        self.stopping = Stopping()
        self.loop: asyncio.AbstractEventLoop
        """The loop of the runs, from `begin` on. Asking asyncio for it costs a system call (getpid, CPython 3.11)."""
        self._tasks = tasks
        self._store = store
        self._clock = clock
        self._settings = settings
        self._server = server
        self._files = files
        self._past = past
        self._effects = effects
        self._observer = observer
        self._hints = hints
        self._services: RunServices | None = None
        self._auto_runs: dict[AutoRun, Runner] = {}
        self._executions: dict[AutoRun, Execution] = {}
        """The observation of the runs that have neither answered nor become a task."""
        self._polling: asyncio.Task[None] | None = None
        self._hearing: asyncio.Task[None] | None = None
        self.errands = Errands(self, tasks, effects, retry_s=settings.retry_s)

    def start_errands(self, group: JobGroup) -> None:
        """Start errands in `group` from now on.

        Runs stay outside: a group would wait for ever for an agent that ignores its cancellation.
        """
        self.errands.start(group)
        self.loop = loop = asyncio.get_running_loop()
        self._services = RunServices(
            clock=self._clock,
            loop=loop,
            past=self._past,
            files=self._files,
            bounds=Bounds(self._settings.max_text),
            server=self._server,
            effects=self._effects,
            stopping=self.stopping,
            suspend_max_s=self._settings.suspend_max_s,
            retry_s=self._settings.retry_s,
        )
        if self._hints is not None:
            self._polling = group.keep("poll", partial(self._poll, self._hints))
            self._hearing = group.keep("hints", self._hints.run)

    def refusal(self) -> Unavailable:
        """Why no work can be taken now."""
        if self.stopping.begun:
            return policy.stopping()
        return Unavailable("the server has lost touch with its store: send again in a moment", 5)

    # -- runs --------------------------------------------------------------------------------------------------------

    def attends_to(self, task_id: str) -> bool:
        """Whether a run or an errand of this process works on the task."""
        return self.runs.of_id(task_id) is not None or self.errands.has(task_id)

    def works_on(self, task_id: str) -> bool:
        """As `attends_to`, or it is being written to, as a task is whose run has yet to begin."""
        task = self._tasks.known(task_id)
        return self.attends_to(task_id) or (task is not None and task.writes.busy)

    @property
    def may_write_tasks(self) -> bool:
        """Whether a run may still become a task, as it may during a drain."""
        return not (self.errands.closed or self.leases.fenced)

    def start_auto(self, runner: Runner, head: TaskHead, make: Callable[[RunServices, str | None], AutoRun]) -> AutoRun:
        """Start the run that `make` makes with its trace, which is to become a task or to answer with a Message."""
        if self._services is None:
            raise RuntimeError("the engine has not been started")
        execution: Execution | None = None
        if self._observer is not None:
            execution = self._observer.executing(head.agent, head.id, head.traceparent)
        traced = None if execution is None else execution.traceparent
        run = make(self._services, traced or head.traceparent)
        context = None if execution is None else execution.context
        asyncio_task = self.loop.create_task(run.run_to_end(), context=context)
        self.errands.active.add(asyncio_task)
        self._auto_runs[run] = runner
        if execution is not None:
            self._executions[run] = execution
            run.outcome.add_done_callback(partial(self._decided, run))
        wait_s = runner.traits.direct_wait_s
        run.begin(asyncio_task, min(wait_s, runner.traits.deadline_s or wait_s))
        asyncio_task.add_done_callback(partial(self._auto_done, run))
        return run

    def _decided(self, run: AutoRun, outcome: "asyncio.Future[Decided]") -> None:
        """The run has an outcome. Its observation ends, unless the run of the task has taken it over."""
        execution = self._executions.pop(run, None)
        if execution is not None:
            failed = outcome.cancelled() or outcome.exception() is not None
            execution.finished("failed" if failed else "completed")

    def _auto_done(self, run: AutoRun, done: "asyncio.Task[None]") -> None:
        self.errands.active.discard(done)
        del self._auto_runs[run]
        if not done.cancelled():
            done.exception()  # the run of the task reports it

    def start(
        self,
        runner: Runner,
        task: TaskLog,
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
        if self._services is None:
            raise RuntimeError("the engine has not been started")
        head = task.head
        execution: Execution | None = None
        if auto is not None:
            execution = self._executions.pop(auto, None)
        if observer is not None and execution is None:
            execution = observer.executing(head.agent, head.id, head.traceparent)
        traced = None if execution is None else execution.traceparent
        run = TaskRun(
            runner,
            task,
            message,
            replay or NOTHING,
            self._services,
            self,
            announce=replay is None,
            traceparent=traced or head.traceparent,
            work=None if auto is None else auto.resume,
            run=None if auto is None else auto.run,
        )
        self.runs.add(run)
        task.pin()
        task.followers.attach(run)
        context = None if execution is None else execution.context
        asyncio_task = self.loop.create_task(run.run_to_end(), context=context)
        run.begin(asyncio_task)
        self.errands.active.add(asyncio_task)
        asyncio_task.add_done_callback(partial(self._done, run, task, execution))

    def _done(self, run: TaskRun, task: TaskLog, execution: Execution | None, done: "asyncio.Task[None]") -> None:
        if execution is not None:
            execution.finished(SPELLED[task.row.state])
        self.errands.active.discard(done)
        error = None if done.cancelled() else done.exception()
        run.release()
        phase = run.phase
        if phase is RunPhase.FENCED:
            self._report_lost(task)
        if error is not None and not self.errands.closed:
            self.give_up_on(task, error)
        elif phase is RunPhase.UNWRITTEN and not self.errands.closed:
            self.errands.do_late(task, lambda: self._fail(task, policy.UNWRITTEN_TEXT, run.lease))
        elif done.cancelled() and phase in UNASKED and not (task.terminal or self.errands.closed):
            self._end_canceled(task, run.lease)
        self._forget(run, task)
        if task.followers.waiters:
            task.followers.wake()

    def _report_lost(self, task: TaskLog) -> None:
        """Say that another server has taken a task over that was run here."""
        agent = task.head.agent
        log.info(
            "agent %s: another server has leased task %s, which was run here", agent, task.head.id, extra=about(agent)
        )
        if self._observer is not None:
            self._observer.lease_lost(agent)

    def drop_suspended(self, task: TaskLog) -> None:
        """Keep the suspended run of a task no longer. An answer does not wait until its agent has cleaned up."""
        run = self.runs.of(task)
        if run is not None and run.suspended:
            if self._hints is not None:
                self.errands.do(task, lambda: self._disown(task))  # first: it keeps the task in memory
            self._leave_behind(run, task)

    async def _disown(self, task: TaskLog) -> None:
        """Keep the run of a task no longer. If the lease was offered meanwhile, run its agent again."""
        if await self.leases.disown(task):
            self.errands.pass_over(task.head.id)

    def queued(self, task: TaskLog) -> None:
        """Note that a task was made that other replicas run, or workers do."""
        if self._observer is not None:
            self._observer.submitted(task.head.agent)
        self.leases.tell(task, None)

    def answer(self, task: TaskLog, message: Message | None) -> None:
        """Resume a task that has been leased anew, with the caller's answer, or None if no answer is wanted any more.

        Its suspended run goes on, or a new one replays.
        """
        run = self.runs.of(task)
        if run is not None:
            if run.resume(message):
                return
            self._leave_behind(run, task)
        self._take_up(task, crashed=message is None)

    def leased_anew(self, run: TaskRun) -> bool:
        """See `engine.runs.run.RunKeeper`."""
        leases, task = self.leases, run.log
        if task.holder == leases.holder and run.resumes_under(task.epoch) and leases.takes_work:
            self.errands.do(task, lambda: self._accept(task))
            return True
        run.lose_lease()
        return False

    async def _accept(self, task: TaskLog) -> None:
        """Accept a lease that was offered for a suspended run, and let it go on with what the caller said."""

        def accepted() -> None:
            run = self.runs.of(task)
            if run is None or not run.resume_offered():
                if run is not None:
                    self._leave_behind(run, task)
                self._take_up(task, crashed=False)

        epoch = task.epoch
        try:
            await self.leases.accept(task, accepted)
        except Refused:
            if (run := self.runs.of(task)) is not None and run.lease < epoch:
                self._leave_behind(run, task)

    def deliver(self, task: TaskLog, message: Message) -> None:
        """Hand a message to the run of a working task."""
        run = self.runs.of(task)
        if run is not None:
            run.receive(message)

    async def take_back(self, task: TaskLog, child_id: str) -> None:
        """Withdraw the question that the task asks on behalf of its child, if that is the one now open."""
        await self.leases.take_back(task, child_id, lambda: self.answer(task, None))

    def _leave_behind(self, run: TaskRun, task: TaskLog) -> None:
        """Abandon the run and forget it, even if it does not stop. Its task goes on without it."""
        run.abandon()
        self._forget(run, task)

    def _forget(self, run: TaskRun, task: TaskLog) -> None:
        if self.runs.remove(run):
            task.followers.detach()
            task.unpin()

    async def resume(self, task: TaskLog, *, crashed: bool) -> None:
        """Resume a task that this process has claimed. Raises StoreError, or Refused if the lease is lost again."""
        run = self.runs.of(task)
        if run is not None and run.resumes_under(task.epoch):
            await self._accept(task)
        elif await self.leases.use_claim(task):
            if run is not None:
                self._leave_behind(run, task)
            self._take_up(task, crashed=crashed)

    def _take_up(self, task: TaskLog, *, crashed: bool) -> None:
        self.errands.do(task, lambda: self._replay(task, crashed=crashed))

    async def _replay(self, task: TaskLog, *, crashed: bool) -> None:
        read = 0  # how far the log reached when it was last read
        while True:
            whole, damaged = await self._read_log(task), False
            try:
                async with task.writes.turn(task):  # an end that is being written comes first, and so does a message
                    if self.runs.of(task) is not None or task.holder != self.leases.holder or self.errands.closed:
                        return  # it has a run here, or has ended, or another engine has leased it
                    last = whole[-1].seq if whole and whole[0].seq == 1 else read
                    if read < last < task.seq:
                        read = last
                        continue
                    if last < task.seq:  # events that the store had said to be there cannot be read
                        damaged = True
                    elif (runner := self.leases.served.runners.get(task.head.agent)) is not None:
                        prefix = (logged for logged in whole if logged.seq <= task.seq)  # the rest comes with a refresh
                        message, replay = replay_of(task.head, prefix, crashed=crashed)
                        self.start(runner, task, message, replay)
                        return
                text, reason = (policy.UNREADABLE_TEXT, "unreadable") if damaged else (GONE_TEXT, "interrupted")
                await self.end(task, TaskState.FAILED, text, reason, epoch=task.epoch)
            except StoreError as error:
                log.warning("task %s waits: %s", task.head.id, error)
                await asyncio.sleep(self._settings.retry_s)
            else:
                return

    async def _read_log(self, task: TaskLog) -> tuple[Logged, ...]:
        """The whole log as an agent sees it, with the bytes of its files."""
        while True:
            try:
                return await self._files.log(await read_whole(task))
            except BlobMissing:
                raise
            except StoreError as error:
                log.warning("task %s waits: its log cannot be read: %s", task.head.id, error)
                await asyncio.sleep(self._settings.retry_s)

    # -- ends that a run does not write ------------------------------------------------------------------------------

    async def cancel(self, task: TaskLog) -> None:
        """Stop the task's run and cancel the task. Returns when the task is terminal, in whatever state.

        An agent that has not stopped within `cancel_grace_s` is left behind, and its later writes are refused. A cancel
        that has begun is carried out, even if its caller leaves. Raises StoreError if it cannot be written now.

        At the end of a drain this does nothing.
        """
        if self.errands.closed:
            return
        if self._observer is not None:
            self._observer.cancel_requested(task.head.agent)
        waiter: asyncio.Future[None] = self.loop.create_future()
        self.errands.do_late(task, lambda: self._cancel(task, waiter))
        await waiter

    async def _cancel(self, task: TaskLog, waiter: "asyncio.Future[None]") -> None:
        """Cancel the task. `waiter` finishes when the task is terminal, or with the error that prevents the cancel."""

        def refuse(error: StoreError) -> None:
            if not waiter.done():
                waiter.set_exception(error)

        stopped = False
        run = self.runs.of(task)
        idle = run is None or run.suspended
        try:
            while not task.terminal:
                try:
                    if not stopped:
                        await self._stop_run(task)
                        stopped = True
                    await self.end(task, TaskState.CANCELED, in_doubt=refuse)
                except StoreError as error:
                    refuse(error)
                    if not stopped:
                        return
                    await asyncio.sleep(self._settings.retry_s)
                except Refused:
                    break
        except Exception as error:  # the waiter gets it, too
            if not waiter.done():
                waiter.set_exception(error)
            raise
        finally:
            if not waiter.done():
                waiter.set_result(None)
        if idle:
            self.tell_runner(task)

    def stop_overdue(self, task: TaskLog) -> None:
        """End the tasks that a task past its deadline delegated, and its own run, if the agent does not stop."""
        run = self.runs.of(task)
        if run is not None and run.canceled:
            self._stop_children(task)
            self.errands.do(task, lambda: self._end_overdue(run))

    def _stop_children(self, task: TaskLog) -> None:
        """Have the tasks ended that a task delegated, because it is to stop."""
        self._effects.put(CancelChildren(task))

    async def _end_overdue(self, run: TaskRun) -> None:
        """Let the agent clean up for `cancel_grace_s`. Then its task fails without it."""
        task, deadline = run.log, self.loop.time() + self._settings.cancel_grace_s
        while not task.terminal and self.runs.of(task) is run:
            if not await task.followers.wait(task, self.loop, deadline):
                break
        while not task.terminal and self.runs.of(task) is run:
            assert run.deadline is not None
            try:
                await self.end(task, TaskState.FAILED, overdue_text(run.deadline.limit_s), OVERDUE, epoch=run.lease)
            except StoreError:
                await asyncio.sleep(self._settings.retry_s)
            except Refused:
                return

    async def _stop_run(self, task: TaskLog) -> None:
        """Mark the task, ask its run to stop, and wait for that up to `cancel_grace_s`; not for a suspended run."""
        run = self.runs.of(task)
        if (run is None and not self.leases.is_elsewhere(task)) or (run is not None and run.suspended):
            return
        await self._store.request_cancel(task.head.id)
        if run is not None:
            run.cancel()
            self._stop_children(task)
        elif self._hints is not None and task.holder is not None:
            self._hints.tell(task.holder)
        deadline = self.loop.time() + self._settings.cancel_grace_s
        while not task.terminal and (self.runs.of(task) is not None or self.leases.is_elsewhere(task)):
            if not await task.followers.wait(task, self.loop, deadline):
                return

    async def end(
        self,
        task: TaskLog,
        state: TaskState,
        text: str = "",
        reason: str = "",
        *,
        epoch: int | None = None,
        in_doubt: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Write the end of a task in place of its run, unless it has ended. Raises StoreError, or Unknown.

        With `epoch` it ends only while that is the epoch of its lease: not once it has been released, or another engine
        has leased it. `in_doubt` is as in `WriteQueue.append`.
        """

        def decide(log: TaskLog) -> Decision | None:
            run = self.runs.of(log)
            if run is not None:
                run.abandon()
            end = closing(log.head, state, self._clock.now_ms(), text, reason, log.fold.usage)
            return self.leases.decide(EndTask(end, epoch), log)

        run = self.runs.of(task)
        if run is not None:
            run.abandon()
        try:
            await task.writes.append(task, decide, in_doubt=in_doubt)
        except Fenced:
            return
        run = self.runs.of(task)
        if run is not None:  # it does not stop; the task has ended without it
            self._leave_behind(run, task)

    def tell_runner(self, task: TaskLog) -> None:
        """Tell the runner of a canceled task that no run ended here, because the task may live on elsewhere."""
        agent, runners = task.head.agent, self.leases.served.runners
        if agent in runners and task.state is TaskState.CANCELED:
            runners[agent].stopped(task.record())

    async def end_failed(self, task: TaskLog, error: Exception) -> None:
        """See `engine.errands.ErrandOwner`."""
        if self.leases.is_elsewhere(task):
            log.error("task %s: another server works on it, but an error happened here", task.head.id, exc_info=error)
        else:
            await self._fail(task, *self._fault(task, error))

    def give_up_on(self, task: TaskLog, error: BaseException) -> None:
        """End a task on which the engine itself failed, so that it is not `working` for ever."""
        self.errands.do_late(task, lambda: self._fail(task, *self._fault(task, error)))

    def _fault(self, task: TaskLog, error: BaseException) -> tuple[str, int | None]:
        """Log an error of the server. Returns the text for the caller, and the epoch under which the task may be ended:
        others may lease it at any moment."""
        reference = failed(task.head, "met an error of the server", error)
        return f"The server failed (reference {reference}).", task.epoch if task.holder == self.leases.holder else None

    def _end_canceled(self, task: TaskLog, epoch: int) -> None:
        """End a task whose agent canceled the asyncio task of its own run: the engine notes why before it does that.

        If the group has ended, the server goes down, and it was not the agent.
        """

        async def blame() -> None:
            end = agent_error(task.head, "canceled its own run:", asyncio.CancelledError())
            (said,) = end.parts
            await self.end(task, end.state, said.text or "", end.reason, epoch=epoch)

        with suppress(RuntimeError):
            self.errands.do(task, blame)

    async def _fail(self, task: TaskLog, text: str, epoch: int | None, again_s: float = FAIL_AGAIN_S) -> None:
        """End a task as failed, because of an error of the server. An end that cannot be written is tried again."""
        try:
            while not task.terminal:
                try:
                    await self.end(task, TaskState.FAILED, text, "internal_error", epoch=epoch)
                except StoreError:
                    await asyncio.sleep(self._settings.retry_s)
                else:
                    return
        except Refused:
            return
        except Exception:  # it would end the group, and the server with it
            if again_s == FAIL_AGAIN_S:
                log.exception("task %s: its end cannot be written: it is tried again, ever less often", task.head.id)
            self.loop.call_later(again_s, self._fail_again, task.head.id, text, epoch, min(2 * again_s, FAIL_MAX_S))

    def _fail_again(self, task_id: str, text: str, epoch: int | None, again_s: float) -> None:
        """Try once more to end a task whose end could not be written, unless somebody works on it by now."""

        async def fail(task: TaskLog) -> None:
            if epoch is not None or task.holder is None:
                await self._fail(task, text, epoch, again_s)

        if not self.stopping.begun:
            self.errands.do_on(task_id, fail)

    # -- start and stop of the process -------------------------------------------------------------------------------

    def fence(self) -> None:
        """Stop all runs without writing anything, because others may take their tasks. Nothing begins meanwhile."""
        self.leases.fence()
        log.warning("the store has not heard of this server for too long: its %d runs stop", len(self.runs))
        for run in self.runs:
            self._leave_behind(run, run.log)

    async def _poll(self, hints: Hints) -> None:
        """Until the drain is over, find changes by other engines to the tasks in memory that no hint announced."""
        failing = False
        while True:
            due = await hints.due()
            try:
                if due:
                    await hints.refresh()
                else:
                    self._effects.put(ClaimSoon())
                await self._stop_canceled()
                failing = False
            except StoreError as error:
                if not failing:
                    log.warning("the tasks of other servers cannot be read: %s", error)
                failing = True

    async def _stop_canceled(self) -> None:
        """Stop the runs for which another engine has requested a cancel."""
        for task_id in await self._store.cancels(self.leases.holder):
            run = self.runs.of_id(task_id)
            if run is not None and not run.suspended:
                run.cancel()
                self._stop_children(run.log)

    async def wait_for(self, runners: Iterable[Runner]) -> None:
        """Wait until no run of these agents is left. A suspended one is kept for `suspend_max_s`."""
        those = tuple(runners)
        left = [run.task for run in self.runs if run.runner in those]
        left += [run.task for run, runner in self._auto_runs.items() if runner in those]
        begun = [task for task in left if task is not None]
        if begun:
            await asyncio.wait(begun)

    async def drain(self, grace_s: float) -> None:
        """Let runs end within `grace_s`, then stop them. Suspended runs are dropped; their answers will be replayed.

        Streams end at once, with the hint to come back. Callers that wait for a task wait until the runs are over. Runs
        of restartable agents run again at the next start. The others fail now, with reason `interrupted`.
        """
        self.stopping.begin()
        self.leases.close()
        for task_log in self._tasks.all():
            task_log.followers.wake()
        for run in self.runs:
            run.leave()
        deadline = self.loop.time() + grace_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.errands.finish()
        self.errands.close()
        until = self.loop.time() + LEAVE_S
        await asyncio.gather(*(self._cut_off(run) for run in self.runs))
        for task in tuple(self.errands.active):
            task.cancel()
        if self.errands.active:
            left_s = max(CANCEL_S, until - self.loop.time())
            _, left = await asyncio.wait(tuple(self.errands.active), timeout=left_s)
            if left:
                log.warning("%d runs ignored their cancellation: they are left behind", len(left))
        for watching in (self._polling, self._hearing):
            if watching is not None:
                watching.cancel()
        if self._hints is not None:
            self._hints.stop()
        self.stopping.end()
        for task_log in self._tasks.all():
            task_log.followers.wake()

    async def _cut_off(self, run: TaskRun) -> None:
        task = run.log
        if task.terminal:
            return
        suspended = run.suspended
        run.abandon()
        if suspended or run.runner.traits.restartable:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted", epoch=run.lease)
        except (StoreError, Refused, TimeoutError) as error:
            reason = str(error) or f"its end was not written within {LEAVE_S:g} s"
            log.warning("task %s stays as it is until the next start: %s", task.head.id, reason)
