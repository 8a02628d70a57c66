"""The demo's agent, as Dragoman serves it."""

from dragoman import Agent, Context
from dragoman.cli.demo.steps import STEPS, perform

agent = Agent("work", description="Twenty steps of a second each", restartable=True)


@agent.skill("work", description="Does them one after the other")
async def work(ctx: Context) -> None:
    """Do the steps; each reports by an artifact of its own."""
    for number in range(1, STEPS + 1):
        said = await ctx.step(f"step {number}", perform, number)
        await ctx.artifact(said, name=said)
