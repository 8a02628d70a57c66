"""A TCP proxy that does to connections what networks do: it cuts, stalls and slows them, and lets nobody through.

Invariant: bytes that it passes on are unchanged and in order. All that it lets through came before the fault.
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.kit.loopback import listening

PIECE = 65_536
SYNC = b"S\x00\x00\x00\x04"
"""PostgreSQL's message that ends a request (Extended Query, Sync): the server commits, then answers."""


class Proxy:
    """A port that leads to another one. `passed` counts the connections, `cuts` those that a fault has cut."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.passed = 0
        self.cuts = 0
        self.delay_s = 0.0
        self._upstream = host, port
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._spoils: Callable[[bytes], bool] = lambda sent: False
        self._sent: Callable[[bytes], None] = lambda sent: None
        self._open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}

    def lead_to(self, port: int) -> None:
        """Lead to another port of the same host from now on, as an address that moves does. Cut what is open."""
        self._upstream = self._upstream[0], port
        self.cut()

    def cut(self) -> None:
        """Reset every connection that is open now."""
        for ours, theirs in tuple(self._open.items()):
            self._reset(ours, theirs)

    def refuse(self) -> None:
        """Reset every connection, and each new one, as a port does where nobody listens."""
        self._refuses = True
        self.cut()

    def stall(self) -> None:
        """Let nothing through any more, in both directions; connections stay open, and new ones get no answer."""
        self._flows.clear()

    def cut_requests(self, share: float, chance: random.Random) -> None:
        """From now on cut this share of PostgreSQL's requests after the server has got them, and before it answers.

        So the server commits, and the client does not learn it.
        """
        self._spoils = lambda sent: sent.endswith(SYNC) and chance.random() < share

    def watch(self, call: Callable[[bytes], None]) -> None:
        """Call `call` with each piece that a client has sent, once it is passed on."""
        self._sent = call

    def heal(self) -> None:
        """Be a mere wire again."""
        self._refuses = False
        self.delay_s = 0.0
        self._spoils = lambda sent: False
        self._flows.set()

    def _reset(self, ours: asyncio.StreamWriter, theirs: asyncio.StreamWriter) -> None:
        self.cuts += 1
        for writer in (ours, theirs):
            _break(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        if self._refuses:
            self.cuts += 1
            _break(writer)
            return
        await self._flows.wait()
        try:
            back, forth = await asyncio.open_connection(*self._upstream)
        except OSError:
            _break(writer)
            return
        self.passed += 1
        self._open[writer] = forth
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, forth, writer))
                group.create_task(self._pass(back, writer, None))
        except* ConnectionError:
            pass
        finally:
            del self._open[writer]
            for each in (writer, forth):
                each.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter | None
    ) -> None:
        """Pass one direction on; `client` is given for what the client sends."""
        while piece := await reader.read(PIECE):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)  # the network is slow
            await self._flows.wait()
            writer.write(piece)
            await writer.drain()
            if client is not None:
                self._sent(piece)
            if client is not None and self._spoils(piece):
                self.cuts += 1
                _break(client)
                raise ConnectionResetError
        if writer.can_write_eof():
            with suppress(OSError):
                writer.write_eof()


def _break(writer: asyncio.StreamWriter) -> None:
    """Close with RST: who reads or writes at the other end gets an error at once."""
    ours: socket.socket | None = writer.get_extra_info("socket")
    if ours is not None and ours.fileno() >= 0:
        with suppress(OSError):
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def before(host: str, port: int) -> AsyncIterator[Proxy]:
    """A proxy before that port, on a free port of 127.0.0.1."""
    proxy = Proxy(host, port)
    async with listening(proxy.serve) as free:
        proxy.port = free
        yield proxy
