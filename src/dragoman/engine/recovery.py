"""Recovery: claims the tasks on which no living replica works, at the start and while the engine runs, and those that
slept when they wake.

Invariant: a task is claimed in one write of the store, so that only one of several replicas goes on with it. A task
whose agent may have done things outside runs again only if its agent is declared restartable, or has recorded a step
or a sleep: it knows then what it has done.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from dragoman.engine.ends import INTERRUPTED_TEXT
from dragoman.engine.log import Log
from dragoman.engine.observer import Observer
from dragoman.engine.policy import UNREADABLE_TEXT, EngineSettings
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import TaskNotFound
from dragoman.model.ids import Clock
from dragoman.model.task import TaskState
from dragoman.store.api import OutcomeUnknown, Refused, Store, Stored, StoreError
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")

CLAIMED_MAX = 500
"""How many tasks are claimed at once at the start, so that few are in memory and others can claim some too."""

SHARE_MAX = 20
"""How many tasks are claimed at once while the engine runs. Small batches spread the tasks of a dead replica."""

ABSENT_LOOK_S = 60.0
"""How often an engine looks for tasks of agents that nobody serves, or five times within their patience, if that is
shorter."""

CHECK_S = 10.0
"""How often an engine looks for tasks that are leased to it although nobody here works on them."""


class Recovery:
    """Claims tasks for this replica, and lets them go on or ends them."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        settings: EngineSettings,
        clock: Clock,
        observer: Observer | None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._supervisor = supervisor
        self._leases = supervisor.leases
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._watching: tuple[asyncio.Task[None], ...] = ()
        self._pause: asyncio.Future[None] | None = None
        self.taken_over = 0
        """How many tasks were claimed since the start of the engine."""
        self._wanted = False
        """Whether somebody asked for a claim since the last one began."""
        self._failing = False
        self._check_s = 0.0
        """When to look for lost tasks again, a time of the loop."""
        self._left_alone: set[str] = set()
        """The tasks of the last look for lost tasks that something was being done to, so that it left them alone."""
        self._look_s = min(ABSENT_LOOK_S, settings.agent_absent_s / 5)
        self._absent_s = 0.0
        """When to look for tasks of agents that nobody serves again, a time of the loop."""

    # -- at the start --------------------------------------------------------------------------------------------------

    async def settle_all(self) -> None:
        """Settle the tasks that dead holders left unfinished, so that none stays `working` for ever.

        Tasks of a restartable agent run again, and so do those with recorded steps; others fail with reason
        `interrupted`, and so do those of agents that nobody alive serves, once they may be claimed. A requested cancel
        takes precedence. Raises StoreError: a server that cannot write its store must not start.
        """
        own, of_workers = self._agents()
        for agents, queued in ((own, True), (of_workers, False), (None, True)):
            while claimed := await self._claim_for(CLAIMED_MAX, agents, queued=queued):
                await asyncio.gather(*map(self._settle, claimed))  # in as few commits as possible

    # -- while the engine runs -----------------------------------------------------------------------------------------

    def start(self, jobs: JobGroup) -> None:
        """Claim what wakes from now on. If other engines write to the store, claim every `claim_s`, too."""
        self._watching = (jobs.keep("sleepers", self._watch_sleepers),)
        if self._settings.poll_s > 0:
            self._absent_s = self._supervisor.loop.time() + self._look_s  # the start has just looked
            self._watching += (jobs.keep("claims", self._watch),)

    def wake(self, *, lost: bool = False) -> None:
        """Claim soon, because there is said to be work. Does nothing before `start`.

        With `lost` some tasks that are leased to this engine may have lost their runs.
        """
        self._wanted = True
        if lost:
            self._check_s = 0.0
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    def stop(self) -> None:
        """Stop claiming."""
        for watching in self._watching:
            watching.cancel()

    async def _wait(self) -> None:
        """Wait until the next look is due or wanted. Look again soon at the tasks that the last one left alone."""
        loop, settings = self._supervisor.loop, self._settings
        due_s = loop.time() + settings.claim_s
        while not self._wanted and (left_s := due_s - loop.time()) > 0:
            self._pause = loop.create_future()
            await asyncio.wait((self._pause,), timeout=min(left_s, settings.retry_s) if self._left_alone else left_s)
            if self._left_alone and self._leases.takes_work:
                self._take_up_lost(self._left_alone, offered=False)

    async def _watch(self) -> None:
        loop = self._supervisor.loop
        while True:
            await self._wait()
            wanted, self._wanted = self._wanted, False
            if not self._leases.takes_work:
                continue
            try:
                if self._failing or loop.time() >= self._check_s:
                    self._check_s = loop.time() + CHECK_S
                    await self._claim_lost(offered=False)
                if wanted:  # also after a look at all of them, which leaves alone what is being written to
                    await self._claim_lost(offered=True)
                while self._leases.takes_work and await self._claim_some():
                    pass
                if loop.time() >= self._absent_s:
                    self._absent_s = loop.time() + self._look_s
                    while await self._claim(SHARE_MAX, None):
                        pass
                self._failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not self._failing:
                    log.warning("tasks of other servers cannot be taken over: %s", error)
                self._failing = True

    # -- tasks that sleep ----------------------------------------------------------------------------------------------

    async def _watch_sleepers(self) -> None:
        """Claim tasks as they wake. A look each `claim_s` finds when the next one does, whoever put it to sleep.

        A store that nobody else writes to is not asked again while nothing is committed.
        """
        alone, failing, asked_at, wakes_ms = self._settings.poll_s == 0, False, -1, None
        while True:
            commits, now_ms = self._store.writing.commits.count, self._clock.now_ms()
            try:
                if not alone or commits != asked_at or (wakes_ms is not None and wakes_ms <= now_ms):
                    wakes_ms = await self._find_wake(now_ms)
                    asked_at = commits
                failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not failing:
                    log.warning("tasks that wake cannot be claimed: %s", error)
                failing, wakes_ms, asked_at = True, None, -1
            pause_s = self._settings.claim_s
            if wakes_ms is not None:
                pause_s = min(pause_s, max(0, wakes_ms - self._clock.now_ms()) / 1000)
            await asyncio.sleep(pause_s)

    async def _find_wake(self, now_ms: int) -> int | None:
        """Claim what has woken by now. Returns when the next task wakes."""
        wakes_ms = await self._store.next_wake(0)
        if wakes_ms is not None and wakes_ms <= now_ms:
            await self._claim_woken()
            wakes_ms = await self._store.next_wake(now_ms)
        return wakes_ms

    async def _claim_woken(self) -> None:
        """Claim all tasks that have woken, but for those of agents that other replicas serve, or that may yet come."""
        own, of_workers = self._agents()
        alone = self._settings.poll_s == 0  # else `_watch` looks for those of agents that nobody serves
        for agents in (own + of_workers, None) if alone else (own + of_workers,):
            while self._leases.takes_work and agents != ():
                claimed = await self._store.claim_woken(
                    self._leases.holder, SHARE_MAX, agents, self._settings.agent_absent_s
                )
                self._take_on(claimed)
                if len(claimed) < SHARE_MAX:
                    break

    def _agents(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The agents that are served here: those whose tasks have runs, and those of workers, who find the queue.

        What waits for a disabled agent stays where it is.
        """
        served = self._leases.served
        runners = {agent: runner for agent, runner in served.runners.items() if served.switches.takes_on(agent)}
        own = tuple(agent for agent, runner in runners.items() if not runner.traits.by_workers)
        return own, tuple(agent for agent, runner in runners.items() if runner.traits.by_workers)

    async def take_up(self) -> None:
        """Claim what waits for the agents that are served here, once. Raises StoreError."""
        if self._watching and self._leases.takes_work:  # else the start looks, or nobody does
            while self._leases.takes_work and await self._claim_some():
                pass
            await self._claim_woken()

    async def _claim_some(self) -> bool:
        """Claim a batch for the agents that are served here. Returns whether there may be more."""
        own, of_workers = self._agents()
        more = await self._claim(SHARE_MAX, own)
        for agent in of_workers:
            if (workers := self._leases.served.runners[agent].workers) is not None:
                workers.offer()
        return await self._claim(SHARE_MAX, of_workers, queued=False) or more

    async def _claim(self, limit: int, agents: tuple[str, ...] | None, *, queued: bool = True) -> bool:
        """Claim at most `limit` tasks of these agents. Returns whether there may be more."""
        if agents == ():
            return False
        claimed = await self._claim_for(limit, agents, queued=queued)
        self.taken_over += len(claimed)
        if self._observer is not None:
            for stored in claimed:
                self._observer.taken_over(stored.head.agent)
        self._take_on(claimed)
        return len(claimed) == limit

    def _take_on(self, claimed: Iterable[Stored]) -> None:
        for stored in claimed:
            self._supervisor.errands.do_on(stored.head.id, partial(self._settle_in_time, stored))

    async def _claim_for(self, limit: int, agents: tuple[str, ...] | None, *, queued: bool) -> tuple[Stored, ...]:
        absent_s = self._settings.agent_absent_s
        return await self._store.claim(self._leases.holder, limit, agents, absent_s, queued=queued)

    async def _claim_lost(self, *, offered: bool) -> None:
        """Take up tasks that are leased to this engine although nobody here works on them.

        The answer to a claim may have been lost, or an offer was for a run that is gone. A hint of work is about tasks
        that were `offered`, so that the many which run here are not read for each.
        """
        self._take_up_lost(await self._store.leased(self._leases.holder, offered=offered), offered=offered)

    def _take_up_lost(self, task_ids: Iterable[str], *, offered: bool) -> None:
        supervisor, left = self._supervisor, set()
        for task_id in task_ids:
            if offered and supervisor.attends_to(task_id):
                supervisor.errands.pass_over(task_id)
            elif offered or not (supervisor.works_on(task_id) or supervisor.changes(task_id)):
                supervisor.errands.do_on(task_id, partial(self._settle_in_time, None))
            elif not supervisor.works_on(task_id):
                left.add(task_id)
        if not offered:
            self._left_alone = left

    async def _settle_in_time(self, stored: Stored | None, task: Log) -> None:
        """Settle a claimed task, however long the store cannot be written. Somebody else may claim it meanwhile.

        Without `stored` it was found to have no run. If it has one by now, it is left to that, and to other errands,
        which may give it one.
        """
        while True:
            try:
                await self._tasks.catch_up(task)
                if stored is None:
                    stored = await self._store.load(task.head.id)
                    if self._supervisor.errands.has_others(task.head.id):
                        self._left_alone.add(task.head.id)
                        return
                    if self._leases.view(task).run_epoch == task.row.epoch:
                        return
                if stored is not None and self._is_mine(stored, task):
                    await self._resume_or_end(task, stored)
            except StoreError:
                await asyncio.sleep(self._settings.retry_s)
            except (Refused, TaskNotFound):
                return
            else:
                return

    def _is_mine(self, stored: Stored, task: Log) -> bool:
        """Whether the lease is still that of `stored`, and of this engine."""
        return task.row.holder == stored.holder == self._leases.holder and task.row.epoch == stored.epoch

    # -- a claimed task ------------------------------------------------------------------------------------------------

    async def _settle(self, stored: Stored) -> None:
        task = await self._tasks.pin_stored(stored)
        try:
            await self._resume_or_end(task, stored)
        except StoreError:
            raise
        except Refused:
            pass  # somebody else has claimed it since, or it is gone
        except Exception as error:  # noqa: BLE001  one task must not keep all others from being served
            self._supervisor.errands.give_up_on(task, error)
        finally:
            task.unpin()

    async def _resume_or_end(self, task: Log, stored: Stored) -> None:
        """Cancel a claimed task, run it, or let it fail. One that cannot be read is set aside: it fails.

        Raises StoreError, or Refused if the lease is lost again.
        """
        supervisor, runner = self._supervisor, self._leases.served.runners.get(stored.head.agent)
        unbegun = stored.offered_until_ms is not None
        if stored.cancel_requested or await self._tasks.orphaned(stored.head):
            await supervisor.ends.end(task, TaskState.CANCELED)
            supervisor.ends.tell_runner(task)
        elif task.fold.unreadable:
            await supervisor.ends.end(task, TaskState.FAILED, UNREADABLE_TEXT, "unreadable", epoch=stored.epoch)
        elif runner is not None and runner.traits.by_workers:
            await self._leases.requeue(task, stored.epoch)
        elif runner is not None and (unbegun or runner.traits.restartable or task.fold.steps):
            # One that was handed on is offered even if a run of it has died: its words are replaced, if there are any.
            await supervisor.resume(task, crashed=not unbegun or bool(stored.head.steps_version))
        else:
            await supervisor.ends.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted", epoch=stored.epoch)
