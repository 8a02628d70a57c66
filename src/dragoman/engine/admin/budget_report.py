"""The accounts of budgets, for operators.

Invariant: it only reads. An amount is exact.
"""

from decimal import Decimal, localcontext

from msgspec.structs import replace

from dragoman.admin.budgets import BudgetLine, BudgetLines, BudgetQuery
from dragoman.config.budgets import COUNTED, MONEY_SCALE, Budget
from dragoman.config.prices import DIGITS
from dragoman.engine.costs import amount_text
from dragoman.engine.spending import SpendingRules, account_name, period_at
from dragoman.model.ids import timestamp
from dragoman.store.api import Store
from dragoman.store.budgets import BudgetAccount


async def report_budgets(store: Store, query: BudgetQuery, rules: SpendingRules, team: str = "") -> BudgetLines:
    """The accounts whose period has not ended, and on the first page those that nobody has used yet.

    With a `team` they are those of the team as a whole, on one page. Raises StoreError.
    """
    if team:
        return await _report_team(store, rules, team)
    now_ms, budgets = store.clock.now_ms(), rules.by_id_and_unit
    accounts = await store.budgets.current(now_ms, query.cursor, query.limit)
    lines = [_line(budgets.get((account.budget, account.unit)), account) for account in accounts]
    if not query.cursor:
        alone = [_unused(budget, now_ms) for budget in rules.budgets if budget.per is None]
        unused = {account.account: account for account in alone}
        known = {account.account for account in await store.budgets.accounts(sorted(unused))}
        lines += [
            _line(budgets[one.budget, one.unit], one) for name, one in sorted(unused.items()) if name not in known
        ]
    return BudgetLines(budgets=tuple(lines), next_cursor=accounts[-1].account if len(accounts) == query.limit else "")


async def _report_team(store: Store, rules: SpendingRules, team: str) -> BudgetLines:
    now_ms = store.clock.now_ms()
    own: dict[str, tuple[Budget, BudgetAccount]] = {}
    for budget in rules.budgets:
        if budget.per == "team" and budget.team in (None, team):
            unused = _unused(budget, now_ms, team)
        elif budget.per is None and budget.team == team:
            unused = _unused(budget, now_ms)
        else:
            continue
        own[unused.account] = budget, unused
    known = {account.account: account for account in await store.budgets.accounts(sorted(own))}
    return BudgetLines(budgets=tuple(_line(budget, known.get(name, unused)) for name, (budget, unused) in own.items()))


def show_amount(amount: int, unit: str) -> str:
    """An amount of a unit as people write it: money in the currency itself."""
    if unit in COUNTED:
        return str(amount)
    with localcontext(prec=DIGITS):
        return amount_text(Decimal(amount).scaleb(-MONEY_SCALE))


def _unused(budget: Budget, now_ms: int, member: str = "") -> BudgetAccount:
    """The account of a budget, or of a member of one, as it is before its first task."""
    period = period_at(budget, now_ms)
    return BudgetAccount(
        account=account_name(budget, period, member, ""),
        budget=budget.id,
        member=member,
        owner="",
        unit=budget.unit,
        ends_ms=period.ends_ms,
        warned=0,
        told=0,
        used=0,
        reserved=0,
    )


def _line(budget: Budget | None, account: BudgetAccount) -> BudgetLine:
    line = BudgetLine(
        budget=account.budget,
        member=account.member,
        unit=account.unit,
        used=show_amount(account.used, account.unit),
        reserved=show_amount(account.reserved, account.unit),
        resets_at=None if account.ends_ms is None else timestamp(account.ends_ms),
    )
    if budget is None:
        return line
    return replace(
        line,
        per=budget.per,
        owner=account.owner if budget.per == "conversation" else "",
        key=budget.key,
        team=budget.team,
        agent=budget.agent,
        limit=show_amount(budget.limit, budget.unit),
        percent=share(account, budget),
        mode="hard" if budget.hard else "soft",
        period=budget.period,
        time_zone=budget.time_zone,
    )


def share(account: BudgetAccount, budget: Budget) -> int:
    """How much of a budget is used or reserved, in whole percent, rounded down."""
    return (account.used + account.reserved) * 100 // budget.limit
