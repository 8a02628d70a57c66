"""Our ends of a program's pipes. None of them blocks, and each is served while the others are.

Invariant: whatever a program does with its ends, nothing here raises but CancelledError, and nothing is held that was
not bounded: what is read waits for who reads it, or is dropped.
"""

import asyncio
import logging
import os

log = logging.getLogger("dragoman.programs")

CHUNK_BYTES = 65_536
"""As much as a pipe usually holds (pipe(7))."""

LEFT_BYTES = 1024 * 1024
"""As much as a pipe may hold (pipe(7): pipe-max-size): so much may be of a program that has exited."""

DRAIN_S = 0.5
"""How long others may go on with the output of a program that has exited: `tee` of a shell's, not a daemon."""

LINE_CHARS = 2_000
"""As much of a line of stderr as is logged."""

LINES_MAX, LINES_PER_S = 200, 20
"""So many lines of stderr are logged at once, and so many a second on the whole."""


class Feed:
    """What is written to a program. Who does not read, or has closed it, is left alone."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._unsent = b""
        self._at = 0
        self._last = False

    def put(self, data: bytes, *, last: bool) -> None:
        """Write `data` as the program reads; after the `last` it sees the end."""
        self._unsent = self._unsent[self._at :] + data
        self._at, self._last = 0, last
        self._flow()

    def close(self) -> None:
        """Write no more."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._unsent = b""

    def _flow(self) -> None:
        if self._fd < 0:
            return
        view = memoryview(self._unsent)
        try:
            while self._at < len(view):
                self._at += os.write(self._fd, view[self._at : self._at + CHUNK_BYTES])
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._flow)
            return
        except OSError:  # nobody reads
            self.close()
            return
        self._unsent, self._at = b"", 0
        self._loop.remove_writer(self._fd)
        if self._last:
            self.close()


class Complaints:
    """A program's stderr: its lines go to the log under `title`, as many and as much of each as is bearable."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, title: str) -> None:
        self._fd = fd
        self._loop = loop
        self._title = title
        self._line = b""
        self._budget, self._since = float(LINES_MAX), loop.time()
        self._left_out = 0
        loop.add_reader(fd, self._hear)

    def close(self) -> None:
        """Log what is there yet, and read no more."""
        if self._fd < 0:
            return
        for _ in range(LEFT_BYTES // CHUNK_BYTES):
            if not self._hear():
                break
        self._shut()

    def _hear(self) -> bool:
        try:
            piece = os.read(self._fd, CHUNK_BYTES) if self._fd >= 0 else b""
        except BlockingIOError:
            return False
        if not piece:
            self._shut()
            return False
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = rest[: LINE_CHARS * 4]  # a character has at most four bytes
        for line in lines:
            self._log(line)
        return True

    def _shut(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._line:
            self._log(self._line)
        self._say_left_out()

    def _log(self, line: bytes) -> None:
        now = self._loop.time()
        self._budget = min(float(LINES_MAX), self._budget + (now - self._since) * LINES_PER_S)
        self._since = now
        if self._budget < 1:
            self._left_out += 1
            return
        self._say_left_out()
        self._budget -= 1
        text = line[: LINE_CHARS * 4].decode(errors="replace").rstrip("\r")
        cut = text[:LINE_CHARS] + ("…" if len(text) > LINE_CHARS else "")
        log.info("%s: %s", self._title, "".join(c if c.isprintable() or c == "\t" else "�" for c in cut))

    def _say_left_out(self) -> None:
        if self._left_out:
            log.warning("%s: %d lines of stderr were left out", self._title, self._left_out)
            self._left_out = 0


class Yield:
    """A program's stdout. It ends with the program, and a little later if others still write to it."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[int]") -> None:
        self._fd = fd
        self._loop = loop
        self._ended = ended
        self._until: float | None = None
        self._left = LEFT_BYTES

    async def read(self) -> bytes:
        """What came next; nothing at the end."""
        while self._fd >= 0:
            if self._ended.done() and self._until is None:
                self._until = self._loop.time() + DRAIN_S
            late = self._until is not None and self._loop.time() >= self._until
            try:
                piece = os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:
                if late:
                    break
                await self._news()
                continue
            if not piece:
                break
            if late:
                self._left -= len(piece)
                if self._left < 0:
                    break
            return piece
        self.close()
        return b""

    def close(self) -> None:
        """Read no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _news(self) -> None:
        """Until there is something to read, the program has ended, or it is late."""
        news: asyncio.Future[None] = self._loop.create_future()

        def tell(_: object = None) -> None:
            if not news.done():
                news.set_result(None)

        late = None if self._until is None else self._loop.call_at(self._until, tell)
        if late is None:
            self._ended.add_done_callback(tell)
        self._loop.add_reader(self._fd, tell)
        try:
            await news
        finally:
            self._loop.remove_reader(self._fd)
            self._ended.remove_done_callback(tell)
            if late is not None:
                late.cancel()
