"""Limits on requests, for each one and for all together.

Invariant: the memory for bodies that are still arriving is bounded, however many connections there are.
"""

from msgspec import Struct

from dragoman.bindings.offload import Offload
from dragoman.bindings.unread import Unread
from dragoman.dialects.json_bounds import MAX_VALUES
from dragoman.model.errors import Unavailable

AT_ONCE = 8
"""Bodies of the largest size that may arrive at once: 256 MB with the default of 32."""

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


class Limits(Struct, frozen=True):
    """The limits of one request, named as the settings are, and the counters that all requests share.

    A body is given up if nothing of it arrives for `body_pause_s`. `arriving` counts the bodies of all requests,
    `unread` the answers that nobody reads. `offload` decodes and encodes large JSON.
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


def limits(
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
    arriving = Arriving(AT_ONCE * max_body_bytes)
    unread = Unread(max_unread_bytes, max_page_bytes)
    return Limits(max_body_bytes, max_depth, max_parts, arriving, unread, Offload(), body_pause_s, max_text, max_values)
