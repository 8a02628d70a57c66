"""Real nginx, HAProxy and Caddy before one server and before three replicas, as deploy/proxies configures them."""

import asyncio
import base64
import io
import json
import resource
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from msgspec.structs import replace
from yarl import URL

from dragoman import Agent, Context
from dragoman.auth.operator_token import read_token
from dragoman.bindings.routes import SERVER
from dragoman.client import ArtifactUpdate, ClientTls, connect
from dragoman.config import Config
from dragoman.model.task import TERMINAL, Task
from dragoman.server import serving
from tests.certificates import Authority
from tests.grpc_callers import V1, message
from tests.ports import kept_port
from tests.postgres import PostgresServer
from tests.proxies.fronts import PROXIES, UNPACKED, Front, make_place

pytestmark = [
    pytest.mark.slow,
    pytest.mark.proxy,
    pytest.mark.skipif(not (UNPACKED / ".ready").exists(), reason="no proxies unpacked: run make test-proxies"),
]

DEADLINE_S = 120.0
STEPS = 4
STREAMS = 1000
HEADERS = {"A2A-Version": "1.0"}
SSE = "text/event-stream"


class Gates:
    """Lets agents go on step by step, by the text of their message."""

    def __init__(self) -> None:
        self._gates: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))

    async def stand(self, name: str) -> None:
        """Wait for a step."""
        await self._gates[name].acquire()

    def open(self, name: str, steps: int = 1) -> None:
        """Allow so many steps."""
        for _ in range(steps):
            self._gates[name].release()


def make_agents(gates: Gates) -> list[Agent]:
    walk, measure = Agent("walk"), Agent("measure", restartable=True)

    @walk.skill
    async def go(ctx: Context) -> AsyncIterator[str]:
        """Say a number at each gate."""
        for step in range(STEPS):
            await gates.stand(ctx.text)
            yield f"{step};"

    @measure.skill
    async def weigh(ctx: Context) -> str:
        """Tell the size of the file."""
        return str(sum(len(part.raw or b"") for part in ctx.parts))

    return [walk, measure]


class Site:
    """A proxy, and the servers behind it."""

    def __init__(self, front: Front, gates: Gates, access: Path, config: Config, stops: list[AsyncExitStack]) -> None:
        self.front = front
        self.gates = gates
        self.access = access
        self.config = config
        self.stops = stops
        """Closing one of these stops its server."""
        self._names = 0

    @property
    def url(self) -> str:
        return self.front.url

    def gate(self) -> str:
        """A name that no other test has."""
        self._names += 1
        return f"gate {self._names}"

    @asynccontextmanager
    async def client(self, **connector: Any) -> AsyncIterator[aiohttp.ClientSession]:
        """A client over HTTP/1.1 that trusts the proxy's certificate."""
        tcp = aiohttp.TCPConnector(ssl=self.front.context, limit=0, **connector)
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        async with aiohttp.ClientSession(self.url, connector=tcp, headers=HEADERS, timeout=timeout) as http:
            yield http

    @asynccontextmanager
    async def stub(self, host: str = "localhost") -> AsyncIterator[Any]:
        """The official stub, over TLS through the proxy at an address of this machine."""
        trusted = grpc.ssl_channel_credentials(self.front.authority.read_bytes())
        names = [
            ("grpc.default_authority", f"localhost:{self.front.place.port}"),
            ("grpc.ssl_target_name_override", "localhost"),
        ]
        async with grpc.aio.secure_channel(f"{host}:{self.front.place.port}", trusted, options=names) as channel:
            yield A2AServiceStub(channel)  # type: ignore[no-untyped-call]

    async def line(self, **wanted: Any) -> dict[str, Any]:
        """The line of the access log that has these values, once it is written."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for line in map(json.loads, self.access.read_text().splitlines()):
                    if wanted.items() <= line.items():
                        return dict(line)
                await asyncio.sleep(0.02)

    async def comes(self, path: str, status: int) -> None:
        """Wait until the path is answered with the status."""
        async with asyncio.timeout(DEADLINE_S):
            while not await asyncio.to_thread(self.front.answers, path, status):
                await asyncio.sleep(0.05)


@pytest.fixture(
    scope="module",
    params=list(product(PROXIES, (1, 3))),
    ids=lambda param: f"{param[0].name}-{'one' if param[1] == 1 else 'three'}",
)
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    proxy, servers = request.param
    folder = tmp_path_factory.mktemp(proxy.name)
    _allow_files()
    gates, access, stops = Gates(), folder / "access.log", []
    http, grpc_ports = [kept_port() for _ in range(servers)], [kept_port() for _ in range(servers)]
    front = Front(proxy, make_place(folder / "front", http, grpc_ports), Authority(folder))
    config = Config(
        store=f"sqlite:///{folder}/dragoman.db",
        public_url=front.url,
        grpc_public_url=f"localhost:{front.place.port}",
        trusted_proxies=("127.0.0.1/32",),
        access_log="json",
        access_log_file=str(access),
        shutdown_grace_s=3,
    )
    async with AsyncExitStack() as stack:
        if servers > 1:
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            config = replace(config, store=stack.enter_context(postgres.database()))
        for port, grpc_port in zip(http, grpc_ports, strict=True):
            its = await stack.enter_async_context(AsyncExitStack())
            await its.enter_async_context(serving(replace(config, port=port, grpc_port=grpc_port), make_agents(gates)))
            stops.append(its)
        stack.callback(front.kill)
        site = Site(front, gates, access, config, stops)
        front.start()
        await site.comes("/health", 200)
        yield site


def _allow_files() -> None:
    """A thousand streams are two thousand files of this process, which is client and server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 16_384:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (16_384 if hard == resource.RLIM_INFINITY else min(16_384, hard), hard)
        )


