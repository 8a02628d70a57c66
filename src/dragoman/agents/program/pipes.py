"""Our ends of a program's pipes. None of them blocks, and each is served while the others are.

Invariant: whatever a program does with its ends, nothing here raises but CancelledError, and nothing is held that was
not bounded: what is read waits for who reads it, or is dropped.
"""

import asyncio
import logging
import os

from dragoman.agents.error_output import Complaints

log = logging.getLogger("dragoman.programs")

CHUNK_BYTES = 65_536
"""As much as a pipe usually holds (pipe(7))."""

LEFT_BYTES = 1024 * 1024
"""As much as a pipe may hold (pipe(7): pipe-max-size): so much may be of a program that has exited."""

DRAIN_S = 0.5
"""How long others may go on with the output of a program that has exited: `tee` of a shell's, not a daemon."""


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


class Errors:
    """A program's stderr, for `complaints`."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, complaints: Complaints) -> None:
        self._fd = fd
        self._loop = loop
        self._complaints = complaints
        loop.add_reader(fd, self._hear)

    def close(self) -> None:
        """Hear what is there yet, and read no more."""
        for _ in range(LEFT_BYTES // CHUNK_BYTES):
            if not self._hear():
                break
        self._shut()

    def _hear(self) -> bool:
        """Hear what is there. Whether there may be more."""
        if self._fd < 0:
            return False
        try:
            piece = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            self._shut()
            return False
        self._complaints.feed(piece)
        return True

    def _shut(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._complaints.end()


class Yield:
    """A program's stdout. It ends with the program, and a little later if others still write to it."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[int]") -> None:
        self._fd = fd
        self._loop = loop
        self._ended = ended
        self._until: float | None = None
        self._left = LEFT_BYTES

    async def read(self, by_s: float | None = None) -> bytes | None:
        """What came next; nothing at the end. None if nothing came by that time of the loop."""
        while self._fd >= 0:
            if self._ended.done() and self._until is None:
                self._until = self._loop.time() + DRAIN_S
            late = self._until is not None and self._loop.time() >= self._until
            try:
                piece = os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:
                if late:
                    break
                if by_s is not None and self._loop.time() >= by_s:
                    return None
                await self._news(by_s)
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

    async def _news(self, by_s: float | None) -> None:
        """Until there is something to read, the program has ended, or it is late for one of both."""
        news: asyncio.Future[None] = self._loop.create_future()

        def tell(_: object = None) -> None:
            if not news.done():
                news.set_result(None)

        late = [self._loop.call_at(at_s, tell) for at_s in (self._until, by_s) if at_s is not None]
        if self._until is None:
            self._ended.add_done_callback(tell)
        self._loop.add_reader(self._fd, tell)
        try:
            await news
        finally:
            self._loop.remove_reader(self._fd)
            self._ended.remove_done_callback(tell)
            for timer in late:
                timer.cancel()
