"""The listener: accepts connections, and lets an ASGI application answer the requests on them.

`tls` puts TLS between the socket and HTTP/1.1 (http1).
"""

import asyncio
import socket
import ssl
from collections.abc import Collection
from contextlib import suppress
from email.utils import formatdate

from dragoman.bindings.http import Asgi
from dragoman.bindings.http1.bounds import ConnectionCounter, Seat
from dragoman.bindings.http1.connection import Connections, ReaderCut, ServerConnection, ignore_cut
from dragoman.bindings.tls import Handshakes, TlsConnection

BACKLOG = 2048
"""Connections that may wait to be accepted: a few thousand clients come back at once after a restart."""

KEEP_ALIVE_S = 75
"""How long an idle connection is kept. Longer than the 60 s of common proxies, or they would reuse a closed one."""

READER_PAUSE_S = 60.0
"""How long a reader may take nothing, by default."""

CUT_S = 0.3
"""How long requests may still run after their connections were cut, and again after they were canceled."""


class Listener:
    """Accepts connections on one socket, and answers the requests on them with `app`.

    It handles no signals: its owner drains the engine first.
    """

    def __init__(
        self,
        app: Asgi,
        *,
        reader_pause_s: float = READER_PAUSE_S,
        keep_alive_s: float = KEEP_ALIVE_S,
        tls: ssl.SSLContext | None = None,
        reader_cut: ReaderCut = ignore_cut,
        counter: ConnectionCounter | None = None,
    ) -> None:
        """With `tls` it speaks HTTPS only. `reader_cut` is called for each reader that is cut off.

        The `counter` bounds the connections. Without one the default bounds hold.
        """
        self._connections = Connections(app, keep_alive_s, reader_pause_s, reader_cut, counter)
        self._server: asyncio.Server | None = None
        self._tls = tls
        self._handshakes = Handshakes()
        self._dating: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> Collection[object]:
        """The open connections."""
        return self._connections.open

    @property
    def counter(self) -> ConnectionCounter:
        """Counts the connections."""
        return self._connections.counter

    async def open(self, bound: socket.socket) -> None:
        """Listen on a socket that is already bound."""
        loop = asyncio.get_running_loop()
        self._date()
        made = self._plain if self._tls is None else self._secured
        self._server = await loop.create_server(made, sock=bound, backlog=BACKLOG)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Take `tls` for new connections. Those that are open go on with theirs."""
        self._tls = tls

    def retire(self) -> None:
        """Accept no more connections, and close each one after the answers that are due on it.

        Requests on them are still answered. A client, or the proxy before it, that comes anew reaches another server.
        """
        if self._server is not None:
            self._server.close()
        self._connections.retire()

    async def close(self, within_s: float) -> None:
        """Accept no more connections and wait for the answers under way; then cut the connections that are left.

        Returns within `within_s`, or after `2 * CUT_S` if that is longer.
        """
        connections = self._connections
        if self._server is not None:
            self._server.close()
        self._handshakes.close()
        connections.shutdown()
        try:
            if not await self._ended(max(0.0, within_s - 2 * CUT_S)):
                for connection in tuple(connections.open):
                    connection.abort()
                if not await self._ended(CUT_S):
                    for request in tuple(connections.tasks.values()):
                        request.cancel()
                    await self._ended(CUT_S)
        finally:
            if self._dating is not None:
                self._dating.cancel()

    async def _ended(self, within_s: float) -> bool:
        """Wait until no connection is open and no request runs. Returns False if that takes longer than `within_s`."""
        connections = self._connections
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await connections.none_left.wait()
                if connections.tasks:
                    await asyncio.wait(tuple(connections.tasks.values()))
                return True
        return False

    def _plain(self, seat: Seat | None = None) -> ServerConnection:
        return ServerConnection(self._connections, asyncio.get_running_loop(), seat)

    def _secured(self) -> TlsConnection:
        assert self._tls is not None
        loop, counter = asyncio.get_running_loop(), self._connections.counter
        return TlsConnection(self._tls, self._plain, loop, self._handshakes, counter)

    def _date(self) -> None:
        """Set the Date of all answers, now and every second."""
        self._connections.set_date(formatdate(usegmt=True))
        self._dating = asyncio.get_running_loop().call_later(1.0, self._date)


def bound_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Bind a socket to the address without listening yet. Raises OSError if that fails.

    With `shared` other processes of this user may listen there too; the system spreads connections over them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it answers wait 40 ms for a delayed ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
