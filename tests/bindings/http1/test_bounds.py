"""The connections of a listener: how long each phase may take, and what becomes of those beyond the bounds."""

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.bindings.http1.bounds import RESERVE, RESERVE_HEAD_BYTES, ConnectionBounds
from dragoman.config import Config
from dragoman.server import serving
from dragoman.testing.agents import echo
from tests.bindings.conftest import DEADLINE_S, Site, site
from tests.certificates import Authority
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
CARD = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: x\r\n\r\n"

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=["plain", "tls"])
def authority(request: pytest.FixtureRequest, tmp_path: Path) -> Authority | None:
    return Authority(tmp_path) if request.param == "tls" else None


async def drip(opened: Opened, drop: bytes, pause_s: float = 0.02) -> bytes:
    """Send a drop again and again, until the server closes; all that came from it.

    A drop that crosses with the close is answered with a reset, after what came.
    """
    reader, writer = opened
    came: list[bytes] = []

    async def read() -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                came.append(data)

    reading = asyncio.create_task(read())
    async with asyncio.timeout(DEADLINE_S):
        while not reading.done():
            writer.write(drop)
            await asyncio.wait((reading,), timeout=pause_s)
    writer.transport.abort()
    return b"".join(came)


async def until_closed(opened: Opened) -> bytes:
    """All that comes until the server closes."""
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            return await opened[0].read()
    return b""


async def idle(running: Site, count: int) -> list[Opened]:
    """So many connections that are served, each with a request that has been answered."""
    opened = [await running.connect() for _ in range(count)]
    async with asyncio.timeout(DEADLINE_S):
        for reader, writer in opened:
            writer.write(GET)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
    return opened


def end(opened: list[Opened]) -> None:
    for _, writer in opened:
        writer.transport.abort()


# -- the time of each phase ------------------------------------------------------------------------------------------


async def test_empty_lines_do_not_hold_a_connection(authority: Authority | None) -> None:
    async with site(keep_alive_s=0.3, authority=authority) as running:
        assert await drip(await running.connect(), b"\r\n") == b""


