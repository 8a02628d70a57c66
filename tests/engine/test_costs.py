"""Costs: exact, and open about what they leave out."""

from decimal import Decimal
from fractions import Fraction

import pytest

from dragoman.config import Price, Prices
from dragoman.engine.costs import Cost, amount_text, cost_of_run, known_cost, sum_costs
from dragoman.model.task import Usage
from dragoman.store.usage import Used, used_by_answer

PRICES = Prices(
    "EUR",
    {
        "small": Price(Decimal("0.15"), Decimal("0.6"), cached_per_million=Decimal("0.015")),
        "plain": Price(Decimal("0.15"), Decimal("0.6")),
    },
    {
        "flat": Price(per_task=Decimal("0.25"), per_message=Decimal("0.01")),
        "slow": Price(per_second=Decimal("0.0001")),
        "pool": Price(per_task=Decimal(1)),
        "pool/eu": Price(per_task=Decimal(2)),
        "both": Price(Decimal(1), per_task=Decimal("0.5")),
    },
)


def cost(agent: str, usage: Usage | None, duration_ms: int = 0) -> Cost:
    return cost_of_run(PRICES, agent, used_by_answer(usage, duration_ms))


@pytest.mark.parametrize(
    ("agent", "usage", "amount", "complete"),
    [
        ("chat", Usage.of(1_000_000, 1_000_000, model="small"), "0.75", True),
        ("chat", Usage.of(1_000_000, 0, model="small", cached_tokens=900_000), "0.0285", True),
        ("chat", Usage.of(1_000_000, 0, model="plain", cached_tokens=900_000), "0.15", True),
        ("chat", Usage.of(10, 0, model="small", cached_tokens=11), "0.00000015", True),
        ("chat", Usage.of(1, 1, model="unheard"), None, False),
        ("flat", None, "0.26", True),
        ("flat", Usage.of(7, 7, model="small"), "0.26", True),
        ("both", None, "0.5", False),
        ("pool", Usage.of(1, 1, model="small", upstream="us"), "1", True),
        ("pool", Usage.of(1, 1, model="small", upstream="eu"), "2", True),
        ("chat", Usage.of(1_000_000, 0, model="small") + Usage.unknown("small"), "0.15", False),
        ("chat", Usage.unknown("small") + Usage.of(1_000_000, 0, model="plain"), "0.15", False),
        ("pool", Usage.unknown("small", "us") + Usage.of(1, 1, model="small", upstream="eu"), "2", True),
    ],
)
def test_a_run_costs_what_its_price_says(agent: str, usage: Usage | None, amount: str | None, complete: bool) -> None:
    found = cost(agent, usage)
    assert (None if found.amount is None else amount_text(found.amount), found.complete) == (amount, complete)


def test_time_is_charged_without_the_time_that_a_task_waited_for_its_caller() -> None:
    used = Used(runs=1, tasks=1, messages=2, duration_ms=90_000, waited_ms=60_001)
    assert cost_of_run(PRICES, "slow", (used,)) == Cost(Decimal("0.0029999"), True)


def test_sums_of_runs_cost_what_the_runs_cost_together() -> None:
    runs = [used_by_answer(Usage.of(number, 3 * number, model="small"), 0)[0] for number in range(1, 50)]
    together = Used(
        "small",
        runs=49,
        messages=49,
        reported=49,
        input_tokens=sum(run.input_tokens for run in runs),
        output_tokens=sum(run.output_tokens for run in runs),
    )
    assert cost_of_run(PRICES, "chat", (together,)) == sum_costs(cost_of_run(PRICES, "chat", (run,)) for run in runs)


def test_nothing_is_rounded_with_the_largest_sums() -> None:
    finest = Decimal("999999999999.999999999999999999999999")
    prices = Prices("EUR", {}, {"a": Price(finest, per_second=finest)})
    most = (1 << 53) - 1
    used = Used(runs=1, reported=1, input_tokens=most, duration_ms=most)
    found = cost_of_run(prices, "a", (used,) * 400).amount
    assert found is not None
    assert Fraction(found) == 400 * Fraction(finest) * most * (Fraction(1, 10**6) + Fraction(1, 1000))


def test_sums_without_any_cost_are_none() -> None:
    assert sum_costs(()) == Cost(None, False)
    assert sum_costs((Cost(), Cost(Decimal(1), True))) == Cost(Decimal(1), False)


@pytest.mark.parametrize(
    ("agent", "amount"),
    [("flat", Decimal("0.26")), ("both", None), ("slow", None), ("pool", None), ("chat", None)],
)
def test_a_cost_is_known_beforehand_where_only_tasks_and_messages_cost(agent: str, amount: Decimal | None) -> None:
    assert known_cost(PRICES, agent) == amount