def said(text: str) -> dict[str, Any]:
    return {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}


def chunk_of(data: str) -> str:
    """The text that an event of a stream brings."""
    update = json.loads(data).get("artifactUpdate", {})
    return "".join(part.get("text", "") for part in update.get("artifact", {}).get("parts", ()))


async def walk_on(site: Site, gate: str, lines: AsyncIterator[bytes]) -> list[str]:
    """Open the gate for one step at a time: the next only when the last one has arrived."""
    chunks: list[str] = []
    site.gates.open(gate)
    async for line in lines:
        if line.startswith(b"data:") and (chunk := chunk_of(line[5:].decode())):
            chunks.append(chunk)
            site.gates.open(gate)
    return chunks


ALL_STEPS = [f"{step};" for step in range(STEPS)]


async def test_events_arrive_one_by_one(site: Site) -> None:
    gate = site.gate()
    async with (
        asyncio.timeout(DEADLINE_S),
        site.client() as http,
        http.post("/agents/walk/message:stream", json={"message": said(gate)}) as answer,
    ):
        assert answer.headers["content-type"].startswith(SSE)
        assert await walk_on(site, gate, answer.content) == ALL_STEPS


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here, and no other client of HTTP/2")
async def test_events_arrive_one_by_one_over_http2(site: Site) -> None:
    gate = site.gate()
    headers = [*("-H", "A2A-Version: 1.0"), *("-H", "Content-Type: application/json")]
    shown = ["-w", "%{stderr}HTTP/%{http_version}", "--cacert", str(site.front.authority)]
    body = json.dumps({"message": said(gate)})
    url = f"{site.url}/agents/walk/message:stream"
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "--http2", *headers, *shown, "-d", body, url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert curl.stdout is not None
    assert curl.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await walk_on(site, gate, curl.stdout) == ALL_STEPS
        assert await curl.stderr.read() == b"HTTP/2"
        assert await curl.wait() == 0


async def test_grpc_calls_and_streams(site: Site) -> None:
    gate = site.gate()
    async with asyncio.timeout(DEADLINE_S), site.stub() as stub:
        answer = await stub.SendMessage(message("x", tenant="measure"), metadata=V1)
        assert answer.task.artifacts[0].parts[0].text == "0"
        chunks: list[str] = []
        site.gates.open(gate)
        async for item in stub.SendStreamingMessage(message(gate, tenant="walk"), metadata=V1):
            if item.HasField("artifact_update"):
                if text := "".join(part.text for part in item.artifact_update.artifact.parts):
                    chunks.append(text)
                site.gates.open(gate)
    assert chunks == ALL_STEPS


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_the_card_leads_through_the_proxy(site: Site, binding: str) -> None:
    tls = ClientTls(ca_file=str(site.front.authority))
    async with asyncio.timeout(DEADLINE_S), connect(f"{site.url}/agents/measure/", tls=tls, binding=binding) as agent:
        assert URL(agent.interface.url).port == site.front.place.port
        assert (await agent.send("x")).artifacts[0].parts[0].text == "0"  # type: ignore[union-attr]


