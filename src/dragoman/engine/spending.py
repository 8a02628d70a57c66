"""Spending: which budgets a new task falls under, what it reserves there, and what its end is charged.

Invariant: a task is charged to the accounts of which it has reserved, whatever becomes of the budgets meanwhile. A task
that begins before midnight is charged to the day on which it began.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
from msgspec import Struct

from dragoman.config import Config
from dragoman.config.budgets import CONTEXT_TASKS, Budget, Reserve, scale
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.costs import cost_of_run, known_cost
from dragoman.engine.runs.endings import refusal_of
from dragoman.model.errors import BudgetExhausted, TooManyRequests
from dragoman.model.ids import timestamp
from dragoman.model.principal import Principal, own_id
from dragoman.model.task import Record, Reservation, TaskHead, TaskState, Usage
from dragoman.store.api import Store
from dragoman.store.budgets import UNKNOWN, BudgetAccount, BudgetClaim, Charge, charge_task
from dragoman.store.principals import key_name
from dragoman.store.usage import DAY_MS, Used, used_by_answer, used_by_task

KEPT_DAYS = 400
"""How long the account of a period is kept after its end: a year, and a month to look back at it."""

LEARNT_MS = 1_000
"""How long what an agent's tasks have cost is believed before it is read again."""

RETRY_MAX_S = 3_600
"""The longest `Retry-After`: the operator may raise the budget before its period ends."""

TIME_MAX_MS = 1 << 53
"""Later than any period ends."""

KNOWN_MAX = 10_000
"""Most callers with agents whose claims are remembered."""

FIRST_RETRY_S = 1
"""`Retry-After` while the first task of an agent shows what one costs."""

FIRST = "first"
"""Begins the name of the account of which a single task can reserve while nobody knows what its agent's tasks cost."""


class Period(Struct, frozen=True):
    """A period of a budget: its `name`, and when it begins and ends, in milliseconds since the epoch; None: never."""

    name: str
    begins_ms: int
    ends_ms: int | None

    def covers(self, now_ms: int) -> bool:
        """Whether a time is in the period."""
        return self.begins_ms <= now_ms and (self.ends_ms is None or now_ms < self.ends_ms)


FOREVER = Period("forever", 0, None)


