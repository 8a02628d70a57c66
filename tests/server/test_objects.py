"""The objects of a running server: none holds what belongs to an upper module, and none sets what is another's."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import dragoman.bindings.grpc  # noqa: F401  # so that its classes are watched, too
from dragoman import Agent, Context, SyncContext
from dragoman.agents.python.factory import FactoryAgent
from dragoman.cli.loader import load_agents
from dragoman.config import Config, load
from dragoman.engine.api import Runner
from dragoman.server import Loaded, running, serving
from dragoman.server.running import ListeningServer
from tests.bindings.mcp_client import Client
from tests.grpc_callers import GrpcCaller, connected
from tests.ports import kept_port
from tests.push.receiver import Receiver, receiving
from tests.server.object_walk import (
    ModuleOrder,
    SetFromOutside,
    callables_from_above,
    module_constants,
    protocols_from_above,
    reachable,
    watched_sets,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_S = 60.0
V1 = {"A2A-Version": "1.0"}
TABLES = """
[[agents]]
id = "far"
run = "worker"
offline = "queue"

[[agents]]
id = "partner"
run = "a2a:{upstream}"

[[agents]]
id = "partners"
run = ["a2a:{upstream}", "a2a:http://127.0.0.1:{closed}/"]

[[agents]]
id = "model"
run = "openai:http://127.0.0.1:{closed}/v1"
model = "x"
retries = 0

[[agents]]
id = "program"
run = "command:/bin/cat"
"""


ROOT = Path(__file__).parents[2]

CALLABLES = {
    "engine.admin.answers.Answers": "the table of what operators may ask: its functions are those that answer",
    "bindings.endpoints.HttpEndpoint": "a row of the table of endpoints: its functions are those that answer there",
    "store.postgres.writes.OtherWrite": "a call under way: its function is that of whoever waits for it",
    "store.sqlite.writes.Act": "a write under way: its function is that of whoever waits for it",
}
"""The classes whose objects hold functions of upper modules, and why."""


PROTOCOLS = {
    "Prefix": "Log: what a write is decided on, and takes it in",
    "LogOwner": "Tasks: lets go of a log, hears of an end, reads webhooks anew",
    "Peers": "Hints: tells other engines of a commit, follows a task there",
    "RunKeeper": "the supervisor: gives runs what other engines wrote, and knows whether a new lease is for a run",
    "TaskExecution": "TaskRun: stops when its words count no more, or ends as a fault imposes",
    "Undecided": "AutoRun: becomes a task at a word that a Message cannot hold",
    "UndecidedCalls": "Intake: keeps the answer of a run, or makes its task",
    "Runner": "the agents",
    "Lifespan": "what an agent has opened before its first task, and a factory that makes it",
    "Sink": "what takes the words of a run",
    "Announcer": "WebhookAnnouncer: renders deliveries, and has them sent",
    "Redeliverer": "WebhookAnnouncer: makes the bodies of deliveries again",
    "OutboxWrites": "a driver's transactions on webhooks and deliveries",
    "ScopeRows": "a driver's scopes, and what its writer remembers of them",
    "TaskRemovals": "TaskChanges, or IdleTasks without a server: end and delete tasks",
    "HeadReader": "the stores: decode the heads of tasks",
    "WorkerLeases": "the stores: whether the lease of a worker runs",
    "Reading": "FileReading: reads the files behind links",
    "ServerFacts": "ServedAgents: what operators see of the agents of this process",
    "Credentials": "CallCredentials: those of the caller whose task is forwarded, or a token in its name",
    "PageSessions": "Console: knows the operators who are signed in with a browser",
    "ExchangeConnection": "the connection that a request came on",
    "Timed": "the connections that are idle, and the streams: look whether their time has come",
    "ConnectionKeeper": "Dialer: lets go of a connection that has ended",
    "Clock": "DatabaseClock",
    "OwnWorkers": "Presence: lists the workers of an agent",
    "WorkerPool": "the leases of an agent's workers",
}
"""The protocols by which a lower object holds an upper one, and what satisfies each."""


def python_agents() -> list[Runner]:
    """One of each kind that Python code makes."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        yield "a state"

    @asynccontextmanager
    async def making() -> AsyncIterator[Agent]:
        yield Agent("made", lifespan=opened)

    agent, direct = Agent("python", lifespan=opened), Agent("direct", direct=True)
    auto, made = Agent("auto", direct="auto"), FactoryAgent("made", making)

    @agent.skill
    async def talk(ctx: Context) -> AsyncIterator[str]:
        """Asks, and gives out in pieces."""
        if ctx.text == "ask":
            yield await ctx.ask("What?")
        yield "piece"

    @direct.skill
    def say(ctx: SyncContext) -> str:
        """Answers from a thread."""
        return ctx.text

    @auto.skill
    async def decide(ctx: Context) -> str:
        """Answers with a message, or with a task."""
        if ctx.text == "report":
            await ctx.status("reporting")
        return ctx.text

    return [agent, direct, auto, made]


