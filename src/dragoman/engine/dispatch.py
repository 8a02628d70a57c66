"""Dispatch: starts runs, hands them what their callers say, and stops them.

Invariant: a task has at most one run in this process; a run that ends, however it ends, is forgotten here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from dragoman.engine.announcing import leased_as
from dragoman.engine.api import Runner
from dragoman.engine.course import run_to_end
from dragoman.engine.delegations import Delegations
from dragoman.engine.errands import Errands
from dragoman.engine.files import Files
from dragoman.engine.live import LiveTask
from dragoman.engine.observer import Observer
from dragoman.engine.past import Past
from dragoman.engine.registry import Registry
from dragoman.engine.replay import Replay, replay_of
from dragoman.engine.runs import TaskRun
from dragoman.engine.settings import EngineSettings
from dragoman.engine.stops import Stops
from dragoman.engine.writer import RETRY_S
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState
from dragoman.store.api import Append, Moved, Refused, Store, Stored, StoreError
from dragoman.store.blobs.api import BlobMissing

log = logging.getLogger("dragoman.runs")

LEAVE_S = 1.0
"""How long, at the end of a drain, agents that were canceled may still take and the ends of their tasks are tried to be
written. Half of what the server keeps of its grace period for closing (`server.shutdown`)."""

CANCEL_S = 0.1
"""How long what was canceled last has at least, so that it is not counted among what does not end."""

INTERRUPTED_TEXT = "The run was interrupted by a restart of the server."
"""What the caller of a task reads whose run died with its process and cannot be repeated (DESIGN §5)."""


GONE_TEXT = "The run was interrupted, and its agent is not served any more."
"""The same, of a run that would have begun anew."""


class Dispatch:
    """The runs of this process. `holder` is the name under which it leases tasks.

    Runs begin with those of `runners`, and keep the one that they began with.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        registry: Registry,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        holder: str,
        delegations: Delegations,
        observer: Observer | None = None,
        *,
        server: str = "",
        files: Files | None = None,
    ) -> None:
        self.holder = holder
        self.files = Files() if files is None else files
        self.past = Past(store, self.files)
        self.runners = runners
        self._registry = registry
        self._store = store
        self._clock = clock
        self._settings = settings
        self._delegations = delegations
        self._observer = observer
        self._server = server
        self._stops = Stops(registry, store, clock, delegations, settings.cancel_grace_s)
        self._errands = Errands(registry, self._stops.end)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._active = self._errands.active
        self._draining = False
        self._over = False

    def begin(self, group: asyncio.TaskGroup) -> None:
        """From now on what is done for tasks beside their runs belongs to `group`.

        Runs do not: a group waits for ever for an agent that does not let itself be canceled. They are owned here.
        """
        self._errands.begin(group)
        self._loop = asyncio.get_running_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the runs. Asking asyncio for it is a system call each time (getpid, CPython 3.11)."""
        if self._loop is None:
            raise RuntimeError("the engine has not been started")
        return self._loop

    def start(self, runner: Runner, live: LiveTask, message: Message) -> None:
        """Run a task that has just been written and leased; after the drain, the next start deals with it."""
        if self._observer is not None:
            self._observer.submitted(live.head.agent)
        if not self._over:
            self._launch(self._run(runner, live, message, Replay(), announce=True), live)

    def answer(self, live: LiveTask, message: Message | None) -> None:
        """The caller answered, or no answer is wanted any more (None), and the task is leased anew.

        Its suspended run goes on, or a new one replays.
        """
        run = live.run
        if run is not None and run.resume(message):
            return
        if run is not None:
            self._stops.leave_behind(run, live)
        self._take_up(live, crashed=message is None)

    async def taken_back(self, live: LiveTask, child_id: str) -> None:
        """No answer is wanted any more to what the task asks for another one, if that is what it waits with."""
        while not (self._draining or live.terminal):
            run = live.run
            if live.in_flight or (run is not None and run.asking and live.tip_state not in INTERRUPTED):
                await live.wait(self.loop)
                continue
            asked = live.record().status.message
            if live.state not in INTERRUPTED or asked is None or asked.reference_task_ids != (child_id,):
                return
            try:
                await self._lease(live, lambda: self.answer(live, None))
            except Moved:
                continue
            except Refused:
                return
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _run(self, runner: Runner, live: LiveTask, message: Message, replay: Replay, *, announce: bool) -> TaskRun:
        return TaskRun(
            runner,
            live,
            message,
            replay,
            store=self._store,
            clock=self._clock,
            loop=self.loop,
            past=self.past,
            delegations=self._delegations,
            files=self.files,
            server=self._server,
            announce=announce,
            suspend_max_s=self._settings.suspend_max_s,
        )

    def _launch(self, run: TaskRun, live: LiveTask) -> None:
        live.run = run
        if self._draining:
            run.leave()
        if self._observer is None:
            task = run.task = self.loop.create_task(run_to_end(run))
        else:
            head = live.head
            execution = self._observer.executing(head.agent, head.id, head.traceparent)
            run.traceparent = execution.traceparent or head.traceparent
            task = run.task = self.loop.create_task(run_to_end(run), context=execution.context)
            task.add_done_callback(lambda _: execution.finished(SPELLED[live.state]))
        self._active.add(task)
        task.add_done_callback(lambda done: self._done(run, live, done))

    def _done(self, run: TaskRun, live: LiveTask, done: "asyncio.Task[None]") -> None:
        self._active.discard(done)
        error = None if done.cancelled() else done.exception()
        if live.run is run:
            live.run = None
        run.release()
        if error is not None and not self._over:
            self._errands.broken(live, error)
        elif run.again and not self._draining:
            self._errands.run(live, lambda: self._again(live))
        live.wake()
        self._registry.release(live)

    async def _again(self, live: LiveTask) -> None:
        """Lease the task anew and run it from its start, unless it ends or somebody else runs it."""
        while live.run is None and live.tip_state not in TERMINAL:
            try:
                await self._lease(live)
            except Moved:
                continue
            except Refused:
                return
            except StoreError as error:
                log.warning("task %s waits: it cannot be leased: %s", live.head.id, error)
                await asyncio.sleep(RETRY_S)
            else:
                self._take_up(live, crashed=True)
                return

    def _take_up(self, live: LiveTask, *, crashed: bool) -> None:
        if self._over:
            return
        self._errands.run(live, lambda: self._rerun(live, crashed=crashed))

    async def _rerun(self, live: LiveTask, *, crashed: bool) -> None:
        whole = await self._log(live)
        while whole[-1].seq < live.seq:  # a message came meanwhile
            whole = await self._log(live)
        message, replay = replay_of(live.head, whole, crashed=crashed)
        if live.run is None and live.tip_state not in TERMINAL and not self._over:
            runner = self.runners.get(live.head.agent)
            if runner is None:
                await self._stops.end(live, TaskState.FAILED, GONE_TEXT, "interrupted")
                return
            self._launch(self._run(runner, live, message, replay, announce=False), live)

    async def _log(self, live: LiveTask) -> tuple[Logged, ...]:
        while True:
            try:
                return await self.files.log(await self._registry.log(live.head.id))
            except BlobMissing:
                raise
            except StoreError as error:
                log.warning("task %s waits: its log cannot be read: %s", live.head.id, error)
                await asyncio.sleep(RETRY_S)

    # -- beside runs -------------------------------------------------------------------------------------------------

    def errand(self, live: LiveTask, errand: Callable[[], Awaitable[None]]) -> None:
        """Do something for a task beside its run; when all is over, the next start sees to it."""
        if not self._over:
            self._errands.run(live, errand)

    async def cancel(self, live: LiveTask) -> None:
        """Stop the task's run and cancel the task; returns when it is terminal, in whatever way.

        An agent that has not stopped within `cancel_grace_s` is left behind: what it writes later is refused. Once
        begun, it happens, also when nobody waits for it. Raises StoreError if it cannot be written now.
        """
        if self._observer is not None:
            self._observer.cancel_requested(live.head.agent)
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._errands.run(live, lambda: self._stops.cancel(live, waiter))
        await waiter

    # -- start and stop of the process -------------------------------------------------------------------------------

    async def recover(self, unfinished: Iterable[Stored]) -> None:
        """Deal with the tasks that a previous process left in the middle, so that none is `working` for ever.

        Those of a restartable agent run again, others fail with reason `interrupted`; a cancel that was asked for wins.
        """
        await asyncio.gather(*(self._recover(stored) for stored in unfinished))  # in as few commits as possible

    async def _recover(self, stored: Stored) -> None:
        live = self._registry.loaded(stored)
        self._registry.add(live)
        live.pins += 1
        try:
            runner = self.runners.get(stored.head.agent)
            if stored.cancel_requested or self._delegations.children.orphaned(stored.head):
                await self._stops.end(live, TaskState.CANCELED)
                self._stops.tell(live)
            elif runner is not None and (runner.restartable or stored.epoch == 0):
                await self._lease(live)
                self._take_up(live, crashed=True)
            else:
                await self._stops.end(live, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted")
        except StoreError:
            raise  # nothing can be written: better no server than one that forgets
        except Exception as error:  # noqa: BLE001  one task must not keep all others from being served
            self._errands.broken(live, error)
        finally:
            self._registry.unpin(live)

    async def _lease(self, live: LiveTask, committed: Callable[[], None] | None = None) -> None:
        now_ms = self._clock.now_ms()
        runner = self.runners.get(live.head.agent)
        state = leased_as(runner, live.tip_state)
        append = Append(
            task_id=live.head.id,
            events=(StatusChanged(state, timestamp(now_ms)),),
            state=state,
            status_ms=now_ms,
            expected_seq=live.tip_seq,
            holder=self.holder,
        )
        await live.write(self._store, append, committed)

    async def drain(self, grace_s: float) -> None:
        """Let runs end within `grace_s`, then stop them. Suspended ones are dropped: their answers replay.

        Those of restartable agents run again at the next start; the others fail now, with reason `interrupted`.
        """
        self._draining = True
        for live in self._registry.all():
            if live.run is not None:
                live.run.leave()
        if self._active:
            await asyncio.wait(tuple(self._active), timeout=grace_s)
        self._over = True
        until = self.loop.time() + LEAVE_S
        await asyncio.gather(*(self._cut_off(live) for live in self._registry.all()))
        for task in tuple(self._active):
            task.cancel()
        if self._active:
            left_s = max(CANCEL_S, until - self.loop.time())
            _, left = await asyncio.wait(tuple(self._active), timeout=left_s)
            if left:
                log.warning("%d runs do not let themselves be canceled: they are left behind", len(left))

    async def _cut_off(self, live: LiveTask) -> None:
        run = live.run
        if run is None or live.terminal:
            return
        suspended = run.suspended
        run.abandon()
        if suspended or run.runner.restartable:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._stops.end(live, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted")
        except (StoreError, Refused, TimeoutError) as error:
            reason = str(error) or f"its end was not written within {LEAVE_S:g} s"
            log.warning("task %s stays as it is until the next start: %s", live.head.id, reason)
