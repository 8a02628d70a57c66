"""Limits on requests: for each one, and for all of them together.

Invariant: the memory for bodies that are still arriving and for large answers that nobody reads is bounded, however
many connections there are. Large JSON is decoded and encoded on a thread, so the loop still gets its turns.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from dragoman.dialects.json_bounds import MAX_DEPTH, MAX_SENT_BYTES, MAX_VALUES, max_sent_bytes
from dragoman.model.errors import TooManyRequests, Unavailable

T = TypeVar("T")

LARGE_BYTES = 64 * 1024
"""JSON of at least this size is handled on the thread: that takes a millisecond, the switch there and back 0.1 ms."""

SMALL_BYTES = 64 * 1024
"""uvloop's high-water mark: an answer of up to this size is handed to the connection at once, and is not counted."""

BODIES_AT_ONCE = 8
"""Bodies of the largest size that may arrive at once: 256 MB with the default of 32."""

UNREAD_SHARE = 2
"""All callers together may have this many times as much waiting as one caller."""

PART_BYTES = 2
"""The shortest part of a message with the comma after it, in any dialect, has more bytes."""

RETRY_S = 5

SLOWEST_BYTES_PER_S = 500
"""A request that arrives more slowly than this on average is refused: no real network is so slow, only clients that
hold connections on purpose. Apache's RequestReadTimeout has the same rate."""


class Arriving:
    """Counts the bytes of bodies that are still arriving."""

    __slots__ = ("bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes

    def take(self, size: int) -> None:
        """Count `size` more bytes. Raises Unavailable, and counts nothing, if that is too much."""
        if self.bytes + size > self.max_bytes:
            raise Unavailable("too many large request bodies are arriving at once: send again", RETRY_S)
        self.bytes += size

    def release(self, size: int) -> None:
        """Stop counting `size` bytes: the body is complete, or was given up."""
        self.bytes -= size


class Unread:
    """Counts the bytes of large answers that wait for their readers, by caller. A single answer may have any size.

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
        if self.bytes and self.bytes + size > UNREAD_SHARE * self._max_bytes:
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

    async def begin_page(self, caller: str) -> None:
        """Take room for a page of tasks that is about to be read, one page of each caller at a time.

        `end_page` releases it. Raises as `take` does, before anything is read, if there is no room for a page.
        """
        turn, waiting = self._listings.get(caller) or (asyncio.Lock(), 0)
        self._listings[caller] = turn, waiting + 1
        try:
            await turn.acquire()
        except BaseException:
            self._leave(caller)
            raise
        try:
            self.take(caller, self._page_bytes)
        except BaseException:
            turn.release()
            self._leave(caller)
            raise

    def end_page(self, caller: str) -> None:
        """Release the room of a page, which is encoded now, or was given up."""
        self.release(caller, self._page_bytes)
        self._listings[caller][0].release()
        self._leave(caller)

    def _leave(self, caller: str) -> None:
        turn, waiting = self._listings[caller]
        if waiting > 1:
            self._listings[caller] = turn, waiting - 1
        else:
            del self._listings[caller]


class Offload:
    """The thread for large JSON: it runs one job at a time. It starts with the first job and ends with this object.

    `max_body_bytes` and `max_values` bound each call of the decoder or encoder, and between two calls the interpreter
    lock is released.
    """

    __slots__ = ("_pool",)

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="json")

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` on the thread and return its result. The job goes on even if the caller is canceled."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)


class Limits(Struct, frozen=True):
    """The limits of one request, named as the settings are, and the counters that all requests share.

    A body is given up if nothing of it arrives for `body_pause_s`. `arriving` counts the bodies of all requests,
    `unread` the answers that nobody reads. `offload` decodes and encodes large JSON. `bounds` are those of a body's
    JSON, as `json_bounds.check` takes them. A body of up to `unchecked_bytes` cannot hold too many parts or too long a
    text.
    """

    max_body_bytes: int
    max_depth: int
    max_parts: int
    arriving: Arriving
    unread: Unread
    offload: Offload
    body_pause_s: float = 30.0
    max_text: int = 4 * 1024 * 1024
    max_values: int = MAX_VALUES
    bounds: tuple[int, int, int] = (MAX_DEPTH, MAX_VALUES, MAX_SENT_BYTES)
    unchecked_bytes: int = 0


def make_limits(
    max_body_bytes: int,
    max_depth: int,
    max_parts: int,
    *,
    body_pause_s: float = 30.0,
    max_text: int = 4 * 1024 * 1024,
    max_values: int = MAX_VALUES,
    max_unread_bytes: int = 64 * 1024 * 1024,
    max_page_bytes: int = 4 * 1024 * 1024,
) -> Limits:
    """Make the limits of one server."""
    arriving = Arriving(BODIES_AT_ONCE * max_body_bytes)
    unread = Unread(max_unread_bytes, max_page_bytes)
    return Limits(
        max_body_bytes,
        max_depth,
        max_parts,
        arriving,
        unread,
        Offload(),
        body_pause_s,
        max_text,
        max_values,
        (max_depth, max_values, max_sent_bytes(max_text)),
        min(max_text, PART_BYTES * max_parts),
    )
