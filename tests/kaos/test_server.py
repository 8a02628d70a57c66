"""RemoteAgent and Dragoman's own server, over both ways."""

from collections.abc import AsyncIterator

import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.kaos import RemoteAgent, TaskFailed
from dragoman.server import serving
from tests.kit.waiting import no_hang

CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.2, profile="kaos")


def echo() -> Agent:
    agent = Agent("echo")

    @agent.skill
    async def give_back(ctx: Context) -> AsyncIterator[str]:
        """Say it again, in two pieces, and where."""
        if ctx.text == "fail":
            raise RuntimeError("secret")
        yield f"{ctx.text} "
        yield f"in {ctx.context_id}"

    return agent


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with no_hang(), serving(CONFIG, [echo()]) as url:
        yield url


async def test_a_remote_agent_is_answered_over_a2a(url: str) -> None:
    async with RemoteAgent("echo", url) as agent:
        assert await agent.process_message("Hello", context_id="s1") == "Hello in s1"
        assert agent.card is not None
        assert agent.card.supported_protocols == ("jsonrpc",)


async def test_a_task_that_fails_there_is_an_error_that_keeps_its_secret(url: str) -> None:
    async with RemoteAgent("echo", url) as agent:
        with pytest.raises(TaskFailed, match="failed") as caught:
            await agent.process_message("fail")
        assert "secret" not in str(caught.value)


async def test_a_remote_agent_is_answered_over_chat_completions(url: str) -> None:
    async with RemoteAgent("echo", url) as agent:
        await agent.process_message("Hello")
        assert agent.card is not None
        agent.card = type(agent.card)(whole={})  # as one that speaks no A2A would say of itself
        assert (await agent.process_message("Hello")).startswith("Hello in ")
