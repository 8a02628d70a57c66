"""The declaration of a lifespan, and the state of an agent in a run without a server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from dragoman import Agent, Context, SyncContext
from dragoman.testing import run


async def undecorated() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@contextmanager
def blocking() -> Iterator[int]:
    yield 1


@asynccontextmanager
async def greedy(agent: Agent, url: str) -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def keyed(*, url: str) -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def good(url: str = "x") -> AsyncIterator[str]:
    yield url


@pytest.mark.parametrize(
    ("lifespan", "said"),
    [
        (undecorated, "agent a: lifespan undecorated: is no context manager: write @asynccontextmanager above"),
        (coroutine, "agent a: lifespan coroutine: is no context manager: write @asynccontextmanager above"),
        (blocking, "agent a: lifespan blocking: is not asynchronous: write @asynccontextmanager above"),
        (greedy, "agent a: lifespan greedy: needs url: it takes nothing, or the agent"),
        (keyed, "agent a: lifespan keyed: needs url: it takes nothing, or the agent"),
        (good(), "agent a: lifespan: is entered more than once: give the function that makes it, without calling it"),
        (7, "agent a: lifespan: 7 is no function: write @asynccontextmanager above"),
    ],
)
def test_one_that_could_not_be_entered_is_refused_with_the_fix(lifespan: Any, said: str) -> None:
    with pytest.raises(TypeError) as raised:
        Agent("a", lifespan=lifespan)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize("value", [0, -1, 3601, True, "30"])
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="agent a: lifespan_timeout_s="):
        Agent("a", lifespan=good, lifespan_timeout_s=value)


def test_its_name_says_where_it_is() -> None:
    (lifespan,) = Agent("a", lifespan=good).lifespans()
    line = good.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    assert lifespan.name.startswith("its lifespan good (")
    assert lifespan.name.endswith(f"test_lifespan.py:{line})")
    assert not lifespan.takes_agent


def test_a_partial_and_a_class_can_be_one() -> None:
    class Pool:
        async def __aenter__(self) -> "Pool":
            return self

        async def __aexit__(self, *error: object) -> None:
            pass

    assert (
        Agent("a", lifespan=Pool).lifespans()[0].name
        == "its lifespan test_a_partial_and_a_class_can_be_one.<locals>.Pool"
    )
    (lifespan,) = Agent("a", lifespan=partial(greedy, url="x")).lifespans()
    assert lifespan.takes_agent


def telling(**options: Any) -> Agent:
    agent = Agent("telling", **options)

    @agent.skill
    async def tell(ctx: Context) -> str:
        return str(ctx.state)

    @agent.skill
    def plainly(ctx: SyncContext) -> str:
        return str(ctx.state)

    return agent


async def test_a_run_in_memory_enters_it_and_leaves_it() -> None:
    lines = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        lines.append("open")
        yield "the state"
        lines.append("close")

    agent = telling(lifespan=opened)
    for skill in ("tell", "plainly"):
        assert (await run(agent, skill=skill)).text == "the state"
    assert lines == ["open", "close"] * 2


async def test_a_test_may_give_the_state_and_then_nothing_is_opened() -> None:
    @asynccontextmanager
    async def never() -> AsyncIterator[str]:
        raise AssertionError("opened")
        yield

    assert (await run(telling(lifespan=never), state="mine")).text == "mine"
    assert (await run(telling(), state=None)).text == "None"


@pytest.mark.parametrize("skill", ["tell", "plainly"])
async def test_the_state_of_an_agent_without_a_lifespan_is_an_error_that_says_what_to_write(skill: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"^ctx.state: the agent has no lifespan: give Agent\(…, lifespan=…\) a function"
    ):
        await run(telling(), skill=skill)


async def test_an_agent_with_steps_that_is_not_restartable_says_what_a_crash_does_to_its_tasks() -> None:
    import asyncio

    agent, safe, plain = Agent("stepping"), Agent("safe", restartable=True), Agent("plain")

    @agent.skill
    async def pay(ctx: Any) -> None:
        async def later() -> None:
            await ctx.sleep("2h")

        await ctx.step("charge", later)

    @safe.skill
    async def again(ctx: Any) -> None:
        await ctx.step("charge", int)

    @plain.skill
    async def rest(ctx: Any) -> None:
        await asyncio.sleep(1)
        ctx.state.step(1)

    said = [[finding.what async for finding in each.check()] for each in (agent, safe, plain)]
    assert [len(findings) for findings in said] == [2, 1, 1]
    assert said[0][1].startswith(
        "it calls ctx.step, ctx.sleep: a task that a crash cuts off goes on if it has recorded one; "
    )
