"""Parked streams: a stream that is silent waits without an asyncio task, and misses nothing."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, cast

import pytest

from dragoman.bindings.event_sender import KEEPALIVE, QUIET_AGAIN_S, QUIET_S, send_events
from dragoman.bindings.http import EventsResponse, Receive, Scope, Send
from dragoman.bindings.http1.connection import Connections, ServerConnection
from dragoman.bindings.http1.exchange import Address, AsgiExchange
from dragoman.bindings.streams import Streams
from dragoman.engine.handler import Waker
from tests.http1.readers import ReaderTransport
from tests.virtual_time import in_virtual_time

KEEPALIVE_S = 15.0
GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
SILENT_S = 2 * QUIET_AGAIN_S

waking: ContextVar[str] = ContextVar("waking", default="nobody")


class QuietStream:
    """A stream of bytes that the test puts in; it ends with None."""

    def __init__(self) -> None:
        self.retry = False
        self.unheard = False
        self.gone = False
        self.closed = 0
        self.contexts: set[str] = set()
        self._items: list[bytes | None] = []
        self._waker: Waker | None = None
        self._more = asyncio.Event()

    def put(self, item: bytes | None) -> None:
        self._items.append(item)
        self._more.set()
        waker, self._waker = self._waker, None
        if waker is not None:
            waker.wake()

    @property
    def parked(self) -> bool:
        return self._waker is not None

    async def next(self, wait_s: float | None = None) -> Sequence[Any] | None:
        self.contexts.add(waking.get())
        try:
            async with asyncio.timeout(KEEPALIVE_S if wait_s is None else wait_s):
                await self._more.wait()
        except TimeoutError:
            return ()
        item = None if self.closed else self._items.pop(0)
        if not (self._items or self.closed):
            self._more.clear()
        return None if item is None else [item]

    def close(self) -> None:
        self.closed += 1
        if self.closed == 1:
            self.put(None)

    def park(self, waker: Waker) -> bool:
        if self._items:
            return False
        self._waker = waker
        return True

    def unpark(self) -> None:
        self._waker = None

    async def deleted(self) -> bool:
        return self.gone


class StreamingApp:
    """Answers `/stream` with the stream, and other paths with themselves."""

    def __init__(self, *, parkable: bool, joined_comments: bool) -> None:
        self.stream = QuietStream()
        self.streams = Streams(KEEPALIVE_S)
        self._parkable = self.stream if parkable else None
        self._joined_comments = joined_comments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the listener knows a shorter way")

    def answer_exchange(
        self, exchange: AsgiExchange, client: Address | None, server: Address | None, scheme: str
    ) -> Coroutine[Any, Any, None]:
        return self._answer(exchange)

    async def _answer(self, exchange: AsgiExchange) -> None:
        if exchange.target.path != "/stream":
            exchange.send_whole(200, [(b"content-length", b"5")], b"other")
            return

        def encode(batch: Sequence[bytes]) -> Iterable[bytes]:
            return batch

        response = EventsResponse(self.stream, encode, (), self._parkable, self._joined_comments)
        await send_events(response, self.streams, exchange.receive, exchange.send, exchange=exchange)


class Client:
    """A client that has asked for the stream, and has read its first event."""

    def __init__(self, *, parkable: bool = True, joined_comments: bool = False) -> None:
        self.app = StreamingApp(parkable=parkable, joined_comments=joined_comments)
        self.stream, self.streams = self.app.stream, self.app.streams
        self.connections = Connections(self.app, keep_alive_s=75, reader_pause_s=60)
        self.transport = ReaderTransport()
        self.connection = ServerConnection(self.connections, asyncio.get_running_loop())
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.connection.data_received(GET % b"stream")
        self.stream.put(b"first")

    async def rest(self) -> None:
        """Wait until the stream is parked."""
        await asyncio.sleep(SILENT_S)
        assert self.stream.parked
        assert not self.connections.tasks
        assert b"5\r\nfirst\r\n" in self.transport.written
        self.transport.written = b""

    def leave(self) -> None:
        self.connection.connection_lost(None)


@in_virtual_time
async def test_a_silent_stream_waits_without_a_task_and_sends_on_when_it_is_woken() -> None:
    client = Client()
    for text in (b"second", b"third"):
        await client.rest() if text == b"second" else await asyncio.sleep(SILENT_S)
        assert len(asyncio.all_tasks()) == 1
        client.stream.put(text)
        await asyncio.sleep(0.01)
        assert client.transport.written == b"%x\r\n%b\r\n" % (len(text), text)
        client.transport.written = b""
    client.stream.put(b"fourth")
    client.stream.put(None)
    await asyncio.sleep(0.01)
    assert client.transport.written == b"6\r\nfourth\r\n0\r\n\r\n"
    assert client.streams.open == 0
    client.connection.data_received(GET % b"next")
    await asyncio.sleep(0.01)
    assert client.transport.written.endswith(b"other")
    client.leave()


@pytest.mark.parametrize("unheard", [False, True])
@in_virtual_time
async def test_a_parked_stream_is_kept_alive(unheard: bool) -> None:
    client = Client()
    client.stream.unheard = unheard
    await client.rest()
    comment = b"%x\r\n%b\r\n" % (len(KEEPALIVE), KEEPALIVE)
    for rounds in range(1, 5):
        await asyncio.sleep(KEEPALIVE_S + QUIET_S)
        assert client.transport.written == comment * rounds
        assert client.stream.parked
    client.leave()


@pytest.mark.parametrize(("joined", "keepalive"), [(True, b": keepalive\n"), (False, b": keepalive\n\n")])
@in_virtual_time
async def test_an_empty_line_follows_the_keep_alive_unless_its_reader_takes_it_for_an_event(
    joined: bool, keepalive: bytes
) -> None:
    """httpx-sse makes an event of each empty line once there was an id; others skip what begins with a comment."""
    client = Client(joined_comments=joined)
    await client.rest()
    client.stream.put(b"id: 1\ndata: {}\n\n")
    await asyncio.sleep(2 * KEEPALIVE_S)
    assert client.stream.parked
    assert client.transport.written.endswith(b"%x\r\n%b\r\n" % (len(keepalive), keepalive))
    client.leave()


@in_virtual_time
async def test_events_that_show_nothing_do_not_put_off_the_keep_alive_of_a_parked_stream() -> None:
    client = Client()
    await client.rest()
    comment = b"%x\r\n%b\r\n" % (len(KEEPALIVE), KEEPALIVE)
    for _ in range(10):
        await asyncio.sleep(KEEPALIVE_S / 2)
        assert client.stream.parked
        client.stream.put(b"")
    assert client.transport.written.startswith(comment * 4)
    client.leave()


@in_virtual_time
async def test_the_deletion_of_a_task_of_which_nobody_hears_ends_its_parked_streams() -> None:
    client = Client()
    client.stream.unheard = client.stream.gone = True
    await client.rest()
    await asyncio.sleep(KEEPALIVE_S + QUIET_S)
    assert client.transport.written.endswith(b"0\r\n\r\n")
    assert client.streams.open == 0
    client.leave()


@in_virtual_time
async def test_a_client_that_leaves_a_parked_stream_closes_it_at_once() -> None:
    client = Client()
    await client.rest()
    client.leave()
    assert client.stream.closed
    assert client.streams.open == 0
    await asyncio.sleep(10 * KEEPALIVE_S)
    assert client.transport.written == b""
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_a_parked_stream_that_somebody_closes_ends() -> None:
    """As those of a key that is revoked."""
    client = Client()
    await client.rest()
    client.stream.close()
    await asyncio.sleep(0.01)
    assert client.transport.written == b"0\r\n\r\n"
    client.leave()


@in_virtual_time
async def test_requests_behind_a_parked_stream_wait_for_its_end() -> None:
    client = Client()
    await client.rest()
    client.connection.data_received((GET % b"next")[:9])
    await asyncio.sleep(SILENT_S)
    client.connection.data_received((GET % b"next")[9:])
    await asyncio.sleep(SILENT_S)
    assert client.transport.written == b""
    client.stream.put(b"second")
    client.stream.put(None)
    await asyncio.sleep(0.01)
    assert client.transport.written.startswith(b"6\r\nsecond\r\n0\r\n\r\nHTTP/1.1 200 ")
    assert client.transport.written.endswith(b"other")
    client.leave()


@in_virtual_time
async def test_a_stream_that_has_to_drain_is_not_parked() -> None:
    client = Client()
    client.connection.pause_writing()
    await asyncio.sleep(SILENT_S)
    assert not client.stream.parked
    client.connection.resume_writing()
    client.stream.put(b"second")
    await asyncio.sleep(SILENT_S)
    assert client.stream.parked
    assert b"second" in client.transport.written
    client.leave()


@in_virtual_time
async def test_a_parked_stream_does_not_go_on_in_the_context_of_whoever_woke_it() -> None:
    """A run that wakes it would count its task as a branch of the agent."""
    client = Client()
    await client.rest()
    waking.set("an agent")
    client.stream.put(b"second")
    await asyncio.sleep(0.01)
    assert client.stream.contexts == {"nobody"}
    client.leave()


@in_virtual_time
async def test_a_stream_that_cannot_be_parked_is_kept_alive_and_hears_of_a_client_that_leaves() -> None:
    client = Client(parkable=False)
    await asyncio.sleep(KEEPALIVE_S + QUIET_S)
    assert len(asyncio.all_tasks()) == 2
    assert client.transport.written.endswith(KEEPALIVE + b"\r\n")
    client.leave()
    await asyncio.sleep(0.01)
    assert client.stream.closed
    assert not client.connections.tasks
