"""Answers that their readers do not take: what of them is held in memory, and for whom.

Invariant: the bytes of large answers that wait for their readers are bounded, for each caller and for all together,
however many connections ask. What is no larger than `SMALL_BYTES` fits into a connection's own buffer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.model.errors import TooManyRequests, Unavailable

SMALL_BYTES = 64 * 1024
"""uvloop's high-water mark: an answer of that size is handed to the connection and done."""

ALL = 2
"""All callers together may have so many times as much waiting as one."""

RETRY_S = 5


class Unread:
    """What is held of large answers, by caller. An answer of any size is taken if it is the only one.

    `page_bytes` is how large a page of tasks may be.
    """

    __slots__ = ("_held", "_listings", "_max_bytes", "_page_bytes", "bytes")

    def __init__(self, max_bytes: int, page_bytes: int) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._page_bytes = page_bytes
        self._held: dict[str, int] = {}
        self._listings: dict[str, tuple[asyncio.Lock, int]] = {}

    def take(self, caller: str, size: int) -> None:
        """An answer of that size waits for `caller` to read it, until `release`.

        Raises, and takes nothing, TooManyRequests if the caller has too many that it does not read, Unavailable if all
        callers together have.
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
        """An answer of that size was read, or given up."""
        self.bytes -= size
        left = self._held[caller] - size
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]

    @asynccontextmanager
    async def listing(self, caller: str) -> AsyncIterator[None]:
        """While a page of tasks is read and written down: for each caller one at a time, so that callers take turns.

        Raises, before anything is read, what `take` does if there is no room for a page.
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
