"""Our client against servers of the official SDKs, and FastA2A's, each in its own environment and process.

`make peers` makes the environments. To look at one: run its script by hand, which prints its URL.
"""

import os
import select
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest
from msgspec.structs import replace

from dragoman import Part, TaskState
from dragoman.client import HttpRefusal, connect
from dragoman.client.connection import Connection
from dragoman.client.decode import tongue
from dragoman.dialects.api import RpcCall, Tongue
from dragoman.model.errors import (
    ContentTypeNotSupported,
    InternalError,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.message import Message
from dragoman.model.operations import Operation
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, TaskList, Update
from tests.peers.test_peers import FASTA2A, MODULES, NODE, PYTHON_A2A, SDK03, SDK1
from tests.processes import ENDS_WITH_US
from tests.systems.test_upstream import fronted, partner
from tests.systems.test_upstream_tree import front

HERE = Path(__file__).parent
START_TIMEOUT_S = 60.0
HOOK = "https://127.0.0.1:9/hook"
"""A webhook at a port where nobody listens (RFC 863)."""

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@dataclass(frozen=True)
class Server:
    """A server of an SDK: how its script is run, and what must be there for it."""

    script: Path
    runtime: Path
    needs: Path


SERVERS = {
    "python-1": Server(HERE / "servers" / "sdk1.py", SDK1, SDK1),
    "python-1-mounted": Server(HERE / "servers" / "sdk1_mounted.py", SDK1, SDK1),
    "python-0.3": Server(HERE / "servers" / "sdk03.py", SDK03, SDK03),
    "js-1": Server(HERE / "js" / "server1.mjs", NODE, MODULES / "express"),
    "js-0.3": Server(HERE / "js" / "server03.mjs", NODE, MODULES / "express"),
    "fasta2a": Server(HERE / "servers" / "fasta2a_server.py", FASTA2A, FASTA2A),
    "python-a2a": Server(HERE / "servers" / "python_a2a_server.py", PYTHON_A2A, PYTHON_A2A),
}


@dataclass(frozen=True)
class Lane:
    """One way to an agent: the path of its card's place, and what is chosen from the card."""

    server: str
    dialect: str
    binding: str
    path: str = ""

    @property
    def name(self) -> str:
        return f"{self.server} {self.dialect} {self.binding}"


BINDINGS = ("JSONRPC", "HTTP+JSON")
LANES = [
    *(Lane(server, "1.0", binding) for server in ("python-1", "js-1") for binding in BINDINGS),
    *(Lane(server, "0.3", binding, "/old") for server in ("python-1", "js-1") for binding in BINDINGS),
    *(Lane(server, "0.3", binding) for server in ("python-0.3", "js-0.3") for binding in BINDINGS),
    *(Lane(server, "1.0", "GRPC", "/grpc") for server in ("python-1", "js-1")),
    *(Lane(server, "0.3", "GRPC", "/grpc-old") for server in ("python-1", "js-1")),
    *(Lane(server, "0.3", "GRPC", "/grpc") for server in ("python-0.3", "js-0.3")),
    Lane("fasta2a", "1.0", "JSONRPC"),
]
PYTHON_REST = [lane for lane in LANES if lane.name in ("python-1 0.3 HTTP+JSON", "python-0.3 0.3 HTTP+JSON")]
TWICE = [*PYTHON_REST, *(lane for lane in LANES if lane.name in ("python-1 0.3 GRPC", "python-0.3 0.3 GRPC"))]
"""Where the official Python servers put base64 into the bytes of a file."""

OVER_GRPC = [lane for lane in LANES if lane.binding == "GRPC"]
OLD_GRPC = [lane for lane in LANES if lane.name == "python-0.3 0.3 GRPC"]
FASTA2A_ONLY = [lane for lane in LANES if lane.server == "fasta2a"]
OFFICIAL = [lane for lane in LANES if lane.server != "fasta2a"]


def lanes(chosen: list[Lane]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lane", chosen, ids=lambda lane: lane.name)


@contextmanager
def started(names: Iterable[str], folder: Path, ledgers: Mapping[str, Path] | None = None) -> Iterator[dict[str, str]]:
    """Where each server is whose environment is there; all are started at once, and end when their input does.

    Several servers of one kind have a number behind it: `python-1/2`. Each writes what it executes into its ledger.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            server = SERVERS[name.partition("/")[0]]
            if server.needs.exists():
                environ = {**os.environ, "LEDGER": str(ledgers[name])} if ledgers and name in ledgers else None
                with _log(folder, name).open("wb") as log:
                    running[name] = subprocess.Popen(
                        [*ENDS_WITH_US, server.runtime, server.script],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        env=environ,
                    )
        deadline = monotonic() + START_TIMEOUT_S
        yield {name: _url(process, _log(folder, name), deadline) for name, process in running.items()}
    finally:
        for process in running.values():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where the servers are."""
    with started(SERVERS, tmp_path_factory.mktemp("servers")) as urls:
        yield urls


def _log(folder: Path, name: str) -> Path:
    return folder / name.replace("/", "-")


def _url(process: subprocess.Popen[bytes], log: Path, deadline: float) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - monotonic()))
    line = os.read(process.stdout.fileno(), 1024).decode().strip() if ready else ""
    assert line.startswith("http://"), f"{log.name} did not say where it is:\n{log.read_text()}"
    return line


