"""Agents whose responses are followed while their server is killed. Both begin anew after a crash."""

import asyncio
import random
from collections.abc import AsyncIterator

from dragoman import Agent, Context

same = Agent("same", restartable=True)


@same.skill
async def count(ctx: Context) -> AsyncIterator[str]:
    """`N every S`: the same numbers in each run."""
    total, pause_s = ctx.text.split(" every ")
    for number in range(int(total)):
        yield f"{number} "
        await asyncio.sleep(float(pause_s))


other = Agent("other", restartable=True)


@other.skill
async def vary(ctx: Context) -> AsyncIterator[str]:
    """The same, but some numbers are others in each run."""
    total, pause_s = ctx.text.split(" every ")
    for number in range(int(total)):
        yield f"{number if random.random() < 0.9 else random.randrange(1000)} "
        await asyncio.sleep(float(pause_s))
