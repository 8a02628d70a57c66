"""Usage in groups, with what it cost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest

from dragoman.admin.usage import UsageQuery
from dragoman.config import Price, Prices
from dragoman.engine.admin.usage_report import report_usage
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Usage
from dragoman.store.api import Dedupe, Store
from dragoman.store.open import open_store
from dragoman.store.usage import DAY_MS, AnswerUsage, used_by_answer

NOW_MS = 20_780 * DAY_MS + 5
"""In the night to 2026-11-23."""

MILLION = 1_000_000


class Clock:
    def now_ms(self) -> int:
        return NOW_MS


@asynccontextmanager
async def used(*runs: tuple[str, str, Usage | None, int]) -> AsyncIterator[Store]:
    """A store in which callers had answers of agents, so many days ago."""
    store = open_store("memory:", Clock())
    await store.open("me")
    answer = Message(message_id="m", role=Role.AGENT, parts=(Part(text="yes"),))
    for number, (owner, agent, usage, days_ago) in enumerate(runs):
        spent = AnswerUsage(owner, agent, NOW_MS - days_ago * DAY_MS, used_by_answer(usage, 1500))
        await store.remember(Dedupe(b"%d" % number, b"", NOW_MS + 1), answer, spent)
    try:
        yield store
    finally:
        await store.close()


async def test_usage_is_told_in_groups_those_with_the_most_tokens_first() -> None:
    runs = (
        ("key:ann", "echo", Usage.of(5, 1), 0),
        ("key:ann", "echo", Usage.of(10, 2), 1),
        ("key:bob", "echo", Usage.of(100, 20), 0),
        ("key:bob", "silent", None, 0),
        ("key:bob", "silent", None, 40),
    )
    async with used(*runs) as store:
        report = await report_usage(store, UsageQuery())
        assert (report.since, report.until, report.currency) == ("2026-10-25", "2026-11-23", None)
        assert [(line.principal, line.agent, line.runs, line.total_tokens) for line in report.lines] == [
            ("key:bob", "echo", 1, 120),
            ("key:ann", "echo", 2, 18),
            ("key:bob", "silent", 1, None),
        ]
        assert (report.total.runs, report.total.unreported, report.total.input_tokens) == (4, 1, 115)
        assert report.total.duration_s == 6.0
        assert (report.total.cost, report.total.cost_complete) == (None, False)
        assert report.silent_agents == ("silent",)
        by_day = await report_usage(store, UsageQuery(by="day", since="2026-10-01"))
        assert [(line.day, line.runs, line.total_tokens) for line in by_day.lines] == [
            ("2026-10-14", 1, None),
            ("2026-11-22", 1, 12),
            ("2026-11-23", 3, 126),
        ]
        yesterday = await report_usage(store, UsageQuery(by="agent", since="2026-11-22", until="2026-11-22"))
        assert [(line.agent, line.principal, line.runs) for line in yesterday.lines] == [("echo", None, 1)]


async def test_pages_have_all_groups_once_and_the_same_total() -> None:
    async with used(*((f"key:{number}", "echo", Usage.of(number + 1, 0), 0) for number in range(7))) as store:
        found: list[str | None] = []
        cursor: int | None = 0
        while cursor is not None:
            page = await report_usage(store, UsageQuery(by="principal", limit=3, cursor=cursor))
            found += [line.principal for line in page.lines]
            assert page.total.input_tokens == 28
            cursor = page.next_cursor
        assert found == [f"key:{number}" for number in reversed(range(7))]


async def test_costs_are_exact_and_say_what_they_leave_out() -> None:
    prices = Prices(
        "EUR",
        {"small": Price(Decimal("0.15"), Decimal("0.6")), "large": Price(Decimal("1.25"))},
        {"flat": Price(per_message=Decimal("0.1"))},
    )
    three = Usage.of(1, 1, model="small") + Usage.of(3 * MILLION, 7, model="large") + Usage.of(4, 4, model="unknown")
    runs = (
        ("key:ann", "flat", None, 0),
        ("key:ann", "flat", Usage.of(1, 1, model="large"), 0),
        ("key:ann", "flat", None, 0),
        ("key:ann", "chat", three, 0),
        ("key:ann", "plain", Usage.of(1, 1, model="small"), 0),
        ("key:ann", "free", Usage.of(1, 1, model="unknown"), 0),
    )
    async with used(*runs) as store:
        report = await report_usage(store, UsageQuery(by="agent"), prices)
        assert {line.agent: (line.cost, line.cost_complete) for line in report.lines} == {
            "flat": ("0.3", True),
            "chat": ("3.75000075", False),
            "plain": ("0.00000075", True),
            "free": (None, False),
        }
        assert (report.currency, report.total.cost, report.total.cost_complete) == ("EUR", "4.0500015", False)
        by_model = await report_usage(store, UsageQuery(by="model"), prices)
        assert {line.model: (line.runs, line.input_tokens) for line in by_model.lines} == {
            "": (2, None),
            "small": (2, 2),
            "large": (1, 3 * MILLION + 1),
            "unknown": (1, 5),
        }


async def test_usage_is_told_by_team_and_by_upstream_with_what_nobody_knows() -> None:
    prices = Prices(
        "EUR", {"m": Price(Decimal(1))}, {"flat": Price(per_task=Decimal("0.5")), "pool/us": Price(Decimal(2))}
    )
    lost = Usage.unknown("m", "us")
    runs = (
        ("team:search/key:ann", "pool", lost + Usage.of(MILLION, 0, model="m", upstream="eu", cached_tokens=3), 0),
        ("team:search/key:bob", "pool", Usage.of(MILLION, 0, model="m", upstream="us"), 0),
        ("key:ann", "flat", None, 0),
    )
    async with used(*runs) as store:
        report = await report_usage(store, UsageQuery(by="team"), prices)
        assert [(line.team, line.runs, line.cost, line.cost_complete, line.uncertain) for line in report.lines] == [
            ("search", 2, "3", False, 1),
            ("", 1, "0.5", True, 0),
        ]
        assert (report.total.cached_tokens, report.total.uncertain) == (3, 1)
        assert (report.silent_agents, report.flat_agents) == (("flat",), ("flat",))
        report = await report_usage(store, UsageQuery(by="agent,upstream"), prices)
        assert [(line.agent, line.upstream, line.runs, line.cost) for line in report.lines] == [
            ("pool", "eu", 1, "1"),
            ("pool", "us", 1, "2"),
            ("flat", "", 1, "0.5"),
        ]
        assert (await report_usage(store, UsageQuery())).flat_agents == (), "nothing has a price"


async def test_a_price_for_tokens_does_not_cover_runs_that_report_none() -> None:
    prices = Prices("EUR", agents={"chat": Price(Decimal(1))})
    async with used(("a", "chat", Usage.of(MILLION, 0), 0), ("a", "chat", None, 0)) as store:
        report = await report_usage(store, UsageQuery(), prices)
        assert (report.total.cost, report.total.cost_complete, report.total.unreported) == ("1", False, 1)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (UsageQuery(by="colour"), "by"),
        (UsageQuery(by=""), "by"),
        (UsageQuery(by="day,day"), "by"),
        (UsageQuery(since="2026-02-30"), "since"),
        (UsageQuery(since="20261122"), "since"),
        (UsageQuery(until="yesterday"), "until"),
        (UsageQuery(since="2026-11-23", until="2026-11-22"), "since"),
    ],
)
async def test_a_wrong_query_is_refused_by_its_field(query: UsageQuery, field: str) -> None:
    async with used() as store:
        with pytest.raises(InvalidParams) as refused:
            await report_usage(store, query)
        assert refused.value.violations[0][0] == field
