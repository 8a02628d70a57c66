"""BudgetTable: the accounts of budgets in the store.

Invariant: claims and charges are booked by the driver, in the transactions that make tasks and end them.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from dragoman.store.budgets import BudgetAccount
from dragoman.store.sql.statements import Statements, repeated

BATCH_ACCOUNTS = 500
"""Accounts deleted in one transaction; each is one small row."""


class BudgetTable:
    """The BudgetBook protocol."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.changed: dict[str, None] = {}
        """The accounts that the driver's ledger has changed since somebody asked. A thread may add to it meanwhile."""

    def take_changed(self) -> frozenset[str]:
        """As the protocol says."""
        found: list[str] = []
        while self.changed:
            found.append(self.changed.popitem()[0])
        return frozenset(found)

    async def accounts(self, names: Sequence[str]) -> tuple[BudgetAccount, ...]:
        """As the protocol says."""
        return _accounts(await self._statements.read("budget_accounts", tuple(names))) if names else ()

    async def current(self, now_ms: int, after: str, limit: int) -> tuple[BudgetAccount, ...]:
        """As the protocol says."""
        return _accounts(await self._statements.read("current_budgets", now_ms, after, limit))

    async def dearest(self, agent: str, unit: str) -> int | None:
        """A point read."""
        costs: Any = await self._statements.point("budget_lessons", agent, unit)
        if isinstance(costs, str):  # SQLite keeps several texts as JSON
            costs = msgspec.json.decode(costs)
        return max(map(int, costs)) if costs else None

    async def warn(self, account: str, threshold: int) -> bool:
        """As the protocol says."""
        return bool(await repeated(lambda: self._statements.write(("warn_budget", account, threshold))))

    async def note_told(self, account: str, threshold: int) -> None:
        """As the protocol says."""
        await repeated(lambda: self._statements.write(("tell_budget", account, threshold)))

    async def sweep(self, now_ms: int) -> int:
        """As the protocol says."""
        return await delete_accounts(
            self._statements, await self._statements.read("old_budgets", now_ms, BATCH_ACCOUNTS)
        )


async def delete_accounts(statements: Statements, found: Sequence[tuple[Any, ...]]) -> int:
    """Delete the accounts that a statement has found, each with its balances. Returns how many. Raises StoreError."""
    if not found:
        return 0
    names = tuple(account for (account,) in found)
    deleted = await repeated(lambda: statements.write(("delete_budgets", names)))
    await repeated(lambda: statements.write(("delete_balances", names)))
    return deleted


def _accounts(rows: Sequence[tuple[Any, ...]]) -> tuple[BudgetAccount, ...]:
    """The accounts of their balances, which come in the order of the accounts."""
    accounts: list[BudgetAccount] = []
    for facts, balances in groupby(rows, itemgetter(slice(0, 8))):
        account, budget, member, owner, unit, ends_ms, warned, told = facts
        sums = [(int(used or 0), int(reserved or 0)) for *_, used, reserved in balances]
        accounts.append(
            BudgetAccount(
                account=account,
                budget=budget,
                member=member,
                owner=owner,
                unit=unit,
                ends_ms=ends_ms,
                warned=warned,
                told=told,
                used=sum(used for used, _ in sums),
                reserved=sum(reserved for _, reserved in sums),
            )
        )
    return tuple(accounts)
