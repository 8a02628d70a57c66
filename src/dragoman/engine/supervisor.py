"""Supervisor: starts runs, hands them what their callers say, ends tasks in place of their runs, and recovers them.

Invariant: a task has at most one run in this process, and it ends once, by whatever commits first. Then nothing goes on
with it here: a run that does not stop is left behind, and what it writes later is refused (invariant 5).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from dragoman.engine.api import Outreaching, Runner
from dragoman.engine.endings import closing, failed
from dragoman.engine.files import Files
from dragoman.engine.history import History
from dragoman.engine.observer import Observer
from dragoman.engine.replay import Replay, replay_of
from dragoman.engine.run import Delegate, RunServices, TaskRun, leased_as
from dragoman.engine.settings import EngineSettings
from dragoman.engine.task_log import Decision, TaskLog
from dragoman.engine.tasks import Tasks
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TaskState
from dragoman.store.api import Refused, Store, Stored, StoreError
from dragoman.store.blobs.api import BlobMissing

log = logging.getLogger("dragoman.runs")

LEAVE_S = 1.0
"""How long, at the end of a drain, canceled agents may still take and the ends of their tasks are tried to be written.
Half of the time that the server keeps of its grace period for closing (`server.shutdown`)."""

CANCEL_S = 0.1
"""The least time that agents canceled last have, so that they are not counted among those that do not end."""

INTERRUPTED_TEXT = "The run was interrupted by a restart of the server."
"""What callers read whose task's run died with its process and cannot be repeated (DESIGN §5)."""

GONE_TEXT = "The run was interrupted, and its agent is not served any more."
"""The same, for a run that would have begun anew."""


