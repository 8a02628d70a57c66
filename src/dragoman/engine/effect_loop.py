"""EffectLoop: carries out what follows from commits and from the words of runs.

Invariant: effects are carried out one after the other, in the order in which they were put. One that fails is logged
and fails alone.
"""

import asyncio
import logging
from functools import partial
from typing import assert_never

from dragoman.engine.delegation import Delegations
from dragoman.engine.effects import CancelChildren, ClaimSoon, Delegate, DropSuspended, Effect, Effects, StopOverdue
from dragoman.engine.recovery import Recovery
from dragoman.engine.supervisor import Supervisor
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")


class EffectLoop:
    """The one reader of the engine's effects."""

    def __init__(self, effects: Effects, supervisor: Supervisor, delegations: Delegations, recovery: Recovery) -> None:
        self._effects = effects
        self._supervisor = supervisor
        self._delegations = delegations
        self._recovery = recovery
        self._jobs: JobGroup | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self, jobs: JobGroup) -> None:
        """Carry out effects from now on."""
        self._jobs = jobs
        self._reading = jobs.keep("effects", self._read)

    def stop(self) -> None:
        """Carry out nothing more. The next start finds what is left."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        while True:
            effect = await self._effects.next()
            try:
                self._carry_out(effect)
            except Exception:  # the job would begin anew, and this effect would be lost without a word
                log.exception("an effect cannot be carried out: %s", type(effect).__name__)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case CancelChildren(parent):
                self._delegations.let_go(parent)
            case ClaimSoon(lost):
                self._recovery.wake(lost=lost)
            case StopOverdue(task):
                self._supervisor.stop_overdue(task)
            case DropSuspended(task):
                self._supervisor.drop_suspended(task)
            case Delegate():
                if not effect.outcome.cancelled():  # else its run has given it up before this turn
                    assert self._jobs is not None
                    work = self._jobs.create_task(self._delegate(effect), context=effect.context)
                    effect.outcome.add_done_callback(partial(_give_up, work))
            case _:
                assert_never(effect)

    async def _delegate(self, effect: Delegate) -> None:
        outcome = effect.outcome
        try:
            delegated = await self._delegations.carry_out(effect.run, effect.number, effect.order, effect.hear)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
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
