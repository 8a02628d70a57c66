"""A proxy on loopback that does to calls what networks do: it loses, cuts, stalls and splits them, and repeats frames.

It speaks HTTP/1.1, one request a connection, and passes on what it does not spoil. A fault is for one answer, in order.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from tests.kit.loopback import listening

Frames = Callable[[bytes], list[bytes]]
"""The fate of a frame of a stream."""

CHOSEN_BYTES = 16_384
"""The part of a request's body by which its fault is chosen: all of it, unless it is a long one."""

_FRAME_END = re.compile(rb"\r?\n\r?\n")
"""The blank line after a frame: the official Python servers end their lines with CR LF."""


class Fault(Struct, frozen=True, kw_only=True):
    """The fate of a request and its answer.

    With `reads` only that share of a long request is read, and nothing of the request is passed on. After `cut` bytes,
    head included, the connection breaks; `politely`: it ends the body there as if that were all, as a proxy does that
    is restarted. After `stall` bytes nothing comes any more. It is written in pieces of `piece` bytes. `frames` changes
    the frames of a stream. `refuses` answers in the server's place, byte for byte: `late`, once the server has
    answered.
    """

    reads: float | None = None

    cut: int | None = None
    politely: bool = False
    stall: int | None = None
    piece: int = 0
    frames: Frames | None = None
    refuses: bytes = b""
    late: bool = False


class Proxy:
    """The faults of the next answers; `then` is done to all later ones. `asked` are the requests, head and body.

    With `renames`, the port at which callers reach the proxy, answers name that port in place of the server's own.
    """

    def __init__(self, host: str, port: int, *, renames: int | None = None) -> None:
        self.url = ""
        self.faults: list[Fault] = []
        self.then = Fault()
        self.choose: Callable[[bytes], Fault | None] = lambda asked: None
        self.asked: list[bytes] = []
        self.sizes: list[int] = []
        self._upstream = host, port
        self._names = (f"{host}:{port}".encode(), f"{host}:{renames or port}".encode())
        assert len(set(map(len, self._names))) == 1, "a name of another length changes the length of an answer"

    def next(self, *faults: Fault, then: Fault | None = None) -> None:
        """Begin anew with these."""
        self.faults, self.then, self.asked, self.sizes = list(faults), then or Fault(), [], []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        out = _Out(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _length(head)
            asked = head + await reader.readexactly(min(length, CHOSEN_BYTES))
            fault = self.choose(asked) or (self.faults.pop(0) if self.faults else self.then)
            out.fault = fault
            if fault.reads is not None:
                await reader.readexactly(int(fault.reads * max(0, length - CHOSEN_BYTES)))
                if fault.stall is not None:
                    await writer.wait_closed()
                raise _Cut
            asked += await reader.readexactly(max(0, length - CHOSEN_BYTES))
            self.asked.append(asked)
            if fault.refuses:
                if fault.late:
                    await self._swallow(asked)
                await out.write(fault.refuses)
            else:
                await self._pass(asked, fault, out)
        except (ConnectionError, asyncio.IncompleteReadError, _Cut):
            pass
        finally:
            self.sizes.append(out.written)
            writer.close()

    async def _ask(self, asked: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._upstream)
        writer.write(asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        return reader, writer

    async def _swallow(self, asked: bytes) -> None:
        """Let the server answer, and tell nobody."""
        reader, writer = await self._ask(asked)
        try:
            await reader.read(-1)
        finally:
            writer.close()

    async def _pass(self, asked: bytes, fault: Fault, out: "_Out") -> None:
        reader, writer = await self._ask(asked)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [
                line
                for line in head.split(b"\r\n")[:-2]
                if not line.lower().startswith((b"connection:", b"keep-alive"))
            ]
            await out.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
            if b"transfer-encoding: chunked" not in head.lower():
                body = await reader.readexactly(_length(head))
                await out.write(body.replace(*self._names))
                return
            held = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                held += (await reader.readexactly(size + 2))[:-2]
                while end := _FRAME_END.search(held):
                    frame, held = held[: end.start()], held[end.end() :]
                    frame = frame.replace(*self._names)
                    for each in (frame,) if fault.frames is None else fault.frames(frame):
                        await out.chunk(each + end[0])
            if held:
                await out.chunk(held)
            await out.write(b"0\r\n\r\n")
        finally:
            writer.close()


class _Cut(Exception):
    pass


class _Out:
    """Writes what the fault lets through."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.fault = Fault()
        self.written = 0
        self._writer = writer

    async def chunk(self, data: bytes) -> None:
        cut = self.fault.cut
        if self.fault.politely and cut is not None and self.written + len(data) > cut:
            fit = data[: max(0, cut - self.written)]
            rest = b"%x\r\n%b\r\n" % (len(fit), fit) if fit else b""
            self._writer.write(rest + b"0\r\n\r\n")
            await self._writer.drain()
            raise _Cut
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), self.fault.piece or len(data) or 1):
            piece = data[at : at + (self.fault.piece or len(data))]
            end = self.fault.cut if self.fault.stall is None else self.fault.stall
            if end is not None and not self.fault.politely and self.written + len(piece) >= end:
                self._writer.write(piece[: end - self.written])
                self.written = end
                await self._writer.drain()
                if self.fault.stall is not None:
                    await self._writer.wait_closed()
                raise _Cut
            self._writer.write(piece)
            self.written += len(piece)
            await self._writer.drain()


def _length(head: bytes) -> int:
    return int(next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0"))


def twice(frame: bytes) -> list[bytes]:
    """Each frame comes again."""
    return [frame, frame]


def unnumbered(frame: bytes) -> list[bytes]:
    """The frame without its id."""
    return [b"\n".join(line for line in frame.split(b"\n") if not line.startswith(b"id:"))]


@asynccontextmanager
async def before(url: str) -> AsyncIterator[Proxy]:
    """A proxy before the server at `url`, on a free port."""
    host, _, port = url.removeprefix("http://").partition(":")
    proxy = Proxy(host, int(port))
    async with listening(proxy.serve) as free:
        proxy.url = f"http://127.0.0.1:{free}"
        yield proxy
