"""How many tasks a caller may have."""

import asyncio

import pytest

from dragoman.engine.api import Run
from dragoman.model.errors import TooManyRequests
from dragoman.model.message import Part
from tests.engine.house import Scripted, echo, house, sending, streaming

UUID = "0190b0a0-0000-7000-8000-000000000001"
HOUR_MS = 3_600_000


async def ask_once(run: Run) -> None:
    await run.ask((Part(text="?"),))


async def test_a_caller_has_so_many_tasks_that_have_not_ended_and_no_more() -> None:
    async with house(Scripted(ask_once), max_open_tasks=2) as h:
        first = await h.send(message_id=UUID)
        await h.send()
        with pytest.raises(TooManyRequests) as refusal:
            await h.send()
        assert (refusal.value.limit, refusal.value.retry_after_s) == ("max_open_tasks", 60)
        with pytest.raises(TooManyRequests):
            await h.open(streaming())
        assert (await h.send(message_id=UUID, return_immediately=True)).head.id == first.head.id
        await h.send(around={"owner": "bert"})
        assert (await h.listed()).total_size == 2
        assert (await h.send("yes", task_id=first.head.id)).terminal
        await h.send()
        assert h.in_memory <= 3


async def test_sends_at_once_do_not_pass_the_limit_together() -> None:
    async with house(Scripted(ask_once), max_open_tasks=3) as h:
        outcomes = await asyncio.gather(*(h.send() for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(each, TooManyRequests) for each in outcomes) == 7
        assert (await h.listed()).total_size == 3


async def test_a_caller_makes_so_many_tasks_a_day_and_goes_on_at_midnight() -> None:
    async with house(max_daily_tasks=2) as h:
        h.clock.ms += 24 * HOUR_MS - h.clock.ms % (24 * HOUR_MS) - 2 * HOUR_MS + 1  # a bit less than two hours to go
        await h.send()
        await h.send()
        with pytest.raises(TooManyRequests) as refusal:
            await h.send()
        assert (refusal.value.limit, refusal.value.retry_after_s) == ("max_daily_tasks", 7200)
        await h.send(around={"owner": "bert"})
        h.clock.ms += refusal.value.retry_after_s * 1000
        await h.send()


async def test_an_answer_without_a_task_counts_for_nothing() -> None:
    async with house(Scripted(echo, direct=True), max_open_tasks=1, max_daily_tasks=1) as h:
        for _ in range(3):
            await h.ask(sending())
