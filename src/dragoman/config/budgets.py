"""`[[budgets]]`: how much callers may spend, in money, tokens or tasks.

Invariant: every id is unique, and an amount is exactly what the operator wrote.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from decimal import Decimal, localcontext
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.prices import DIGITS, Prices, read_amount

Member = Literal["key", "team", "agent", "conversation"]

MEMBERS: tuple[Member, ...] = ("key", "team", "agent", "conversation")

PERIODS = ("day", "month", "forever")

UNITS = ("money", "tokens", "tasks")

COUNTED = frozenset(UNITS[1:])
"""The units that are counted in whole ones. All others are currencies."""

WARN_AT = (80, 100)

COUNT_MAX = (1 << 53) - 1
"""The most tokens or tasks of a budget: every reader of JSON keeps it exact."""

MONEY_SCALE = 30
"""Money is counted in whole units of 10^-30 of its currency: see `store.budgets`."""

BUDGET_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

CONTEXT_TASKS = "max_tasks_per_context"
"""The setting that is a budget of each conversation, under this id."""

BUDGET_KEYS = ("id", *UNITS, "per", "key", "team", "agent", "period", "time_zone", "mode", "warn_at", "on_limit")

_FORM = "must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit"


class Budget(Struct, frozen=True, kw_only=True):
    """A limit on what tasks cost together.

    `unit` is "tokens", "tasks", or the currency of the prices, and `limit` the amount in its smallest unit: one token
    or task, or 10^-30 of the currency. It holds for the tasks of a `key` (the name of a principal, in the `team` or
    in none), a `team` and an `agent`, as far as these are given: for all of them together, or for each member of `per`
    alone. `zone` is that of the days and months. A `hard` budget refuses tasks; every budget warns at `warn_at`
    percent. With `stops` it ends the runs of tasks that report to have spent more than is left.
    """

    id: str
    unit: str
    limit: int
    per: Member | None = None
    key: str | None = None
    team: str | None = None
    agent: str | None = None
    period: Literal["day", "month", "forever"] = "month"
    time_zone: str = "UTC"
    hard: bool = True
    warn_at: tuple[int, ...] = WARN_AT
    stops: bool = False

    @property
    def zone(self) -> tzinfo:
        """The time zone of its days and months."""
        return find_zone(self.time_zone)


class Reserve(Struct, frozen=True, kw_only=True):
    """`[agents.reserve]`: what a task of the agent reserves of budgets in money and in tokens. None: not set."""

    money: Decimal | None = None
    tokens: int | None = None


def find_zone(name: str) -> tzinfo:
    """The time zone with a name. Raises ValueError if this machine does not know it."""
    if name == "UTC":  # known without a table of time zones, too
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(name) from error


def scale(money: Decimal) -> int:
    """An amount of money as a whole number of units of 10^-MONEY_SCALE."""
    with localcontext(prec=DIGITS):
        return int(money.scaleb(MONEY_SCALE))


def read_budgets(source: str, tables: object, prices: Prices, teams: Collection[str] = ()) -> tuple[Budget, ...]:
    """The budgets in the tables `[[budgets]]` of a file, which has these teams. Raises ConfigError."""
    if tables is None:
        return ()
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(source, "budgets", tables, "must be tables: write [[budgets]]")
    found: dict[str, Budget] = {}
    for index, table in enumerate(tables):
        budget = _read_budget(source, f"budgets[{index}]", table, prices)
        if budget.id in found:
            raise ConfigError(source, f"budgets[{index}].id", budget.id, "is the id of another budget: ids must differ")
        if budget.team is not None and budget.team not in teams:
            raise ConfigError(
                source, f"budgets[{index}].team", budget.team, "names no team: write [[teams]] with this id"
            )
        found[budget.id] = budget
    return tuple(found.values())


def read_reserve(source: str, path: str, table: object) -> Reserve:
    """The reserve of an agent's tasks, by the table at `path`. Raises ConfigError."""
    if not isinstance(table, dict) or not table:
        raise ConfigError(source, path, table, "must be a table with money, tokens, or both")
    check_keys(source, table, Reserve.__struct_fields__, f"{path}.")
    money = read_amount(source, f"{path}.money", table["money"]) if "money" in table else None
    return Reserve(
        money=money, tokens=_read_count(source, f"{path}.tokens", table["tokens"]) if "tokens" in table else None
    )


