"""The card of a framework's object, and the agent behind it.

Invariant: the card says what the object says about itself, and no more; `[[agents]]` may override it.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing

from dragoman.agents.frameworks.pauses import Pausing, run_through
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Context
from dragoman.agents.text_windows import Windows

SKILL = "answer"
"""The one skill of a framework's agent: it takes any message."""

COALESCE_S = 0.03
"""How long tokens are gathered into one chunk, in seconds."""

DESCRIPTION_CHARS_MAX = 300
"""Instructions that replace a missing description are cut: a prompt does not belong on a card."""


def made(
    agent_id: str,
    pausing: Callable[[Context], Pausing],
    *,
    name: str | None = None,
    description: str = "",
    tools: Iterable[str] = (),
    input_modes: Iterable[str] = ("text/plain", "application/json", "image/*"),
    output_modes: Iterable[str] = ("text/plain", "application/json"),
) -> Agent:
    """Make an agent that runs each task by a new `pausing`. The tools become tags of its skill."""
    agent = Agent(
        agent_id,
        name=name or agent_id,
        description=_shorten(description) or name or agent_id,
        input_modes=input_modes,
        output_modes=output_modes,
    )

    windows = Windows(COALESCE_S)

    @agent.skill(SKILL, name=name or agent_id, tags=sorted(set(tools)))
    async def answer(ctx: Context) -> AsyncIterator[object]:
        async with aclosing(run_through(ctx, pausing(ctx), windows)) as pieces:
            async for piece in pieces:
                yield piece

    return agent


def _shorten(description: str) -> str:
    text = " ".join(description.split())
    return text if len(text) <= DESCRIPTION_CHARS_MAX else text[: DESCRIPTION_CHARS_MAX - 1] + "…"
