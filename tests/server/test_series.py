"""Series: the figures of an hour, a day and a month come from samples, each task and each token once."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from dragoman.admin.series import SeriesPoint, SeriesQuery, SeriesReport, Span
from dragoman.config.prices import Price, Prices
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.model.task import Usage
from dragoman.server.series import STEPS, Series
from dragoman.store.api import Store, StoreUnreachable
from dragoman.store.open import open_store
from dragoman.telemetry.counts import Counts
from tests.store.cases.bench import DAY_MS, START_MS, SetClock, new_task
from tests.store.cases.test_usage import ended

MINUTE_MS = 60_000
PRICES = Prices("EUR", agents={"echo": Price(input_per_million=Decimal(2), output_per_million=Decimal(4))})
SPANS: Collection[Span] = ("hour", "day", "month")


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Store, SetClock]]:
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("h1")
    try:
        yield store, clock
    finally:
        await store.close()


def make_series(store: Store, counts: Counts | None, holder: str = "h1", *, leader: bool = True) -> Series:
    async def leads() -> bool:
        return leader

    return Series(store, counts, holder, PRICES, leads)


async def show(series: Series, span: Span = "hour", agent: str | None = None) -> SeriesReport:
    (answer,) = series.answers.values()
    report = await answer(Asked(Operator("ops"), SeriesQuery(span=span, agent=agent)))
    assert isinstance(report, SeriesReport)
    return report


def told(report: SeriesReport) -> list[SeriesPoint]:
    """The points with anything in them."""
    return [point for point in report.points if point != SeriesPoint(at=point.at)]


async def use(store: Store, task_id: str, at: int, *, agent: str = "echo") -> None:
    await store.create(new_task(task_id, agent=agent))
    await store.append(ended(task_id, usage=Usage.of(1_000_000, 500_000, model="m1"), at=at))


async def test_a_minute_has_its_ends_times_tokens_and_cost() -> None:
    async with opened() as (store, clock):
        counts = Counts()
        counts.ended("echo", "completed", 5)  # before the series began
        series = make_series(store, counts)
        await series.sample()
        for state, took_ms in (("completed", 40), ("completed", 40), ("failed", 900)):
            counts.ended("echo", state, took_ms)
        counts.submitted("echo")
        await use(store, "t1", START_MS)
        clock.ms += MINUTE_MS
        await series.sample()
        report = await show(series)
        figures = {"completed": 2, "failed": 1, "p50_s": 0.05, "p95_s": 1.0}
        used = {"input_tokens": 1_000_000, "output_tokens": 500_000, "cost": "4"}
        assert told(report) == [SeriesPoint(at="2027-01-15T08:00:00.000Z", **figures, **used)]
        assert (len(report.points), report.step_s, report.currency) == (60, 60, "EUR")
        assert report.points[-1].at == "2027-01-15T08:01:00.000Z"
        (agent,) = report.agents
        assert (agent.agent, sum(agent.ended), agent.cost, agent.failed) == ("echo", 3, "4", 1)


@pytest.mark.parametrize("span", SPANS)
async def test_the_points_of_each_span_sum_up_to_all(span: Span) -> None:
    async with opened() as (store, clock):
        counts, clock.ms = Counts(), START_MS - 3 * MINUTE_MS
        series, ends = make_series(store, counts), 0
        await series.sample()
        for minute in range(5):
            for _ in range(minute):
                counts.ended("echo", "completed", 5)
                ends += 1
            await use(store, f"t{minute}", clock.ms)
            clock.ms += MINUTE_MS
            await series.sample()
            await series.sample()  # nothing counts twice
        report = await show(series, span)
        assert sum(point.completed for point in report.points) == ends == 10
        assert sum(point.output_tokens or 0 for point in report.points) == 5 * 500_000
        assert len(report.points) == STEPS[span].points


async def test_what_ends_before_midnight_counts_together_with_what_ends_after() -> None:
    async with opened() as (store, clock):
        midnight = (START_MS // DAY_MS + 1) * DAY_MS
        clock.ms = midnight - 30_000
        await use(store, "earlier", midnight - 60_000)
        series = make_series(store, Counts())
        await series.sample()
        await use(store, "before", midnight - 1)
        await use(store, "after", midnight + 1)
        clock.ms = midnight + 30_000
        await series.sample()
        assert sum(point.input_tokens or 0 for point in (await show(series)).points) == 2_000_000
        days = told(await show(series, "month"))
        assert [(day.at[:10], day.input_tokens) for day in days] == [
            ("2027-01-15", 2_000_000),
            ("2027-01-16", 1_000_000),
        ]


async def test_processes_add_up_and_one_alone_adds_the_usage() -> None:
    async with opened() as (store, clock):
        counts, others = Counts(), Counts()
        first, second = make_series(store, counts), make_series(store, others, "h2", leader=False)
        for each in (first, second):
            await each.sample()
        counts.ended("echo", "completed", 5)
        others.ended("echo", "canceled", 5)
        await use(store, "t1", START_MS)
        clock.ms += MINUTE_MS
        for each in (first, second):
            await each.sample()
        expected = [(1, 1, 1_000_000)]
        for each in (first, second, make_series(store, Counts(), "h3")):  # the last one began after all that
            points = told(await show(each))
            assert [(point.completed, point.canceled, point.input_tokens) for point in points] == expected


async def test_what_is_not_written_yet_is_shown_and_written_when_the_store_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as (store, clock):
        counts = Counts()
        series = make_series(store, counts)
        counts.ended("echo", "completed", 5)
        put = store.shared.put

        async def fail(*_: Any, **__: Any) -> int | None:
            raise StoreUnreachable

        monkeypatch.setattr(store.shared, "put", fail)
        for _ in range(3):
            clock.ms += MINUTE_MS
            await series.sample()
        assert [point.completed for point in told(await show(series))] == [1]
        monkeypatch.setattr(store.shared, "put", put)
        await series.close()
        assert [point.completed for point in told(await show(make_series(store, Counts(), "h2")))] == [1]


async def test_what_ended_just_now_is_shown_at_once_and_counts_once() -> None:
    async with opened() as (store, clock):
        counts = Counts()
        series = make_series(store, counts)
        await series.sample()
        counts.ended("echo", "completed", 5)
        await use(store, "t1", START_MS)
        clock.ms += 1000
        for _ in range(2):
            reports = await asyncio.gather(show(series), show(series))
            assert [[(point.completed, point.input_tokens) for point in told(each)] for each in reports] == [
                [(1, 1_000_000)]
            ] * 2
        await series.sample()
        assert [point.completed for point in told(await show(make_series(store, Counts(), "h2")))] == [1]


async def test_a_server_that_is_idle_writes_nothing() -> None:
    async with opened() as (store, clock):
        series = make_series(store, Counts())
        for _ in range(3):
            clock.ms += MINUTE_MS
            await series.sample()
        assert await store.shared.scan("series/") == ()


async def test_the_points_can_be_those_of_one_agent() -> None:
    async with opened() as (store, clock):
        counts = Counts()
        series = make_series(store, counts)
        counts.ended("echo", "completed", 5)
        counts.ended("other", "failed", 5)
        clock.ms += MINUTE_MS
        await series.sample()
        report = await show(series, agent="other")
        assert [(point.completed, point.failed) for point in told(report)] == [(0, 1)]
        assert [each.agent for each in report.agents] == ["echo", "other"]


async def test_without_metrics_there_is_usage_alone() -> None:
    async with opened() as (store, clock):
        series = make_series(store, None)
        await series.sample()
        await use(store, "t1", START_MS)
        clock.ms += MINUTE_MS
        await series.sample()
        report = await show(series)
        assert (report.counted, [(point.completed, point.cost) for point in told(report)]) == (False, [(0, "4")])


async def test_what_is_added_while_a_bucket_is_written_is_written_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (store, clock):
        counts = Counts()
        series, put = make_series(store, counts), store.shared.put

        async def put_late(key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
            if sum(counts.tasks.values()) == 1:  # an operator looks, just after a second task has ended
                counts.ended("echo", "completed", 5)
                await show(series)
            return await put(key, value, ttl_ms, version=version)

        counts.ended("echo", "completed", 5)
        monkeypatch.setattr(store.shared, "put", put_late)
        await series.sample()
        clock.ms += MINUTE_MS
        await series.sample()
        (point,) = told(await show(make_series(store, Counts(), "h2")))
        assert point.completed == 2
