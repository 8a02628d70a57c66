"""The watch over budgets: operators hear of each threshold of an account once, in the log, the metrics and by webhook.

Invariant: one replica warns of a threshold, the one that notes it in the store. The webhook is called until it has
arrived, by that replica, or by the next server that starts; a notice has one id. An account that changed while nobody
watched is looked at when the next server starts.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from dragoman.config.budgets import Budget
from dragoman.engine.admin.budget_report import share, show_amount
from dragoman.engine.spending import TaskSpending
from dragoman.model.ids import timestamp
from dragoman.push.operator_hook import OperatorHook
from dragoman.store.api import Store, StoreError
from dragoman.store.budgets import BudgetAccount
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import Counts

log = logging.getLogger("dragoman.budgets")

LOOK_S = 1.0
"""Time between two looks at the accounts that have changed."""

PAGE = 500
"""Most accounts of one look at all of them."""

AGAIN_S = (1, 5, 30, 120, 600, 3600)
"""How long after each attempt a webhook is called again, in seconds; the last one is repeated."""


class PendingNotice(Struct):
    """A notice that has not arrived: its threshold, when it is due by the loop's clock, and how often it was sent."""

    notice: dict[str, Any]
    threshold: int
    due_s: float
    attempts: int = 0


class BudgetWatch:
    """Looks at the accounts that change, and warns of those that pass a threshold."""

    def __init__(self, store: Store, spending: TaskSpending, counts: Counts | None, hook: OperatorHook | None) -> None:
        self._store = store
        self._spending = spending
        self._counts = counts
        self._hook = hook
        self._pending: dict[str, PendingNotice] = {}
        """The newest notice of each account that has not arrived."""

    async def run(self) -> None:
        """Watch for ever."""
        everything = True
        while True:
            if self._spending.rules.budgets:
                try:
                    await (self.look_at_all() if everything else self.look())
                    everything = False
                    await self._send(asyncio.get_running_loop().time())
                except StoreError as error:
                    everything = True
                    log.warning("the budgets cannot be read now: %s", error, extra=about("store"))
            await asyncio.sleep(LOOK_S)

    async def look_at_all(self) -> None:
        """Look at every account whose period goes on, and find the notices that have not arrived. Raises StoreError."""
        after, now_ms = "", self._store.clock.now_ms()
        budgets = self._spending.rules.by_id_and_unit
        while accounts := await self._store.budgets.current(now_ms, after, PAGE):
            for account in accounts:
                budget = budgets.get((account.budget, account.unit))
                if budget is not None and account.told < account.warned:
                    self._put(budget, account, account.warned)
            await self._warn(accounts)
            after = accounts[-1].account

    async def look(self) -> None:
        """Look at the accounts that this process has changed since the last look. Raises StoreError."""
        if changed := self._store.budgets.take_changed():
            await self._warn(await self._store.budgets.accounts(sorted(changed)))

    async def _warn(self, accounts: Iterable[BudgetAccount]) -> None:
        budgets = self._spending.rules.by_id_and_unit
        for account in accounts:
            budget = budgets.get((account.budget, account.unit))
            if budget is None:
                continue
            threshold = max((at for at in budget.warn_at if at <= share(account, budget)), default=0)
            if threshold > account.warned and await self._store.budgets.warn(account.account, threshold):
                self._tell(budget, account, threshold)

    def _tell(self, budget: Budget, account: BudgetAccount, threshold: int) -> None:
        if self._counts is not None:
            self._counts.budget_warned(budget.id, threshold)
        whose = f" of {budget.per} {account.member}" if budget.per else ""
        until = "" if account.ends_ms is None else f" until {timestamp(account.ends_ms)}"
        limit = show_amount(budget.limit, budget.unit)
        log.warning(
            "budget %s%s: %d %% of %s %s are used%s",
            budget.id,
            whose,
            share(account, budget),
            limit,
            budget.unit,
            until,
        )
        self._put(budget, account, threshold)

    def _put(self, budget: Budget, account: BudgetAccount, threshold: int) -> None:
        """Have the webhook called soon."""
        if self._hook is None:
            return
        notice = {
            "type": "budget.warning",
            "budget": budget.id,
            "per": budget.per,
            "member": account.member,
            "mode": "hard" if budget.hard else "soft",
            "threshold": threshold,
            "percent": share(account, budget),
            "unit": budget.unit,
            "limit": show_amount(budget.limit, budget.unit),
            "used": show_amount(account.used, account.unit),
            "reserved": show_amount(account.reserved, account.unit),
            "resets_at": None if account.ends_ms is None else timestamp(account.ends_ms),
        }
        self._pending[account.account] = PendingNotice(notice, threshold, 0.0)

    async def _send(self, now_s: float) -> None:
        """Call the webhook with the notices that are due. Raises StoreError."""
        for account, pending in tuple(self._pending.items()):
            if self._hook is None or pending.due_s > now_s:
                continue
            if await self._hook.tell(f"{account}|{pending.threshold}", pending.notice):
                await self._store.budgets.note_told(account, pending.threshold)
                if self._pending.get(account) is pending:
                    del self._pending[account]
                continue
            pending.due_s = now_s + AGAIN_S[min(pending.attempts, len(AGAIN_S) - 1)]
            pending.attempts += 1
