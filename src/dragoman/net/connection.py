"""A connection to a host, which carries one exchange after the other.

    IDLE ── `ask` ──► ASKED ── the whole answer has come, or of one in pieces the head ──► ANSWERED ── `finish` ──► IDLE
      │ bytes come      │                                                                 │  ▲ │       (if it is clean)
      │                 │                                            `more`, `gathering` └──┘ │
      ▼                 ▼ late, garbled, lost                                                 ▼ not clean
    ENDED ◄─────────────┴─────────────────────────────────────────────────────────────────────┘   `end` says why

    While an answer in pieces is gathered: AWAITED ── the first bytes ──► WINDOW ── it is over ──► DRAINING ──► AWAITED
                                           nothing is received meanwhile ┘      what waits is read ┘

Invariant: a connection carries one exchange at a time, and is kept afterwards only if that ended cleanly. Bytes that
arrive between exchanges end it. HTTP/1.1 does not say which request an answer belongs to: the bytes after a request are
taken as its answer. So a host may answer too early, but only a request that it gets itself.
"""

import asyncio
import enum
import os
from collections.abc import Callable
from typing import Protocol, cast

from dragoman.net.exchange import HttpAnswer, NotHttp, Want
from dragoman.net.tls import TlsSession, describe_session, refuses_certificate

HELD_BYTES_MAX = 64 * 1024
"""Unread bytes of an answer in pieces above which receiving pauses; bytes already on their way still arrive."""

ENOUGH_BYTES = 16 * 1024
"""Unread bytes above which nothing is gathered."""

REST_S = 1.0
"""How long the rest of an answer may take after its status, where only the status counts. A host that has answered has
no reason to hold the connection.
"""

NEVER = float("inf")
"""The deadline of what is not waited for."""

Destination = tuple[str, str, int]
"""Scheme, host and port: the destination of a connection."""

Begin = Callable[["asyncio.Future[None]"], None]
"""Called when something has come, with a future; resolving it ends the wait for more."""


class ConnectionEnd(enum.Enum):
    """Why a connection can no longer be used."""

    LOST = "the other side ended it, or the network did"
    LATE = "no whole answer came in time"
    GARBLED = "what came was no answer"
    UNCERTIFIED = "the other side asks for a certificate of this one"
    CLOSED = "it was closed on this side"


class ConnectionKeeper(Protocol):
    """Keeps connections for later exchanges."""

    def forget(self, connection: "HttpConnection") -> None:
        """Let go of a connection that has ended. Called once, before anybody else hears of it."""
        ...


