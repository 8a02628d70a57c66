"""TlsConnection: TLS between a socket's transport and the protocol that speaks HTTP on it.

    HANDSHAKE ── agreed ──► SECURED ── `close`, or the client's farewell ──► CLOSING ── flushed ──► lost
      │  │                    │                                                │
      │  └─ no TLS: told why ─┼───────────────────────────────────────────────►┘
      └──── too late          └── TLS fails, `abort` ──► aborted

HANDSHAKE ends when `_secured` is set, CLOSING begins with `_closing`. The bytes that it carries are not covered
(`http1.connection`).

Invariant: nothing is buffered here in clear, and everything written is handed to the socket's transport at once. So its
buffer is all that waits for the reader, and a connection closes as soon as that is sent.

The loops have TLS of their own, but uvloop's (0.23) hides the socket's buffer, so that a reader who takes nothing
cannot be told from a slow one. Both wait for the client's farewell when they close, which holds up the server's stop.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from dragoman.bindings.http1.bounds import RESERVE_HEAD_S, ConnectionCounter, Seat

log = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
"""How long a client may take to agree on TLS."""

READ_BYTES = 262_144
"""How much is decrypted at once; OpenSSL gives out one record at a time, which has at most 16 KB (RFC 8446 §5.1)."""

TOLD_EVERY_S = 60.0
"""The log tells of clients with whom TLS could not be agreed on at most so often."""

PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n"
    b"connection: close\r\n\r\nThis port speaks HTTPS: use https:// in the URL."
)
"""The answer to a request without TLS."""

PLAIN_REASONS = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})
"""How OpenSSL calls a client that speaks HTTP without TLS."""


class Secured(Protocol):
    """The protocol above a TlsConnection: that of a stream, as asyncio has it."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Handshakes:
    """The connections of a listener on which TLS is being agreed on.

    Those that fail are reported to the log: the first one at once, then one line a minute.
    """

    def __init__(self) -> None:
        self._under_way: set[TlsConnection] = set()
        self._closed = False
        self._told_s = float("-inf")
        self._untold = 0

    def begin(self, connection: "TlsConnection") -> None:
        """Take note of a connection. Once the listener is closing, it is cut."""
        if self._closed:
            connection.abort()
        else:
            self._under_way.add(connection)

    def end(self, connection: "TlsConnection") -> None:
        """TLS is agreed on, or the connection is gone."""
        self._under_way.discard(connection)

    def report(self, peer: str, why: str, now_s: float) -> None:
        """Report a client with whom TLS could not be agreed on, at a time of the loop's clock."""
        if now_s - self._told_s < TOLD_EVERY_S:
            self._untold += 1
            return
        more = f" ({self._untold} others before it)" if self._untold else ""
        log.info("no TLS with %s: %s%s", peer, why, more)
        self._told_s, self._untold = now_s, 0

    def close(self) -> None:
        """Cut the connections: nothing has been asked on them."""
        self._closed = True
        for connection in tuple(self._under_way):
            connection.abort()


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """One connection: the protocol of the socket's transport, and the transport of the protocol above it.

    `make_secured` makes the protocol above once TLS is agreed on, for the seat that the `counter` gave this connection.
    """

    __slots__ = (
        "_closing",
        "_context",
        "_counter",
        "_handshakes",
        "_incoming",
        "_loop",
        "_make_secured",
        "_outgoing",
        "_raw",
        "_reading",
        "_seat",
        "_secured",
        "_timer",
        "_tls",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        make_secured: Callable[[Seat], Secured],
        loop: asyncio.AbstractEventLoop,
        handshakes: Handshakes,
        counter: ConnectionCounter,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._context = context
        self._make_secured = make_secured
        self._handshakes = handshakes
        self._counter = counter
        self._seat = Seat.REFUSED
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport
        self._secured: Secured | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._reading = True

    # -- the protocol of the socket's transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as a listener has it
        """Wait for the client to begin the handshake."""
        self._raw = transport
        self._seat = self._counter.enter(transport)
        if self._seat is Seat.REFUSED:
            self.abort()
            return
        within_s = HANDSHAKE_S if self._seat is Seat.SERVED else RESERVE_HEAD_S
        self._timer = self._loop.call_later(within_s, self._late, within_s)
        self._handshakes.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._counter.leave(self._seat, self._raw)
        self._closing = True
        self._end_handshake()
        if self._secured is not None:
            self._secured.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or decrypt."""
        if self._closing:
            return
        self._incoming.write(data)
        if self._secured is None and not self._shake_hands():
            return
        self._decrypt()

    def eof_received(self) -> None:
        """The client has closed its side; the transport closes, as without TLS."""
        if self._secured is not None and not self._closing:
            self._secured.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the socket's buffer is full."""
        if self._secured is not None:
            self._secured.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the socket's buffer has room."""
        if self._secured is not None:
            self._secured.resume_writing()

    # -- the transport of the protocol above ---------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if self._closing:
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def close(self) -> None:
        """Send what was written and a farewell, and close, without waiting for the client's (RFC 8446 §6.1)."""
        if self._closing:
            return
        self._closing = True
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):  # the farewell is written nevertheless, unless TLS has failed
            pass
        self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Decrypt nothing more for now."""
        self._reading = False
        if not self._raw.is_closing():
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what has arrived, in the next turn of the loop."""
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading and not self.is_closing():
            self._decrypt()
            if self._reading and not self.is_closing():
                self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the socket, encrypted."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport`."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about TLS or the socket; `default` if it is not known."""
        match name:
            case "sslcontext":
                return self._context
            case "ssl_object":
                return self._tls
            case _:
                return self._raw.get_extra_info(name, default)

    # -- within -------------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Go on with the handshake. Returns whether it is complete; then the protocol above begins."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self._refuse(error.reason or str(error))
            return False
        self._flush()
        self._end_handshake()
        self._secured = self._make_secured(self._seat)
        self._secured.connection_made(self)
        return True

    def _decrypt(self) -> None:
        assert self._secured is not None
        try:
            while self._reading and not self._closing:
                data = self._tls.read(READ_BYTES)
                if not data:
                    self._farewell()
                    return
                self._secured.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._farewell()
            return
        except ssl.SSLError:
            self._flush()
            self.abort()
            return
        if not self._closing:
            self._flush()  # TLS answers some messages of its own, such as a change of keys

    def _farewell(self) -> None:
        """The client has closed: so does this side, as without TLS."""
        assert self._secured is not None
        self._secured.eof_received()
        self.close()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _refuse(self, reason: str) -> None:
        if reason in PLAIN_REASONS:
            self._raw.write(PLAIN)
        self._note_failure(reason.replace("_", " ").lower())
        self._closing = True
        self._end_handshake()
        self._raw.close()

    def _late(self, within_s: float) -> None:
        self._timer = None
        self._note_failure(f"the handshake took longer than {within_s:g} s")
        self.abort()

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._handshakes.end(self)

    def _note_failure(self, why: str) -> None:
        peer = self._raw.get_extra_info("peername")
        self._handshakes.report(str(peer[0]) if peer else "a client", why, self._loop.time())
