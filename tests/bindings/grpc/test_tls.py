"""gRPC with TLS: the settings of the HTTP side, for both ports at once."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from msgspec.structs import replace

from dragoman import Agent, Context, Part
from dragoman.client import connect
from dragoman.client.errors import NotReached
from dragoman.engine.api import Runner
from dragoman.model.task import Task
from dragoman.net.tls import ClientTls
from dragoman.server import ListeningServer, running
from dragoman.server import tls as server_tls
from dragoman.testing.agents import echo
from tests.certificates import Authority, Issued
from tests.grpc_callers import CONFIG, DEADLINE_S, GrpcCaller, drain, kinds
from tests.ports import kept_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def served(issued: Issued, *agents: Runner, **settings: object) -> AsyncIterator[ListeningServer]:
    tls = {"tls_cert": str(issued.cert), "tls_key": str(issued.key)}
    config = replace(CONFIG, grpc_port=kept_port(), **tls, **settings)  # type: ignore[arg-type]
    async with running(config, agents or [echo]) as server:
        yield server


@asynccontextmanager
async def calling(
    server: ListeningServer, authority: Authority | None, shown: Issued | None = None
) -> AsyncIterator[GrpcCaller]:
    """The stub of the official code on a connection of its own; without an `authority` it has no TLS."""
    port, options = server.config.grpc_port, (("grpc.use_local_subchannel_pool", 1),)
    place = f"localhost:{port}"
    if authority is None:
        channel = grpc.aio.insecure_channel(place, options=options)
    else:
        key, chain = (None, None) if shown is None else (shown.key.read_bytes(), shown.cert.read_bytes())
        trusted = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, chain)
        channel = grpc.aio.secure_channel(place, trusted, options=options)
    async with channel:
        yield GrpcCaller(server.url, port, channel)


async def refused(server: ListeningServer, authority: Authority | None, shown: Issued | None = None) -> None:
    async with calling(server, authority, shown) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.send()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def serial(server: ListeningServer, authority: Authority) -> int:
    """The number of the certificate that new connections get."""
    context = authority.client_context()
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", server.config.grpc_port, ssl=context)
    agreed: ssl.SSLObject = writer.get_extra_info("ssl_object")
    assert agreed.version() in ("TLSv1.2", "TLSv1.3")
    found = int(writer.get_extra_info("peercert")["serialNumber"], 16)
    writer.transport.abort()
    return found


async def test_the_official_stub_calls_it_and_nobody_without_tls(authority: Authority) -> None:
    async with served(authority.issue()) as server:
        async with calling(server, authority) as caller:
            assert (await caller.send("hello")).artifacts[0].parts[0].text == "hello"
        await refused(server, None)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_our_client_finds_it_by_the_card(authority: Authority, version: str) -> None:
    """A bare address in a card that came over HTTPS is called over TLS."""
    tls = ClientTls(ca_file=str(authority.path))
    async with (
        served(authority.issue()) as server,
        connect(server.url, version=version, binding="GRPC", tls=tls) as agent,
    ):
        assert agent.interface.url == f"grpcs://127.0.0.1:{server.config.grpc_port}"
        answer = await agent.send("hello")
        assert isinstance(answer, Task)
        assert answer.artifacts[0].parts[0].text == "hello"


async def test_links_name_the_http_side_with_its_scheme(tmp_path: Path, authority: Authority) -> None:
    files = Agent("filer")

    @files.skill
    async def give(ctx: Context) -> Part:
        """Give a file."""
        return Part(raw=bytes(100), filename="a.bin")

    kept = {"files": f"folder:{tmp_path / 'files'}", "files_above": 10}
    async with served(authority.issue(), files, **kept) as server, calling(server, authority) as caller:
        url = (await caller.send()).artifacts[0].parts[0].url
        assert url.startswith(f"{server.url}/files/")
        assert url.startswith("https://")


async def test_only_clients_with_a_certificate_are_served(tmp_path: Path, authority: Authority) -> None:
    clients = Authority(tmp_path, "clients")
    async with served(authority.issue(), tls_client_ca=str(clients.path)) as server:
        async with calling(server, authority, clients.issue("client")) as caller:
            assert (await caller.send()).id
        await refused(server, authority)
        await refused(server, authority, authority.issue("stranger"))
        address, without = f"grpcs://127.0.0.1:{server.config.grpc_port}", ClientTls(ca_file=str(authority.path))
        with pytest.raises(NotReached, match="only clients with a certificate"):
            async with connect(address, dialect="1.0", tls=without) as agent:
                await agent.send("hello")


async def test_a_renewed_certificate_is_taken_and_open_streams_go_on(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tls, "LOOK_S", 0.01)
    clients, gate = Authority(tmp_path, "clients"), asyncio.Event()
    waits = Agent("waits")

    @waits.skill
    async def wait(ctx: Context) -> AsyncIterator[str]:
        """Give out two chunks."""
        yield "one"
        await gate.wait()
        yield "two"

    issued, client = authority.issue(), clients.issue("client")
    async with (
        asyncio.timeout(DEADLINE_S),
        served(issued, waits, tls_client_ca=str(clients.path)) as server,
        calling(server, authority, client) as caller,
    ):
        stream = caller.stream()
        assert kinds([await stream.read()]) == ["task"]
        assert await serial(server, authority) == issued.serial
        issued.cert.write_text("broken")
        renewed = authority.issue(rsa_bits=2048)
        others = Authority(tmp_path, "clients")  # the file has another authority now
        while await serial(server, authority) != renewed.serial:
            await asyncio.sleep(0.01)
        gate.set()
        assert "two" in "".join(kinds(await drain(stream)))
        async with calling(server, authority, others.issue("other")) as known:
            while True:
                try:
                    assert (await known.send()).id
                    break
                except grpc.aio.AioRpcError as error:  # C-core tries again by itself
                    assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
        await refused(server, authority, client)
