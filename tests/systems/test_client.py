"""Our client and our server, in every dialect that both have: told which, or found by the card at each mount."""

from collections.abc import AsyncIterator

import pytest
from msgspec import Struct

from dragoman import Part, TaskState
from dragoman.client import ApiKey, connect
from dragoman.client.connection import Connection
from dragoman.config import Config
from dragoman.model.errors import TaskNotCancelable, TaskNotFound
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.server import serving
from dragoman.testing import agents
from tests.kit.values import text_of
from tests.kit.waiting import no_hang
from tests.systems.conftest import HOOK, Site

KEY = "a-key-of-the-tests-0123456789"


class Way(Struct, frozen=True, kw_only=True):
    """Where the agent is, and how it is spoken to; `dialect` is said to the client, or found by it if `found`."""

    path: str
    dialect: str
    binding: str = "JSONRPC"
    found: bool = False

    @property
    def name(self) -> str:
        return f"{self.dialect} {self.binding} at {self.path}{' by its card' if self.found else ''}"


TOLD = [
    Way(path="/agents/desk", dialect="1.0"),
    Way(path="/agents/desk", dialect="1.0", binding="HTTP+JSON"),
    Way(path="/agents/desk", dialect="0.3"),
    Way(path="/agents/desk", dialect="0.3", binding="HTTP+JSON"),
    Way(path="/desk", dialect="beeos"),
    Way(path="", dialect="kaos"),
    Way(path="/api/v1/a2a/desk", dialect="evoai"),
    Way(path="/a2a", dialect="protoagent"),
]
FOUND = [
    Way(path="", dialect="1.0", found=True),
    Way(path="", dialect="1.0", binding="HTTP+JSON", found=True),
    Way(path="/agents/desk", dialect="1.0", found=True),
    Way(path="/agents/desk", dialect="1.0", binding="HTTP+JSON", found=True),
    Way(path="/desk", dialect="1.0", binding="HTTP+JSON", found=True),
    Way(path="/desk", dialect="0.3", found=True),
    Way(path="/a2a", dialect="1.0", found=True),
    Way(path="/api/v1/a2a/desk", dialect="0.3", found=True),
]
ALL = [*TOLD, *FOUND]