class HttpConnection(asyncio.Protocol):
    """A connection to a destination. `gone` is called after it is closed."""

    __slots__ = (
        "_answer",
        "_begin",
        "_comes",
        "_draining",
        "_fd",
        "_keeper",
        "_look_s",
        "_paused",
        "_timer",
        "_transport",
        "_until_s",
        "_waiting",
        "destination",
        "end",
        "loop",
        "lost",
        "wrote",
    )  # fmt: skip

    def __init__(self, destination: Destination, keeper: "ConnectionKeeper") -> None:
        self.destination = destination
        self.end: ConnectionEnd | None = None
        self.loop = loop = asyncio.get_running_loop()
        """The event loop; each look for it would cost a system call (Python 3.11)."""
        self.lost = loop.create_future()
        """Done when the keeper has let it go."""
        self.wrote = False
        """Whether a byte of the last request may have been written."""
        self._keeper = keeper
        self._answer: HttpAnswer | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._begin: Begin | None = None
        self._comes = False
        self._draining = False
        self._fd = -1
        self._until_s = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = NEVER
        """When the timer looks for a late answer; NEVER without one."""

    @property
    def tls(self) -> TlsSession | None:
        """The terms of the TLS handshake; None without TLS."""
        ssl_object = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if ssl_object is None else describe_session(ssl_object)

    async def ask(self, request: bytes, answer: HttpAnswer, until_s: float) -> None:
        """Send a request, and feed its answer with what comes. Returns when the answer is over or the connection has
        ended.

        For an answer in pieces it returns when the head has come. If only the status counts, the rest has `REST_S`.
        `until_s` is a time of the loop. The caller must call `finish` afterwards in any case.
        """
        waiting = self.begin(request, answer, until_s)
        if waiting is not None:
            try:
                await waiting
            finally:
                self.note_answered()

    def begin(self, request: bytes, answer: HttpAnswer, until_s: float) -> "asyncio.Future[None] | None":
        """Send a request, and return the future that is done when `ask` would return; None if the connection has ended.

        A wait that is canceled changes nothing: `wait_again`. Call `note_answered` after the last wait.
        """
        self.wrote = False
        if self.end is not None:
            return None
        assert self._transport is not None
        if self._transport.is_closing():  # the loop is about to tell; uvloop (0.23) raises on a write
            self._set_end(ConnectionEnd.LOST)
            return None
        self._answer = answer
        self._ends_at(until_s)
        waiting = self._waiting = self.loop.create_future()
        self._transport.write(request)
        self.wrote = True
        return waiting

    def wait_again(self) -> "asyncio.Future[None] | None":
        """Return a future for a wait that was canceled; None if there is nothing to wait for any more."""
        answer = self._answer
        if self.end is not None or answer is None or answer.over or (answer.want is Want.PIECES and answer.status):
            return None
        waiting = self._waiting = self.loop.create_future()
        return waiting

    def note_answered(self) -> None:
        """The wait for the answer, or its head, is over."""
        self._until_s, self._waiting = NEVER, None

    async def more(self, within_s: float) -> None:
        """Wait until something of an answer in pieces has come, or the connection has ended, which it does if nothing
        comes in time."""
        if self._paused:
            self._receive(True)
        if self.end is None:
            self._begin = None
            self._ends_at(self.loop.time() + within_s)
            self._waiting = self.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting, self._until_s = None, NEVER

    def gathering(self, begin: Begin, within_s: float) -> "asyncio.Future[None] | None":
        """Return a future that is done when something of an answer in pieces has come and `begin`'s window is over;
        None: do not wait. The connection ends if nothing comes in time. Call `gathered` afterwards.

        When the first bytes have come, `begin` is called with a future that it resolves to end the window. Later bytes
        stay in the socket meanwhile and are received at once then: a read for each piece would cost more than all other
        work on it. While an answer keeps coming, even its first bytes are received only after the window. An answer in
        large pieces is received without a window. The wait ends early if the connection does. Only one wait at a time
        is allowed.
        """
        answer = self._answer
        if self.end is not None or answer is None or answer.over:
            return None
        self._ends_at(self.loop.time() + within_s)
        waiting = self._waiting = self.loop.create_future()
        self._begin = begin
        if self._comes or answer.held:
            self._gather()
        elif self._paused:
            self._receive(True)
        return waiting

    def gathered(self) -> None:
        """Wait no longer."""
        self._until_s = NEVER

    def _gather(self) -> None:
        assert self._begin is not None
        assert self._answer is not None
        if self._answer.held >= ENOUGH_BYTES:
            self._wake()
            return
        window = self.loop.create_future()
        self._begin(window)
        if not window.done() and not self._paused:
            self._receive(False)
        window.add_done_callback(self._gathered)

    def _gathered(self, _: "asyncio.Future[None]") -> None:
        if self._waiting is None or self._waiting.done() or self.end is not None:
            return
        if self._paused:
            if self._fd >= 0 and self._read_socket():
                return
            self._receive(True)
        self._draining = True
        loop = self.loop
        loop.call_soon(loop.call_soon, self._drained)  # the standard library's loop receives between the two calls

    def _read_socket(self) -> bool:
        """Read the socket directly, without the event loop, which would need two changes of its watch list and three
        turns: a window costs 34 µs instead of 45. A thousand answers of a model at once (`tokens` in
        bench/rows.py) have ten thousand windows a second and take most of the core.

        Returns False to leave the rest to the loop: there are no bytes, the connection has ended, or a chunk has only
        begun.
        """
        assert self._transport is not None
        if self._transport.is_closing():  # its file descriptor may belong to another socket by now
            return False
        try:
            data = os.read(self._fd, ENOUGH_BYTES)
        except OSError:
            return False
        if not data:
            return False
        self.data_received(data)
        if (answer := self._answer) is not None and not (answer.held or answer.over):
            return False
        self._drained()
        self._comes = (
            self._comes and len(data) < ENOUGH_BYTES
        )  # more is waiting, and must not come in one small read per window
        return True

    def _drained(self) -> None:
        self._draining = False
        if (answer := self._answer) is None:
            return
        self._comes = 0 < answer.held < ENOUGH_BYTES and not answer.over
        if answer.held:
            self._wake()

    def finish(self) -> None:
        """End the exchange. Afterwards `end` is None if the connection may be used again."""
        if (answer := self._answer) is None:
            return
        self._answer = self._begin = None
        self._comes, self._until_s = False, NEVER
        answer.close()
        if self.end is None:
            assert self._transport is not None
            # A host that answers before it has read the whole request would take the rest for another request.
            if not answer.clean or self._transport.get_write_buffer_size():
                self.close(ConnectionEnd.CLOSED)
            elif self._paused:
                self._receive(True)

    def close(self, end: ConnectionEnd = ConnectionEnd.CLOSED) -> None:
        """Close the connection at once, for a reason."""
        if self.end is None:
            self._set_end(end)
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        if os.name == "posix" and transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if (answer := self._answer) is None:
            self.close(ConnectionEnd.GARBLED)
            return
        try:
            answer.receive(data)
        except NotHttp:
            self.close(ConnectionEnd.GARBLED)
        if answer.over:
            self._wake()
        elif answer.want is Want.STATUS and answer.status:
            self._ends_at(min(self._until_s, self.loop.time() + REST_S))
        elif answer.want is Want.PIECES and answer.status:
            if answer.held > HELD_BYTES_MAX and not self._paused and self.end is None:
                self._receive(False)
            if self._begin is None or (self._paused and answer.held):
                self._wake()
            elif not (self._paused or self._draining or self._waiting is None or self._waiting.done()):
                self._gather()

    def eof_received(self) -> None:
        """Called by the loop, which would otherwise write pending bytes before it closes."""
        if self._answer is not None:
            self._answer.end()
        self.close(ConnectionEnd.LOST)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        # A server of TLS 1.3 reads the client's certificate only after the handshake has ended here (RFC 8446 §4.4.2).
        self._set_end(ConnectionEnd.UNCERTIFIED if refuses_certificate(error) else ConnectionEnd.LOST)
        self._keeper.forget(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _ends_at(self, until_s: float) -> None:
        """Set the deadline of the exchange.

        The timer of earlier exchanges serves this one, too, unless it comes too late: a timer for each would cost a
        tenth of a webhook call.
        """
        self._until_s = until_s
        if until_s < self._look_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._look_s = self.loop.call_at(until_s, self._look), until_s

    def _look(self) -> None:
        """Close the connection if an answer is late. Otherwise look again at the deadline, if there is one."""
        self._timer, self._look_s = None, NEVER
        if self._until_s <= self.loop.time():
            self.close(ConnectionEnd.LATE)
        elif self._until_s < NEVER:
            self._ends_at(self._until_s)

    def _set_end(self, end: ConnectionEnd) -> None:
        if self.end is None:
            self.end = end
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._wake()

    def _receive(self, on: bool) -> None:
        assert self._transport is not None
        self._paused = not on
        if self.end is not None:
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