@pytest.fixture
def url(lane: Lane, urls: dict[str, str]) -> str:
    assert lane.server in urls, f"{SERVERS[lane.server].needs} is missing: run `make peers`"
    return urls[lane.server] + lane.path


@pytest.fixture
async def agent(lane: Lane, url: str) -> AsyncIterator[Connection]:
    """The agent, by its card."""
    async with connect(url, binding=lane.binding) as agent:
        assert (agent.interface.binding, agent.interface.dialect) == (lane.binding, lane.dialect)
        yield agent


def text_of(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def terminal(task: Task) -> bool:
    return task.status.state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED)


async def sent(agent: Connection, text: str | list[Part], **more: str) -> Task:
    """The task of a message, as it stands when it has ended or waits; FastA2A answers before."""
    task = await agent.send(text, context_id=more.get("context_id"), task_id=more.get("task_id"))
    assert isinstance(task, Task)
    if agent.card is not None and agent.card.name == "FastA2A":
        assert task.status.state is TaskState.SUBMITTED
        async for _ in agent.subscribe(task.id):
            pass
        task = await agent.get(task.id)
    return task


def state_of(update: Update) -> TaskState | None:
    return update.status.state if isinstance(update, Task | StatusUpdate) else None


@lanes(LANES)
async def test_a_message_is_sent_and_the_task_read_again(agent: Connection) -> None:
    task = await sent(agent, "héllo 🌍")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "héllo 🌍")
    assert task.context_id
    again = await agent.get(task.id, history_length=5)
    assert (again.id, again.status.state, text_of(again)) == (task.id, TaskState.COMPLETED, "héllo 🌍")
    assert "héllo 🌍" in [message.text for message in again.history]


@lanes(OFFICIAL)
async def test_a_direct_answer_is_a_message(agent: Connection) -> None:
    said = await agent.send("direct good day")
    assert isinstance(said, Message)
    assert said.text == "good day"
    (streamed,) = [update async for update in agent.stream("direct good day")]
    assert isinstance(streamed, Message)
    assert streamed.text == "good day"


FILES = [
    Part(text="see"),
    Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream"),
    Part(url="https://example.org/a.pdf", filename="a.pdf", media_type="application/pdf"),
    Part(data={"city": "Lyon", "days": 3, "nested": {"on": True, "list": [1, "two", None]}}),
]


@lanes([lane for lane in LANES if lane not in TWICE])
async def test_files_and_data_come_back_as_they_went(agent: Connection, lane: Lane) -> None:
    task = await sent(agent, FILES)
    came = [part for artifact in task.artifacts for part in artifact.parts]
    expected = FILES
    if lane.dialect == "0.3" and lane.binding != "JSONRPC":  # where the JavaScript servers lose the names
        expected = [replace(part, filename=None) for part in FILES]
    if lane.name == "js-0.3 0.3 GRPC":  # where null in a list becomes 0
        expected[-1] = Part(data={"city": "Lyon", "days": 3, "nested": {"on": True, "list": [1, "two", 0]}})
    assert came == expected


