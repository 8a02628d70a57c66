"""The listener: uvicorn on httptools, set up for what is served here.

Invariant: the bytes of an answer leave in the order in which they were written, and none stays behind.
"""

import asyncio
import socket
from contextlib import nullcontext

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.bindings.door import Door

BACKLOG = 2048
"""Connections that may wait to be accepted: a few thousand clients come back at once after a restart."""

KEEP_ALIVE_S = 75
"""How long an idle connection is kept. Longer than the 60 s of common proxies, or they would reuse a closed one."""

HEAD_BYTES_MAX = 65_536
"""Longest head of a request, after its first packet; other servers allow 8 to 64 KB."""

GRACE_S = 5
"""How long answers may still be under way once nothing runs any more; then their connections are cut."""

JOINED_BYTES = 65_536
"""Joining copies: what is longer than this goes out alone."""


class Corked:
    """A transport that sends what is written in one turn of the loop with one system call, if that is little.

    uvicorn (0.54) writes the head of an answer and its body one by one, and uvloop (0.23) makes a system call of each,
    which is a third of what a short answer costs.
    """

    __slots__ = ("_held", "_loop", "_transport", "head_bytes", "head_until", "heading")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self.heading = False
        """Whether the head of a request is under way, how much of it came (`head_bytes`) and until when all must have
        come (`head_until`), kept here because the protocol's instances have as many attributes as Python stores
        compactly: one more costs 1.5 KB a connection."""
        self.head_bytes = 0
        self.head_until = 0.0

    def write(self, data: bytes) -> None:
        """Send `data`; the head of an answer waits for what is written next, at most until the loop's next turn."""
        held = self._held
        if held is not None:
            self._held = None
            if len(data) > JOINED_BYTES:
                self._transport.write(held)
                self._transport.write(data)
            else:
                self._transport.write(held + data)
        elif data.startswith(b"HTTP/1.1 "):
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Close after what was written is sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a corked transport, with the bounds that it and httptools lack.

    The head of a request may have about `HEAD_BYTES_MAX`, and must have come within the keep-alive time, however it
    trickles; a client that connects and is silent for as long is cut, too.
    """

    transport: Corked  # type: ignore[assignment]  # all that uvicorn uses

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client connected."""
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self.transport.head_until = self.loop.time() + self.timeout_keep_alive
        self._expect_more()

    def on_message_begin(self) -> None:
        """A request begins."""
        transport = self.transport
        transport.heading = True
        transport.head_bytes = 0
        transport.head_until = self.loop.time() + self.timeout_keep_alive
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is complete."""
        self.transport.heading = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        transport = self.transport
        if transport.heading:
            transport.head_bytes += len(data)
            if transport.head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
                return
        super().data_received(data)
        if transport.heading:
            self._expect_more()
        elif self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            transport.head_until = self.loop.time() + self.timeout_keep_alive  # line ends before a head begin none
            self._expect_more()

    def _expect_more(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self.transport.head_until, self.timeout_keep_alive_handler)


def listener(app: Door) -> uvicorn.Server:
    """A server for sockets that are bound already. It takes no signals: whoever runs it drains first."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # its warnings are one line for every request of a scanner
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]
    return server


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address, but does not listen yet. Raises OSError if it cannot have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it answers wait 40 ms for a delayed ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
