"""A webhook of the doctor: it learns whether an agent calls it.

Invariant: it listens only at the address of this machine from which the agent is reached, under a path that nobody can
guess, while the examination lasts. A body is not kept.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

LINE_BYTES_MAX = 1024
"""The longest first line of a call."""


class ProbeWebhook(Protocol):
    """A webhook at `url`."""

    url: str

    async def wait(self, within_s: float) -> bool:
        """Return whether it is called in time."""
        ...


Listen = Callable[[str], AbstractAsyncContextManager[ProbeWebhook | None]]
"""Opens a webhook that an agent at a host can call; None if there can be none."""


class _OwnWebhook:
    """A webhook at this machine."""

    def __init__(self, url: str, called: asyncio.Event) -> None:
        self.url = url
        self._called = called

    async def wait(self, within_s: float) -> bool:
        """Return whether it is called in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._called.wait()
        except TimeoutError:
            return False
        return True


class _Caller(asyncio.Protocol):
    """A connection to the webhook: its first line says whether it is the call."""

    def __init__(self, path: str, called: asyncio.Event, open_: set[asyncio.Transport]) -> None:
        self._path = path
        self._called = called
        self._open = open_
        self._head = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection until it ends."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open.add(transport)

    def data_received(self, data: bytes) -> None:
        """Answer once the first line is there. The rest is dropped, and the caller closes the connection."""
        assert self._transport is not None
        if b"\r\n" in self._head or len(self._head) >= LINE_BYTES_MAX:
            return
        self._head += data[:LINE_BYTES_MAX]
        line, end, _ = self._head.partition(b"\r\n")
        if not end and len(self._head) < LINE_BYTES_MAX:
            return
        right = line.split(b" ")[1:2] == [self._path.encode()]
        status = b"200 OK" if right else b"404 Not Found"
        self._transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        if right:
            self._called.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._transport is not None:
            self._open.discard(self._transport)


@asynccontextmanager
async def open_webhook(host: str) -> AsyncGenerator[ProbeWebhook | None, None]:
    """Listen for the calls of an agent at `host` until the block ends; None if this machine has no address for it."""
    address = await local_address(host)
    if address is None:
        yield None
        return
    path, called = f"/{secrets.token_urlsafe(16)}", asyncio.Event()
    open_: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(lambda: _Caller(path, called, open_), address, 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield _OwnWebhook(f"http://{f'[{address}]' if ':' in address else address}:{port}{path}", called)
    finally:
        server.close()
        for transport in list(open_):
            transport.abort()
        await asyncio.sleep(0)  # each connection is told that it is lost, and closes its socket


async def local_address(host: str) -> str | None:
    """Return the address of this machine from which `host` is reached; None without one. Nothing is sent."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        for family, kind, _, _, to in found:
            with socket.socket(family, kind) as probe:
                probe.connect(to)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return None
