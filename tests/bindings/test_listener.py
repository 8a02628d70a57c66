"""The listener: what is written leaves in order, and with few system calls."""

import asyncio
import contextlib
import socket

import pytest

from dragoman.bindings.listener import JOINED_BYTES, Corked, bound_socket
from tests.bindings.conftest import DEADLINE_S, Site, site

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Written:
    """A transport that keeps what is written to it, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def corked() -> tuple[Corked, Written]:
    written = Written()
    return Corked(written, asyncio.get_running_loop()), written  # type: ignore[arg-type]


async def test_head_and_body_leave_in_one_write() -> None:
    transport, written = corked()
    transport.write(HEAD)
    assert written.writes == []
    transport.write(b"body")
    transport.write(b"more")
    assert written.writes == [HEAD + b"body", b"more"]
    await asyncio.sleep(0)
    assert written.writes == [HEAD + b"body", b"more"]


async def test_a_head_alone_leaves_in_the_next_turn() -> None:
    transport, written = corked()
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert written.writes == [HEAD]


async def test_a_head_alone_leaves_before_the_connection_closes() -> None:
    transport, written = corked()
    transport.write(HEAD)
    transport.close()
    assert (written.writes, written.closed, transport.is_closing()) == ([HEAD], True, True)


async def test_a_long_body_is_not_copied() -> None:
    transport, written = corked()
    body = b"x" * (JOINED_BYTES + 1)
    transport.write(HEAD)
    transport.write(body)
    assert written.writes == [HEAD, body]
    assert written.writes[1] is body


async def test_pipelined_requests_are_answered_in_order(served: Site) -> None:
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await served.raw(get + head + get + last)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"200", b"404"]
    assert answer.count(b'{"status":"ok"}') == 2


async def test_a_head_without_end_is_refused(served: Site) -> None:
    async with asyncio.timeout(DEADLINE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
        writer.transport.abort()
    async with served.http.get("/health") as answer:
        assert answer.status == 200


async def test_a_head_of_some_size_is_read(served: Site) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: " + b"x" * 30_000 + b"\r\n\r\n"
    assert (await served.raw(head)).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_is_silent_is_cut() -> None:
    async with site(keep_alive_s=0.05) as running:
        for begun in (b"", b"\r\n", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: "):
            assert await running.raw(begun) == b""
        for after in (b"", b"\r\n"):
            answer = await running.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + after)
            assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_head_that_trickles_is_cut() -> None:
    async with site(keep_alive_s=0.2) as running, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        cut = asyncio.create_task(reader.read())
        while not cut.done():
            writer.write(b"x")
            await asyncio.wait([cut], timeout=0.01)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            assert await cut == b""


async def test_connections_do_not_wait_for_acknowledgements() -> None:
    """asyncio sets TCP_NODELAY only where the protocol of the listening socket is named."""
    accepted: asyncio.Queue[int] = asyncio.Queue()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.put_nowait(option)

    with bound_socket("127.0.0.1", 0) as bound:
        server = await asyncio.get_running_loop().create_server(Accepting, sock=bound)
        async with asyncio.timeout(DEADLINE_S), server:
            _, writer = await asyncio.open_connection(*bound.getsockname())
            assert await accepted.get() == 1
            writer.close()
            await writer.wait_closed()
