"""An editor who gives work to two researchers at once: `dragoman serve examples/research/research.py`.

Each researcher knows one source and cites it. The editor puts their findings together, and writes a report even if one
of them finds nothing or fails.
"""

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Artifact, Context, Delegated, DelegationFailed, Part, Reject

ALMANAC = {
    "oslo": "Oslo has 717,710 inhabitants and lies on a fjord.",
    "lyon": "Lyon has 522,250 inhabitants and two rivers.",
}
ARCHIVE = {
    "oslo": "Oslo burned down in 1624 and was rebuilt further west.",
    "rome": "Rome, says the legend, was founded in 753 BC.",
}

editor = Agent("editor", description="Writes a short report on a city from all sources", restartable=True)
almanac = Agent("almanac", description="Knows cities as they are", restartable=True)
archive = Agent("archive", description="Knows cities as they were", restartable=True)


def look_up(source: dict[str, str], city: str) -> list[object]:
    """The finding of a source and its citation. Raises Reject where there is none."""
    fact = source.get(city.strip().lower())
    if fact is None:
        raise Reject(f"nothing on {city}")
    return [fact, Part(data={"city": city, "words": len(fact.split())})]


@almanac.skill("facts", tags=["research"])
async def facts(ctx: Context) -> list[object]:
    """Says what is known about the city today."""
    return look_up(ALMANAC, ctx.text)


@archive.skill("history", tags=["research"])
async def past(ctx: Context) -> list[object]:
    """Says what happened in the city."""
    return look_up(ARCHIVE, ctx.text)


@editor.skill("report", tags=["research"], examples=["Oslo"])
async def report(ctx: Context) -> AsyncIterator[object]:
    """Asks all researchers at once, and writes what they found with its sources."""
    await ctx.status(f"Looking for {ctx.text}")
    names = ("almanac", "archive")
    findings = await asyncio.gather(*(find(ctx, name) for name in names))
    found = {name: finding for name, finding in zip(names, findings, strict=True) if isinstance(finding, Delegated)}
    if not found:
        await ctx.fail(f"No source knows {ctx.text}")
    yield f"# {ctx.text}\n\n"
    for number, finding in enumerate(found.values(), start=1):
        await ctx.progress(number, len(found))
        yield f"{finding.text} [{number}]\n"
    for name, outcome in zip(names, findings, strict=True):
        if isinstance(outcome, DelegationFailed):
            yield f"\nThe {name} could not say: {outcome.text}.\n"
    sources = [{"source": name, "task": finding.task_id} for name, finding in found.items()]
    yield Artifact(artifact_id="sources", name="sources", parts=(Part(data=sources),))


async def find(ctx: Context, name: str) -> Delegated | DelegationFailed:
    """The outcome of asking a researcher, good or bad."""
    try:
        return await ctx.delegate(name, timeout_s=30)
    except DelegationFailed as failed:
        return failed