def _read_budget(source: str, path: str, table: Mapping[str, Any], prices: Prices) -> Budget:
    check_keys(source, table, BUDGET_KEYS, f"{path}.")
    named = table.get("id")
    if not isinstance(named, str) or not BUDGET_ID.fullmatch(named):
        raise ConfigError(source, f"{path}.id", named, _FORM)
    if named == CONTEXT_TASKS:
        raise ConfigError(
            source, f"{path}.id", named, "is the name of a setting, which is a budget by itself: take another"
        )
    given = [unit for unit in UNITS if unit in table]
    if len(given) != 1:
        raise ConfigError(source, path, named, "must have exactly one of money, tokens and tasks", shows_value=False)
    (unit,) = given
    amount, chosen = table[unit], {name: table[name] for name in ("key", "team", "agent") if name in table}
    for name, value in chosen.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(source, f"{path}.{name}", value, "must be text that is not empty")
    return Budget(
        id=named,
        unit=_currency(source, path, amount, prices) if unit == "money" else unit,
        limit=_read_money(source, path, amount) if unit == "money" else _read_count(source, f"{path}.{unit}", amount),
        per=_choose(source, f"{path}.per", table.get("per"), (*MEMBERS, None)),
        **chosen,
        period=_choose(source, f"{path}.period", table.get("period", "month"), PERIODS),
        time_zone=_read_zone(source, path, table.get("time_zone", "UTC")),
        hard=_choose(source, f"{path}.mode", table.get("mode", "hard"), ("hard", "soft")) == "hard",
        stops=_choose(source, f"{path}.on_limit", table.get("on_limit", "finish"), ("finish", "stop")) == "stop",
        warn_at=_read_thresholds(source, f"{path}.warn_at", table.get("warn_at", list(WARN_AT))),
    )


def _currency(source: str, path: str, amount: object, prices: Prices) -> str:
    if not prices.currency:
        raise ConfigError(source, f"{path}.money", amount, "needs prices: write [prices] with a currency")
    return prices.currency


def _read_money(source: str, path: str, amount: object) -> int:
    money = read_amount(source, f"{path}.money", amount)
    if not money:
        raise ConfigError(source, f"{path}.money", amount, "must be more than 0")
    return scale(money)


def _read_count(source: str, path: str, amount: object) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int) or not 1 <= amount <= COUNT_MAX:
        raise ConfigError(source, path, amount, f"must be a whole number from 1 to {COUNT_MAX}")
    return amount


def _read_zone(source: str, path: str, name: object) -> str:
    try:
        if not isinstance(name, str):
            raise ValueError
        find_zone(name)
    except ValueError as error:
        fix = "must be a time zone that this machine knows, like Europe/Berlin: install tzdata, or use UTC"
        raise ConfigError(source, f"{path}.time_zone", name, fix) from error
    return str(name)


def _read_thresholds(source: str, path: str, given: object) -> tuple[int, ...]:
    fits = isinstance(given, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= 1000 for each in given
    )
    if not fits:
        raise ConfigError(source, path, given, "must be a list of percentages from 1 to 1000, like [80, 100]")
    assert isinstance(given, list)
    return tuple(sorted(set(given)))


def _choose(source: str, path: str, given: Any, allowed: Sequence[Any]) -> Any:
    if given not in allowed:
        names = [name for name in allowed if name is not None]
        raise ConfigError(source, path, given, f"must be {', '.join(names[:-1])} or {names[-1]}")
    return given