@lanes(TWICE)
async def test_files_come_back_from_servers_that_encode_them_twice(url: str, lane: Lane) -> None:
    async with connect(url, version=lane.dialect, binding=lane.binding, double_base64=True) as agent:
        task = await sent(agent, FILES)
        assert [part for artifact in task.artifacts for part in artifact.parts] == FILES
        updates = [update async for update in agent.stream(FILES)]
        came = [update.artifact.parts for update in updates if isinstance(update, ArtifactUpdate)]
        assert [part for parts in came for part in parts if part.raw is not None] == [FILES[1]]


@lanes(LANES)
async def test_a_stream_tells_of_every_chunk_until_the_end(agent: Connection) -> None:
    updates = [update async for update in agent.stream("count 3")]
    chunks = [update for update in updates if isinstance(update, ArtifactUpdate)]
    assert [chunk.artifact.parts[0].text for chunk in chunks] == ["0 ", "1 ", "2 "]
    assert [chunk.append for chunk in chunks] == [False, True, True]
    assert state_of(updates[-1]) is TaskState.COMPLETED
    ids = {
        update.id if isinstance(update, Task) else update.task_id
        for update in updates
        if not isinstance(update, Message)
    }
    (task_id,) = ids
    assert text_of(await agent.get(task_id)) == "0 1 2 "


@lanes(LANES)
async def test_a_failure_is_a_state(agent: Connection, lane: Lane) -> None:
    task = await sent(agent, "fail")
    assert task.status.state is TaskState.FAILED
    if lane.server != "fasta2a":
        assert task.status.message is not None
        assert task.status.message.text == "It broke"


@lanes(LANES)
async def test_a_slow_task_is_answered_at_once_read_and_canceled(agent: Connection) -> None:
    task = await agent.send("slow", return_immediately=True)
    assert isinstance(task, Task)
    assert not terminal(task)
    assert not terminal(await agent.get(task.id))
    canceled = await agent.cancel(task.id)
    assert canceled.id == task.id
    if not terminal(canceled):
        async for _ in agent.subscribe(task.id):
            pass
    assert (await agent.get(task.id)).status.state is TaskState.CANCELED


@lanes(LANES)
async def test_a_task_is_followed_until_it_is_canceled(agent: Connection) -> None:
    task = await agent.send("slow", return_immediately=True)
    assert isinstance(task, Task)
    states = []
    async for update in agent.subscribe(task.id):
        if not states:
            await agent.cancel(task.id)
        states.append(state_of(update))
    assert states[-1] is TaskState.CANCELED
    assert (await agent.get(task.id)).status.state is TaskState.CANCELED


@lanes(OFFICIAL)
async def test_a_question_is_answered(agent: Connection) -> None:
    task = await sent(agent, "ask")
    assert task.status.state is TaskState.INPUT_REQUIRED
    assert task.status.message is not None
    assert task.status.message.text == "Which city?"
    done = await sent(agent, "Lyon", task_id=task.id, context_id=task.context_id)
    assert (done.id, done.status.state, text_of(done)) == (task.id, TaskState.COMPLETED, "Booked: Lyon")


@lanes(OFFICIAL)
async def test_a_conversation_goes_on_from_what_was_said(agent: Connection) -> None:
    talk = agent.conversation()
    asked = await talk.say("ask")
    assert (asked.asks, asked.text) == (True, "Which city?")
    done = await talk.say("Lyon")
    assert (done.state, done.text) == (TaskState.COMPLETED, "Booked: Lyon")
    assert (await talk.say("good day")).text == "good day"


@lanes(FASTA2A_ONLY)
async def test_a_conversation_waits_for_an_agent_that_answers_before_it_has_begun(agent: Connection) -> None:
    done = await agent.conversation().say("good day")
    assert (done.state, done.text) == (TaskState.COMPLETED, "good day")


