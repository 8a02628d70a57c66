"""A server on loopback that keeps connections and says exactly what a test tells it to, and who vouches for it."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from tests.kit.loopback import listening

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Line:
    """One connection of a caller's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def asked(self) -> tuple[str, bytes]:
        """The head and the body of the next request. Raises IncompleteReadError if there is none."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0] or 0)
        return head, await self.reader.readexactly(length)

    async def says(self, *pieces: bytes) -> None:
        """These bytes, each piece in a packet of its own as far as the loop can see to it."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def ended(self) -> None:
        """Until the caller has left, having said nothing more."""
        assert await self.reader.read() == b""

    def reset(self) -> None:
        """Hang up without a goodbye."""
        linger_not = struct.pack("ii", 1, 0)  # then closing resets
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        self._writer.transport.abort()

    @property
    def tls(self) -> ssl.SSLObject:
        tls: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return tls


Talk = Callable[[Line], Awaitable[None]]


class Lines:
    """`talk` is had with every connection until the caller leaves or the talk is over; `came` counts connections."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.came = 0
        self.port = 0
        self.failed: list[BaseException] = []
        self._over = asyncio.Condition()
        self._talks = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        try:
            await self.talk(Line(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except AssertionError as error:
            self.failed.append(error)
        finally:
            writer.close()
            async with self._over:
                self._talks += 1
                self._over.notify_all()

    @property
    def open(self) -> int:
        """How many connections are open, as far as the server has seen."""
        return self.came - self._talks

    async def over(self, talks: int) -> None:
        """Until so many connections have been talked with to the end."""
        async with self._over:
            await self._over.wait_for(lambda: self._talks >= talks)


@asynccontextmanager
async def speaking(
    talk: Talk, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Lines]:
    """On a free port, if on no other."""
    lines = Lines(talk)
    async with listening(lines.take, host=host, port=port, tls=tls) as lines.port:
        yield lines
    assert not lines.failed, lines.failed


async def obliging(line: Line) -> None:
    """Takes whatever comes."""
    while True:
        await line.asked()
        await line.says(NO_CONTENT)


@contextmanager
def silent_port() -> Iterator[int]:
    """A port of 127.0.0.1 at which a connection never comes about: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        queued = [socket.socket() for _ in range(3)]
        for one in queued:
            one.setblocking(False)
            one.connect_ex(address)
        try:
            yield address[1]
        finally:
            for one in queued:
                one.close()