@pytest.mark.parametrize("binding", ["JSONRPC", "GRPC"])
async def test_a_stream_resumes_after_a_cut_of_the_proxy(site: Site, binding: str) -> None:
    gate, chunks = site.gate(), []
    tls = ClientTls(ca_file=str(site.front.authority))
    async with asyncio.timeout(DEADLINE_S), connect(f"{site.url}/agents/walk/", tls=tls, binding=binding) as agent:
        site.gates.open(gate)
        async for update in agent.stream(gate):
            if not isinstance(update, ArtifactUpdate):
                continue
            chunks.append("".join(part.text or "" for part in update.artifact.parts))
            if len(chunks) == 2:
                await asyncio.to_thread(site.front.kill)
                site.front.start()
            site.gates.open(gate)
    assert [chunk for chunk in chunks if chunk] == ALL_STEPS


async def test_the_access_log_has_the_address_of_the_client(site: Site) -> None:
    async with asyncio.timeout(DEADLINE_S), site.client(local_addr=("127.0.0.2", 0), family=2) as http:
        body = {"message": said("who"), "tenant": "measure"}
        async with http.post("/message:send", json=body, headers={"X-Forwarded-For": "192.0.2.1"}) as answer:
            task = (await answer.json())["task"]["id"]
    assert (await site.line(task=task))["remote"] == "127.0.0.2"


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here to tell the client from the proxy")
async def test_the_access_log_has_the_address_of_the_client_over_grpc(site: Site) -> None:
    async with asyncio.timeout(DEADLINE_S), site.stub("[::1]") as stub:
        answer = await stub.SendMessage(message("x", tenant="measure"), metadata=V1)
    assert (await site.line(task=answer.task.id))["remote"] == "::1"


async def test_a_body_may_be_as_large_as_the_servers_limit(site: Site) -> None:
    limit = site.config.max_body_bytes
    size = limit // 4 * 3 - 3072
    part = {"raw": base64.b64encode(bytes(size)).decode(), "mediaType": "application/octet-stream", "filename": "x"}
    headers = {"Content-Type": "application/json"}
    async with asyncio.timeout(DEADLINE_S), site.client() as http:
        for extra, status in ((0, 200), (1, 413)):
            whole = {"message": {**said(f"large {extra}"), "parts": [part]}}
            body = json.dumps(whole).encode().ljust(limit + extra)
            async with http.post("/agents/measure/message:send", data=io.BytesIO(body), headers=headers) as answer:
                assert answer.status == status
                if status == 200:
                    (artifact,) = (await answer.json())["task"]["artifacts"]
                    assert artifact["parts"][0]["text"] == str(size)


async def test_a_thousand_streams(site: Site) -> None:
    gate, begun, all_begun = site.gate(), 0, asyncio.Event()

    async def follow(http: aiohttp.ClientSession, number: int) -> list[str]:
        nonlocal begun
        chunks: list[str] = []
        body = {"message": {**said(gate), "messageId": f"{gate} {number}"}}
        async with http.post("/agents/walk/message:stream", json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                if not line.startswith(b"data:"):
                    continue
                if not chunks:  # the task, or that it is worked on
                    begun += 1
                    chunks.append("")
                    if begun == STREAMS:
                        all_begun.set()
                if chunk := chunk_of(line[5:].decode()):
                    chunks.append(chunk)
        return chunks[1:]

    async with asyncio.timeout(DEADLINE_S), site.client() as http, asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(follow(http, number)) for number in range(STREAMS)]
        await all_begun.wait()
        site.gates.open(gate, STREAMS * STEPS)
    assert [each.result() for each in following] == [ALL_STEPS] * STREAMS


