"""The bindings on a real listener, before a handler that the test scripts."""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec import Struct

from dragoman.auth.authenticator import Authenticator
from dragoman.bindings.app import App
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import Backend, Reception
from dragoman.bindings.cards import Cards, CardSettings
from dragoman.bindings.cors import Cors, Origins
from dragoman.bindings.home import Home
from dragoman.bindings.http1.bounds import ConnectionBounds, ConnectionCounter
from dragoman.bindings.http1.connection import ReaderCut, ignore_cut
from dragoman.bindings.limits import Limits, make_limits
from dragoman.bindings.listener import Listener, bound_socket
from dragoman.bindings.monitoring import Health
from dragoman.bindings.openapi import Description
from dragoman.bindings.openapi.operations import ServedPaths
from dragoman.bindings.streams import Streams
from dragoman.dialects.resolve import MOUNTS
from dragoman.engine.handler import StreamItem, Waker
from dragoman.model.card import AgentExtension, AgentSkill, Profile
from dragoman.model.errors import Unavailable
from dragoman.model.events import ArtifactChunk, Event, Logged
from dragoman.model.ids import SystemClock
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import Call, Result
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.server.tls import TlsFiles, TlsIdentity, read_identity, utc_now
from dragoman.store.outage import WriteRecord
from tests.certificates import Authority, Issued

DEADLINE_S = 60.0
NOW = "2026-11-20T07:00:00.000Z"
EXTENSION = "https://example.org/ext/v1"
REQUIRED = "https://example.org/required/v1"
V1 = {"A2A-Version": "1.0"}

HEAD = TaskHead(id="t1", context_id="c1", agent="echo", owner="anonymous", dialect="1.0", mount="/", created_at=NOW)
RECORD = Record(head=HEAD, seq=1, status=TaskStatus(state=TaskState.WORKING, timestamp=NOW))


def profile(agent_id: str, **said: Any) -> Profile:
    skill = AgentSkill(id="s", name="S", description="Does it", tags=("t",))
    return Profile(id=agent_id, name=agent_id.title(), description="An agent", version="1", skills=(skill,), **said)


class ListedAgent(Struct, frozen=True):
    """An agent of which only the description matters."""

    profile: Profile


AGENTS = {
    "echo": ListedAgent(profile("echo", extensions=(AgentExtension(uri=EXTENSION),))),
    "other": ListedAgent(profile("other")),
    "strict": ListedAgent(profile("strict", extensions=(AgentExtension(uri=REQUIRED, required=True),))),
}


def chunk(seq: int, text: str = "x") -> Logged:
    event: Event = ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text=text),)), append=seq > 1)
    return Logged(seq, event)


class ScriptedStream:
    """A stream whose batches the test puts in; None ends it."""

    def __init__(self, *batches: Sequence[StreamItem] | None) -> None:
        self.head: TaskHead | None = HEAD
        self.base: Record | None = None
        self.retry = False
        self.closed = asyncio.Event()
        self.asked = 0
        self._batches = deque(batches)
        self._more = asyncio.Event()

    def put(self, batch: Sequence[StreamItem] | None) -> None:
        self._batches.append(batch)
        self._more.set()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        self.asked += 1
        while not self._batches and not self.closed.is_set():
            self._more.clear()
            await self._more.wait()
        return None if self.closed.is_set() else self._batches.popleft()

    def close(self) -> None:
        self.closed.set()
        self._more.set()

    def park(self, waker: Waker) -> bool:
        return False

    async def deleted(self) -> bool:
        return False


class ScriptedHandler:
    """Answers what the test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Callable[[Call], Result] = lambda call: RECORD
        self.streams: Callable[[Call], ScriptedStream] = lambda call: ScriptedStream([chunk(1)], None)

    async def call(self, call: Call) -> Result:
        self.calls.append(call)
        return self.answer(call)

    async def stream(self, call: Call) -> ScriptedStream:
        self.calls.append(call)
        return self.streams(call)

    async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        return None

    async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        return None


class ScriptedStore:
    """As much of a store as `/ready` asks for."""

    def __init__(self) -> None:
        self.writing = WriteRecord("", SystemClock())
        self.probes = 0
        self.fault: Exception | None = None

    async def probe(self) -> None:
        self.probes += 1
        if self.fault is not None:
            raise self.fault


def identity(issued: Issued, client_ca: Authority | None = None) -> TlsIdentity:
    """The settings of a server with this certificate."""
    asks = None if client_ca is None else str(client_ca.path)
    return read_identity(TlsFiles(str(issued.cert), str(issued.key), asks), utc_now())


class Site(Struct):
    """The bindings, listening."""

    url: str
    port: int
    handler: ScriptedHandler
    store: ScriptedStore
    http: aiohttp.ClientSession
    unready: list[str]
    connections: Collection[object]
    listener: Listener
    context: ssl.SSLContext | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection, with TLS if the site has it."""
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)

    async def raw(self, request: bytes, *, until_closed: bool = True) -> bytes:
        """Send bytes as they are; all that comes back until the server closes, or the first answer's head."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await self.connect()
            try:
                writer.write(request)
                return await reader.read() if until_closed else await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def rpc(self, method: str, params: Any, path: str = "/", **headers: str) -> Any:
        """The decoded answer of a JSON-RPC call."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.post(path, json=body, headers={**V1, **headers}) as answer:
            return await answer.json()


