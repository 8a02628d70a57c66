"""An agent that answers what the systems' texts ask, and does what it is told beside it."""

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Context
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from tests.kit.agents import echoing, reporting
from tests.spec.agents import Gates

REPORT = (
    "# AI Trends Report 2024\n\n## Executive Summary\nThe AI landscape continues to evolve rapidly with significant "
    "developments in...\n\n## Key Trends\n1. Large Language Models advancement\n2. Multimodal AI integration\n"
    "3. Edge AI deployment\n\n## Conclusion\nThese trends indicate a shift towards more accessible and integrated AI "
    "solutions."
)

ANSWERS = {
    "What is the weather in San Francisco?": "The weather in San Francisco is 65°F and sunny.",
    "Analyze this data": "Analysis result...",
}

PIECE = "0123456789" * 40
PIECES = 60
"""Pieces of the verb `pieces`: 24,000 characters in about 0.9 s."""


def house(gates: Gates) -> list[Agent]:
    """The default one first; all do the same."""
    return [
        *(_agent(agent_id, gates) for agent_id in ("desk", "my-agent", "other")),
        echoing("direct", skill="echo", direct=True),
        reporting(direct_wait_s=60),
    ]


def _agent(agent_id: str, gates: Gates) -> Agent:
    agent = Agent(agent_id, description="Does what it is told", version="1.2.3")

    @agent.skill("do", name="Do", tags=["test"])
    async def obey(ctx: Context) -> AsyncIterator[object]:
        """Does what the text says."""
        verb, _, rest = ctx.text.partition(" ")
        match verb:
            case "Generate":
                await ctx.progress(1, 5, "Analyzing AI trends data")
                await ctx.progress(3, 5, "Generating report sections")
                yield REPORT
            case "wait":
                await ctx.status("waiting")
                gates.reached[rest].set()
                await gates.open[rest].wait()
                yield "done"
            case "held":
                yield "first "
                gates.reached[rest].set()
                await gates.open[rest].wait()
                yield "second"
            case "pieces":
                for _ in range(PIECES):
                    yield PIECE
                    await asyncio.sleep(0.015)
            case "tool":
                call = {"toolCallId": "call-1", "name": "search"}
                await ctx.status("search: lyon", metadata={TOOL_CALL: {**call, "phase": "started"}})
                await ctx.status("search: done", metadata={TOOL_CALL: {**call, "phase": "completed"}})
                yield "found"
            case "ask":
                yield await ctx.ask("Which?")
            case "recall":
                said = [message.text for message in await ctx.history()]
                referred = [record.head.id for record in await ctx.references()]
                yield " | ".join(["recalled:", *said, *referred])
            case "fail":
                raise RuntimeError("secret-exception-text")
            case _:
                yield ANSWERS.get(ctx.text, ctx.text)

    @agent.skill("summarize_pr", name="Summarize", tags=["test"])
    async def summarize(ctx: Context) -> str:
        """Sums up."""
        ctx.usage(input=1200, output=340)
        return f"summary of {ctx.text}"

    return agent
