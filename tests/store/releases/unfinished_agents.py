"""The agents of the stores with unfinished tasks. Beside them is `hands`, whose tasks workers do."""

from dragoman import Agent, Context

desk = Agent("desk", description="Asks")


@desk.skill("desk", tags=["test"])
async def answer(ctx: Context) -> str:
    """Asks its caller."""
    return f"To {await ctx.ask('Which city?')}"


lead = Agent("lead", description="Delegates", restartable=True)


@lead.skill("lead", tags=["test"])
async def delegate(ctx: Context) -> str:
    """Has a worker do what the message says."""
    done = await ctx.delegate("hands", ctx.text)
    return f"The worker says: {done.text}"
