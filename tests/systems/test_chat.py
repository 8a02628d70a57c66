"""A model behind a card of a real server, at a real endpoint: what callers see, and what a restart leaves of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.tools import ToolResult
from dragoman.cli.entries import make_agent
from dragoman.client import Connection, Retries, connect
from dragoman.config import Config, load
from dragoman.engine.api import Run, Runner
from dragoman.model.errors import Unavailable
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate
from dragoman.server import serving
from tests.agents.model.completions import Completions, called, completions, delta, refused, said, silent
from tests.agents.model.test_agent import model
from tests.agents.model.test_tool_loop import ADD, Adding
from tests.kit.places import asked
from tests.kit.values import text_of, told_by
from tests.kit.waiting import until
from tests.systems.test_upstream import CONFIG, DEADLINE_S


@pytest.fixture
async def api() -> AsyncIterator[Completions]:
    async with completions() as endpoint:
        yield endpoint


@pytest.fixture
def kept(tmp_path: Path) -> Config:
    """A server on a store that outlives it."""
    return replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")


@asynccontextmanager
async def served(agent: Runner, config: Config = CONFIG) -> AsyncIterator[Connection]:
    async with serving(config, [agent]) as url, connect(f"{url}/agents/chat") as connection:
        yield connection


async def test_a_send_is_answered_with_its_usage(api: Completions) -> None:
    api.answers(said("Hel", "lo."))
    async with served(model(api.url)) as connection:
        task = await asked(connection, "Hi")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "Hello.")


async def test_a_stream_has_the_tokens_in_chunks(api: Completions) -> None:
    gate = asyncio.Event()

    async def script(answering: Any) -> None:
        await answering.head()
        await answering.events(delta("one "), delta("two "))
        await gate.wait()
        await answering.events(delta("three"), delta(finish="stop"))
        await answering.end()

    api.answers(script)
    texts: list[str] = []
    async with served(model(api.url, coalesce_ms=10)) as connection, asyncio.timeout(DEADLINE_S):
        async for update in connection.stream("Hi"):
            if isinstance(update, ArtifactUpdate):
                texts.append("".join(part.text or "" for part in update.artifact.parts))
                gate.set()
    assert texts == ["one two ", "three"]


async def test_a_cancel_closes_the_call(api: Completions) -> None:
    api.answers(silent("Once "))
    async with served(model(api.url, coalesce_ms=0)) as connection:
        task = await asked(connection, "Hi", return_immediately=True)
        await until(lambda: bool(api.asked))
        canceled = await connection.cancel(task.id)
        assert canceled.status.state is TaskState.CANCELED
        await asyncio.wait_for(api.left.wait(), DEADLINE_S)


async def test_the_conversation_is_that_of_the_context(api: Completions) -> None:
    api.answers(said("Hello Ada."), said("You are Ada."))
    async with served(model(api.url)) as connection:
        first = await asked(connection, "I am Ada.")
        await asked(connection, "Who am I?", context_id=first.context_id)
    assert [message["content"] for message in api.body["messages"]] == ["I am Ada.", "Hello Ada.", "Who am I?"]


async def test_a_refusal_is_a_rejected_task_and_a_fault_a_failed_one(api: Completions) -> None:
    api.answers(refused(400, {"message": "no", "code": "content_filter"}), refused(401))
    async with served(model(api.url)) as connection:
        assert (await asked(connection, "Hi")).status.state is TaskState.REJECTED
        task = await asked(connection, "Hi")
        assert task.status.state is TaskState.FAILED
        assert "credentials" in told_by(task)


async def test_an_endpoint_or_a_server_of_tools_that_is_away_is_named_by_ready(api: Completions) -> None:
    away = McpTools([McpGrant(name="files", reach=HttpReach("http://127.0.0.1:9/mcp", lambda egress: None))])
    agents = [model("http://127.0.0.1:9/v1", retries=0, failures=1), model(api.url, tools=away), model(api.url)]
    for agent, agent_id in zip(agents, ("dead", "toolless", "well"), strict=True):
        agent.profile = replace(agent.profile, id=agent_id)
    async with serving(CONFIG, agents) as url, aiohttp.ClientSession() as http:
        for agent in agents:
            async with connect(f"{url}/agents/{agent.profile.id}", retries=Retries(attempts=1)) as connection:
                with suppress(Unavailable):
                    await asked(connection, "Hi")
        async with http.get(f"{url}/ready") as answer:
            assert (answer.status, (await answer.json())["degraded"]) == (
                200,
                {
                    "dead": "its endpoint does not answer: calls are held back for a while",
                    "toolless": "its tools of files are away",
                },
            )


async def test_an_answer_that_a_crash_cut_off_is_replaced(api: Completions, kept: Config) -> None:
    api.answers(silent("Once upon "), said("Hello."))
    async with served(model(api.url, coalesce_ms=0), kept) as connection:
        task = await asked(connection, "Hi", return_immediately=True)
        async with asyncio.timeout(DEADLINE_S):
            while text_of(await connection.get(task.id)) != "Once upon ":
                await asyncio.sleep(0.01)
    async with served(model(api.url), kept) as connection:
        assert await ended(connection, task.id) == "Hello."


async def ended(connection: Connection, task_id: str) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while (task := await connection.get(task_id)).status.state is TaskState.WORKING:
            await asyncio.sleep(0.02)
    assert task.status.state is TaskState.COMPLETED, told_by(task)
    return text_of(task)


async def test_an_approval_outlives_a_restart_and_the_model_is_not_asked_again(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "add", ADD)), said("It is 3."))
    tools = Adding("add")
    task_id: str | None = None
    for answer, state in (("2 + 1?", TaskState.INPUT_REQUIRED), ("yes", TaskState.INPUT_REQUIRED)):
        async with served(model(api.url, tools=tools), kept) as connection:
            task = await asked(connection, answer, task_id=task_id)
            task_id = task.id
            assert task.status.state is state, told_by(task)
            assert told_by(task).startswith("May I call add with ")
    async with served(model(api.url, tools=tools), kept) as connection:
        task = await asked(connection, "no", task_id=task_id)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "It is 3.")
    assert [call_id for _, _, call_id in tools.calls] == ["c1"]
    assert len(api.asked) == 2
    assert [message["content"] for message in api.body["messages"][-2:]] == [
        "3",
        "Error: The user does not allow this call: no",
    ]


async def test_a_call_that_a_crash_cut_off_is_made_again_only_if_it_may_be(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "look", "{}")), called(("c3", "look", "{}")), said("Done."))

    class Stuck(Adding):
        """Ends no call of its kind."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind
            self.began = asyncio.Event()

        async def call(self, run: Run, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
            self.calls.append((name, arguments, call_id))
            if name == self.kind:
                self.began.set()
                await asyncio.Event().wait()
            return ToolResult(text=f"{name} done")

    task: Task | None = None
    for tools in (Stuck("add"), Stuck("look")):
        async with served(model(api.url, tools=tools), kept) as connection:
            task = task or await asked(connection, "Hi", return_immediately=True)
            await asyncio.wait_for(tools.began.wait(), DEADLINE_S)
    last = Stuck("")
    assert task is not None
    async with served(model(api.url, tools=last), kept) as connection:
        assert await ended(connection, task.id) == "Done."
        assert (await connection.get(task.id)).status.state is TaskState.COMPLETED
    assert [call_id for _, _, call_id in last.calls] == ["c2", "c3"]
    contents = [message["content"] for message in api.body["messages"] if message["role"] == "tool"]
    assert contents[0].startswith("Error: It is not known")
    assert contents[1:] == ["look done", "look done"]


async def test_usage_is_counted_once_over_restarts(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD)), said("It is 3."))
    async with served(model(api.url, tools=Adding("add")), kept) as connection:
        task = await asked(connection, "Hi")
    async with serving(kept, [model(api.url, tools=Adding("add"))]) as url:
        async with connect(f"{url}/agents/chat") as connection:
            assert (await asked(connection, "yes", task_id=task.id)).status.state is TaskState.COMPLETED
        call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task.id}}
        async with aiohttp.ClientSession() as session, session.post(f"{url}/a2a", json=call) as answer:
            shown = json.dumps(await answer.json())
    assert '"input_tokens": 14' in shown.replace("inputTokens", "input_tokens"), shown