def ways(chosen: list[Way]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", chosen, ids=lambda way: way.name)


@pytest.fixture
async def agent(served: Site, way: Way) -> AsyncIterator[Connection]:
    told = None if way.found else way.dialect
    async with no_hang(), connect(served.url + way.path, binding=way.binding, dialect=told) as agent:
        assert (agent.interface.dialect, agent.interface.binding) == (way.dialect, way.binding)
        assert (agent.card is not None) == way.found
        yield agent


def state_of(update: Update) -> TaskState | None:
    return update.status.state if isinstance(update, Task | StatusUpdate) else None


@ways(ALL)
async def test_a_message_is_sent_and_the_task_read(agent: Connection, way: Way) -> None:
    task = await agent.send("hello")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    again = await agent.get(task.id)
    assert (again.id, again.status.state) == (task.id, TaskState.COMPLETED)
    if way.dialect != "kaos":  # which has its answers in the history
        assert text_of(task) == text_of(again) == "hello"


@ways([way for way in ALL if way.dialect != "kaos"])
async def test_a_stream_tells_of_the_answer_and_the_end(agent: Connection, way: Way) -> None:
    updates = [update async for update in agent.stream("hello")]
    said = [part.text for each in updates if isinstance(each, ArtifactUpdate) for part in each.artifact.parts]
    if way.dialect == "evoai":  # which has the answer in its statuses
        said = [each.status.message.text for each in updates if isinstance(each, StatusUpdate) and each.status.message]
    assert "hello" in said
    assert TaskState.COMPLETED in [state_of(update) for update in updates]


@ways([way for way in ALL if way.dialect != "kaos"])
async def test_a_question_is_answered(agent: Connection) -> None:
    asked = await agent.send("ask")
    assert isinstance(asked, Task)
    assert asked.status.state is TaskState.INPUT_REQUIRED
    assert asked.status.message is not None
    assert asked.status.message.text == "Which?"
    done = await agent.send("that", task_id=asked.id, context_id=asked.context_id)
    assert isinstance(done, Task)
    assert (done.id, done.status.state) == (asked.id, TaskState.COMPLETED)
    assert "that" in text_of(done)


@ways(ALL)
async def test_a_task_that_runs_is_read_and_canceled(served: Site, agent: Connection, way: Way) -> None:
    gate = f"client {way.name}"
    task = await agent.send(f"wait {gate}", return_immediately=True)
    assert isinstance(task, Task)
    await served.begun(gate, task.id)
    assert (await agent.get(task.id)).status.state is TaskState.WORKING
    canceled = await agent.cancel(task.id)
    assert (canceled.id, canceled.status.state) == (task.id, TaskState.CANCELED)


@ways([way for way in ALL if way.dialect != "kaos"])
async def test_a_task_is_followed_to_its_end(served: Site, agent: Connection, way: Way) -> None:
    gate = f"client follows {way.name}"
    task = await agent.send(f"wait {gate}", return_immediately=True)
    assert isinstance(task, Task)
    await served.begun(gate, task.id)
    states = []
    async for update in agent.subscribe(task.id):
        served.open(gate)
        states.append(state_of(update))
    assert TaskState.COMPLETED in states


@ways(ALL)
async def test_what_is_not_there_is_not_found(agent: Connection) -> None:
    with pytest.raises(TaskNotFound):
        await agent.get("nobodys")
    with pytest.raises(TaskNotFound):
        await agent.cancel("nobodys")


@ways([way for way in ALL if way.dialect in ("1.0", "0.3")])
async def test_the_official_dialects_have_the_rest(agent: Connection, way: Way) -> None:
    task = await agent.send(["hello", Part(raw=b"\x00\xff", filename="a.bin"), Part(data={"a": 1})])
    assert isinstance(task, Task)
    if (way.dialect, way.path) == ("1.0", "/agents/desk"):
        with pytest.raises(TaskNotCancelable):
            await agent.cancel(task.id)
    listed = await agent.list(context_id=task.context_id)
    assert [each.id for each in listed.tasks] == [task.id]
    await agent.webhooks.set(task.id, HOOK, id="one")
    assert (await agent.webhooks.get(task.id, "one")).url == HOOK
    assert [each.id for each in await agent.webhooks.list(task.id)] == ["one"]
    await agent.webhooks.delete(task.id, "one")
    assert await agent.webhooks.list(task.id) == ()


@ways([way for way in TOLD if way.dialect == "kaos"])
async def test_kaos_has_no_streams_but_an_answer(agent: Connection) -> None:
    updates = [update async for update in agent.stream("hello")]
    assert [state_of(update) for update in updates][-1] is TaskState.COMPLETED


@pytest.mark.parametrize(
    ("profile", "path", "dialect"),
    [
        ("beeos", "/echo", "1.0"),
        ("kaos", "", "1.0"),
        ("evoai", "/api/v1/a2a/echo", "0.3"),
        ("protoagent", "", "1.0"),
    ],
)
async def test_a_server_that_is_one_of_the_systems_is_spoken_to_as_its_card_says(
    profile: str, path: str, dialect: str
) -> None:
    """Its card lists the official versions, which it speaks beside its own."""
    config = Config(port=0, store="memory:", shutdown_grace_s=0, profile=profile, api_key=KEY)
    key = ApiKey(KEY)
    async with serving(config, [agents.echo]) as url, connect(url + path, credentials=key) as agent:
        task = await agent.send("hello")
        assert isinstance(task, Task)
        assert task.status.state is TaskState.COMPLETED
        assert agent.interface.dialect == dialect
