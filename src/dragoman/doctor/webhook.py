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

HEAD_BYTES_MAX = 16 * 1024


class Webhook(Protocol):
    """A webhook at `url`."""

    url: str

    async def wait(self, within_s: float) -> bool:
        """Return whether it is called in time."""
        ...


Listen = Callable[[str], AbstractAsyncContextManager[Webhook | None]]
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


@asynccontextmanager
async def open_webhook(host: str) -> AsyncGenerator[Webhook | None, None]:
    """Listen for the calls of an agent at `host` until the block ends; None if this machine has no address for it."""
    address = await local_address(host)
    if address is None:
        yield None
        return
    path, called = f"/{secrets.token_urlsafe(16)}", asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.close()
            return
        right = head.split(b" ")[1:2] == [path.encode()]
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % (b"200 OK" if right else b"404 No")
        )
        writer.close()
        if right:
            called.set()

    server = await asyncio.start_server(answer, address, 0, limit=HEAD_BYTES_MAX)
    try:
        port = server.sockets[0].getsockname()[1]
        yield _OwnWebhook(f"http://{f'[{address}]' if ':' in address else address}:{port}{path}", called)
    finally:
        server.close()


HEAD_S = 5.0
"""How long a caller may take for its first line."""


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
