"""A proxy on loopback that passes bytes on, whatever they are, and cuts connections at random points."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.kit.loopback import listening


class CuttingProxy:
    """Cuts a connection after as many bytes of the server's as `bytes_left` says when it is made; None: never.

    `cuts` counts what was cut.
    """

    def __init__(self, port: int, bytes_left: Callable[[], int | None]) -> None:
        self.port = 0
        self.cuts = 0
        self.bytes_left = bytes_left
        self._upstream = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream)
        except ConnectionError:
            writer.transport.abort()
            return
        asking = asyncio.create_task(self._pass(reader, to_server))
        left = self.bytes_left()
        try:
            while data := await from_server.read(4096):
                if left is not None and len(data) >= left:
                    writer.write(data[:left])
                    await writer.drain()
                    self.cuts += 1
                    return
                if left is not None:
                    left -= len(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            asking.cancel()
            writer.close()
            to_server.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def cutting(port: int, bytes_left: Callable[[], int | None]) -> AsyncIterator[CuttingProxy]:
    """A proxy before the server at that port of 127.0.0.1."""
    proxy = CuttingProxy(port, bytes_left)
    async with listening(proxy.serve) as free:
        proxy.port = free
        yield proxy