class Supervisor:
    """The runs of this process, and everything it does for tasks beside them ("errands"). It owns their asyncio tasks.

    `holder` is the name under which tasks are leased. Runs begin with an agent of `runners`, and keep it. `delegate` is
    what a run delegates through; `parent_stops` is told of a task that is asked to stop, so that what it delegated can
    be ended.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        tasks: Tasks,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        *,
        holder: str,
        server: str,
        files: Files,
        past: History,
        delegate: Delegate,
        parent_stops: Callable[[TaskLog], None],
        observer: Observer | None = None,
    ) -> None:
        self.holder = holder
        self.runners = runners
        self._tasks = tasks
        self._store = store
        self._clock = clock
        self._settings = settings
        self._server = server
        self._files = files
        self._past = past
        self._delegate = delegate
        self._parent_stops = parent_stops
        self._observer = observer
        self._group: asyncio.TaskGroup | None = None
        self._services: RunServices | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs: dict[str, TaskRun] = {}
        self._active: set[asyncio.Task[None]] = set()
        self._draining = False
        self._over = False

    def begin(self, group: asyncio.TaskGroup) -> None:
        """From now on errands belong to `group`.

        Runs do not: a group waits for ever for an agent that does not let itself be canceled. They are owned here.
        """
        self._group = group
        self._loop = loop = asyncio.get_running_loop()
        self._services = RunServices(
            clock=self._clock,
            loop=loop,
            past=self._past,
            files=self._files,
            server=self._server,
            delegate=self._delegate,
            suspend_max_s=self._settings.suspend_max_s,
            retry_s=self._settings.retry_s,
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the runs. Asking asyncio for it is a system call each time (getpid, CPython 3.11)."""
        if self._loop is None:
            raise RuntimeError("the engine has not been started")
        return self._loop

    # -- runs --------------------------------------------------------------------------------------------------------

    def run_of(self, task: TaskLog) -> TaskRun | None:
        """The run of the task here, if there is one."""
        return self._runs.get(task.head.id)

    def start(self, runner: Runner, task: TaskLog, message: Message) -> None:
        """Run a task that has just been written and leased; after the drain, the next start deals with it."""
        if self._observer is not None:
            self._observer.submitted(task.head.agent)
        if not self._over:
            self._launch(runner, task, message, Replay(), announce=True)

    def answer(self, task: TaskLog, message: Message | None) -> None:
        """The caller answered, or no answer is wanted any more (None), and the task is leased anew.

        Its suspended run goes on, or a new one replays.
        """
        run = self.run_of(task)
        if run is not None:
            if run.resume(message):
                return
            self._leave_behind(run, task)
        self._take_up(task, crashed=message is None)

    def deliver(self, task: TaskLog, message: Message) -> None:
        """A message came to a task that is at work."""
        run = self.run_of(task)
        if run is not None:
            run.receive(message)

    async def take_back(self, task: TaskLog, child_id: str) -> None:
        """No answer is wanted any more to what the task asks for another one, if that is what it waits with."""

        def decide(log: TaskLog) -> Decision | None:
            if self._draining or log.state not in INTERRUPTED:
                return None
            asked = log.record().status.message
            if asked is None or asked.reference_task_ids != (child_id,):
                return None
            return self._lease(log)

        while not self._draining:
            try:
                await task.append(decide, lambda: self.answer(task, None))
            except Refused:
                return
            except StoreError:
                await asyncio.sleep(self._settings.retry_s)
            else:
                return

    def _launch(self, runner: Runner, task: TaskLog, message: Message, replay: Replay, *, announce: bool) -> None:
        if self._services is None:
            raise RuntimeError("the engine has not been started")
        run = TaskRun(runner, task, message, replay, self._services, announce=announce)
        self._runs[task.head.id] = run
        task.pins += 1
        task.receive = run.receive
        if self._draining:
            run.leave()
        if self._observer is None:
            asyncio_task = run.task = self.loop.create_task(run.run_to_end())
        else:
            head = task.head
            execution = self._observer.executing(head.agent, head.id, head.traceparent)
            run.traceparent = execution.traceparent or head.traceparent
            asyncio_task = run.task = self.loop.create_task(run.run_to_end(), context=execution.context)
            asyncio_task.add_done_callback(lambda _: execution.finished(SPELLED[task.state]))
        self._active.add(asyncio_task)
        asyncio_task.add_done_callback(lambda done: self._done(run, task, done))

    def _done(self, run: TaskRun, task: TaskLog, done: "asyncio.Task[None]") -> None:
        self._active.discard(done)
        error = None if done.cancelled() else done.exception()
        run.release()
        if error is not None and not self._over:
            self._give_up_on(task, error)
        elif run.again and not self._draining:
            self.errand(task, lambda: self._run_again(task))
        self._forget(run, task)
        task.wake()

    def _leave_behind(self, run: TaskRun, task: TaskLog) -> None:
        """The task goes on without its run, whether that stops or not."""
        run.abandon()
        self._forget(run, task)

    def _forget(self, run: TaskRun, task: TaskLog) -> None:
        if self._runs.get(task.head.id) is run:
            del self._runs[task.head.id]
            task.receive = None
            self._tasks.unpin(task)

    async def _run_again(self, task: TaskLog) -> None:
        """Lease the task anew and run it from its start, unless it ends or somebody else runs it."""

        def decide(log: TaskLog) -> Decision | None:
            return None if log.terminal or self.run_of(log) is not None else self._lease(log)

        while True:
            try:
                if await task.append(decide) is not None:
                    self._take_up(task, crashed=True)
            except Refused:
                return
            except StoreError as error:
                log.warning("task %s waits: it cannot be leased: %s", task.head.id, error)
                await asyncio.sleep(self._settings.retry_s)
            else:
                return

    def _lease(self, task: TaskLog) -> Decision:
        """The start of a run on a task that has been worked on before."""
        now_ms = self._clock.now_ms()
        state = leased_as(self.runners.get(task.head.agent), task.state)
        return Decision(events=(StatusChanged(state, timestamp(now_ms)),), now_ms=now_ms, holder=self.holder)

    def _take_up(self, task: TaskLog, *, crashed: bool) -> None:
        self.errand(task, lambda: self._replay(task, crashed=crashed))

    async def _replay(self, task: TaskLog, *, crashed: bool) -> None:
        while True:
            whole = await self._read_log(task)
            async with task.turn():  # an end that is being written comes first, and so does a message
                if self.run_of(task) is not None or task.terminal or self._over:
                    return
                if whole[-1].seq < task.seq:
                    continue
                if (runner := self.runners.get(task.head.agent)) is not None:
                    prefix = (logged for logged in whole if logged.seq <= task.seq)  # the rest comes with a refresh
                    message, replay = replay_of(task.head, prefix, crashed=crashed)
                    self._launch(runner, task, message, replay, announce=False)
                    return
            await self.end(task, TaskState.FAILED, GONE_TEXT, "interrupted")
            return

    async def _read_log(self, task: TaskLog) -> tuple[Logged, ...]:
        """The whole log as an agent sees it, with the bytes of its files."""
        while True:
            try:
                return await self._files.log(await task.whole())
            except BlobMissing:
                raise
            except StoreError as error:
                log.warning("task %s waits: its log cannot be read: %s", task.head.id, error)
                await asyncio.sleep(self._settings.retry_s)

    # -- ends that a run does not write ------------------------------------------------------------------------------

    async def cancel(self, task: TaskLog) -> None:
        """Stop the task's run and cancel the task; returns when it is terminal, in whatever way.

        An agent that has not stopped within `cancel_grace_s` is left behind: what it writes later is refused. Once
        begun, it happens, also when nobody waits for it. Raises StoreError if it cannot be written now.
        """
        if self._observer is not None:
            self._observer.cancel_requested(task.head.agent)
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._spawn(task, lambda: self._cancel(task, waiter))
        await waiter

    async def _cancel(self, task: TaskLog, waiter: "asyncio.Future[None]") -> None:
        """Cancel the task. `waiter` is told when it is terminal, or why it cannot be canceled now."""
        stopped = False
        run = self.run_of(task)
        idle = run is None or run.suspended
        try:
            while not task.terminal:
                try:
                    if not stopped:
                        await self._stop_run(task)
                        stopped = True
                    await self.end(task, TaskState.CANCELED)
                except StoreError as error:
                    if not waiter.done():
                        waiter.set_exception(error)
                    if not stopped:
                        return
                    await asyncio.sleep(self._settings.retry_s)
                except Refused:
                    break
        except Exception as error:
            if not waiter.done():
                waiter.set_exception(error)
            raise
        finally:
            if not waiter.done():
                waiter.set_result(None)
        if idle:
            self._tell_runner(task)

    async def _stop_run(self, task: TaskLog) -> None:
        """Mark the task, ask its run to stop, and give it its time; that of a suspended run is over at once."""
        run = self.run_of(task)
        if run is None or run.suspended:
            return
        await self._store.request_cancel(task.head.id)
        run.cancel()
        self._parent_stops(task)
        deadline = self.loop.time() + self._settings.cancel_grace_s
        while not task.terminal and self.run_of(task) is not None and await task.wait_until(self.loop, deadline):
            pass

    async def end(self, task: TaskLog, state: TaskState, text: str = "", reason: str = "") -> None:
        """Write the end of a task in place of its run, unless it has ended. Raises StoreError, or Unknown."""

        def decide(log: TaskLog) -> Decision | None:
            run = self.run_of(log)
            if run is not None:
                run.abandon()
            if log.terminal:
                return None
            now_ms = self._clock.now_ms()
            return Decision(events=(closing(log.head, state, now_ms, text, reason, log.usage),), now_ms=now_ms)

        run = self.run_of(task)
        if run is not None:
            run.abandon()
        await task.append(decide)
        run = self.run_of(task)
        if run is not None:  # it does not stop: its task goes on without it
            self._leave_behind(run, task)

    def _tell_runner(self, task: TaskLog) -> None:
        """A task that no run of this process ended is canceled: its runner may have something of it elsewhere."""
        agent = task.head.agent
        if agent in self.runners and task.state is TaskState.CANCELED:
            runner = self.runners[agent]
            if isinstance(runner, Outreaching):
                runner.stopped(task.record())

    # -- errands -----------------------------------------------------------------------------------------------------

    def errand(self, task: TaskLog, errand: Callable[[], Awaitable[None]]) -> None:
        """Do something for a task beside its run; when all is over, the next start sees to it.

        The task stays in memory meanwhile. An errand that goes wrong ends its task, and nothing else.
        """
        if not self._over:
            self._spawn(task, errand)

    def _spawn(self, task: TaskLog, errand: Callable[[], Awaitable[None]]) -> None:
        if self._group is None:
            raise RuntimeError("the engine has not been started")
        task.pins += 1  # before anybody else lets go of it
        asyncio_task = self._group.create_task(self._guard(task, errand))
        self._active.add(asyncio_task)
        asyncio_task.add_done_callback(lambda done: self._errand_done(task, done))

    def _errand_done(self, task: TaskLog, done: "asyncio.Task[None]") -> None:
        self._active.discard(done)
        self._tasks.unpin(task)

    async def _guard(self, task: TaskLog, errand: Callable[[], Awaitable[None]]) -> None:
        try:
            await errand()
        except Exception as error:  # noqa: BLE001  else it would end the group, and the server with it
            await self._fail(task, error)

    def _give_up_on(self, task: TaskLog, error: BaseException) -> None:
        """The engine itself was wrong about a task: end it, so that it is not `working` for ever."""
        self._spawn(task, lambda: self._fail(task, error))

    async def _fail(self, task: TaskLog, error: BaseException) -> None:
        text = f"The server failed (reference {failed(task.head, 'met an error of the server', error)})."
        try:
            while not task.terminal:
                try:
                    await self.end(task, TaskState.FAILED, text, "internal_error")
                except StoreError:
                    await asyncio.sleep(self._settings.retry_s)
        except Refused:
            return
        except Exception:
            log.exception("task %s stays as it is until the next start", task.head.id)

    # -- start and stop of the process -------------------------------------------------------------------------------

    async def recover(self, unfinished: Iterable[Stored]) -> None:
        """Deal with the tasks that a previous process left in the middle, so that none is `working` for ever.

        Those of a restartable agent run again, others fail with reason `interrupted`; a cancel that was asked for wins.
        """
        await asyncio.gather(*(self._recover(stored) for stored in unfinished))  # in as few commits as possible

    async def _recover(self, stored: Stored) -> None:
        task = self._tasks.pin_stored(stored)
        try:
            runner = self.runners.get(stored.head.agent)
            if stored.cancel_requested or self._tasks.orphaned(stored.head):
                await self.end(task, TaskState.CANCELED)
                self._tell_runner(task)
            elif runner is not None and (runner.restartable or stored.epoch == 0):
                await task.append(self._lease)
                self._take_up(task, crashed=True)
            else:
                await self.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted")
        except StoreError:
            raise  # nothing can be written: better no server than one that forgets
        except Exception as error:  # noqa: BLE001  one task must not keep all others from being served
            self._give_up_on(task, error)
        finally:
            self._tasks.unpin(task)

    async def wait_for(self, runners: Iterable[Runner]) -> None:
        """Wait until no run of these agents is left. A suspended one is kept for `suspend_max_s`."""
        those = tuple(runners)
        left = [run.task for run in self._runs.values() if run.task is not None and run.runner in those]
        if left:
            await asyncio.wait(left)

    async def drain(self, grace_s: float) -> None:
        """Let runs end within `grace_s`, then stop them. Suspended ones are dropped: their answers replay.

        Those of restartable agents run again at the next start; the others fail now, with reason `interrupted`.
        """
        self._draining = True
        for run in tuple(self._runs.values()):
            run.leave()
        if self._active:
            await asyncio.wait(tuple(self._active), timeout=grace_s)
        self._over = True
        until = self.loop.time() + LEAVE_S
        await asyncio.gather(*(self._cut_off(run) for run in tuple(self._runs.values())))
        for task in tuple(self._active):
            task.cancel()
        if self._active:
            left_s = max(CANCEL_S, until - self.loop.time())
            _, left = await asyncio.wait(tuple(self._active), timeout=left_s)
            if left:
                log.warning("%d runs do not let themselves be canceled: they are left behind", len(left))

    async def _cut_off(self, run: TaskRun) -> None:
        task = run.log
        if task.terminal:
            return
        suspended = run.suspended
        run.abandon()
        if suspended or run.runner.restartable:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted")
        except (StoreError, Refused, TimeoutError) as error:
            reason = str(error) or f"its end was not written within {LEAVE_S:g} s"
            log.warning("task %s stays as it is until the next start: %s", task.head.id, reason)