@lanes(OFFICIAL)
async def test_a_question_ends_a_stream_and_another_has_the_answer(agent: Connection) -> None:
    updates = [update async for update in agent.stream("ask")]
    last = updates[-1]
    assert state_of(last) is TaskState.INPUT_REQUIRED
    assert isinstance(last, StatusUpdate | Task)
    task_id = last.id if isinstance(last, Task) else last.task_id
    more = [update async for update in agent.stream("Lyon", task_id=task_id, context_id=last.context_id)]
    assert state_of(more[-1]) is TaskState.COMPLETED
    assert text_of(await agent.get(task_id)) == "Booked: Lyon"


@lanes(LANES)
async def test_tasks_are_listed_where_they_can_be(agent: Connection, lane: Lane) -> None:
    if lane.name == "js-1 0.3 HTTP+JSON":  # where 1.0's list is beside it
        assert isinstance(await agent.list(page_size=1), TaskList)
        return
    if lane.dialect == "0.3" or lane.server == "fasta2a":
        with pytest.raises((UnsupportedOperation, MethodNotFound, NotFound, InternalError)):
            await agent.list()
        return
    first = await sent(agent, "one")
    second = await sent(agent, "two", context_id=first.context_id)
    listed = await agent.list(context_id=first.context_id, include_artifacts=True)
    assert {task.id: text_of(task) for task in listed.tasks} == {first.id: "one", second.id: "two"}
    page = await agent.list(context_id=first.context_id, page_size=1)
    rest = await agent.list(context_id=first.context_id, page_size=1, page_token=page.next_page_token)
    assert {task.id for task in (*page.tasks, *rest.tasks)} == {first.id, second.id}


@lanes([lane for lane in OFFICIAL if lane not in (*PYTHON_REST, *OLD_GRPC) and lane.name != "js-1 0.3 HTTP+JSON"])
async def test_webhooks_are_set_read_listed_and_forgotten(agent: Connection) -> None:
    """Not over 0.3's HTTP+JSON with the compatibility mode of js-1, which wants a body that python-0.3 refuses."""
    task = await sent(agent, "hello")
    one = await agent.webhooks.set(task.id, HOOK, id="one", token="hush")
    assert (one.id, one.url, one.task_id) == ("one", HOOK, task.id)
    got = await agent.webhooks.get(task.id, "one")
    assert (got.id, got.url, got.task_id) == ("one", HOOK, task.id)
    assert [each.id for each in await agent.webhooks.list(task.id)] == ["one"]
    await agent.webhooks.delete(task.id, "one")
    assert await agent.webhooks.list(task.id) == ()


@lanes([*PYTHON_REST, *OLD_GRPC])
async def test_webhooks_are_set_and_read_where_that_is_all_there_is(agent: Connection) -> None:
    task = await sent(agent, "hello")
    await agent.webhooks.set(task.id, HOOK, id="one", token="hush")
    got = await agent.webhooks.get(task.id, "one")
    assert (got.id, got.url, got.task_id) == ("one", HOOK, task.id)
    with pytest.raises((NotFound, MethodNotAllowed, MethodNotFound)):
        await agent.webhooks.delete(task.id, "one")


@lanes(FASTA2A_ONLY)
async def test_an_agent_that_breaks_over_what_it_does_not_know_refuses(agent: Connection) -> None:
    """Webhooks by their names in 1.0, and methods that nobody has, are HTTP status 500 with a line of text."""
    task = await sent(agent, "hello")
    with pytest.raises(HttpRefusal) as refused:
        await agent.webhooks.set(task.id, HOOK)
    assert refused.value.status == 500
    async with connect(agent.interface.url, dialect=strange("1.0")) as other:
        with pytest.raises(HttpRefusal):
            await other.get("x")


@lanes(LANES)
async def test_a_task_that_is_not_there_is_not_found(agent: Connection, lane: Lane) -> None:
    with pytest.raises(TaskNotFound):
        await agent.get("nobodys")
    with pytest.raises(TaskNotFound):
        await agent.cancel("nobodys")
    broken = InternalError if lane.name == "js-0.3 0.3 HTTP+JSON" else TaskNotFound  # "Bug: toJson serializer …"
    with pytest.raises(broken):
        _ = [update async for update in agent.subscribe("nobodys")]


@lanes(OFFICIAL)
async def test_a_message_to_a_task_that_is_not_there_is_refused(agent: Connection) -> None:
    with pytest.raises(TaskNotFound):
        await agent.send("hello", task_id="nobodys")


