"""TLS between the socket and HTTP: any bytes, slow and silent clients, renewal, and a close that waits for nobody."""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from dragoman.bindings import tls
from dragoman.model.message import Artifact, Part
from tests.bindings.conftest import DEADLINE_S, RECORD, Site, identity, message, site
from tests.certificates import Authority

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
Run = Callable[[Coroutine[Any, Any, None]], None]

both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def secure(authority: Authority) -> AsyncIterator[Site]:
    async with site(authority=authority) as running:
        yield running


def post(body: bytes, headers: bytes = b"") -> bytes:
    head = b"POST /message:send HTTP/1.1\r\nHost: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
    return head + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def plain(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def asked(running: Site, sent: bytes, pieces: int = 1 << 16) -> bytes:
    """Send bytes, and read to the end, in a thread: uvloop (0.23) loses the end of what it reads before a farewell."""

    def ask() -> bytes:
        assert running.context is not None
        with (
            socket.create_connection(("127.0.0.1", running.port), DEADLINE_S) as raw,
            running.context.wrap_socket(raw, server_hostname="localhost") as client,
        ):
            client.sendall(sent)
            answer = bytearray()
            while piece := client.recv(pieces):
                answer += piece
            return bytes(answer)

    return await asyncio.to_thread(ask)


async def test_what_is_agreed_on(secure: Site) -> None:
    assert secure.context is not None
    secure.context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await secure.connect()
    agreed: ssl.SSLObject = writer.get_extra_info("ssl_object")
    assert (agreed.version(), agreed.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
    writer.write(GET)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    async with secure.http.get("/.well-known/agent-card.json") as card:
        text = await card.text()
        assert f"{secure.url}/" in text
        assert "http://127.0.0.1" not in text
        assert "strict-transport-security" not in card.headers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1])
async def test_versions_before_1_2_are_refused(secure: Site, version: ssl.TLSVersion) -> None:
    assert secure.context is not None
    with (
        pytest.warns(DeprecationWarning, match="TLSv1_1")
        if version is ssl.TLSVersion.TLSv1_1
        else contextlib.nullcontext()
    ):
        secure.context.minimum_version = secure.context.maximum_version = version
    secure.context.set_ciphers("ALL:@SECLEVEL=0")
    if version is ssl.TLSVersion.TLSv1_1:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await secure.connect()
    else:
        _, writer = await secure.connect()
        name, _, _ = writer.get_extra_info("cipher")
        assert name.startswith("ECDHE-")
        writer.close()