def period_at(budget: Budget, now_ms: int) -> Period:
    """The period of a budget at a time: the day or the month by the calendar of its time zone."""
    if budget.period == "forever":
        return FOREVER
    zone = budget.zone
    today = datetime.fromtimestamp(now_ms // 1000, UTC).astimezone(zone).date()
    if budget.period == "day":
        first, after, name = today, today + timedelta(days=1), today.isoformat()
    else:
        first, name = today.replace(day=1), f"{today:%Y-%m}"
        after = (first + timedelta(days=31)).replace(day=1)

    def midnight_ms(day: date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1000

    return Period(name, midnight_ms(first), midnight_ms(after))


class SpendingRules(Struct, frozen=True, kw_only=True):
    """The operator's rules: the budgets, the prices, and what tasks reserve, by agent."""

    budgets: tuple[Budget, ...] = ()
    prices: Prices = NO_PRICES
    reserves: Mapping[str, Reserve] = {}

    @property
    def by_id_and_unit(self) -> Mapping[tuple[str, str], Budget]:
        """The budgets for those who have an account: one in a unit that its budget had before belongs to none."""
        return {(budget.id, budget.unit): budget for budget in self.budgets}


def spending_rules(config: Config) -> SpendingRules:
    """The rules of a configuration. The limit of each conversation is a budget, too."""
    budgets = config.budgets
    if most := config.max_tasks_per_context:
        whole = Budget(id=CONTEXT_TASKS, unit="tasks", limit=most, per="conversation", period="forever", warn_at=())
        budgets = (*budgets, whole)
    reserves = {entry.id: entry.reserve for entry in config.agents if entry.reserve is not None}
    return SpendingRules(budgets=budgets, prices=config.prices, reserves=reserves)


NO_RULES = SpendingRules()


class FixedPrice(Struct, frozen=True):
    """A price that is known before a run: of a task with its first message, and of each further message."""

    first: int
    further: int


class Known(Struct, frozen=True):
    """The claims of a caller's tasks with an agent, as long as they stay the same: until a time, and from one."""

    claims: tuple[BudgetClaim, ...]
    from_ms: int
    until_ms: int


class TaskSpending:
    """The claims of new tasks, and the charges of those that end. Belongs to the loop."""

    def __init__(self, store: Store, rules: SpendingRules = NO_RULES) -> None:
        self._store = store
        self._rules = rules
        self._known: dict[tuple[str, str, str], Known] = {}
        """The claims of tasks that depend on no more than their caller, its team and their agent."""
        self._prices: dict[str, FixedPrice | None] = {}
        self._periods: dict[str, Period] = {}
        self._dearest: dict[tuple[str, str], tuple[int, int | None]] = {}
        """The dearest of the latest tasks of an agent, by agent and unit, with the time at which that was read."""

    @property
    def rules(self) -> SpendingRules:
        """The rules that hold at present."""
        return self._rules

    def replace(self, rules: SpendingRules) -> None:
        """Go by other rules from now on."""
        self._rules = rules
        self._known.clear()
        self._prices.clear()
        self._periods.clear()

    def limits(self, caller: Principal, agent: str) -> bool:
        """Whether a caller's tasks with an agent fall under a budget."""
        return any(_member(budget, caller, agent, "") is not None for budget in self._rules.budgets)

    # -- new tasks -----------------------------------------------------------------------------------------------------

    async def claims(self, caller: Principal, agent: str, context_id: str, now_ms: int) -> tuple[BudgetClaim, ...]:
        """The claims of a new task on all budgets under which it falls. Raises StoreError."""
        key = caller.id, caller.team, agent
        known = self._known.get(key)
        if known is not None and known.from_ms <= now_ms < known.until_ms:
            return known.claims
        claims: list[BudgetClaim] = []
        firsts: set[str] = set()
        changing, from_ms, until_ms = False, 0, TIME_MAX_MS
        for budget in self._rules.budgets:
            whose = _member(budget, caller, agent, context_id)
            if whose is None:
                continue
            period = self._period(budget, now_ms)
            amount, learnt = await self._amount(agent, budget.unit, now_ms)
            if amount is None and budget.hard:
                firsts.add(budget.unit)
            changing = changing or learnt or budget.per == "conversation"
            from_ms, until_ms = max(from_ms, period.begins_ms), min(until_ms, period.ends_ms or TIME_MAX_MS)
            reserved = UNKNOWN if amount is None else amount
            claims.append(_claim(budget, period, *whose, reserved, now_ms, learnt=learnt))
        for unit in sorted(firsts):
            first = Reservation(f"{FIRST}|{unit}|{agent}", unit, "1", first=True)
            claims.append(BudgetClaim(reservation=first, limit=1, budget="", member=agent))
        made = tuple(claims)
        if not changing:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = Known(made, from_ms, until_ms)
        return made

    def _period(self, budget: Budget, now_ms: int) -> Period:
        """The period at a time. The time zone is asked once a period, and when the clock was set back."""
        known = self._periods.get(budget.id)
        if known is None or not known.covers(now_ms):
            known = self._periods[budget.id] = period_at(budget, now_ms)
        return known

    async def _amount(self, agent: str, unit: str, now_ms: int) -> tuple[int | None, bool]:
        """How much a task of an agent reserves, and whether that is learnt from earlier ones: None if none has shown it
        yet."""
        if unit == "tasks":
            return 1, False
        reserve = self._rules.reserves.get(agent)
        if unit == "tokens":
            if reserve is not None and reserve.tokens is not None:
                return reserve.tokens, False
        else:
            price = self._fixed_price(agent)
            if price is not None:
                return max(price.first, UNKNOWN), False
            if reserve is not None and reserve.money is not None:
                return scale(reserve.money), False
        known = self._dearest.get((agent, unit))
        if known is None or known[1] is None or not 0 <= now_ms - known[0] < LEARNT_MS:
            known = self._dearest[agent, unit] = now_ms, await self._store.budgets.dearest(agent, unit)
        return None if known[1] is None else max(known[1], UNKNOWN), True

    def _fixed_price(self, agent: str) -> FixedPrice | None:
        """The price of an agent's tasks, if it is known before they begin."""
        if agent not in self._prices:
            prices = self._rules.prices
            first, price = known_cost(prices, agent), prices.find(agent, "")
            if first is None or price is None:
                self._prices[agent] = None
            else:
                self._prices[agent] = FixedPrice(scale(first), scale(price.per_message or Decimal(0)))
        return self._prices[agent]

    # -- refusals ------------------------------------------------------------------------------------------------------

    def refusal(self, claim: BudgetClaim, now_ms: int) -> TooManyRequests:
        """The error for a caller whose task may not be made because of a claim."""
        if claim.reservation.first:
            said = f"one task of {claim.member} runs until it shows what a task costs: send again when it has ended"
            return TooManyRequests("budgets", said, FIRST_RETRY_S)
        if claim.budget == CONTEXT_TASKS:
            said = f"this conversation has had {_count(claim.limit or 0)}, which is the limit: begin another one"
            return BudgetExhausted(CONTEXT_TASKS, said, None)
        return _exhausted(claim.budget, claim.ends_ms, now_ms)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def charges(self, record: Record) -> tuple[Charge, ...]:
        """The charges of a task that ends: nothing if its agent did not take it on."""
        head = record.head
        units = {one.unit for one in head.reservations}
        if record.state is TaskState.FAILED and refusal_of(record) is not None:
            return charge_task(head.reservations, "", dict.fromkeys(units, 0))
        costs: Mapping[str, int | None] = {"tasks": 1} if units == {"tasks"} else self._costs(record)
        return charge_task(head.reservations, head.agent, costs, completed=record.state is TaskState.COMPLETED)

    def _costs(self, record: Record) -> Mapping[str, int | None]:
        """The costs of a task by now."""
        return self._costs_of(record.head.agent, used_by_task(record))

    def _costs_of(self, agent: str, used: tuple[Used, ...]) -> Mapping[str, int | None]:
        """The costs of a run in each unit; None: unknown, since its agent has said nothing of tokens."""
        prices = self._rules.prices
        tokens = sum(each.total_tokens for each in used) if used[0].reported else None
        price = self._fixed_price(agent)
        if price is not None:
            money: int | None = price.first + price.further * (used[0].messages - 1)
        else:
            cost = cost_of_run(prices, agent, used)
            money = scale(cost.amount) if cost.complete and cost.amount is not None else None
        return {"tasks": 1, "tokens": tokens, prices.currency: money}

    # -- tasks under way -----------------------------------------------------------------------------------------------

    async def exceeded(self, head: TaskHead, used: Usage) -> str | None:
        """The budget that ends a run which has used so much by now, because it has less left; None if none does.

        Raises StoreError.
        """
        costs = self._costs_of(head.agent, used_by_answer(used, 0))
        found = await self._exceeded(head, costs, lambda budget, held: budget.stops and held.stops)
        return None if found is None else found[0].id

    async def check_further(self, record: Record, now_ms: int) -> None:
        """Check that a task may go on with another message: not if it has spent more than it reserved, and its `hard`
        budget has nothing left for that.

        Raises BudgetExhausted or StoreError.
        """
        found = await self._exceeded(record.head, self._costs(record), lambda budget, held: budget.hard)
        if found is not None:
            budget, account = found
            raise _exhausted(budget.id, account.ends_ms, now_ms)

    async def _exceeded(
        self, head: TaskHead, costs: Mapping[str, int | None], binds: Callable[[Budget, Reservation], bool]
    ) -> tuple[Budget, BudgetAccount] | None:
        """The budget that has less left than a task has cost, among those that bind it."""
        budgets = self._rules.by_id_and_unit
        for held in head.reservations:
            budget, cost = budgets.get((held.account.partition("|")[0], held.unit)), costs.get(held.unit)
            if budget is None or held.first or cost is None or cost <= int(held.amount) or not binds(budget, held):
                continue
            for account in await self._store.budgets.accounts([held.account]):
                if account.used + account.reserved - int(held.amount) + cost > budget.limit:
                    return budget, account
        return None


def _claim(
    budget: Budget, period: Period, member: str, owner: str, amount: int, now_ms: int, *, learnt: bool
) -> BudgetClaim:
    kept_until_ms: int | None = None
    if period.ends_ms is not None:
        kept_until_ms = period.ends_ms + KEPT_DAYS * DAY_MS
    elif budget.per == "conversation":  # else each of them would leave a row for good
        kept_until_ms = (now_ms // DAY_MS + KEPT_DAYS) * DAY_MS
    account = account_name(budget, period, member, owner)
    return BudgetClaim(
        reservation=Reservation(account, budget.unit, str(amount), learnt=learnt, stops=budget.stops),
        limit=budget.limit if budget.hard else None,
        budget=budget.id,
        member=member,
        owner=owner,
        ends_ms=period.ends_ms,
        expires_ms=kept_until_ms,
    )


def _exhausted(budget: str, ends_ms: int | None, now_ms: int) -> BudgetExhausted:
    if ends_ms is None:
        return BudgetExhausted(budget, "the budget is used up: ask the operator to raise it", None)
    resets_at = timestamp(ends_ms)
    retry_s = min(max(1, -((now_ms - ends_ms) // 1000)), RETRY_MAX_S)
    return BudgetExhausted(budget, f"the budget is used up until {resets_at}", retry_s, resets_at)


def account_name(budget: Budget, period: Period, member: str, owner: str) -> str:
    """The name of the account of a member for a period: another unit makes another account, a time zone does not."""
    whose = msgspec.json.encode((owner, member)).decode() if budget.per == "conversation" else member
    return f"{budget.id}|{budget.unit}|{period.name}|{whose}"


def _member(budget: Budget, caller: Principal, agent: str, context_id: str) -> tuple[str, str] | None:
    """The member of a budget to which a task counts, and the principal that it is alone; None if it does not count."""
    if budget.agent not in (None, agent) or budget.team not in (None, caller.team):
        return None
    near = caller.team == (budget.team or "")  # a name is that of a caller in the budget's team, or in none
    if budget.key not in (None, caller.id) and not (near and budget.key in (own_id(caller.id), key_name(caller.id))):
        return None
    match budget.per:
        case "key":
            return caller.id, caller.id
        case "team":
            return (caller.team, "") if caller.team else None
        case "agent":
            return agent, ""
        case "conversation":
            return context_id, caller.id
        case _:
            return "", ""


def _count(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks} tasks"