@lanes(OFFICIAL)
async def test_a_task_that_has_ended_is_not_canceled(agent: Connection) -> None:
    task = await sent(agent, "hello")
    with pytest.raises(TaskNotCancelable):
        await agent.cancel(task.id)


def strange(dialect: str) -> Tongue:
    """The dialect, but for its methods, which nobody knows."""

    def unknown(operation: Operation) -> RpcCall:
        return RpcCall("no/such", b"{}")

    return replace(tongue(dialect), rpc=unknown)


@lanes([lane for lane in OFFICIAL if lane.binding == "JSONRPC"])
async def test_a_method_that_is_not_there_is_not_found(agent: Connection, lane: Lane) -> None:
    async with connect(agent.interface.url, dialect=strange(lane.dialect)) as other:
        with pytest.raises(MethodNotFound):
            await other.get("x")


@lanes([lane for lane in OFFICIAL if lane not in OLD_GRPC])
async def test_the_extended_card_is_shown(agent: Connection) -> None:
    card = await agent.extended_card()
    assert card.description == "For those who have said who they are"
    assert [skill.id for skill in card.skills] == ["do"]


@lanes(OLD_GRPC)
async def test_a_server_with_one_card_shows_it_to_everybody(agent: Connection) -> None:
    assert (await agent.extended_card()).description == "An agent of the official Python SDK"


@lanes(OVER_GRPC)
async def test_an_agent_with_grpc_alone_is_checked_and_called_behind_a_card_of_ours(url: str, lane: Lane) -> None:
    found = [finding async for finding in partner(url).check()]
    assert all(finding.ok for finding in found)
    assert f"in dialect {lane.dialect} over GRPC at grpc://127.0.0.1:" in found[1].what
    async with fronted(partner(url)) as ours:
        task = await sent(ours, "héllo")
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "héllo")
        updates = [update async for update in ours.stream("count 3")]
        assert state_of(updates[-1]) is TaskState.COMPLETED
        chunks = [update for update in updates if isinstance(update, ArtifactUpdate)]
        assert "".join(chunk.artifact.parts[0].text or "" for chunk in chunks) == "0 1 2 "
        asked = await sent(ours, "ask")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        done = await sent(ours, "Lyon", task_id=asked.id, context_id=asked.context_id or "")
        assert text_of(done) == "Booked: Lyon"
        slow = await ours.send("slow", return_immediately=True)
        assert isinstance(slow, Task)
        assert (await ours.cancel(slow.id)).status.state is TaskState.CANCELED


@lanes(FASTA2A_ONLY)
async def test_behind_a_card_of_ours_text_is_taken_whatever_its_card_says(url: str) -> None:
    async with connect(url) as theirs:
        assert theirs.card is not None
        assert theirs.card.whole["defaultInputModes"] == ["application/json"]
    found = [finding async for finding in partner(url).check()]
    assert all(finding.ok for finding in found)
    assert "application/json only: text is sent to it nevertheless" in found[-1].what
    async with fronted(partner(url)) as ours:
        assert ours.card is not None
        assert ours.card.whole["defaultInputModes"] == ["application/json", "text/plain"]
        task = await ours.send("hello")
        assert isinstance(task, Task)
        assert text_of(task) == "hello"
        with pytest.raises(ContentTypeNotSupported):
            await ours.send(Part(raw=b"x", media_type="image/png"))


@lanes([lane for lane in LANES if lane.name in ("python-1 1.0 JSONRPC", "python-0.3 0.3 JSONRPC")])
async def test_its_task_is_in_the_tree_of_ours_with_its_own_times(url: str, tmp_path: Path) -> None:
    async with front(tmp_path, partner(url)) as ours, connect(url) as theirs:
        task = await sent(ours.caller, "ask")
        _, row = await ours.tree(task.id)
        there = await theirs.get(row["id"])
        assert (row["state"], there.status.state) == ("input-required", TaskState.INPUT_REQUIRED)
        assert row["upstream"]["last_status_at"] == there.status.timestamp
        assert row["upstream"]["dragoman"] is False
        assert not row["upstream"]["differs"]
