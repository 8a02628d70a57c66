"""EffectLoop: carries out what follows from commits and from the words of runs, and finds again what got lost.

Invariant: effects are carried out one after the other, in the order in which they were put. One that fails is logged
and fails alone, and is found again like one that was lost.
"""

import asyncio
import logging
from functools import partial
from typing import assert_never

from dragoman.engine.cancellations import Cancellations
from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.delegation import Delegations
from dragoman.engine.effects import (
    CancelChildren,
    ClaimSoon,
    Delegate,
    DropSuspended,
    Effect,
    Effects,
    StopOverdue,
    WeighSpending,
)
from dragoman.engine.overspending import Overspending
from dragoman.engine.recovery import Recovery
from dragoman.engine.supervisor import Supervisor
from dragoman.model.events import Delegated
from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")


class EffectLoop:
    """The one reader of the engine's effects. `claim_s` is the time between two looks for those that got lost."""

    def __init__(
        self,
        effects: Effects,
        supervisor: Supervisor,
        cancellations: Cancellations,
        delegated: DelegatedTasks,
        delegations: Delegations,
        recovery: Recovery,
        overspending: Overspending,
        *,
        claim_s: float,
    ) -> None:
        self._effects = effects
        self._supervisor = supervisor
        self._cancellations = cancellations
        self._delegated = delegated
        self._delegations = delegations
        self._recovery = recovery
        self._overspending = overspending
        self._claim_s = claim_s
        self._jobs: JobGroup | None = None
        self._reading: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Future[Delegated]] = set()
        """The outcomes of the delegations that are being carried out."""

    def start(self, jobs: JobGroup) -> None:
        """Carry out effects from now on."""
        self._jobs = jobs
        self._reading = jobs.keep("effects", self._read)

    def watch(self) -> None:
        """Look for lost effects from now on. The tasks that an earlier process left behind must have been claimed."""
        assert self._jobs is not None
        self._looking = self._jobs.keep("lost effects", self._look)

    def stop(self) -> None:
        """Carry out nothing more. The next start finds what is left."""
        for job in (self._reading, self._looking):
            if job is not None:
                job.cancel()
        for outcome in tuple(self._under_way):  # of asyncio tasks that agents have left behind
            outcome.cancel()

    async def _read(self) -> None:
        while True:
            self._try(await self._effects.next())

    def _try(self, effect: Effect) -> None:
        try:
            self._carry_out(effect)
            self._effects.done(effect)
        except Exception:  # the job would begin anew, and this effect would be lost without a word
            name = type(effect).__name__
            log.exception("an effect cannot be carried out: %s", name, extra=about(name))

    async def _look(self) -> None:
        """Find lost effects again: see the table in `engine.effects`."""
        failing = False
        while True:
            for effect in self._effects.wanted:
                self._try(effect)
            try:
                if self._supervisor.leases.takes_work:
                    await self._delegations.find_deleted()
                    await self._delegated.enforce()
                failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not failing:
                    log.warning("the delegations of tasks that have ended cannot be looked for: %s", error)
                failing = True
            await asyncio.sleep(self._claim_s)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case CancelChildren(parent):
                self._delegated.cancel_children(parent)
            case ClaimSoon(lost):
                self._recovery.wake(lost=lost)
            case WeighSpending(run):
                self._overspending.weigh(run)
            case StopOverdue(task):
                self._cancellations.stop_overdue(task)
            case DropSuspended(task):
                self._supervisor.drop_suspended(task)
            case Delegate():
                self._begin_delegation(effect)
            case _:
                assert_never(effect)

    def _begin_delegation(self, effect: Delegate) -> None:
        """Begin the work of a delegation, unless that is under way, or its run has given it up before this turn."""
        outcome, under_way = effect.outcome, self._under_way
        if outcome.done() or outcome in under_way:
            return
        assert self._jobs is not None
        work = self._jobs.create_task(self._delegate(effect), context=effect.context)
        under_way.add(outcome)
        outcome.add_done_callback(under_way.discard)
        outcome.add_done_callback(partial(_give_up, work))

    async def _delegate(self, effect: Delegate) -> None:
        outcome = effect.outcome
        try:
            delegated = await self._delegations.carry_out(effect.run, effect.number, effect.order, effect.hear)
        except asyncio.CancelledError:
            work = asyncio.current_task()
            if work is not None and work.cancelling():  # the run has given it up, or ends with this process
                raise
            outcome.cancel()  # the task that waits for it has ended
        except BaseException as error:  # noqa: BLE001  the run that waits gets it
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(delegated)


def _give_up(work: "asyncio.Task[None]", outcome: "asyncio.Future[object]") -> None:
    """Stop the work of a delegation whose run does not wait for it any more."""
    if outcome.cancelled():
        work.cancel()
    else:
        outcome.exception()  # the run may have left in the same moment
