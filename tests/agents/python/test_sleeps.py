"""`ctx.sleep` and `ctx.sleep_until`: what they take, in coroutines and in plain functions."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context, SyncContext, TaskState
from dragoman.agents.python.sleeps import sleep_for, sleep_until
from dragoman.testing import run
from tests.engine.house import StandingClock, house, sending
from tests.kit.waiting import until

S = TaskState


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (2, 2000),
        (0.0015, 2),
        (timedelta(minutes=1), 60_000),
        ("90s", 90_000),
        ("1d 12h", 129_600_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("2w", 1_209_600_000),
        ("520w", 314_496_000_000),
    ],
)
def test_a_time_is_seconds_a_timedelta_or_a_text(duration: object, ms: int) -> None:
    assert sleep_for(duration, wake_on_message=False).for_ms == ms


@pytest.mark.parametrize(
    "duration",
    [0, -1, 0.0, float("nan"), float("inf"), 10**10, timedelta(0), "0s", "11000d", pytest.param(10**400, id="huge")],
)
def test_a_time_that_cannot_be_slept_is_refused(duration: object) -> None:
    with pytest.raises(ValueError, match=r"^duration=.*: must be more than 0, and at most ten years$"):
        sleep_for(duration, wake_on_message=False)


@pytest.mark.parametrize("duration", ["", "2", "h", "2 hours", "-2h", "1e3s", "2h,3m"])
def test_a_text_that_is_no_time_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match=r'^duration=.*: use seconds, a timedelta, or a text like "90s"'):
        sleep_for(duration, wake_on_message=False)


@pytest.mark.parametrize("duration", [None, True, b"2h", [2]])
def test_another_type_is_refused(duration: object) -> None:
    with pytest.raises(TypeError, match=r"^duration must be a time, not "):
        sleep_for(duration, wake_on_message=False)


def test_a_flag_is_a_flag() -> None:
    with pytest.raises(TypeError, match="wake_on_message"):
        sleep_for("2h", wake_on_message="yes")


def test_a_time_of_day_has_a_zone_and_may_have_passed() -> None:
    when = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert sleep_until(when, wake_on_message=False).until_ms == 1_767_225_600_000
    later = when + timedelta(microseconds=1)
    assert sleep_until(later, wake_on_message=False).until_ms == 1_767_225_600_001
    with pytest.raises(ValueError, match=r"^when=2026-01-01T01:00:00: has no time zone"):
        sleep_until(when.replace(tzinfo=None), wake_on_message=False)
    with pytest.raises(ValueError, match="ten years"):
        sleep_until(datetime.now(UTC) + timedelta(days=3700), wake_on_message=False)
    with pytest.raises(TypeError, match=r"^when must be a datetime, not "):
        sleep_until(5, wake_on_message=False)


async def test_no_time_passes_in_a_test() -> None:
    agent = Agent("agent")

    @agent.skill
    async def rest(ctx: Context) -> str:
        await ctx.sleep("2h")
        await ctx.sleep(3, wake_on_message=True)
        return "rested"

    ran = await run(agent, "hi")
    assert (ran.text, ran.sleeps) == ("rested", [7200, 3])


async def test_a_plain_function_goes_on_after_its_sleep(tmp_path: Path) -> None:
    """Its thread ends with the run, and another one begins when the task wakes."""
    agent, begun = Agent("agent"), []

    @agent.skill
    def rest(ctx: SyncContext) -> str:
        begun.append(ctx.text)
        ctx.sleep("2h")
        ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        return "rested"

    clock = StandingClock()
    one: Any = agent
    async with house(one, url=f"sqlite:///{tmp_path}/store.db", clock=clock, crashes=True) as h:
        task_id = await h.begin()
        await until(lambda: h.in_memory == 0)
    clock.ms += 7_200_000
    async with house(one, url=f"sqlite:///{tmp_path}/store.db", clock=clock) as h:
        task = await h.reach(task_id, S.COMPLETED)
        assert (task.artifacts[0].parts[0].text, len(begun)) == ("rested", 2)


async def test_an_agent_that_answers_with_a_message_cannot_sleep_and_one_that_may_becomes_a_task() -> None:
    def agent_of(direct: Any) -> Any:
        agent = Agent("agent", direct=direct)

        @agent.skill
        async def rest(ctx: Context) -> str:
            try:
                await ctx.sleep(0.01)
            except RuntimeError as error:
                return str(error)
            return "rested"

        return agent

    async with house(agent_of(True)) as h:
        answer = await h.ask(sending("hi"))
        assert answer.text == "agent 'agent' is declared direct: it cannot sleep; leave direct=True out"
    async with house(agent_of("auto")) as h:
        sent = await h.send("hi", return_immediately=True)
        assert sent.state in (S.SUBMITTED, S.WORKING)
        await h.cancel(sent.head.id)
