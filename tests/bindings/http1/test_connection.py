"""A connection in the course of time: it rests between requests, and closes when it has been idle for too long."""

import asyncio
import gc
from typing import cast

import httptools
import pytest

from dragoman.bindings.http import Receive, Scope, Send
from dragoman.bindings.http1.connection import Connections, ServerConnection
from dragoman.bindings.http1.exchange import AsgiExchange
from tests.http1.readers import ReaderTransport
from tests.virtual_time import in_virtual_time

KEEP_ALIVE_S = 75
GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = scope["raw_path"], scope["raw_path"] != b"/early"
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Client:
    """The other side of a connection."""

    def __init__(self) -> None:
        self.transport = ReaderTransport()
        self.connections = Connections(app, KEEP_ALIVE_S, reader_pause_s=60)
        self.connection = ServerConnection(self.connections, asyncio.get_running_loop())
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    async def send(self, data: bytes) -> bytes:
        """Send bytes, and return the body of what has been answered a moment later."""
        self.transport.written = b""
        self.connection.data_received(data)
        for _ in range(8):
            await asyncio.sleep(0)
        return self.transport.written.partition(b"\r\n\r\n")[2]


@in_virtual_time
async def test_an_idle_connection_keeps_nothing_of_its_requests_and_answers_the_next_one() -> None:
    client = Client()
    assert await client.send(GET % b"first") == b"/first"
    await asyncio.sleep(2)
    kept = gc.get_referents(client.connection)
    assert not [found for found in kept if isinstance(found, AsgiExchange | httptools.HttpRequestParser)]
    assert await client.send(b"\r\n" + GET % b"second") == b"/second"
    client.connection.connection_lost(None)


@in_virtual_time
async def test_a_connection_rests_and_goes_on_after_a_body_that_came_after_its_answer() -> None:
    client = Client()
    assert await client.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n1234") == b"/early"
    await asyncio.sleep(KEEP_ALIVE_S - 1)
    await client.send(b"5678")
    await asyncio.sleep(2)
    assert not [found for found in gc.get_referents(client.connection) if isinstance(found, AsgiExchange)]
    await asyncio.sleep(KEEP_ALIVE_S - 3)
    assert await client.send(GET % b"next") == b"/next"
    client.connection.connection_lost(None)


@pytest.mark.parametrize("cut", [1, 20, 55])
@in_virtual_time
async def test_a_request_that_pauses_is_read_on_where_it_stopped(cut: int) -> None:
    client = Client()
    request = b"POST /post HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n12345678"
    assert await client.send(GET % b"first") == b"/first"
    assert await client.send(request[:cut]) == b""
    await asyncio.sleep(20)
    answer = await client.send(request[cut:])
    assert answer == b"/post12345678"
    client.connection.connection_lost(None)


@in_virtual_time
async def test_a_connection_closes_when_it_was_idle_for_the_keep_alive_time_and_not_before() -> None:
    client = Client()
    for number in range(5):  # also one whose place in the wheel is older than its last request
        await client.send(GET % b"%d" % number)
        await asyncio.sleep(KEEP_ALIVE_S - 1)
        assert not client.transport.closed
    await asyncio.sleep(2)
    assert client.transport.closed
    client.connection.connection_lost(None)
