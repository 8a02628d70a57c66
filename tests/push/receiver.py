"""A webhook's receiver on loopback: keeps its connections, notes what came, and answers as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.kit.loopback import listening
from tests.net.peer import Asked, read_request

Answer = int | tuple[int, dict[str, str]]
"""A status, with headers or without."""


def place_of(seq: str) -> tuple[int, float]:
    """The order of a task's calls: the event, and the place among the calls about it; the last has none."""
    event, _, part = seq.partition(".")
    return int(event), float(part or "inf")


class Receiver:
    """`answers` says what to answer to the so-manieth call, from 0; `hold` keeps all answers back until it is set,
    `pause_s` each for a while.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.answers: Callable[[int], Answer] = lambda number: 204
        self.hold = asyncio.Event()
        self.hold.set()
        self.pause_s: Callable[[], float] | None = None
        self.open = 0
        self.most = 0
        self._came = asyncio.Condition()

    @property
    def bodies(self) -> list[bytes]:
        return [asked.body for asked in self.asked]

    async def came(self, count: int) -> None:
        """Until so many calls have come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.asked) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._take(await read_request(reader), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _take(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        number = len(self.asked)
        self.open += 1
        self.most = max(self.most, self.open)
        async with self._came:
            self.asked.append(asked)
            self._came.notify_all()
        await self.hold.wait()
        if self.pause_s is not None:
            await asyncio.sleep(self.pause_s())
        self.open -= 1
        answer = self.answers(number)
        status, headers = (answer, {}) if isinstance(answer, int) else answer
        lines = [f"HTTP/1.1 {status} X", "Content-Length: 0", *(f"{name}: {value}" for name, value in headers.items())]
        if status == 204:
            lines.remove("Content-Length: 0")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()


@asynccontextmanager
async def receiving(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on a port."""
    receiver = Receiver()
    async with listening(receiver.serve, host=host, port=port) as port:
        receiver.url = f"http://{host}:{port}"
        yield receiver
