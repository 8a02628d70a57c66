"""Counts, a number a second. A replica that dies while it counts is replaced by another, which continues."""

from collections.abc import AsyncIterator

from dragoman import Agent, Context

agent = Agent("counter", description="Counts to the number that you send", restartable=True)


@agent.skill
async def count(ctx: Context) -> AsyncIterator[str]:
    """Counts to the number in the message, a second each."""
    for number in range(1, int(ctx.text) + 1):
        await ctx.sleep(1)
        yield f"{number} "
