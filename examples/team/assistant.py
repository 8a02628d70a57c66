"""Leads a team whose members come from two frameworks: see README.md."""

from dragoman import Agent, Context, DelegationFailed

agent = Agent("assistant", description="Books a room and tells the others, with the help of its team")


@agent.skill("arrange", tags=["team"], examples=["A room for the review"])
async def arrange(ctx: Context) -> str:
    """Has a room booked and a mail sent. The members' questions reach the caller, and the answers go back to them."""
    booked = await ctx.delegate("langgraph", ctx.text, asks="pass", progress=True)
    await ctx.status(booked.text)
    try:
        sent = await ctx.delegate("pydantic-ai", f"Tell Ada: {booked.text}", asks="pass", progress=True)
    except DelegationFailed as failed:
        return f"{booked.text}. Nobody was told: {failed.text or failed.state.name.lower()}."
    return f"{booked.text}. {sent.text}."
