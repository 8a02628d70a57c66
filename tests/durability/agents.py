"""The agents of these tests, served by `dragoman serve` in a process that gets killed.

Invariant: what a task answers follows from its message alone, so that a test knows it without having seen the run.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

from dragoman import Agent, Context, Part, SyncContext

CHUNK = "0123456789abcde\n" * 1024
"""16 KB."""

echo = Agent("echo")


@echo.skill
async def give_back(ctx: Context) -> tuple[Part, ...]:
    """Answers at once."""
    return ctx.parts


async def counted(ctx: Context) -> AsyncIterator[str]:
    """`N every S`: the numbers below N, one every S seconds."""
    total, pause_s = re.fullmatch(r"(\d+) every ([\d.]+)", ctx.text).groups()  # type: ignore[union-attr]
    for number in range(int(total)):
        yield f"{number} "
        await asyncio.sleep(float(pause_s))


count = Agent("count")
count.skill(counted)

again = Agent("again", restartable=True)
again.skill(counted)

rest = Agent("rest")


@rest.skill
async def sleep_twice(ctx: Context) -> AsyncIterator[str]:
    """`S`: sleeps so many seconds, twice, and is not restartable."""
    yield "one "
    await ctx.sleep(float(ctx.text))
    yield "two "
    await ctx.sleep(float(ctx.text))
    yield "three"


ask = Agent("ask")


@ask.skill
async def ask_twice(ctx: Context) -> AsyncIterator[str]:
    """Two questions; the answers are the answer."""
    first = await ctx.ask("First?")
    yield f"{first}, "
    second = await ctx.ask("Second?")
    yield f"{second}"


gated = Agent("gated")


@gated.skill
async def pour(ctx: Context) -> AsyncIterator[str]:
    """`N`: that many chunks of 16 KB, numbered, as fast as they are taken; but not before the caller says so."""
    await ctx.ask("Go?")
    for number in range(int(ctx.text)):
        yield f"{number}\n{CHUNK}"


office = Agent("office", restartable=True)


@office.skill
async def hand_on(ctx: Context) -> AsyncIterator[object]:
    """Gives the text to `again`, and then the answer to its question."""
    first = await ctx.delegate("again")
    yield f"[{first.text}"
    more = await ctx.ask("More?")
    async for piece in ctx.delegate_stream("again", str(more)):
        yield piece
    yield "]"


stuck = Agent("stuck")


@stuck.skill
def wait_in_a_thread(ctx: SyncContext) -> None:
    """Never returns, and cannot be canceled."""
    threading.Event().wait()


deaf = Agent("deaf")


@deaf.skill
async def wait_in_any_case(ctx: Context) -> None:
    """Never returns, and does not let itself be canceled."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
