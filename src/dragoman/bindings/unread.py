"""Accounting of large answers that wait in memory for their readers.

Invariant: the bytes of large answers that wait are bounded, for each caller and for all together, however many
connections there are. An answer of up to `SMALL_BYTES` fits into a connection's own buffer and is not counted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.model.errors import TooManyRequests, Unavailable

SMALL_BYTES = 64 * 1024
"""uvloop's high-water mark: an answer of up to this size is handed to the connection at once."""

ALL = 2
"""All callers together may have this many times as much waiting as one caller."""

RETRY_S = 5


class Unread:
    """Counts the bytes of large answers by caller. A single answer is admitted whatever its size.

    `max_bytes` is the limit of one caller, `page_bytes` the largest size of a page of tasks.
    """

    __slots__ = ("_held", "_listings", "_max_bytes", "_page_bytes", "bytes")

    def __init__(self, max_bytes: int, page_bytes: int) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._page_bytes = page_bytes
        self._held: dict[str, int] = {}
        self._listings: dict[str, tuple[asyncio.Lock, int]] = {}

    def take(self, caller: str, size: int) -> None:
        """Count an answer of `size` bytes that waits for `caller` to read it, until `release`.

        Raises TooManyRequests if the caller's unread answers exceed its limit, Unavailable if those of all callers
        exceed theirs. Nothing is counted then.
        """
        held = self._held.get(caller, 0)
        if held and held + size > self._max_bytes:
            raise TooManyRequests(
                "max_unread_bytes",
                f"{held} bytes of earlier answers wait for you to read them: read those, then ask again; a task that "
                "was sent goes on, get it by its id",
                RETRY_S,
            )
        if self.bytes and self.bytes + size > ALL * self._max_bytes:
            raise Unavailable(
                "too many large answers wait to be read: ask again; a task that was sent goes on, get it by its id",
                RETRY_S,
            )
        self._held[caller] = held + size
        self.bytes += size

    def release(self, caller: str, size: int) -> None:
        """Stop counting an answer of `size` bytes: it was read, or given up."""
        self.bytes -= size
        left = self._held[caller] - size
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]

    @asynccontextmanager
    async def listing(self, caller: str) -> AsyncIterator[None]:
        """Hold room for a page of tasks while it is read and encoded, for one page of each caller at a time.

        Raises as `take` does, before anything is read, if there is no room for a page.
        """
        turn, waiting = self._listings.get(caller) or (asyncio.Lock(), 0)
        self._listings[caller] = turn, waiting + 1
        try:
            async with turn:
                self.take(caller, self._page_bytes)
                try:
                    yield
                finally:
                    self.release(caller, self._page_bytes)
        finally:
            turn, waiting = self._listings[caller]
            if waiting > 1:
                self._listings[caller] = turn, waiting - 1
            else:
                del self._listings[caller]
