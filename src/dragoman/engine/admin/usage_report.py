"""Usage reports: what callers used of which agents and models, and what it cost.

Invariant: a number that nobody reported is null, never 0. Costs are exact, in the currency of the prices.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta

from dragoman.admin.usage import DIMENSIONS, Dimension, UsageLine, UsageQuery, UsageReport
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.engine.costs import Cost, amount_text, cost_of_run, sum_costs
from dragoman.model.errors import InvalidParams
from dragoman.model.principal import team_of
from dragoman.store.api import Store
from dragoman.store.usage import DAY_MS, UsageDay

FIELDS: dict[Dimension, Callable[[UsageDay], str]] = {
    "team": lambda used: team_of(used.owner),
    "principal": lambda used: used.owner,
    "agent": lambda used: used.agent,
    "model": lambda used: used.model,
    "upstream": lambda used: used.upstream,
    "day": lambda used: day_text(used.day),
}

Priced = tuple[UsageDay, Cost]
"""The usage of a day, and its cost."""

DAYS = 30
"""How many days a report covers unless it is told, today included."""

EPOCH = date(1970, 1, 1)

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


async def report_usage(store: Store, query: UsageQuery, prices: Prices = NO_PRICES) -> UsageReport:
    """The usage in groups, with what it cost by these prices. Raises InvalidParams or StoreError."""
    by = read_dimensions(query.by)
    today = store.clock.now_ms() // DAY_MS
    last = read_day("until", query.until) if query.until else today
    first = read_day("since", query.since) if query.since else min(today, last) - DAYS + 1
    if first > last:
        raise InvalidParams("since", f"{day_text(first)} is after until, {day_text(last)}")
    days = await store.usage.days(first, last)
    return await asyncio.to_thread(_fold, days, first, last, by, query, prices)


def read_dimensions(by: str) -> tuple[Dimension, ...]:
    """Read the dimensions that tell groups apart, in the order given. Raises InvalidParams."""
    names = tuple(name.strip() for name in by.split(","))
    found = tuple(name for name in DIMENSIONS if name in names)
    if len(found) != len(names):
        raise InvalidParams(
            "by", f"{by[:100]!r}: must be some of {', '.join(DIMENSIONS)}, separated by commas, once each"
        )
    return tuple(sorted(found, key=names.index))


def read_day(field: str, text: str) -> int:
    """The number of a day. Raises InvalidParams."""
    try:
        if not DAY.fullmatch(text):
            raise ValueError
        return (date.fromisoformat(text) - EPOCH).days
    except ValueError:
        raise InvalidParams(field, f"{text[:40]!r}: must be a day in UTC, like 2026-11-22") from None


def day_text(day: int) -> str:
    """The day with a number: `2026-11-22`."""
    return (EPOCH + timedelta(days=day)).isoformat()


def _fold(
    days: Sequence[UsageDay], first: int, last: int, by: tuple[Dimension, ...], query: UsageQuery, prices: Prices
) -> UsageReport:
    groups: dict[tuple[str, ...], list[Priced]] = {}
    reported: dict[str, int] = {}
    charged: set[str] = set()
    fields = [FIELDS[name] for name in by]
    priced = [(used, cost_of_run(prices, used.agent, (used,))) for used in days]
    for used, cost in priced:
        groups.setdefault(tuple(field(used) for field in fields), []).append((used, cost))
        reported[used.agent] = reported.get(used.agent, 0) + used.reported
        if cost.amount:
            charged.add(used.agent)
    lines = [_line(dict(zip(by, key, strict=True)), some) for key, some in groups.items()]
    lines.sort(key=lambda line: (line.day or "", -(line.total_tokens or 0), -line.runs, _names(line)))
    silent = sorted(agent for agent, count in reported.items() if not count)
    end = query.cursor + query.limit
    return UsageReport(
        since=day_text(first),
        until=day_text(last),
        by=by,
        lines=tuple(lines[query.cursor : end]),
        total=_line({}, priced),
        silent_agents=tuple(silent),
        currency=prices.currency or None,
        next_cursor=end if end < len(lines) else None,
        flat_agents=tuple(agent for agent in silent if agent in charged),
    )


def _names(line: UsageLine) -> tuple[str, ...]:
    return line.team or "", line.principal or "", line.agent or "", line.model or "", line.upstream or ""


def _line(names: dict[Dimension, str], days: Iterable[Priced]) -> UsageLine:
    runs = tasks = messages = reported = given = made = total = duration_ms = cached = uncertain = 0
    costs: list[Cost] = []
    for used, its_cost in days:
        runs += used.runs
        tasks += used.tasks
        messages += used.messages
        reported += used.reported
        given += used.input_tokens
        made += used.output_tokens
        total += used.total_tokens
        duration_ms += used.duration_ms
        cached += used.cached_tokens
        uncertain += used.uncertain
        costs.append(its_cost)
    tokens = (given, made, total, cached) if given or made or total else (None, None, None, None)
    cost = sum_costs(costs)
    return UsageLine(
        **names,
        runs=runs,
        tasks=tasks,
        messages=messages,
        unreported=runs - reported,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        total_tokens=tokens[2],
        duration_s=duration_ms / 1000,
        cost=None if cost.amount is None else amount_text(cost.amount),
        cost_complete=cost.complete,
        cached_tokens=tokens[3],
        uncertain=uncertain,
    )
