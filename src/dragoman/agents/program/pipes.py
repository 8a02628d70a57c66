"""Our ends of a program's pipes. None of them blocks, and each is served independently of the others.

Invariant: whatever a program does with its ends, nothing here raises but CancelledError, and everything held is
bounded: output waits in the pipe for its reader, or is dropped.
"""

import asyncio
import logging
import os

from dragoman.agents.error_output import Complaints

log = logging.getLogger("dragoman.programs")

CHUNK_BYTES = 65_536
"""The usual capacity of a pipe (pipe(7))."""

LEFT_BYTES = 1024 * 1024
"""The largest capacity of a pipe (pipe(7): pipe-max-size): the most output that a program can leave when it exits."""

DRAIN_S = 0.5
"""How long other processes may keep writing after the program has exited: enough for a shell's `tee`."""


class Feed:
    """The program's input. A program that does not read it, or has closed it, is left alone."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._unsent = b""
        self._at = 0
        self._last = False

    def put(self, data: bytes, *, last: bool) -> None:
        """Write `data` as fast as the program reads. After the `last` data, the program sees the end."""
        self._unsent = self._unsent[self._at :] + data
        self._at, self._last = 0, last
        self._flow()

    def close(self) -> None:
        """Stop writing."""
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
    """The program's stderr, fed to `complaints`."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, complaints: Complaints) -> None:
        self._fd = fd
        self._loop = loop
        self._complaints = complaints
        loop.add_reader(fd, self._hear)

    def close(self) -> None:
        """Read what is still there, and stop reading."""
        for _ in range(LEFT_BYTES // CHUNK_BYTES):
            if not self._hear():
                break
        self._shut()

    def _hear(self) -> bool:
        """Read what is there. Returns whether there may be more."""
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
    """The program's stdout. It ends with the program, or a little later if other processes still write to it."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[int]") -> None:
        self._fd = fd
        self._loop = loop
        self._ended = ended
        self._until: float | None = None
        self._left = LEFT_BYTES

    async def read(self, by_s: float | None = None) -> bytes | None:
        """Return the next output; empty at the end, None if nothing came by the loop's time `by_s`."""
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
                await self._await_change(by_s)
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
        """Stop reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _await_change(self, by_s: float | None) -> None:
        """Wait until there is output, the program has ended, or one of the deadlines has passed."""
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
