"""The tables of budgets in the configuration file."""

from decimal import Decimal
from typing import Any

import pytest

from dragoman.config import AgentEntry, Config, ConfigError, load_table
from dragoman.config.budgets import Budget, Reserve

PRICES = {"currency": "EUR", "agents": {"a": {"per_message": "0.05"}}}
BEST = {"id": "b", "money": "12.50"}


def read(*budgets: Any, prices: Any = PRICES, **more: Any) -> Config:
    given = {} if prices is None else {"prices": prices}
    return load_table("dragoman.toml", {**given, "budgets": list(budgets), **more}, {}, {})


def test_a_budget_has_defaults() -> None:
    assert read(BEST).budgets == (Budget(id="b", unit="EUR", limit=125 * 10**29),)


def test_every_key_is_read() -> None:
    whole = {
        "id": "b",
        "tokens": 5,
        "per": "conversation",
        "key": "ci",
        "team": "search",
        "agent": "writer",
        "period": "day",
        "time_zone": "Europe/Berlin",
        "mode": "soft",
        "warn_at": [100, 50],
        "on_limit": "stop",
    }
    (budget,) = read(whole, prices=None, teams=[{"id": "search"}]).budgets
    assert budget == Budget(
        id="b",
        unit="tokens",
        limit=5,
        per="conversation",
        key="ci",
        team="search",
        agent="writer",
        period="day",
        time_zone="Europe/Berlin",
        hard=False,
        warn_at=(50, 100),
        stops=True,
    )
    missed = set(Budget.__struct_fields__) - {"unit", "limit", "hard", "stops"} - set(whole)
    assert not missed


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"id": "max_tasks_per_context", "tasks": 1},
            "budgets[0].id = 'max_tasks_per_context': is the name of a setting, which is a budget by itself: "
            "take another",
        ),
        ({**BEST, "moeny": 1}, "budgets[0].moeny = 1: no such setting; did you mean money?"),
        ({"money": 1}, "budgets[0].id = None: must be 1 to 64 letters"),
        ({"id": "a b", "money": 1}, "budgets[0].id = 'a b': must be"),
        ({"id": "b"}, "budgets[0]: must have exactly one of money, tokens and tasks"),
        ({**BEST, "tasks": 1}, "budgets[0]: must have exactly one of money, tokens and tasks"),
        ({"id": "b", "money": 0}, "budgets[0].money = 0: must be more than 0"),
        ({"id": "b", "money": "-1"}, "budgets[0].money = '-1': must be an amount"),
        ({"id": "b", "tasks": 0}, "budgets[0].tasks = 0: must be a whole number from 1 to 9007199254740991"),
        ({"id": "b", "tokens": True}, "budgets[0].tokens = True: must be a whole number"),
        ({"id": "b", "tokens": 1.5}, "budgets[0].tokens = 1.5: must be a whole number"),
        ({**BEST, "per": "user"}, "budgets[0].per = 'user': must be key, team, agent or conversation"),
        ({**BEST, "per": []}, "budgets[0].per = []: must be key, team, agent or conversation"),
        ({**BEST, "key": ""}, "budgets[0].key = '': must be text that is not empty"),
        ({**BEST, "team": "search"}, "budgets[0].team = 'search': names no team: write [[teams]] with this id"),
        ({**BEST, "period": "week"}, "budgets[0].period = 'week': must be day, month or forever"),
        ({**BEST, "mode": "firm"}, "budgets[0].mode = 'firm': must be hard or soft"),
        ({**BEST, "on_limit": "end"}, "budgets[0].on_limit = 'end': must be finish or stop"),
        ({**BEST, "time_zone": "Mars/Base"}, "must be a time zone that this machine knows, like Europe/Berlin"),
        ({**BEST, "time_zone": "../etc"}, "must be a time zone that this machine knows"),
        ({**BEST, "time_zone": 1}, "must be a time zone that this machine knows"),
        ({**BEST, "warn_at": [0]}, "budgets[0].warn_at = [0]: must be a list of percentages from 1 to 1000"),
        ({**BEST, "warn_at": 80}, "budgets[0].warn_at = 80: must be a list of percentages"),
        ("b", "budgets = ['b']: must be tables: write [[budgets]]"),
    ],
)
def test_a_wrong_budget_is_refused_with_the_fix(table: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(table)
    assert said in str(refused.value)


def test_the_limit_is_exactly_what_the_operator_wrote() -> None:
    (budget,) = read({**BEST, "money": "123456789012.000000000000000000000001"}).budgets
    assert budget.limit == 123_456_789_012 * 10**30 + 10**6


def test_ids_differ_and_money_needs_a_currency() -> None:
    with pytest.raises(ConfigError, match=r"budgets\[1\].id = 'b': is the id of another budget: ids must differ"):
        read(BEST, BEST)
    with pytest.raises(ConfigError, match=r"budgets\[0\].money = '12.50': needs prices: write \[prices\]"):
        read(BEST, prices=None)


def test_an_agent_may_say_what_its_tasks_reserve() -> None:
    def entry(reserve: Any) -> AgentEntry:
        return read(agents=[{"id": "a", "run": "worker", "reserve": reserve}]).agents[0]

    assert entry({"money": "0.20", "tokens": 5}).reserve == Reserve(money=Decimal("0.20"), tokens=5)
    assert entry({"tokens": 5}).reserve == Reserve(tokens=5)
    for wrong, said in (
        ({}, "must be a table with money, tokens, or both"),
        (3, "must be a table with money, tokens, or both"),
        ({"token": 3}, "did you mean tokens?"),
        ({"tokens": -1}, "must be a whole number"),
        ({"money": "x"}, "must be an amount"),
    ):
        with pytest.raises(ConfigError, match=rf"agents\[0\].reserve.*{said}".replace("?", r"\?")):
            entry(wrong)
