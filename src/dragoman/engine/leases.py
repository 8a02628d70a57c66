"""Leases: writes to a task's log which replica goes on with it, as `engine.rules` decide.

Invariant: a lease changes by an append alone, decided on the log as it stands then, so that no two replicas believe
that they have it. Nothing here starts or stops a run.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from dragoman.engine.hints import Hints
from dragoman.engine.log import Log
from dragoman.engine.rules import (
    AcceptOffer,
    Decision,
    Disown,
    GiveBack,
    HandOver,
    PutAside,
    Request,
    UseClaim,
    View,
    WithdrawQuestion,
    decide,
)
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.run import RunPhase
from dragoman.engine.served_agents import Served, is_version
from dragoman.model.ids import Clock
from dragoman.store.api import NO_REPLICAS, Refused, Store, StoreError
from dragoman.store.replicas import Replica
from dragoman.store.worker_leases import WORKER

log = logging.getLogger("dragoman.runs")

FRESH_S = 1.0
"""How long an answer of the store to the question which agents other replicas serve counts."""


class TaskLeases:
    """Leases tasks under the name `holder`, for the agents that are `served`.

    A task that its agent has suspended has a keeper, the replica with the suspended run. When the task goes on, the
    keeper is offered the lease. `runs` are those of this process, and `hints` are there if other
    engines write to the store.
    """

    def __init__(
        self,
        holder: str,
        served: Served,
        store: Store,
        clock: Clock,
        *,
        retry_s: float,
        runs: Runs,
        hints: Hints | None,
    ) -> None:
        self.holder = holder
        self.served = served
        self.takes_work = True
        """Whether tasks may be leased: not while this process is fenced, nor after `close`."""
        self.fenced = False
        """Whether this process cannot prove that it is alive, so that others may take its tasks."""
        self._closed = False
        self._store = store
        self._clock = clock
        self._retry_s = retry_s
        self._runs = runs
        self._hints = hints

    @property
    def shared(self) -> bool:
        """Whether other engines write to the store, and may lease tasks."""
        return self._hints is not None

    # -- this replica ------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """Lease nothing until `rejoin`, because others may take the tasks of this process."""
        self.fenced, self.takes_work = True, False

    def rejoin(self, holder: str) -> None:
        """Go on under another name after `fence`."""
        self.holder = holder
        self.fenced, self.takes_work = False, not self._closed

    def close(self) -> None:
        """Lease nothing from now on."""
        self._closed, self.takes_work = True, False

    # -- who goes on with a task -------------------------------------------------------------------------------------

    async def keeper_of(self, task: Log) -> str | None:
        """Another replica that is alive and keeps the suspended run of the task; None if there is none.

        One that does not serve the agent any more is about to stop, and nobody goes on for a disabled agent. Raises
        StoreError.
        """
        keeper = task.row.keeper
        if keeper is None or keeper == self.holder or self._runs.of(task) is not None or self._hints is None:
            return None
        if not self.served.switches.takes_on(task.head.agent):
            return None
        for replica in await self._store.replicas.all():
            if replica.id == keeper:
                return keeper if task.head.agent in replica.agents else None
        return None

    def is_elsewhere(self, task: Log) -> bool:
        """Whether another engine has leased the task. Workers are of no engine, and nobody has a task that sleeps."""
        holder = task.row.holder
        return not (holder is None or holder == self.holder or holder in NO_REPLICAS)

    def tell(self, task: Log, replica_id: str | None) -> None:
        """Tell another replica that it goes on with the task; None tells all that serve the agent, and its workers."""
        if replica_id is None:
            runner = self.served.runners.get(task.head.agent)
            if runner is not None and runner.workers is not None:
                runner.workers.offer()
        if self._hints is None:
            return
        if replica_id is None:
            self._hints.queued(task.head.agent)
        else:
            self._hints.tell(replica_id)

    # -- what is decided on ------------------------------------------------------------------------------------------

    def view(self, task: Log, living_keeper: str | None = None) -> View:
        """The task as it stands, for the rules. `living_keeper` is what `keeper_of` has found."""
        agent, row, run = task.head.agent, task.row, self._runs.of(task)
        runner = self.served.runners.get(agent)
        if run is not None and run.phase is RunPhase.FENCED:  # it has lost the task, even if it has not stopped yet
            run = None
        return View(
            head=task.head,
            state=row.state,
            epoch=row.epoch,
            holder=row.holder,
            keeper=row.keeper,
            question=task.fold.question,
            here=self.holder,
            run_epoch=None if run is None else run.lease,
            run_asks=run is not None and run.asking,
            living_keeper=living_keeper,
            served=runner is not None and not runner.traits.by_workers and self.served.switches.takes_on(agent),
            waits=runner is not None and runner.traits.waits,
            closed=self._closed,
            wakes_on_message=task.fold.wakes_on_message,
        )

    def decide(self, request: Request, task: Log) -> Decision | None:
        """The decision of the rules on a request, as the task stands. Raises what they raise."""
        return decide(self.view(task), request, self._clock.now_ms())

    # -- changes of a lease ------------------------------------------------------------------------------------------

    async def use_claim(self, task: Log) -> bool:
        """Write the status with which a claimed task goes on. Returns False if it has ended, or its run has the lease.

        Raises StoreError, or Refused if the lease is lost again.
        """
        return await task.writes.append(task, partial(self.decide, UseClaim())) is not None

    async def accept(self, task: Log, accepted: Callable[[], None]) -> None:
        """Accept a lease that was offered for a suspended run. `accepted` is called when that is written.

        If the store cannot be written in time, somebody else claims the task. Raises Refused if that has happened.
        """
        await self._append(task, AcceptOffer(task.row.epoch), accepted)

    async def take_back(self, task: Log, child_id: str, leased: Callable[[], None]) -> None:
        """Withdraw the question that the task asks on behalf of its child, if that is the one now open.

        `leased` is called if this process goes on with the task.
        """

        def decide_now(log: Log) -> Decision | None:
            return decide(self.view(log, keeper), WithdrawQuestion(child_id), self._clock.now_ms())

        def committed() -> None:
            if task.row.holder == self.holder:
                leased()
            elif task.row.holder != WORKER:
                self.tell(task, task.row.holder)

        while not self._closed:
            try:
                keeper = await self.keeper_of(task)
                await task.writes.append(task, decide_now, committed)
            except Refused:
                return
            except StoreError:
                await asyncio.sleep(self._retry_s)
            else:
                return

    async def requeue(self, task: Log, epoch: int) -> None:
        """Put a claimed task back into the queue of its agent, whose workers take it from there."""
        with suppress(Refused):
            if await self._append(task, GiveBack(epoch)):
                self.tell(task, None)

    async def hand_over(self, task: Log, epoch: int, replica_id: str) -> None:
        """Offer a task that is leased here to another replica."""
        with suppress(Refused):
            if await self._append(task, HandOver(epoch, replica_id)):
                self.tell(task, replica_id)

    async def put_aside(self, task: Log, epoch: int, wakes_ms: int) -> None:
        """Let nobody have a task that is leased here until a time, when anybody claims it."""
        with suppress(Refused):
            await self._append(task, PutAside(epoch, wakes_ms))

    async def disown(self, task: Log) -> bool:
        """Say that no run of the task is kept here any more, so that nobody offers it to this process.

        Returns whether somebody has offered it already.
        """
        with suppress(Refused):
            await self._append(task, Disown())
        return task.row.holder == self.holder and self._runs.of(task) is None

    async def _append(self, task: Log, request: Request, committed: Callable[[], None] | None = None) -> bool:
        """Append what the rules say to a request, as soon as the store can be written.

        Returns False if that is nothing. Raises Refused.
        """
        while True:
            try:
                return await task.writes.append(task, partial(self.decide, request), committed) is not None
            except StoreError as error:
                log.warning("task %s waits: its lease cannot be written: %s", task.head.id, error)
                await asyncio.sleep(self._retry_s)


class Neighbours:
    """Knows what the other replicas serve, or have served of late, as it was at most `FRESH_S` ago.

    That is agents, and versions of their code (`served_agents.version_name`).

    So strangers who ask for agents that nobody has cost one look a second, not one each.
    """

    def __init__(self, store: Store, leases: TaskLeases, absent_s: float) -> None:
        self._store = store
        self._leases = leases
        self._absent_s = absent_s
        self._others: tuple[Replica, ...] = ()
        self._agents: frozenset[str] = frozenset()
        self._since_ms: int | None = None
        self._absent: frozenset[str] = frozenset()
        self._until_s = 0.0

    async def serve(self, agent: str) -> bool:
        """Whether another replica that is alive serves the agent. Raises StoreError."""
        await self._look()
        return agent in self._agents

    async def find_servers(self, name: str) -> tuple[str, ...]:
        """The ids of the other replicas that are alive and serve the agent, or the version. Raises StoreError."""
        await self._look()
        return tuple(one.id for one in self._others if name in one.agents)

    async def first_start_ms(self) -> int | None:
        """When the eldest of the replicas that are alive has started. Raises StoreError."""
        await self._look()
        return self._since_ms

    async def miss(self, agent: str) -> bool:
        """Whether the agent, which nobody serves, was served until `absent_s` ago or later. Raises StoreError."""
        await self._look()
        return agent in self._absent

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            of_late = await self._store.replicas.served_of_late(self._absent_s)
            replicas = await self._store.replicas.all()
            here = self._leases.holder
            self._others = tuple(one for one in replicas if one.id != here)
            served = frozenset(name for one in replicas for name in one.agents)
            self._agents = frozenset(name for one in self._others for name in one.agents if not is_version(name))
            self._since_ms = min((one.started_ms for one in replicas), default=None)
            self._absent = of_late - served
            self._until_s = loop.time() + FRESH_S