def message(text: str = "hi") -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}


def answer_message(text: str) -> Message:
    return Message(message_id="m2", role=Role.AGENT, parts=(Part(text=text),))


def make_app(
    handler: ScriptedHandler,
    store: ScriptedStore,
    origins: Sequence[str] = (),
    bounds: Limits | None = None,
    public_url: str | None = None,
    unready: Sequence[str] = (),
    elsewhere: Collection[str] = (),
) -> App:
    async def check_elsewhere(agent: str) -> None:
        if agent in elsewhere:
            raise Unavailable("it is served by other replicas", 1)

    nobody = Authenticator(None, SystemClock(), agent_keys={})
    callers = Callers(nobody, origins=Origins(origins, public_url))
    reception = Reception(AGENTS, callers, bounds or make_limits(100_000, 64, 10))
    cards = Cards(AGENTS, CardSettings(public_url=public_url, max_age_s=60), nobody)
    return App(
        Backend(handler, reception, cards, Streams(), "echo", check_elsewhere),
        Health(store, SystemClock(), lambda: unready[0] if unready else None),
        Home(AGENTS, "echo", MOUNTS, public_url, console=False),
        cors=Cors(origins) if origins else None,
        optional=Description(ServedPaths("echo", metrics=False, keys=False)).endpoints,
    )


@asynccontextmanager
async def site(
    *,
    origins: Sequence[str] = (),
    max_body_bytes: int = 100_000,
    body_pause_s: float = 30.0,
    public_url: str | None = None,
    keep_alive_s: float = 75,
    reader_pause_s: float = 60,
    reader_cut: ReaderCut = ignore_cut,
    send_buffer_bytes: int | None = None,
    elsewhere: Collection[str] = (),
    authority: Authority | None = None,
    connections: ConnectionBounds | None = None,
) -> AsyncIterator[Site]:
    """`send_buffer_bytes` is as much of an answer as the system takes for a reader that takes nothing.

    With an `authority` it has TLS, with a certificate of that.
    """
    handler, store, unready = ScriptedHandler(), ScriptedStore(), list[str]()
    bounds = make_limits(max_body_bytes, 64, 10, body_pause_s=body_pause_s)
    app = make_app(handler, store, origins, bounds, public_url, unready, elsewhere)
    tls = None if authority is None else identity(authority.issue())
    context = tls and tls.context
    listener = Listener(
        app,
        reader_pause_s=reader_pause_s,
        keep_alive_s=keep_alive_s,
        tls=context,
        reader_cut=reader_cut,
        counter=connections and ConnectionCounter(connections),
    )
    bound = bound_socket("127.0.0.1", 0)
    if send_buffer_bytes is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    port = bound.getsockname()[1]
    client = None if authority is None else authority.client_context()
    url = f"{'http' if client is None else 'https'}://127.0.0.1:{port}"
    await listener.open(bound)
    try:
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        connector = aiohttp.TCPConnector(ssl=True if client is None else client)
        async with aiohttp.ClientSession(url, timeout=timeout, auto_decompress=False, connector=connector) as http:
            yield Site(url, port, handler, store, http, unready, listener.connections, listener, client)
    finally:
        await listener.close(within_s=1)


@pytest.fixture(scope="module")
async def standing() -> AsyncIterator[Site]:
    async with site() as running:
        yield running


@pytest.fixture
def served(standing: Site) -> Site:
    """The site of this module, with a handler and a store that know nothing yet."""
    vars(standing.handler).update(vars(ScriptedHandler()))
    vars(standing.store).update(vars(ScriptedStore()))
    standing.unready.clear()
    return standing
