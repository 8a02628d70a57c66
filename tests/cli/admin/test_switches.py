"""`dragoman admin agents drain|disable|enable`, the real command on a real server."""

import json
from pathlib import Path

from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.config import Model
from dragoman.model.card import Profile
from tests.cli.admin.site import site


def chat() -> ChatAgent:
    """A model at two endpoints."""
    model = Model(url="http://127.0.0.1:9/v1", model="small")
    profile = Profile(id="chat", name="Chat", description="Chats", version="1", skills=())
    return ChatAgent(profile, model, ModelPool([PoolEndpoint(model, "", name=name) for name in ("eu", "us")]))


async def test_an_agent_and_a_member_are_switched_and_shown_with_who_and_why(tmp_path: Path) -> None:
    async with site(tmp_path, chat()) as at:
        ran = await at.admin("agents", "disable", "echo", "--reason", "adds wrong")
        assert ran.out == "echo is disabled: it takes nothing, and what it works on is canceled.\n"
        ran = await at.admin("agents", "disable", "echo", "--running", "finish")
        assert ran.out == "echo is disabled: it takes nothing, and what it works on may end.\n"
        ran = await at.admin("agents", "drain", "chat/eu", "-o", "json", "--reason", "slow")
        line = json.loads(ran.out)
        assert (line["agent"], line["member"], line["state"], line["reason"]) == ("chat", "eu", "draining", "slow")
        shown = (await at.admin("agents")).out
        listed = {words[0]: words for row in shown.splitlines() if (words := row.split())}
        assert listed["echo"][1:3] == ["disabled", "finish"]
        assert listed["chat/eu"][1:3] + listed["chat/eu"][4:] == ["draining", "finish", line["by"], "slow"]
        ran = await at.admin("agents", "enable", "echo")
        assert ran.out == "echo is enabled: it takes tasks.\n"


async def test_what_nobody_serves_is_not_switched(tmp_path: Path) -> None:
    async with site(tmp_path, chat()) as at:
        for name, words in (("none", "no agent 'none'"), ("chat/zz", "agent 'chat' has no member 'zz' here")):
            ran = await at.admin("agents", "drain", name)
            assert ran.status != 0
            assert words in ran.err
        ran = await at.admin("agents", "-o", "json", "drain", "echo")
        assert "options go behind the command drain" in ran.err
