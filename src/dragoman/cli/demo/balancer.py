"""A load balancer for the replicas of a column: each new connection goes to one that accepts it.

The caller keeps one address, as behind any balancer, and a killed replica cuts its connections.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

PIECE_BYTES = 65536


class Balancer:
    """Listens at a port of this machine, from `open` to `close`, for servers at other ports."""

    def __init__(self, port: int, ports: Sequence[int]) -> None:
        self._port = port
        self._ports = ports
        self._turns = count()
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def close(self) -> None:
        """Cut all connections."""
        if self._server is not None:
            self._server.close()
        for relay in self._relays:
            relay.cancel()
        if self._relays:
            await asyncio.wait(self._relays)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begin = next(self._turns)
        for offset in range(len(self._ports)):
            port = self._ports[(begin + offset) % len(self._ports)]
            try:
                behind = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            for pair in ((reader, behind[1]), (behind[0], writer)):
                relay = asyncio.create_task(_relay(*pair))
                self._relays.add(relay)
                relay.add_done_callback(self._relays.discard)
            return
        writer.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()
