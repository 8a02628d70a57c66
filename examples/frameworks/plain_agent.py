"""A plain Python function behind a card: `dragoman serve examples/frameworks/plain_agent.py`."""

from dragoman import Agent, Context

agent = Agent("plain", description="Gives back what it gets")


@agent.skill("echo", tags=["example"], examples=["Hello!"])
async def give_back(ctx: Context) -> str:
    """Answers with the text of the message."""
    return ctx.text
