"""Functions that cannot be a skill are refused where they are declared, with the fix."""

from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Agent, Context, SyncContext


def no_context() -> None: ...


async def no_async_context() -> None: ...


async def two(ctx: Context, city: str) -> None: ...


async def keyword(ctx: Context, *, city: str) -> None: ...


async def sync_context(ctx: SyncContext) -> None: ...


def async_context(ctx: Context) -> None: ...


def async_context_in_quotes(ctx: "Context") -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (no_context, "skill no_context takes no context: write `def no_context(ctx: SyncContext)`"),
    (no_async_context, "skill no_async_context takes no context: write `async def no_async_context(ctx: Context)`"),
    (two, "skill two needs city, but gets only the context: write `async def two(ctx: Context)`"),
    (keyword, "skill keyword needs city, but gets only the context: write `async def keyword(ctx: Context)`"),
    (sync_context, "is a coroutine and gets a Context: write `async def sync_context(ctx: Context)`"),
    (async_context, "is a plain function that runs in a thread and gets a SyncContext: write `def async_context("),
    (async_context_in_quotes, "in a thread and gets a SyncContext"),
    (Agent, "cannot be a skill: put @agent.skill above a function"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_refused_with_the_fix(function: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Agent("test").skill("id")(function)
    assert message in str(caught.value)
    assert str(caught.value).startswith("agent test: ")


def test_an_id_that_is_no_text_is_refused() -> None:
    declare: Any = Agent("test").skill
    with pytest.raises(TypeError, match="skill id 7 must be text"):
        declare(7)


async def with_default(ctx: Context, city: str = "Lyon") -> None: ...


async def with_rest(*args: Any, **named: Any) -> None: ...


async def untyped(ctx) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize("function", [with_default, with_rest, untyped])
def test_taken(function: Callable[[Context], Any]) -> None:
    agent = Agent("test")
    agent.skill(function)
    assert [skill.id for skill in agent.profile.skills] == [function.__name__]
