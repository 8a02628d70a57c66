"""`connect` against a server of our own over both bindings: what is asked comes back as values of the model."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from dragoman import Part
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import PushConfig, connect
from dragoman.client.connection import Connection
from dragoman.config import Config
from dragoman.model.errors import TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operations import Subscribe
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate
from dragoman.net.egress import Egress
from dragoman.server import serving
from tests.kit.values import text_of
from tests.kit.waiting import no_hang
from tests.spec.agents import Gates, house

CONFIG = Config(
    port=0,
    store="memory:",
    shutdown_grace_s=0.1,
    cancel_grace_s=0.3,
    push_allowed_hosts=("127.0.0.1",),
)
HOOK = "https://127.0.0.1:9/hook"


@pytest.fixture(scope="module")
async def gates() -> Gates:
    return Gates()


@pytest.fixture(scope="module")
async def url(gates: Gates) -> AsyncIterator[str]:
    async with serving(replace(CONFIG), house(gates)) as url:
        yield url


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
async def agent(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Connection]:
    async with no_hang(), connect(f"{url}/agents/script", binding=request.param) as agent:
        assert (agent.interface.binding, agent.interface.dialect) == (request.param, "1.0")
        yield agent


async def test_a_task_is_sent_read_and_listed(agent: Connection) -> None:
    task = await agent.send("chunks 3")
    assert isinstance(task, Task)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "0 1 2 ")
    assert (await agent.get(task.id)).artifacts == task.artifacts
    listed = await agent.list(context_id=task.context_id)
    assert [each.id for each in listed.tasks] == [task.id]


async def test_a_direct_agent_answers_with_a_message(url: str) -> None:
    async with connect(f"{url}/agents/direct") as agent:
        assert isinstance(await agent.send("hello"), Message)


async def test_a_stream_tells_of_the_task_until_its_end(agent: Connection) -> None:
    updates = [update async for update in agent.stream("chunks 3")]
    assert isinstance(updates[0], Task)
    chunks = [update.artifact.parts[0].text for update in updates if isinstance(update, ArtifactUpdate)]
    assert "".join(str(chunk) for chunk in chunks) == "0 1 2 "
    last = updates[-1]
    assert isinstance(last, StatusUpdate)
    assert last.status.state is TaskState.COMPLETED


async def test_a_task_is_followed_from_the_event_last_seen(agent: Connection, gates: Gates) -> None:
    name = f"followed-{agent.interface.binding}"
    task = await agent.send(f"wait {name}", return_immediately=True)
    assert isinstance(task, Task)
    await gates.reached[name].wait()
    seen = ""
    events = agent.events(Subscribe(id=task.id))
    async for (seen, _), *_ in events:  # noqa: B007
        break
    await events.aclose()
    assert seen
    gates.open[name].set()
    updates = [update async for update in agent.subscribe(task.id, after=seen)]
    assert not any(isinstance(update, Task) for update in updates)
    assert any(isinstance(update, ArtifactUpdate) and update.artifact.parts[0].text == "done" for update in updates)


async def test_a_task_that_waits_is_answered_and_canceled(agent: Connection, gates: Gates) -> None:
    name = f"asked-{agent.interface.binding}"
    gates.open[name].set()
    task = await agent.send(f"pause {name}")
    assert isinstance(task, Task)
    assert task.status.state is TaskState.INPUT_REQUIRED
    assert task.status.message is not None
    assert task.status.message.text == "Which?"
    again = await agent.send(["this", Part(data={"a": 1})], task_id=task.id, context_id=task.context_id)
    assert isinstance(again, Task)
    assert (again.id, again.status.state) == (task.id, TaskState.COMPLETED)
    waiting = await agent.send(f"pause {name}")
    assert isinstance(waiting, Task)
    assert (await agent.cancel(waiting.id)).status.state is TaskState.CANCELED


async def test_what_the_agent_refuses_is_an_error_of_the_model(agent: Connection) -> None:
    with pytest.raises(TaskNotFound):
        await agent.get("nobody's")
    done = await agent.send("chunks 1")
    assert isinstance(done, Task)
    with pytest.raises(TaskNotCancelable):
        await agent.cancel(done.id)
    with pytest.raises(UnsupportedOperation):
        [update async for update in agent.subscribe(done.id)]


async def test_webhooks_are_set_read_listed_and_deleted(agent: Connection) -> None:
    task = await agent.send("chunks 1")
    assert isinstance(task, Task)
    config = await agent.webhooks.set(task.id, HOOK, token="t")
    assert config.url == HOOK
    assert (await agent.webhooks.get(task.id, config.id)).id == config.id
    assert [each.id for each in await agent.webhooks.list(task.id)] == [config.id]
    await agent.webhooks.delete(task.id, config.id)
    assert await agent.webhooks.list(task.id) == ()


async def test_a_webhook_is_set_by_a_push_config_that_says_everything(agent: Connection) -> None:
    task = await agent.send("chunks 1", push=PushConfig(url=HOOK, id="first"))
    assert isinstance(task, Task)
    said = PushConfig(url=HOOK, id="second", token="t", events=("completed",))
    config = await agent.webhooks.set(task.id, said)
    assert (config.id, config.url) == ("second", HOOK)
    assert [each.id for each in await agent.webhooks.list(task.id)] == ["first", "second"]
    with pytest.raises(TypeError, match="takes no further arguments"):
        await agent.webhooks.set(task.id, said, token="other")


@pytest.mark.parametrize("below", ["", "/", "/agents/script/", "/agents/script/.well-known/agent.json", "/script"])
async def test_an_agent_is_found_by_any_of_its_urls(url: str, below: str) -> None:
    async with connect(url + below) as agent:
        task = await agent.send("chunks 1")
        assert isinstance(task, Task)
        assert text_of(task) == "0 "


async def test_a_dialect_that_is_given_needs_no_card(url: str) -> None:
    async with connect(f"{url}/agents/script", dialect="1.0", binding="http+json") as agent:
        assert agent.card is None
        assert isinstance(await agent.send("chunks 1"), Task)


async def test_several_agents_share_the_callers_egress(url: str) -> None:
    egress = Egress()
    for _ in range(2):
        async with connect(url, egress=egress) as agent:
            await agent.send("chunks 1")
    assert (await egress.request("GET", f"{url}/health", timeout_s=60.0)).ok
    await egress.close()


async def test_a_card_must_be_signed_by_a_key_that_is_given(url: str) -> None:
    with pytest.raises(CardNotVerified):
        async with connect(url, keys={"keys": []}):
            pass


@pytest.mark.parametrize("wrong", [{"dialect": "2.0"}, {"binding": "SMTP"}])
async def test_names_that_are_not_known_are_refused_with_those_that_are(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not known: use"):
        async with connect("http://127.0.0.1:9", **wrong):  # type: ignore[arg-type]
            pass
