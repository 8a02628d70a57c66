"""The agents of the stores beside this file. Every version of Dragoman can serve them, those that delegate since 4."""

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Artifact, Context, Part, Reject

desk = Agent("desk", description="Does what the message says")


@desk.skill("desk", tags=["test"])
async def answer(ctx: Context) -> str:
    """Answers, asks, fails, rejects or waits."""
    match ctx.text.split():
        case ["ask", *_]:
            city = await ctx.ask("Which city?")
            return f"To {city}"
        case ["fail", *_]:
            raise RuntimeError("told to fail")
        case ["reject", *_]:
            raise Reject("Told to reject")
        case ["wait", *_]:
            await asyncio.Event().wait()
    ctx.usage(input=3, output=4)
    return f"You said: {ctx.text}"


steps = Agent("steps", description="Streams")


@steps.skill("steps", tags=["test"])
async def count(ctx: Context) -> AsyncIterator[str]:
    """Yields three chunks."""
    for number in (1, 2, 3):
        await ctx.progress(number, 3, f"Step {number}")
        yield f"{number}\n"


papers = Agent("papers", description="Gives files back")


@papers.skill("papers", tags=["test"])
async def give_back(ctx: Context) -> AsyncIterator[Artifact]:
    """Gives each file back, with its size as data."""
    for number, file in enumerate(ctx.files, start=1):
        size = len(file.raw or b"")
        yield Artifact(artifact_id=f"file-{number}", name=file.filename, parts=(file, Part(data={"size": size})))


lead = Agent("lead", description="Delegates")


@lead.skill("lead", tags=["test"])
async def delegate(ctx: Context) -> str:
    """Has the desk do what the message says."""
    done = await ctx.delegate("desk", ctx.text)
    return f"The desk says: {done.text}"
