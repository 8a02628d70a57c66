"""An agent for the peers that answers with a message or with a task, as its work needs it."""

from collections.abc import AsyncIterator

from dragoman import Agent, Context

guide = Agent("guide", description="Answers questions, and plans trips", direct="auto", direct_wait_s=60)


@guide.skill("guide", name="Guide")
async def answer(ctx: Context) -> AsyncIterator[str]:
    """Answers with a message, and with a task if it is to plan."""
    if ctx.text.startswith("plan"):
        await ctx.status("Looking at maps")
    yield f"About {ctx.text}"
