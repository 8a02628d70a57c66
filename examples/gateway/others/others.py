"""Three agents that stand for those of other people."""

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Context

weather = Agent("weather", description="Forecasts for any city")
translator = Agent("translator", description="Translates into French")
researcher = Agent("researcher", description="Reads for a long time")


@weather.skill
async def forecast(ctx: Context) -> str:
    """Tells the weather."""
    return f"It will be sunny in {ctx.text}."


@translator.skill
async def translate(ctx: Context) -> str:
    """Translates."""
    return {"good day": "bonjour"}.get(ctx.text, f"« {ctx.text} »")


@researcher.skill
async def research(ctx: Context) -> AsyncIterator[str]:
    """Reads a page a second."""
    for page in range(1, 601):
        yield f"Page {page}. "
        await asyncio.sleep(1)