TOML = """
[[agents]]
id = "chat"
run = "openai:{url}"
model = "small"
description = "Chats"
credentials = {{ env = "CHAT_KEY", header = "api-key" }}
system_file = "{system}"
temperature = 0.5
max_tokens = 100
stop = ["END"]
extra = {{ top_k = 3 }}
coalesce_ms = 0
[agents.schema]
type = "object"
"""


async def test_a_table_of_the_file_is_an_agent(
    api: Completions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system.txt").write_text("Be brief.")
    file = tmp_path / "dragoman.toml"
    file.write_text(TOML.format(url=api.url.removesuffix("/v1"), system=tmp_path / "system.txt"))
    monkeypatch.setenv("CHAT_KEY", "secret")
    (entry,) = load(file, {}, {}).agents
    api.answers(said('{"a": 1}'))
    async with served(make_agent(entry)) as connection:
        task = await asked(connection, "Hi")
    assert task.artifacts[0].parts[0].data == {"a": 1}
    assert api.asked[0].headers["api-key"] == "secret"
    assert {name: api.body[name] for name in ("model", "temperature", "max_tokens", "stop", "top_k")} == {
        "model": "small",
        "temperature": 0.5,
        "max_tokens": 100,
        "stop": ["END"],
        "top_k": 3,
    }
    assert api.body["messages"][0] == {"role": "system", "content": "Be brief."}
