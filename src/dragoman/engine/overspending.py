"""Overspending: ends tasks whose runs report to have used more than their budgets have left.

Invariant: a run is weighed by its newest report, and once at a time. A store that does not answer ends nothing: the
next report is weighed again.
"""

import logging

from dragoman.engine.effects import SpendingRun
from dragoman.engine.errands import Errands
from dragoman.engine.spending import TaskSpending
from dragoman.store.api import StoreError
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.budgets")


class Overspending:
    """Weighs what runs report, beside everything else."""

    def __init__(self, spending: TaskSpending, errands: Errands) -> None:
        self._spending = spending
        self._errands = errands
        self._weighing: set[str] = set()

    def weigh(self, run: SpendingRun) -> None:
        """Weigh the reports of a run, unless that is under way."""
        if run.head.id not in self._weighing:
            self._weighing.add(run.head.id)
            self._errands.background(self._weigh(run))

    async def _weigh(self, run: SpendingRun) -> None:
        try:
            weighed = None
            while run.used is not None and run.used is not weighed:
                weighed = run.used
                budget = await self._spending.exceeded(run.head, weighed)
                if budget is not None:
                    log.info("task %s: stopped, because the budget %s is used up", run.head.id, budget)
                    await run.stop_spending(budget)
                    return
        except StoreError as error:
            log.warning("what a task has spent cannot be weighed now: %s", error, extra=about("store"))
        finally:
            self._weighing.discard(run.head.id)
