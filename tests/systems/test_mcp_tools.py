"""A model with tools of MCP, from dragoman.toml to the caller: the model's endpoint is scripted, all else is real."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.agents.mcp.tools import McpGrant
from dragoman.cli.loader import load_agents
from dragoman.client import Connection, connect
from dragoman.config import Config, load
from dragoman.engine.api import Runner
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate
from dragoman.server import serving
from dragoman.testing.loopback import CONFIG, client
from tests.agents.mcp.peer import PYTHON, SCRIPT, at, call, listening, tools
from tests.agents.mcp.test_newer import listening as newer_listening
from tests.kit.processes import serving_process
from tests.kit.values import text_of
from tests.kit.waiting import no_hang
from tests.kit.web import web_site
from tests.ports import kept_port

pytestmark = [pytest.mark.peer, pytest.mark.slow]

Json = dict[str, Any]
DEADLINE_S = 60.0

CLI = f'run = "mcp:command:{PYTHON} {SCRIPT} stdio"'


class Model:
    """An endpoint that does what the caller says: `call name {…}` calls a tool, and then tells what it came to."""

    def __init__(self) -> None:
        self.asked: list[Json] = []

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()
        self.asked.append(body)
        last = body["messages"][-1]
        if last["role"] == "tool" and "again" not in _text(body["messages"][0]):
            return await _streamed(request, {"content": f"it says {last['content']}"}, "stop")
        words = _text(next(message for message in body["messages"] if message["role"] == "user"))
        _, name, arguments = words.split(" ", 2)
        called = {"index": 0, "id": f"call-{len(self.asked)}", "type": "function"}
        function = {"name": name, "arguments": arguments}
        return await _streamed(request, {"tool_calls": [{**called, "function": function}]}, "tool_calls")

    @property
    def offered(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.asked[-1].get("tools", [])]


def _text(message: Json) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def _streamed(request: web.Request, delta: Json, finish: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for choice in ({"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": finish}):
        chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, **choice}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
async def endpoint(model: Model) -> AsyncIterator[str]:
    async with web_site(web.post("/v1/chat/completions", model.complete)) as url:
        yield f"{url}/v1"


Start = Callable[..., Any]


@pytest.fixture
def start(endpoint: str, tmp_path: Path) -> Start:
    @asynccontextmanager
    async def started(*servers: str, more: str = "", store: str = "memory:") -> AsyncIterator[Connection]:
        given = "".join(f"[[agents.tools]]\n{server}\n" for server in servers)
        text = f'[[agents]]\nid = "m"\nrun = "openai:{endpoint}"\nmodel = "x"\n{more}\n{given}'
        (tmp_path / "dragoman.toml").write_text(text)
        config: Config = load(tmp_path / "dragoman.toml", {}, {})
        agents: list[Runner] = load_agents(config.agents, (), None)
        async with no_hang(), client(agents, config=replace(CONFIG, store=store)) as connection:
            yield connection

    return started


async def test_a_tool_is_called_and_its_result_told_to_the_model(start: Start, model: Model) -> None:
    async with start(CLI) as agent:
        updates = [update async for update in agent.stream('call add {"a": 1, "b": 2}')]
    assert "echo" in model.offered
    statuses = [update for update in updates if isinstance(update, StatusUpdate)]
    told = [text for update in statuses if update.status.message and (text := update.status.message.text)]
    assert told == ["Calling add", "add is done"]
    text = "".join(
        part.text or "" for update in updates if isinstance(update, ArtifactUpdate) for part in update.artifact.parts
    )
    assert text.startswith("it says {")
    assert '"total": 3' in text
    assert statuses[-1].status.state is TaskState.COMPLETED


async def test_files_of_a_tool_are_given_out(start: Start) -> None:
    async with start(CLI) as agent:
        task = await agent.send("call everything {}")
    (files,) = [artifact for artifact in task.artifacts if artifact.name == "everything"]
    assert {part.media_type for part in files.parts} >= {"image/png", "audio/wav", "application/pdf"}


async def test_tools_of_several_servers_are_told_apart(start: Start, model: Model) -> None:
    with listening("json") as url:
        async with start(f'run = "mcp:{url}"\nname = "web"\nallow = ["echo"]', f'{CLI}\nname = "files"') as agent:
            task = await agent.send('call files__echo {"text": "hi"}')
    assert text_of(task) == "it says hi"
    assert model.offered[:2] == ["web__echo", "files__echo"]


async def test_a_call_that_needs_approval_waits_for_it(start: Start, model: Model) -> None:
    async with start(f'{CLI}\napprove = ["echo"]') as agent:
        task = await agent.send('call echo {"text": "hi"}')
        assert task.status.state is TaskState.INPUT_REQUIRED
        assert '"hi"' in task.status.message.text
        assert len(model.asked) == 1
        done = await agent.send("yes", task_id=task.id, context_id=task.context_id)
        assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "it says hi")
        free = await agent.send('call add {"a": 1, "b": 1}')
        assert free.status.state is TaskState.COMPLETED


async def test_a_call_that_waits_for_approval_is_made_after_a_restart(
    start: Start, model: Model, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    async with start(f'{CLI}\napprove = "always"', store=store) as agent:
        task = await agent.send('call echo {"text": "hi"}')
        assert task.status.state is TaskState.INPUT_REQUIRED
    async with start(f'{CLI}\napprove = "always"', store=store) as agent:
        done = await agent.send("yes", task_id=task.id, context_id=task.context_id)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "it says hi")
    assert len(model.asked) == 2, "the model is not asked again for what it has said"


async def test_a_call_that_is_not_approved_is_not_made(start: Start) -> None:
    async with start(f'{CLI}\napprove = "always"') as agent:
        task = await agent.send("call die {}")
        done = await agent.send("no, never", task_id=task.id, context_id=task.context_id)
        assert done.status.state is TaskState.COMPLETED
        assert "does not allow" in text_of(done)


async def test_a_model_that_calls_for_ever_is_stopped(start: Start, model: Model) -> None:
    async with start(CLI, more="tool_rounds = 3") as agent:
        task = await agent.send('again echo {"text": "x"}')
        assert task.status.state is TaskState.FAILED
        assert "3 times" in task.status.message.text
        assert len(model.asked) == 4


async def test_a_server_that_dies_fails_its_call_and_not_the_task(start: Start) -> None:
    async with start(CLI) as agent:
        task = await agent.send("call die {}")
        assert task.status.state is TaskState.COMPLETED
        assert "has ended" in text_of(task)
        assert text_of(await agent.send('call echo {"text": "back"}')) == "it says back"


async def test_a_server_that_is_not_there_offers_nothing(start: Start, model: Model) -> None:
    async with start('run = "mcp:http://127.0.0.1:9/mcp"') as agent:
        task = await agent.send("call echo {}")
        assert task.status.state is TaskState.COMPLETED
        assert "no tool" in text_of(task)
        assert model.offered == []


async def test_canceling_the_task_cancels_the_call(start: Start) -> None:
    with listening("json") as url:
        async with start(f'run = "mcp:{url}"') as agent, tools(McpGrant(name="beside", reach=at(url))) as beside:
            await beside.list_tools()

            async def saw(what: str) -> int:
                return int(json.loads((await call(beside, "saw")).text)[what])

            task = await agent.send("call slow {}", return_immediately=True)
            while not await saw("begun"):
                await asyncio.sleep(0.02)
            canceled = await agent.cancel(task.id)
            assert canceled.status.state is TaskState.CANCELED
            while not await saw("canceled"):
                await asyncio.sleep(0.02)


async def test_a_call_that_the_table_declares_is_not_made_again_after_a_restart(
    start: Start, model: Model, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with listening("json") as url:
        server = f'run = "mcp:{url}"\nat_most_once = ["slow"]'
        async with tools(McpGrant(name="beside", reach=at(url))) as beside:
            await beside.list_tools()
            async with start(server, store=store) as agent:
                task = await agent.send("call slow {}", return_immediately=True)
                while not json.loads((await call(beside, "saw")).text)["begun"]:
                    await asyncio.sleep(0.02)
            async with start(server, store=store) as agent:
                while (task := await agent.get(task.id)).status.state is TaskState.WORKING:
                    await asyncio.sleep(0.02)
            begun = json.loads((await call(beside, "saw")).text)["begun"]
    assert (task.status.state, task.status.message.metadata) == (TaskState.FAILED, {"reason": "step_uncertain"})
    assert (begun, len(model.asked)) == (1, 1)


async def test_a_call_that_became_a_task_goes_on_over_kills_and_is_made_once(endpoint: str, tmp_path: Path) -> None:
    """The server is killed while it is polled, and while it asks."""
    with newer_listening() as url:
        (tmp_path / "dragoman.toml").write_text(
            f'store = "sqlite:///{tmp_path}/tasks.db"\nport = {kept_port()}\n[[agents]]\nid = "m"\n'
            f'run = "openai:{endpoint}"\nmodel = "x"\n[[agents.tools]]\nrun = "mcp:{url}"\nname = "newer"\n'
        )
        async with (
            asyncio.timeout(DEADLINE_S),
            tools(McpGrant(name="beside", reach=at(url))) as beside,
            serving_process(tmp_path) as server,
            connect(f"{server.url}/agents/m") as agent,
        ):
            await beside.list_tools()

            async def saw(what: str) -> int:
                return int(json.loads((await call(beside, "saw")).text)[what])

            async def restart() -> None:
                await server.kill()
                await server.start()

            async def reaches(task_id: str, *states: TaskState) -> Task:
                while (task := await agent.get(task_id)).status.state not in states:
                    await asyncio.sleep(0.05)
                return task

            built = await agent.send('call build {"polls": 20}', return_immediately=True)
            while await saw("polls") < 3:
                await asyncio.sleep(0.02)
            await restart()
            assert text_of(await reaches(built.id, TaskState.COMPLETED)) == "it says build is done"
            painted = await agent.send("call paint {}")
            assert painted.status.state is TaskState.INPUT_REQUIRED
            assert painted.status.message.text.startswith("newer asks: Which color?")
            await restart()
            again = await agent.send("green", task_id=painted.id, context_id=painted.context_id)
            assert again.status.message.text.startswith("color must be one of red, blue.\nnewer asks: Which color?")
            done = await agent.send("blue", task_id=painted.id, context_id=painted.context_id)
            assert text_of(done) == "it says paint is done in blue"
            assert (await saw("built"), await saw("updates"), await saw("tasks_canceled")) == (2, 1, 0)


async def test_a_task_of_a_server_is_canceled_with_ours(start: Start) -> None:
    with newer_listening() as url:
        server = f'run = "mcp:{url}"\nname = "newer"'
        async with start(server) as agent, tools(McpGrant(name="beside", reach=at(url))) as beside:
            await beside.list_tools()

            async def saw(what: str) -> int:
                return int(json.loads((await call(beside, "saw")).text)[what])

            polled = await agent.send('call build {"endless": true}', return_immediately=True)
            while not await saw("polls"):
                await asyncio.sleep(0.02)
            asks = await agent.send("call paint {}")
            assert asks.status.state is TaskState.INPUT_REQUIRED
            for number, task in enumerate((polled, asks), 1):
                await agent.cancel(task.id)
                while await saw("tasks_canceled") < number:
                    await asyncio.sleep(0.02)


async def test_the_skills_of_another_dragoman_are_tools(start: Start) -> None:
    adder = Agent("adder", description="Adds")

    @adder.skill("sum")
    async def total(ctx: Context) -> AsyncIterator[str]:
        """Adds the numbers of a line."""
        await ctx.progress(1, 2, "reading")
        yield str(sum(map(int, ctx.text.split())))

    async with serving(CONFIG, [adder]) as url, start(f'run = "mcp:{url}/mcp"') as agent:
        task = await agent.send('call adder {"message": "1 2 3"}')
    assert task.status.state is TaskState.COMPLETED
    assert text_of(task).startswith("it says 6")


@pytest.mark.parametrize("task_after_s", [0.0, 60.0])
async def test_the_question_of_another_dragoman_is_one_of_the_task(start: Start, task_after_s: float) -> None:
    """The call is a task there at once, or its question comes with a state."""
    host = Agent("host", description="Books", restartable=True)
    calls: list[str] = []

    @host.skill("book")
    async def book(ctx: Context) -> AsyncIterator[str]:
        """Books a table."""
        answer = await ctx.ask("How many people?")
        calls.append(ctx.task_id)
        yield f"A table for {answer}"

    other = replace(CONFIG, mcp_task_after_s=task_after_s)
    async with serving(other, [host]) as url, start(f'run = "mcp:{url}/mcp"\nname = "other"') as agent:
        asked = await agent.send('call host {"message": "Chez Louis"}')
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert asked.status.message.text.startswith("other asks: How many people?")
        done = await agent.send("three", task_id=asked.id, context_id=asked.context_id)
        assert done.status.state is TaskState.COMPLETED
        assert text_of(done).startswith("it says A table for three")
    assert len(calls) == 1