@pytest.mark.parametrize("cipher", ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256"])
async def test_ciphers_without_forward_secrecy_or_authentication_are_refused(secure: Site, cipher: str) -> None:
    assert secure.context is not None
    secure.context.maximum_version = ssl.TLSVersion.TLSv1_2
    secure.context.set_ciphers(cipher)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await secure.connect()


@both_loops
def test_large_bodies_go_both_ways(authority: Authority, run: Run) -> None:
    """They take many records, packets and turns of the loop."""

    async def scenario() -> None:
        text = "0123456789" * 500_000
        async with site(authority=authority, max_body_bytes=10_000_000) as running:
            made = Artifact(artifact_id="a", parts=(Part(text=text),))
            running.handler.answer = lambda call: replace(RECORD, artifacts=(made,))
            body = json.dumps({"message": message("x" * 4_000_000)}).encode()
            answer = await asked(running, post(body, b"Connection: close\r\n"))
            assert answer.startswith(b"HTTP/1.1 200")
            assert text.encode() in answer
            assert len(running.handler.calls[0].operation.message.text) == 4_000_000  # type: ignore[union-attr]

    run(scenario())


async def test_pipelined_requests_are_answered_in_order(secure: Site) -> None:
    answer = await secure.raw(GET * 500 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 501


@both_loops
def test_a_client_may_speak_byte_by_byte(authority: Authority, run: Run) -> None:
    async def scenario() -> None:
        async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):
            reader, writer = await plain(running.port)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            assert running.context is not None
            client = running.context.wrap_bio(incoming, outgoing, server_hostname="localhost")

            async def until(step: Callable[[], Any]) -> Any:
                while True:
                    try:
                        return step()
                    except ssl.SSLWantReadError:
                        pass
                    finally:
                        for byte in outgoing.read():
                            writer.write(bytes([byte]))
                            await asyncio.sleep(0)
                    incoming.write(await reader.read(1 << 16))

            await until(client.do_handshake)
            await until(lambda: client.write(GET))
            assert (await until(lambda: client.read(1 << 16))).startswith(b"HTTP/1.1 200")
            writer.close()

    run(scenario())


@both_loops
def test_plain_http_is_told_so(authority: Authority, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):
            for _ in range(3):
                reader, writer = await plain(running.port)
                writer.write(GET)
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert answer.endswith(b"\r\n\r\nThis port speaks HTTPS: use https:// in the URL.")
                assert b"content-length: 48\r\n" in answer
                writer.close()

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == ["no TLS with 127.0.0.1: http request"]


@pytest.mark.parametrize(
    "sent", [b"\x00" * 100, b"\x16\x03\x01\x02\x00" + b"\xff" * 600, b"SSH-2.0-x\r\n", b"\x16", b""]
)
async def test_whatever_else_comes_closes_the_connection_and_nothing_more(
    secure: Site, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await plain(secure.port)
        writer.write(sent)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        async with secure.http.get("/health") as answer:
            assert answer.status == 200
    assert not caplog.records


@both_loops
def test_a_handshake_that_takes_too_long_is_cut(
    authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.05)

    async def scenario() -> None:
        async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):
            silent, trickling = await plain(running.port), await plain(running.port)
            trickling[1].write(b"\x16\x03\x01\x02\x00\x01")
            for reader, writer in (silent, trickling):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()

    run(scenario())


async def test_silent_clients_hold_nobody_up(secure: Site) -> None:
    async with asyncio.timeout(DEADLINE_S):
        silent = [await plain(secure.port) for _ in range(200)]
        async with secure.http.get("/health") as answer:
            assert answer.status == 200
        assert len(secure.connections) == 1, "they are not connected yet"
        for _, writer in silent:
            writer.close()


@both_loops
@pytest.mark.parametrize("pause_s", [0.3, 60.0], ids=["nothing", "slowly"])
def test_a_reader_that_takes_nothing_is_cut_and_others_get_all(authority: Authority, run: Run, pause_s: float) -> None:
    async def scenario() -> None:
        said = Part(text="x" * 2_000_000)
        async with site(authority=authority, reader_pause_s=pause_s, send_buffer_bytes=4096) as running:
            made = replace(RECORD, artifacts=(Artifact(artifact_id="a", parts=(said,)),))
            running.handler.answer = lambda call: made
            sent = post(json.dumps({"message": message()}).encode(), b"Connection: close\r\n")
            async with asyncio.timeout(DEADLINE_S):
                if pause_s > 1:
                    assert len(await asked(running, sent, 1024)) > 2_000_000
                    return
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", running.port, ssl=running.context, limit=4096
                )
                writer.write(sent)
                await reader.readexactly(100)
                while running.connections:
                    await asyncio.sleep(0.01)
                writer.transport.abort()

    run(scenario())


@both_loops
def test_closing_waits_for_no_farewell_and_for_no_handshake(authority: Authority, run: Run) -> None:
    """A listener closes at once while its clients are idle, silent, or gone without a word."""

    async def scenario() -> None:
        async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):
            reader, writer = await running.connect()
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # it will not hear the farewell
            _, silent = await plain(running.port)
            await running.listener.close(10 * DEADLINE_S)
            assert not running.connections
            writer.transport.abort()
            silent.close()

    run(scenario())


async def test_a_renewed_certificate_is_for_new_connections(authority: Authority) -> None:
    async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):

        def shown(writer: asyncio.StreamWriter) -> int:
            return int(writer.get_extra_info("peercert")["serialNumber"], 16)

        reader, writer = await running.connect()
        before = shown(writer)
        renewed = authority.issue("renewed", rsa_bits=2048)  # of another kind, so that both could be kept
        running.listener.renew(identity(renewed).context)
        _, other = await running.connect()
        assert (shown(other), before != renewed.serial) == (renewed.serial, True)
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200"), "the open one goes on"
        writer.close()
        other.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_without_a_certificate_of_the_authority_is_refused(
    tmp_path: Path, authority: Authority, version: ssl.TLSVersion
) -> None:
    clients, strangers = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    async with site(authority=authority) as running, asyncio.timeout(DEADLINE_S):
        running.listener.renew(identity(authority.issue("asking"), clients).context)

        async def ask(context: ssl.SSLContext) -> bytes:
            context.minimum_version = context.maximum_version = version
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
            try:
                writer.write(GET)
                return await reader.readuntil(b"\r\n")
            finally:
                writer.close()

        known = authority.client_context(clients.issue("client"))
        assert (await ask(known)).startswith(b"HTTP/1.1 200")
        for refused in (
            authority.client_context(),
            authority.client_context(strangers.issue("stranger")),
            authority.client_context(clients.issue("former", days=-1)),
        ):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(refused)