async def test_a_reload_of_the_proxy_cuts_no_stream(site: Site) -> None:
    gate, chunks = site.gate(), []
    async with (
        asyncio.timeout(DEADLINE_S),
        site.client() as http,
        http.post("/agents/walk/message:stream", json={"message": said(gate)}) as answer,
    ):
        site.gates.open(gate)
        async for line in answer.content:
            if line.startswith(b"data:") and (chunk := chunk_of(line[5:].decode())):
                chunks.append(chunk)
                if len(chunks) == 2:
                    await asyncio.to_thread(site.front.reload)
                    await site.comes("/ready", 403)
                    async with site.client() as another, another.get("/health") as health:
                        assert health.status == 200
                site.gates.open(gate)
    assert chunks == ALL_STEPS


async def test_operators_paths_are_closed_and_the_console_works(site: Site) -> None:
    async with asyncio.timeout(DEADLINE_S), site.client() as http:
        for path in ("/ready", "/metrics"):
            assert (path.strip("/"),) in SERVER
            async with http.get(path) as answer:
                assert answer.status in (403, 404)  # 403 after the reload
        async with http.get("/console") as answer:
            assert answer.status == 200
            assert "content-security-policy" in answer.headers
        token = read_token(site.config.store, 0)
        if token is not None:
            origin = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
            async with http.post("/console/session", json={"secret": token}, headers=origin) as answer:
                assert answer.status == 200
                assert answer.headers["set-cookie"].startswith("__Host-dragoman-console")
        plain = URL(f"http://localhost:{site.front.place.plain_port}/agents?limit=1")
        async with http.get(plain, allow_redirects=False) as answer:
            assert answer.status == 308
            assert answer.headers["location"].startswith("https://localhost")
            assert answer.headers["location"].endswith("/agents?limit=1")


async def test_new_requests_pass_by_a_server_that_takes_its_time_to_stop(site: Site) -> None:
    """Even those of clients that repeat nothing. One of three servers is gone after this."""
    if len(site.stops) == 1:
        pytest.skip("a single server has no other one")
    if site.front.proxy.name == "caddy":
        pytest.skip("Caddy before 2.11.3 sends a POST to no other server: its issue 7546")
    gate, stopped = site.gate(), site.stops.pop()
    place = site.front.place

    async def send(http: aiohttp.ClientSession, text: str) -> int:
        async with http.post("/agents/measure/message:send", json={"message": said(text)}) as answer:
            await answer.read()
            return answer.status

    async def refuses() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", place.http[-1])
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it waited to be accepted when the server closed its port
            return False
        writer.close()
        return False

    last = f"http://127.0.0.1:{place.http[-1]}"
    async with (
        asyncio.timeout(DEADLINE_S),
        site.client() as http,
        aiohttp.ClientSession(last, headers=HEADERS) as direct,
    ):
        body = {"message": said(gate), "configuration": {"returnImmediately": True}}
        async with direct.post("/agents/walk/message:send", json=body) as answer:
            assert answer.status == 200  # this run keeps the server busy until its time is over
        stopping = asyncio.create_task(stopped.aclose())
        while not await refuses():
            await asyncio.sleep(0.01)
        while await send(http, f"{gate} until") != 200:  # the proxy may have chosen it just before
            pass
        statuses: list[int] = []
        while len(statuses) < 30 and not stopping.done():  # a busy machine sends fewer in that time
            statuses.append(await send(http, f"{gate} {len(statuses)}"))
        await stopping
    assert set(statuses) == {200}, site.front.log[-3000:]


async def test_a_server_that_stops_fails_no_request(site: Site) -> None:
    """Clients that repeat what was refused see no failure. The last test: another server is gone after it."""
    if len(site.front.place.http) == 1:
        pytest.skip("a single server has no other one")
    tls = ClientTls(ca_file=str(site.front.authority))
    async with asyncio.timeout(DEADLINE_S), connect(f"{site.url}/agents/measure/", tls=tls) as agent:

        async def measure() -> str:
            """Send, and ask again for a task that the server has left to another one in the middle."""
            task = await agent.send("x")
            assert isinstance(task, Task)
            while (ended := await agent.get(task.id)).status.state not in TERMINAL:
                await asyncio.sleep(0.05)
            return str(ended.artifacts[0].parts[0].text)

        sizes = await asyncio.gather(*(measure() for _ in range(5)))
        stopping = asyncio.create_task(site.stops.pop().aclose())
        while not stopping.done() or len(sizes) < 100:
            sizes += await asyncio.gather(*(measure() for _ in range(5)))
        await stopping
    assert set(sizes) == {"0"}
