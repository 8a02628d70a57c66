"""A proxy before PostgreSQL that pools transactions, as PgBouncer does: each transaction may meet another connection.

Invariant: a client has a connection of the server from its first message until the server says that no transaction is
open and everything is answered. Connections are taken in turn, so that two transactions rarely meet the same one.
"""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
"""The requests that a client may send before its startup message."""

LEAVES, SYNC, QUERY, READY = b"X", b"S", b"Q", b"Z"
"""Types of messages: the client leaves, ends a request, sends a simple one; the server is ready for the next one."""


class ServerConnection:
    """A connection of the proxy to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.parameters: list[bytes] = []

    @classmethod
    async def open(cls, port: int, startup: bytes) -> "ServerConnection":
        """Connect as the client wants to, whom the server trusts. Raises ConnectionError with the server's error."""
        self = cls(*await asyncio.open_connection("127.0.0.1", port))
        self.writer.write(startup)
        while True:
            kind, body = await read_message(self.reader)
            if kind == b"S":
                self.parameters.append(message(kind, body))
            elif kind == b"E":
                raise ConnectionError(message(kind, body))
            elif kind == b"Z":
                return self


class PoolingProxy:
    """The proxy before the server on `port`, with at most `size` connections for each user and database."""

    def __init__(self, port: int, size: int) -> None:
        self.port = 0
        self.transactions = 0
        """How often a client got a connection."""
        self._server_port = port
        self._size = size
        self._pools: dict[bytes, deque[ServerConnection]] = {}
        self._open: dict[bytes, int] = {}
        self._freed = asyncio.Condition()
        self._clients: set[asyncio.Task[Any]] = set()

    def url_of(self, url: str) -> str:
        """A URL of the server, through the proxy."""
        return url.replace(f":{self._server_port}/", f":{self.port}/")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client."""
        self._clients.add(task := asyncio.current_task())  # type: ignore[arg-type]
        try:
            startup = await self._greet(reader, writer)
            if startup is not None:
                await self._pass_on(startup, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()
            self._clients.discard(task)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Close everything."""
        for task in tuple(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for pool in self._pools.values():
            for connection in pool:
                connection.writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            (code,) = struct.unpack("!I", body[:4])
            if code in (SSL, GSS):
                writer.write(b"N")
            elif code == CANCEL:
                return None
            else:
                break
        startup = struct.pack("!I", length) + body
        try:
            server = await self._take(startup)
        except ConnectionError as error:
            writer.write(error.args[0])
            return None
        writer.write(message(b"R", struct.pack("!I", 0)) + b"".join(server.parameters))
        writer.write(message(b"K", struct.pack("!II", 4242, 1)) + message(b"Z", b"I"))
        await self._give(startup, server)
        return startup

    async def _pass_on(self, startup: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        hearing = asyncio.create_task(_hear(reader, asked))
        try:
            while True:
                kind, body = await asked.get()
                if kind == LEAVES:
                    return
                server = await self._take(startup)
                self.transactions += 1
                try:
                    await self._pass_transaction(server, (kind, body), asked, writer)
                except BaseException:
                    server.writer.close()
                    await self._give(startup, None)
                    raise
                await self._give(startup, server)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _pass_transaction(
        self,
        server: ServerConnection,
        first: tuple[bytes, bytes],
        asked: "asyncio.Queue[tuple[bytes, bytes]]",
        writer: asyncio.StreamWriter,
    ) -> None:
        unanswered = _ask(server, first)
        asking = asyncio.ensure_future(asked.get())
        answering = asyncio.ensure_future(read_message(server.reader))
        try:
            while True:
                await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    unanswered += _ask(server, asking.result())
                    asking = asyncio.ensure_future(asked.get())
                if answering.done():
                    kind, body = answering.result()
                    writer.write(message(kind, body))
                    unanswered -= kind == READY
                    if (kind, body) == (READY, b"I") and not unanswered and not asking.done():
                        return
                    answering = asyncio.ensure_future(read_message(server.reader))
        finally:
            for waiting in (asking, answering):
                waiting.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    async def _take(self, startup: bytes) -> ServerConnection:
        async with self._freed:
            pool = self._pools.setdefault(startup, deque())
            while not pool and self._open.get(startup, 0) >= self._size:
                await self._freed.wait()
            if self._open.get(startup, 0) >= self._size:
                return pool.popleft()
            self._open[startup] = self._open.get(startup, 0) + 1
        try:
            return await ServerConnection.open(self._server_port, startup)
        except BaseException:
            await self._give(startup, None)
            raise

    async def _give(self, startup: bytes, server: ServerConnection | None) -> None:
        async with self._freed:
            if server is None:
                self._open[startup] -= 1
            else:
                self._pools[startup].append(server)
            self._freed.notify()


def _ask(server: ServerConnection, asked: tuple[bytes, bytes]) -> int:
    """Pass a message of the client on. Returns how many times the server will say because of it that it is ready."""
    kind, body = asked
    if kind == LEAVES:
        raise ConnectionError
    server.writer.write(message(kind, body))
    return kind in (SYNC, QUERY)


async def _hear(reader: asyncio.StreamReader, asked: "asyncio.Queue[tuple[bytes, bytes]]") -> None:
    """Put what the client says into a queue, and in the end that it leaves."""
    try:
        while True:
            asked.put_nowait(await read_message(reader))
    except (asyncio.IncompleteReadError, ConnectionError):
        asked.put_nowait((LEAVES, b""))


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The type and the body of the next message."""
    kind = await reader.readexactly(1)
    (length,) = struct.unpack("!I", await reader.readexactly(4))
    return kind, await reader.readexactly(length - 4)


def message(kind: bytes, body: bytes) -> bytes:
    """A message as it is sent."""
    return kind + struct.pack("!I", len(body) + 4) + body


@asynccontextmanager
async def pooling(port: int, size: int = 3) -> AsyncIterator[PoolingProxy]:
    """A proxy before the server on `port`."""
    proxy = PoolingProxy(port, size)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
