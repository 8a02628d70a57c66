"""A model behind a card of a real server, at a real endpoint: what callers see, and what a restart leaves of it."""

import asyncio
import json
import re
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
from dragoman.model.message import Part
from dragoman.model.task import TaskState
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
    assert len(tools.calls) == 1
    assert len(api.asked) == 2
    assert [message["content"] for message in api.body["messages"][-2:]] == [
        "3",
        "Error: The user does not allow this call: no",
    ]


class Stuck(Adding):
    """Ends no call of its kind."""

    def __init__(self, kind: str = "", once: str = "") -> None:
        super().__init__(once=once)
        self.kind = kind
        self.began = asyncio.Event()

    async def call(self, run: Run, name: str, arguments: dict[str, Any], key: str) -> ToolResult:
        self.calls.append((name, arguments, key))
        if name == self.kind:
            self.began.set()
            await asyncio.Event().wait()
        return ToolResult(text=f"{name} done")


async def cut_off(api: Completions, kept: Config, tools: Stuck, task_id: str = "") -> str:
    """The id of a task whose server goes away in the middle of a call."""
    async with served(model(api.url, tools=tools), kept) as connection:
        task_id = task_id or (await asked(connection, "Hi", return_immediately=True)).id
        await asyncio.wait_for(tools.began.wait(), DEADLINE_S)
    return task_id


def outcomes(api: Completions) -> list[str]:
    """The outcomes of calls, as the model reads them."""
    return [message["content"] for message in api.body["messages"] if message["role"] == "tool"]


async def test_a_call_that_a_crash_cut_off_is_made_again_under_its_key_and_no_other_is(
    api: Completions, kept: Config
) -> None:
    api.answers(called(("c1", "add", ADD), ("c2", "look", "{}")), called(("c3", "look", "{}")), said("Done."))
    first, second, last = Stuck("add"), Stuck("look"), Stuck()
    task_id = await cut_off(api, kept, first)
    await cut_off(api, kept, second, task_id)
    async with served(model(api.url, tools=last), kept) as connection:
        assert await ended(connection, task_id) == "Done."
    made = [[(name, key.removeprefix(f"{task_id}:")) for name, _, key in each.calls] for each in (first, second, last)]
    assert made == [[("add", "2")], [("add", "2"), ("look", "3")], [("look", "3"), ("look", "5")]]
    assert outcomes(api) == ["add done", "look done", "look done"]
    assert len(api.asked) == 3, "no answer is asked for twice"


async def test_an_answer_after_a_call_that_a_crash_cut_off_is_replaced(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD), text="Let me see. "), silent("It may "), said("It is 3."))
    async with served(model(api.url, tools=Adding(), coalesce_ms=0), kept) as connection:
        task = await asked(connection, "Hi", return_immediately=True)
        async with asyncio.timeout(DEADLINE_S):
            while not text_of(await connection.get(task.id)).endswith("It may "):
                await asyncio.sleep(0.01)
    tools = Adding()
    async with served(model(api.url, tools=tools), kept) as connection:
        assert await ended(connection, task.id) == "Let me see. It is 3."
    assert not tools.calls
    asked_before, asked_again = (each.body["messages"] for each in api.asked[1:])
    assert asked_before == asked_again


async def test_a_call_that_is_made_at_most_once_fails_its_task_if_a_crash_cut_it_off(
    api: Completions, kept: Config
) -> None:
    api.answers(called(("c1", "add", ADD)), said("Done."))
    task_id = await cut_off(api, kept, Stuck("add", once="add"))
    tools = Stuck()  # the server of the tool does not say it any more, but the log does
    async with served(model(api.url, tools=tools), kept) as connection:
        async with asyncio.timeout(DEADLINE_S):
            while (task := await connection.get(task_id)).status.state is TaskState.WORKING:
                await asyncio.sleep(0.02)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.metadata == {"reason": "step_uncertain"}
    assert not tools.calls