class Visitor:
    """A caller who uses what a server has."""

    def __init__(self, listening: ListeningServer, http: aiohttp.ClientSession, receiver: Receiver) -> None:
        self._listening = listening
        self._http = http
        self._receiver = receiver
        self._number = 0

    async def send(self, agent: str, text: str = "hi", **more: Any) -> Any:
        """Send a message, and return the answer."""
        self._number += 1
        message = {"messageId": f"m{self._number}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
        async with self._http.post(f"/agents/{agent}/message:send", json={"message": message}, headers=V1) as answer:
            return await answer.json()

    async def visit(self) -> None:
        """Call every binding, and each kind of agent."""
        http, hook = self._http, {"url": f"{self._receiver.url}/hook"}
        for agent in ("python", "direct", "auto", "model", "program", "partner"):
            await self.send(agent)
        await self.send("auto", "report")
        asking = (await self.send("python", "ask"))["task"]
        path = f"/agents/python/tasks/{asking['id']}"
        async with http.post(f"{path}/pushNotificationConfigs", json=hook, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
        await self.send("python", "answer", taskId=asking["id"], contextId=asking["contextId"])
        await self._receiver.came(1)
        message = {"messageId": "s", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        async with http.post("/agents/python/message:stream", json={"message": message}, headers=V1) as answer:
            await answer.read()
        for path in ("/ready", "/metrics", "/openapi.json", "/.well-known/agent-card.json", "/console", "/nothing"):
            async with http.get(path) as answer:
                await answer.read()
        body = {"model": "python", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
        mcp = Client(http)
        await mcp.begin()
        await mcp.ask("tools/list", {})

    async def work(self) -> None:
        """Do a task as a worker does."""
        sending = asyncio.create_task(self.send("far"))
        async with self._http.post("/workers/far/lease", json={"worker": "w", "wait_s": 20}) as answer:
            lease = (await answer.json())["lease"]
        chunk = {"artifactId": "a", "parts": [{"text": "done"}]}
        for action, said in (("artifact", {"artifact": chunk}), ("complete", {})):
            async with self._http.post(f"/workers/far/{action}", json={"lease": lease, **said}) as answer:
                assert answer.status == 200, await answer.text()
        await sending


@asynccontextmanager
async def visited(folder: Path, store: str, servers: int = 1) -> AsyncIterator[list[ListeningServer]]:
    """Servers that have been visited, reloaded, and have a task open."""
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(receiving())
        upstream = await stack.enter_async_context(serving(Config(port=0, store="memory:"), python_agents()))
        (folder / "dragoman.toml").write_text(TABLES.format(upstream=upstream, closed=kept_port()))
        entries = load(folder / "dragoman.toml", {}, {}).agents
        listening: list[ListeningServer] = []
        for _ in range(servers):
            config = Config(
                port=0,
                store=store,
                agents=entries,
                grpc_port=kept_port(),
                push_allowed_hosts=("127.0.0.1",),
                shutdown_grace_s=1.0,
                cancel_grace_s=0.2,
            )
            agents: Sequence[Runner] = [*python_agents(), *load_agents(entries, (), None)]
            again = Loaded(config, [*agents[:1], *load_agents(entries, (), None)])
            listening.append(await stack.enter_async_context(running(config, agents, again=lambda again=again: again)))
        async with asyncio.timeout(DEADLINE_S):
            for one in listening:
                async with aiohttp.ClientSession(one.url) as http:
                    visitor = Visitor(one, http, receiver)
                    await visitor.visit()
                    await visitor.work()
                    await visitor.send("python", "ask")
                    async with connected(one.config.grpc_port) as channel:
                        await GrpcCaller(one.url, one.config.grpc_port, channel).send()
            for one in listening:
                one.reload()
                async with aiohttp.ClientSession(one.url) as http:
                    while (await http.get("/agents/auto/.well-known/agent-card.json")).status == 200:
                        await asyncio.sleep(0.01)
        yield listening


def objects_of(listening: Sequence[ListeningServer]) -> list[object]:
    """All objects of the servers that have no module to themselves."""
    constants = module_constants()
    return [found for found in reachable([*listening, *asyncio.all_tasks()]) if id(found) not in constants]


@pytest.fixture(params=["sqlite", "replicas"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[object]]:
    """The objects of a server on SQLite, or of two replicas with their bus."""
    if request.param == "sqlite":
        store, servers = f"sqlite:///{tmp_path}/tasks.db", 1
    else:
        store, servers = request.getfixturevalue("used_postgres_url"), 2
    async with visited(tmp_path, store, servers) as listening:
        yield objects_of(listening)


async def test_a_lower_object_holds_no_function_of_an_upper_module(served: list[object]) -> None:
    assert len({type(each) for each in served}) > 200, "the walk has reached the whole server"
    found = {held for held in callables_from_above(served, ModuleOrder()) if held.holder not in CALLABLES}
    assert found == set(), "\n".join(map(str, sorted(found)))


async def test_a_lower_object_holds_upper_ones_by_the_protocols_that_are_listed(
    served: list[object],
) -> None:
    named, bare = protocols_from_above(served, ModuleOrder())
    assert bare == set(), "\n".join(map(str, sorted(bare)))
    assert named <= PROTOCOLS.keys()


def test_each_protocol_that_is_listed_is_there() -> None:
    declared = {
        name
        for file in (ROOT / "src" / "dragoman").rglob("*.py")
        for name in re.findall(r"^class (\w+)\(Protocol", file.read_text(), re.MULTILINE)
    }
    assert PROTOCOLS.keys() <= declared


SET_BY_OTHERS = {
    "bindings.request.Request": "it is the record of one request, filled in by each step of its way; methods would cost"
    " seven calls more for a send",
    "bindings.http.HttpRequest": "as Request",
    "telemetry.histogram.Histogram": "`RequestCounts` adds to it without a call, for every request",
}
"""The classes whose objects others may set attributes of, and why."""

BUILDERS = {"dragoman.agents.table.describe_anew"}
"""Functions that set attributes of an object that they make, before anybody else has it."""


async def test_attributes_are_set_by_the_methods_of_their_objects_alone(tmp_path: Path) -> None:
    found: set[SetFromOutside] = set()
    with watched_sets(found):
        async with visited(tmp_path, f"sqlite:///{tmp_path}/tasks.db"):
            pass
    assert {each.holder for each in found} >= {"bindings.http.HttpRequest"}, "sets are seen"
    found = {each for each in found if each.holder not in SET_BY_OTHERS and each.by not in BUILDERS}
    assert found == set(), "\n".join(map(str, sorted(found)))
