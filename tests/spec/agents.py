"""Agents that do what the text tells them, so that a test can put a task into any state and hold it there."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from dragoman import Agent, Context, Reject
from dragoman.model.card import AgentExtension, AgentProvider
from dragoman.testing import agents as examples
from tests.kit.agents import echoing, reporting

OPTIONAL = "https://example.org/extensions/optional/v1"
OTHER = "https://example.org/extensions/other/v1"
REQUIRED = "https://example.org/extensions/required/v1"


class Gates:
    """Events by name: an agent waits at one until the test opens it; `reached` says that it stands there."""

    def __init__(self) -> None:
        self.open: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def house(gates: Gates) -> list[Agent]:
    """All agents that the tests talk to, the default one first."""
    return [_script(gates), *_echoing(), *_examples()]


def _echoing() -> list[Agent]:
    """Each says it again, in its own circumstances."""
    plain = {"input_modes": ["text/plain"], "output_modes": ["text/plain"]}
    return [
        echoing("strict", skill="echo", extensions=[AgentExtension(uri=REQUIRED, required=True)]),
        echoing("plain", skill="echo", **plain),
        echoing("direct", skill="echo", direct=True),
        echoing("mute", skill="echo", streams=False),
        reporting(direct_wait_s=60),
    ]


def _examples() -> list[Agent]:
    return [examples.echo, examples.trip, examples.papers, examples.login, examples.fail, examples.reject]


def _script(gates: Gates) -> Agent:
    agent = Agent(
        "script",
        description="Does what it is told",
        version="2.1.0",
        provider=AgentProvider(url="https://example.org", organization="Example"),
        documentation_url="https://example.org/docs",
        icon_url="https://example.org/icon.png",
        extensions=[AgentExtension(uri=OPTIONAL, description="Changes nothing"), OTHER],
    )

    @agent.skill("do", name="Do", tags=["test"], examples=["say hello"])
    async def obey(ctx: Context) -> AsyncIterator[object]:
        """Does what the text says."""
        verb, _, rest = ctx.text.partition(" ")
        match verb:
            case "wait":
                await ctx.status("waiting")
                gates.reached[rest].set()
                await gates.open[rest].wait()
                yield "done"
            case "pause":
                await ctx.status("waiting")
                await gates.open[rest].wait()
                yield await ctx.ask("Which?")
            case "chunks":
                for number in range(int(rest)):
                    yield f"{number} "
            case "ask":
                answer = await ctx.ask("Which?")
                again = await ctx.ask("Sure?") if rest == "twice" else ""
                yield f"{answer}{again}"
            case "login":
                await ctx.require_auth("Who are you?")
                yield "in"
            case "fail":
                raise RuntimeError("secret-exception-text")
            case "reject":
                raise Reject("not this")
            case "references":
                yield {record.head.id: record.state.value for record in await ctx.references()}
            case "extensions":
                yield {"extensions": list(ctx.extensions)}
            case "steps":
                for number in range(1, 4):
                    await ctx.progress(number, 3, f"step {number}")
                ctx.usage(input=3, output=4)
                await ctx.artifact("one", name="first")
                await ctx.artifact({"two": 2}, name="second")
            case _:
                yield list(ctx.parts)

    return agent
