"""The agent of the README: replace it by yours."""

from collections.abc import AsyncIterator

from dragoman import Agent, Context

agent = Agent("speller", description="Spells what you send")


@agent.skill
async def spell(ctx: Context) -> AsyncIterator[str]:
    """Spells the message, a letter at a time."""
    for number, letter in enumerate(ctx.text, start=1):
        await ctx.progress(number, len(ctx.text))
        yield letter.upper() + " "
