"""EventSender: sends a stream of events to its reader, and waits for the next one.

    SENDING ── silent for a while ──► PARKED ── its log, or its end ──► SENDING ── the end ──► over
       │                                │ │  ▲                                                    ▲
       │                                │ └──┘ each `keepalive_s` a comment                       │
       └──── the reader leaves ─────────┴─────────────────────────────────────────────────────────┘

Invariant: a parked stream has no asyncio task, timer, parser or buffer: its log has its sender, which has the exchange.
Only streams on connections of our own listener are parked. Another server's ASGI has no way to come back to an answer.
"""

import asyncio
from collections.abc import Sequence

from dragoman.bindings.http import EventsResponse, Receive, Send, wait_until_gone
from dragoman.bindings.http1.exchange import AsgiExchange
from dragoman.bindings.request import Header
from dragoman.bindings.streams import Batches, Streams
from dragoman.bindings.traffic import StreamVisit
from dragoman.dialects import sse
from dragoman.engine.timer_wheel import Bucket

KEEPALIVE = sse.comment("keepalive")
JOINED = KEEPALIVE[:-1]
"""The keep-alive for the official Python SDKs, in a stream that has had an event with an id. Their httpx-sse (0.4.3)
gives an event without data for each empty line after one, and `resubscribe` of a2a-sdk 0.3 breaks on that. Others get
the empty line: some split a stream at empty lines, and skip what begins with a colon."""

RETRY_MS = 1000
"""When the reader of a stream that a stopping server cut should reconnect: a restart takes about that long."""

TURNS = 16
"""Pieces sent in a row before the loop gets a turn: `send` to a client that left returns at once."""

QUIET_S = 0.25
"""How long a stream is silent before it is parked for the first time."""

QUIET_AGAIN_S = 1.0
"""How long one is silent that has been woken before it is parked again: its task costs as much as its event."""


async def send_events(
    response: EventsResponse,
    streams: Streams,
    receive: Receive,
    send: Send,
    visit: StreamVisit | None = None,
    key: str = "",
    exchange: AsgiExchange | None = None,
) -> None:
    """Send a stream until it ends, its reader leaves, or it is parked.

    `key` is the id of the key that the reader sent. `exchange` is that of our own listener.
    """
    if exchange is not None and exchange.arriving:  # the rest of the body has to be received
        exchange = None
    sender = EventSender(response, streams, visit, key, exchange)
    await sender.send_on(receive, send, response.headers)


class EventSender:
    """The sending of one stream. Others call `wake`, `left` and `look`."""

    __slots__ = (
        "_bucket",
        "_due_s",
        "_encode",
        "_exchange",
        "_joins",
        "_keepalive",
        "_key",
        "_parkable",
        "_stream",
        "_streams",
        "_visit",
    )

    def __init__(
        self,
        response: EventsResponse,
        streams: Streams,
        visit: StreamVisit | None,
        key: str,
        exchange: AsgiExchange | None,
    ) -> None:
        self._stream: Batches = response.stream
        self._encode = response.encode
        self._parkable = None if exchange is None else response.parkable
        self._streams = streams
        self._visit = visit
        self._key = key
        self._exchange = exchange
        self._joins = response.joined_comments
        self._keepalive = KEEPALIVE
        self._bucket: Bucket | None = None
        """The place in the wheel of keep-alives, while the stream is parked."""
        self._due_s = 0.0
        """When the reader has to be sent something, a loop time. Events that show it nothing do not change it."""
        streams.enter(self._stream, key)

    async def send_on(
        self, receive: Receive, send: Send, head: Sequence[Header] | None = None, *, unheard: bool = False
    ) -> None:
        """Send what the stream has, and has from now on, until it is over or parked. `head` is that of its answer.

        With `unheard` the stream was parked, and has to look whether its task is still there.
        """
        stream, streams, visit, exchange = self._stream, self._streams, self._visit, self._exchange
        parkable, watcher, parked = self._parkable, None, False
        quiet_s = QUIET_AGAIN_S if head is None else QUIET_S
        wait_s = None if parkable is None else min(quiet_s, streams.keepalive_s / 2)
        if exchange is None:
            watcher = asyncio.create_task(_close_when_gone(stream, receive))
        else:
            exchange.watch(self)
        loop = asyncio.get_running_loop()
        try:
            if head is not None:
                await send({"type": "http.response.start", "status": 200, "headers": head})
            if unheard and parkable is not None and await parkable.deleted():
                stream.close()
            turns = 0
            if head is not None:
                self._due_s = loop.time() + streams.keepalive_s
            while (batch := await stream.next(wait_s)) is not None:
                if not batch and self._park():
                    parked = True
                    return
                for piece in self._encode(batch) if batch else (self._keepalive,):
                    now_s = loop.time()
                    if not piece:  # the reader is shown nothing of these events
                        if now_s < self._due_s:
                            continue
                        piece = self._keepalive
                    elif self._joins and piece[:4] == b"id: ":
                        self._keepalive = JOINED
                    self._due_s = now_s + streams.keepalive_s
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if visit is not None:
                        if not visit.bytes_out and batch:
                            visit.begun()
                        visit.sent(len(piece))
                    turns += 1
                    if turns >= TURNS:
                        turns = 0
                        await asyncio.sleep(0)
                batch, piece = (), b""  # hold no bytes while the stream is silent
            await send({"type": "http.response.body", "body": sse.retry(RETRY_MS) if stream.retry else b""})
        finally:
            if watcher is not None:
                watcher.cancel()
            if not parked:
                self._end(
                    left=watcher.done() if watcher is not None else exchange is not None and exchange.disconnected
                )

    def _end(self, *, left: bool) -> None:
        """Take note that the stream is over, because its reader has `left` or not."""
        self._streams.leave(self._stream, self._key)
        if self._visit is not None:
            self._visit.ended(200, left=left)
        if self._exchange is not None:
            self._exchange.watch(None)
        self._stream.close()

    # -- parked --------------------------------------------------------------------------------------------------------

    def _park(self) -> bool:
        """Wait without an asyncio task, from now on.

        Returns False if the stream cannot be parked, or has something to give.
        """
        exchange, parkable = self._exchange, self._parkable
        if exchange is None or parkable is None or not parkable.park(self):
            return False
        self._bucket = self._streams.wheel.add(self, self._due_s)
        exchange.park()
        return True

    def wake(self) -> None:
        """The stream has something to give, or is over."""
        if self._bucket is not None:
            self._bucket.discard(self)
            self._resume()

    def _resume(self, *, unheard: bool = False) -> None:
        exchange = self._exchange
        assert exchange is not None
        self._bucket = None
        exchange.resume(self.send_on(exchange.receive, exchange.send, unheard=unheard))

    def left(self) -> None:
        """The reader has left."""
        if self._bucket is None:
            self._stream.close()
        else:
            self._bucket.discard(self)
            self._bucket = None
            self._end(left=True)

    def look(self, now_s: float) -> None:
        """Send a keep-alive. If nobody here hears of the end of the task, look whether it is still there."""
        exchange, parkable = self._exchange, self._parkable
        assert exchange is not None
        assert parkable is not None
        if exchange.send_now(self._keepalive) and self._visit is not None:
            self._visit.sent(len(self._keepalive))
        self._due_s = now_s + self._streams.keepalive_s
        if parkable.unheard:
            parkable.unpark()
            self._resume(unheard=True)
        else:
            self._bucket = self._streams.wheel.add(self, self._due_s)


async def _close_when_gone(stream: Batches, receive: Receive) -> None:
    await wait_until_gone(receive)
    stream.close()
