"""The agents of the drills. Each run signs what it writes, so that a log shows which run wrote what.

Invariant: a run writes `<run>/0 <run>/1 …` without a gap, where `<run>` is a name that no other run has.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import uuid4

from dragoman import Agent, Context


async def signed(ctx: Context) -> AsyncIterator[str]:
    """`N every S`: that many signed chunks, one every S seconds."""
    total, pause_s = re.fullmatch(r"(\d+) every ([\d.]+)", ctx.text).groups()  # type: ignore[union-attr]
    run = uuid4().hex[:12]
    for number in range(int(total)):
        yield f"{run}/{number} "
        await asyncio.sleep(float(pause_s))


again = Agent("again", restartable=True)
again.skill(signed)

once = Agent("once")
once.skill(signed)

ask = Agent("ask")


@ask.skill
async def ask_twice(ctx: Context) -> str:
    """Two questions; the answers are the answer."""
    first = await ctx.ask("First?")
    second = await ctx.ask("Second?")
    return f"{first}, {second}"
