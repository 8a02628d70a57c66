"""Recovery: claims the tasks on which no living replica works, at the start and while the engine runs.

Invariant: a task is claimed in one write of the store, so that only one of several replicas goes on with it. A task
whose agent may have done things outside runs again only if its agent is declared restartable.
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
        observer: Observer | None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._supervisor = supervisor
        self._leases = supervisor.leases
        self._settings = settings
        self._observer = observer
        self._watching: asyncio.Task[None] | None = None
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

        Tasks of a restartable agent run again; others fail with reason `interrupted`, and so do those of agents that
        nobody alive serves, once they may be claimed. A requested cancel takes precedence. Raises StoreError: a server
        that cannot write its store must not start.
        """
        own, of_workers = self._agents()
        for agents, queued in ((own, True), (of_workers, False), (None, True)):
            while claimed := await self._claim_for(CLAIMED_MAX, agents, queued=queued):
                await asyncio.gather(*map(self._settle, claimed))  # in as few commits as possible

    # -- while the engine runs -----------------------------------------------------------------------------------------

    def start(self, jobs: JobGroup) -> None:
        """Claim every `claim_s` from now on, if other engines write to the store."""
        if self._settings.poll_s > 0:
            self._absent_s = self._supervisor.loop.time() + self._look_s  # the start has just looked
            self._watching = jobs.keep("claims", self._watch)

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
        if self._watching is not None:
            self._watching.cancel()

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

    def _agents(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The agents that are served here: those whose tasks have runs, and those of workers, who find the queue."""
        runners = self._leases.served.runners
        own = tuple(agent for agent, runner in runners.items() if not runner.traits.by_workers)
        return own, tuple(agent for agent, runner in runners.items() if runner.traits.by_workers)

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
        supervisor = self._supervisor
        claimed = await self._claim_for(limit, agents, queued=queued)
        self.taken_over += len(claimed)
        for stored in claimed:
            if self._observer is not None:
                self._observer.taken_over(stored.head.agent)
            supervisor.errands.do_on(stored.head.id, partial(self._settle_in_time, stored))
        return len(claimed) == limit

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
        elif runner is not None and (unbegun or runner.traits.restartable):
            await supervisor.resume(task, crashed=not unbegun)
        else:
            await supervisor.ends.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted", epoch=stored.epoch)