@pytest.mark.parametrize(
    ("answer", "calls", "outcome"),
    [
        ("again", 1, "add done"),
        ("failed", 0, "Error: The server stopped during this call, which counts as failed. The user says: failed"),
        (Part(data={"sum": 3}), 0, '{"sum":3}'),
        (Part(data="three"), 0, "three"),
    ],
)
async def test_a_call_that_is_made_at_most_once_is_asked_about_if_the_table_says_so(
    api: Completions, kept: Config, answer: str | Part, calls: int, outcome: str
) -> None:
    api.answers(called(("c1", "add", ADD)), said("Done."))
    task_id = await cut_off(api, kept, Stuck("add", once="add"))
    tools = Stuck()
    async with served(model(api.url, tools=tools, step_uncertain="ask"), kept) as connection:
        async with asyncio.timeout(DEADLINE_S):
            while (task := await connection.get(task_id)).status.state is TaskState.WORKING:
                await asyncio.sleep(0.02)
        assert task.status.state is TaskState.INPUT_REQUIRED
        assert "the step “add”" in told_by(task)
        done = await asked(connection, answer, task_id=task_id)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "Done.")
    assert len(tools.calls) == calls
    assert outcomes(api) == [outcome]


async def test_an_answer_that_is_recorded_as_a_file_is_read_again(api: Completions, kept: Config) -> None:
    page = "é" * 600_000
    arguments = json.dumps({"a": 1, "b": 2, "page": page}, ensure_ascii=False)
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}

    async def script(answering: Any) -> None:
        await answering.head()
        await answering.events(delta(tool_calls=[call]), delta(finish="tool_calls"))
        await answering.end()

    api.answers(script, said("Done."))
    task_id = await cut_off(api, kept, Stuck("add"))
    tools = Stuck()
    async with served(model(api.url, tools=tools), kept) as connection:
        assert await ended(connection, task_id) == "Done."
    assert [arguments["page"] == page for _, arguments, _ in tools.calls] == [True]


async def test_a_change_of_what_needs_approval_moves_no_step(api: Completions, kept: Config) -> None:
    """What a call needs is decided with the answer that makes it."""
    api.answers(called(("c1", "add", ADD), ("c2", "look", "{}")), said("Done."))
    async with served(model(api.url, tools=Adding("add")), kept) as connection:
        task = await asked(connection, "Hi")
        assert task.status.state is TaskState.INPUT_REQUIRED
    async with served(model(api.url, tools=Adding("look")), kept) as connection:
        done = await asked(connection, "yes", task_id=task.id)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "Done.")


async def test_a_task_whose_model_has_no_tools_any_more_fails(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD)), said("Done."))
    task_id = await cut_off(api, kept, Stuck("add"))
    async with served(model(api.url), kept) as connection, asyncio.timeout(DEADLINE_S):
        while (task := await connection.get(task_id)).status.state is TaskState.WORKING:
            await asyncio.sleep(0.02)
    assert task.status.message is not None
    assert task.status.message.metadata == {"reason": "replay_mismatch"}


async def test_fewer_rounds_in_the_table_end_no_task_that_has_had_more(api: Completions, kept: Config) -> None:
    api.answers(*(called((f"c{number}", "look", "{}")) for number in (1, 2)), called(("c3", "add", ADD)), said("Done."))
    task_id = await cut_off(api, kept, Stuck("add"))
    async with served(model(api.url, tools=Stuck(), tool_rounds=1), kept) as connection:
        assert await ended(connection, task_id) == "Done."


async def input_tokens(url: str, task_id: str) -> int:
    """The tokens that a task has taken in."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task_id}}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/a2a", json=call) as answer:
        shown = json.dumps(await answer.json())
    (found,) = set(re.findall(r'"input_?[tT]okens": (\d+)', shown))  # it is told in two forms
    return int(found)


async def test_usage_is_counted_once_over_restarts(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD)), said("It is 3."))
    async with served(model(api.url, tools=Adding("add")), kept) as connection:
        task = await asked(connection, "Hi")
    async with serving(kept, [model(api.url, tools=Adding("add"))]) as url:
        async with connect(f"{url}/agents/chat") as connection:
            assert (await asked(connection, "yes", task_id=task.id)).status.state is TaskState.COMPLETED
        assert await input_tokens(url, task.id) == 14


async def test_usage_is_counted_once_over_crashes(api: Completions, kept: Config) -> None:
    api.answers(called(("c1", "add", ADD)), called(("c2", "look", "{}")), said("It is 3."))
    task_id = await cut_off(api, kept, Stuck("add"))
    await cut_off(api, kept, Stuck("look"), task_id)
    async with serving(kept, [model(api.url, tools=Stuck())]) as url:
        async with connect(f"{url}/agents/chat") as connection:
            assert await ended(connection, task_id) == "It is 3."
        assert await input_tokens(url, task_id) == 21


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
