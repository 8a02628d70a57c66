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
        self._newest: dict[str, SpendingRun] = {}
        """The newest report of each task that is being weighed: each report of a worker is a run of its own here."""

    def weigh(self, run: SpendingRun) -> None:
        """Weigh the reports of a run: now, or after those of the same task that are being weighed."""
        task_id = run.head.id
        under_way = task_id in self._newest
        self._newest[task_id] = run
        if not under_way:
            self._errands.background(self._weigh(task_id))

    async def _weigh(self, task_id: str) -> None:
        try:
            weighed = None
            while (used := (run := self._newest[task_id]).used) is not None and used is not weighed:
                weighed = used
                budget = await self._spending.exceeded(run.head, used)
                if budget is not None:
                    log.info("task %s: stopped, because the budget %s is used up", task_id, budget)
                    await run.stop_spending(budget)
                    return
        except StoreError as error:
            log.warning("what a task has spent cannot be weighed now: %s", error, extra=about("store"))
        finally:
            del self._newest[task_id]
