"""A server with all mounts open, over HTTP, and what a client written from one of the texts needs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest
from msgspec import Struct
from msgspec.structs import replace

from dragoman.config import Config
from dragoman.dialects.sse import Parser
from dragoman.server import serving
from tests.ports import kept_port
from tests.shared_store import shared_store
from tests.spec.agents import Gates
from tests.systems.agents import house

DEADLINE_S = 60.0
Json = dict[str, Any]

HOOK = "https://127.0.0.1:9/hook"
"""A webhook that may be registered, at a port where nobody listens (RFC 863)."""

CONFIG = Config(
    port=0,
    store="memory:",
    shutdown_grace_s=0.1,
    cancel_grace_s=0.3,
    keepalive_s=0.5,
    push_allowed_hosts=("127.0.0.1",),
)


class Told(Struct, frozen=True):
    """An answer; `body` has its keys in the order in which they came."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The JSON of it."""
        return json.loads(self.raw)

    @property
    def result(self) -> Any:
        """The result; there must be one."""
        assert self.status == 200, self
        assert "result" in self.body, self.body
        return self.body["result"]

    @property
    def error(self) -> Any:
        """The error; there must be one."""
        assert "error" in self.body, self.body
        return self.body["error"]


class Frame(Struct, frozen=True):
    """An event of a stream: its id and its JSON."""

    id: str
    text: str

    @property
    def body(self) -> Any:
        """The JSON of it."""
        return json.loads(self.text)


class Flow(Struct):
    """An open stream."""

    answer: aiohttp.ClientResponse
    parser: Parser
    ready: list[Frame]

    async def next(self) -> Frame | None:
        """The next event; None at the end."""
        assert self.answer.content_type == "text/event-stream", await self.answer.text()
        while not self.ready:
            piece = await self.answer.content.readany()
            if not piece:
                return None
            self.ready.extend(Frame(event.id, event.data) for event in self.parser.feed(piece))
        return self.ready.pop(0)

    async def rest(self) -> list[Frame]:
        """All that comes until the end."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames


class Site(Struct, frozen=True):
    """The server of a module. `always` are headers of every request, `grpc` is where it speaks gRPC."""

    url: str
    http: aiohttp.ClientSession
    gates: Gates
    grpc: str = ""
    always: Mapping[str, str] = MappingProxyType({})

    def by(self, key: str) -> "Site":
        """The same, for who has this key."""
        return replace(self, always={"x-api-key": key})

    async def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> Told:
        """One request and its answer; `a2a_version` is the header `a2a-version`."""
        async with self.flow(path, body, verb=verb, **headers) as flow:
            return Told(flow.answer.status, flow.answer.headers, await flow.answer.read())

    async def post(self, path: str, body: Any, **headers: str) -> Told:
        """A JSON-RPC call, as written."""
        return await self.ask("POST", path, body, **headers)

    async def rpc(self, path: str, method: str, params: Any, **headers: str) -> Told:
        """A JSON-RPC call."""
        return await self.post(path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **headers)

    @asynccontextmanager
    async def flow(self, path: str, body: Any, *, verb: str = "POST", **headers: str) -> AsyncIterator[Flow]:
        """A request whose answer is read as it comes."""
        sent = {**self.always, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            sent = {"content-type": "application/json", **sent}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self.http.request(verb, self.url + path, data=data, headers=sent) as answer:
            yield Flow(answer, Parser(), [])

    async def stream(self, path: str, body: Any, *, verb: str = "POST", **headers: str) -> list[Frame]:
        """All frames of a stream."""
        async with self.flow(path, body, verb=verb, **headers) as flow:
            return await flow.rest()

    async def begun(self, name: str, task_id: str, agent: str = "desk") -> None:
        """The agent stands at the gate of that name, and what it said before is written."""
        async with asyncio.timeout(DEADLINE_S):
            await self.gates.reached[name].wait()
            path = f"/agents/{agent}/tasks/{task_id}:subscribe"
            async with self.flow(path, None, verb="GET", a2a_version="1.0") as flow:
                while (frame := await flow.next()) is not None:
                    if "waiting" in frame.text or "first " in frame.text:
                        return

    def open(self, name: str) -> None:
        """Let it go on."""
        self.gates.open[name].set()


@asynccontextmanager
async def site(**changes: Any) -> AsyncIterator[Site]:
    """A server with these settings."""
    gates, grpc_port = Gates(), kept_port()
    async with serving(replace(CONFIG, grpc_port=grpc_port, **changes), house(gates)) as url:
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
            yield Site(url, http, gates, f"127.0.0.1:{grpc_port}")


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Site]:
    """The default agent is `desk`."""
    async with site() as running:
        yield running


@pytest.fixture(params=["memory", "postgres"])
async def shared_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a store that all servers share."""
    if request.param == "postgres":
        yield request.getfixturevalue("used_postgres_url")
    else:
        async with shared_store(monkeypatch):
            yield "memory:"