async def test_empty_lines_after_an_answer_do_not_hold_it_either() -> None:
    async with site(keep_alive_s=0.3) as running:
        opened = await running.connect()
        opened[1].write(GET)
        assert (await drip(opened, b"\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("framing", "drop"), [(b"Content-Length: 1000000", b"x"), (b"Transfer-Encoding: chunked", b"1\r\nx\r\n")]
)
async def test_the_rest_of_a_body_does_not_hold_a_connection_whose_request_is_answered(
    framing: bytes, drop: bytes
) -> None:
    async with site(keep_alive_s=0.3) as running:
        opened = await running.connect()
        opened[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n")
        assert (await opened[0].readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        assert await drip(opened, drop) == b""


# -- the bounds ------------------------------------------------------------------------------------------------------


async def test_beyond_the_bound_a_probe_is_answered_and_everything_else_is_busy(authority: Authority | None) -> None:
    async with site(connections=ConnectionBounds(in_all=3), authority=authority) as running:
        served = await idle(running, 3)
        for request, begins in ((PROBE, b"HTTP/1.1 200 "), (GET, b"HTTP/1.1 200 "), (CARD, b"HTTP/1.1 503 ")):
            opened = await running.connect()
            opened[1].write(request)
            answer = await until_closed(opened)
            assert answer.startswith(begins)
            assert b"connection: close" in answer
            assert (b"retry-after: 5\r\n" in answer) is (request is CARD)
            opened[1].close()
        served[0][1].transport.abort()
        while len(running.connections) > 2:
            await asyncio.sleep(0.01)
        opened = await running.connect()
        opened[1].write(CARD)
        assert (await opened[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert running.listener.counter.refused["busy"] == 1
        end([*served, opened])


async def test_beyond_the_reserve_the_newest_is_closed_and_counted(
    authority: Authority | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(connections=ConnectionBounds(in_all=1), authority=authority) as running:
        served = await idle(running, 1)
        waiting = [await running.connect() for _ in range(RESERVE)]
        for _ in range(3):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                opened = await running.connect()
                assert await until_closed(opened) == b""
                opened[1].close()
        assert running.listener.counter.refused == {"busy": 0, "full": 3, "address": 0, "files": 0}
        waiting[0][1].write(PROBE)
        assert (await until_closed(waiting[0])).startswith(b"HTTP/1.1 200 ")
        end([*served, *waiting])
    assert "a connection was refused: 1 are open (max_connections), and the reserve is taken" in caplog.text


async def test_a_head_in_the_reserve_has_5_s_and_8_kb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.bindings.http1.connection.RESERVE_HEAD_S", 0.3)
    async with site(connections=ConnectionBounds(in_all=1)) as running:
        served = await idle(running, 1)
        opened = await running.connect()
        opened[1].write(PROBE[:-2] + b"X-Long: " + b"x" * RESERVE_HEAD_BYTES)
        assert (await until_closed(opened)).startswith(b"HTTP/1.1 503 ")
        opened[1].close()
        opened = await running.connect()
        opened[1].write(PROBE[:-2] + b"X-Long: ")
        assert (await drip(opened, b"x" * 10)).startswith(b"HTTP/1.1 503 ")
        assert (await drip(await running.connect(), b"\r\n")).startswith(b"HTTP/1.1 503 ")
        end(served)


async def test_an_address_has_its_own_bound_and_a_proxy_has_none() -> None:
    async with site(connections=ConnectionBounds(per_address=2)) as running:
        served = await idle(running, 2)
        opened = await running.connect()
        assert await until_closed(opened) == b""
        opened[1].close()
        served[0][1].transport.abort()
        while len(running.connections) > 1:
            await asyncio.sleep(0.01)
        served += await idle(running, 1)
        assert running.listener.counter.refused["address"] == 1
        end(served)
    async with site(connections=ConnectionBounds(per_address=2, exempt="127.0.0.1".__eq__)) as running:
        end(await idle(running, 5))


async def test_the_settings_bound_a_whole_server_and_its_metrics_show_it() -> None:
    config = Config(
        port=0,
        store="memory:",
        shutdown_grace_s=0.1,
        max_connections=3,
        max_connections_per_address=2,
        trusted_proxies=("127.0.0.0/8",),
    )
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        port = int(url.rpartition(":")[2])
        async with http.get("/metrics") as answer:
            assert "dragoman_connections_open 1.0" in await answer.text()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, writer = silent[-1]
        writer.write(CARD)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        async with http.get("/metrics") as answer:
            text = await answer.text()
        assert 'dragoman_connections_refused_total{reason="busy"} 1.0' in text
        assert 'dragoman_connections_refused_total{reason="address"} 0.0' in text
        end(silent)


@pytest.fixture
def few_descriptors(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A server that may open 120 files, and its log."""
    port, log = kept_port(), tmp_path / "server.log"
    (tmp_path / "agents.py").write_text("from dragoman import Agent\necho = Agent('echo')\n", encoding="utf-8")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))

    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *ENDS_WITH_US,
                *(sys.executable, "-m", "dragoman", "serve", "agents.py", "--port", str(port)),
                *("--store", f"sqlite:///{tmp_path}/store.db"),
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=out,
            preexec_fn=limit,
        )
    try:
        yield port, log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


async def ask(port: int, request: bytes) -> bytes:
    """The status of the answer on a new connection, once one gets any."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            try:
                if line := await reader.readline():
                    return line.split()[1]
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_when_descriptors_run_out_it_is_logged_and_counted_and_the_store_still_works(
    few_descriptors: tuple[int, Path],
) -> None:
    port, log = few_descriptors
    opened: list[Any] = []
    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get("/ready") as answer:
                    if answer.status == 200:
                        break
            await asyncio.sleep(0.05)
        for _ in range(200):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        while "few descriptors of files are left: raise its limit" not in log.read_text():
            await asyncio.sleep(0.05)
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        async with http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}) as answer:
            assert answer.status == 200
        async with http.get("/metrics") as answer:
            text = await answer.text()
        count = text.partition('dragoman_connections_refused_total{reason="files"} ')[2].partition("\n")[0]
        assert float(count) > 50
        assert log.read_text().count("few descriptors of files are left") == 1
        assert await ask(port, PROBE) == b"200", "a supervisor does not restart a busy server"
        assert await ask(port, CARD) == b"503"
    for client in opened:
        client.close()


# -- codings (RFC 9112 §6.1) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codings", "status"),
    [
        (b"Transfer-Encoding: chunked\r\n", 200),
        (b"Transfer-Encoding: Chunked\r\n", 200),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501),
        (b"Transfer-Encoding: chunked, chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: gzip\r\n", 400),
    ],
)
async def test_a_body_in_a_coding_that_is_not_understood_is_not_implemented(codings: bytes, status: int) -> None:
    async with site() as running:
        head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        answer = await running.raw(head + codings + b"\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
