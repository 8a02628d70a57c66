"""What requests may take, one by one and all together.

Invariant: what is held of bodies that are still on their way is bounded, however many connections bring them.
"""

from msgspec import Struct

from dragoman.bindings.offload import Offload
from dragoman.bindings.unread import Unread
from dragoman.dialects.json_bounds import MAX_VALUES
from dragoman.model.errors import Unavailable

AT_ONCE = 8
"""Bodies of the largest size that may be on their way at once: 256 MB with the default of 32."""

RETRY_S = 5

SLOWEST_BYTES_PER_S = 500
"""A request that comes more slowly than this on average is given up: no network in use is so slow, only clients that
hold connections on purpose. Apache's RequestReadTimeout has the same rate."""


class Arriving:
    """The bytes of bodies that are on their way."""

    __slots__ = ("bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes

    def take(self, size: int) -> None:
        """So many more came. Raises Unavailable, and takes nothing, if that is too much."""
        if self.bytes + size > self.max_bytes:
            raise Unavailable("too many large bodies are on their way to the server at once: send again", RETRY_S)
        self.bytes += size

    def release(self, size: int) -> None:
        """A body of that size is complete, or given up."""
        self.bytes -= size


class Limits(Struct, frozen=True):
    """What a request may be at most; the names are those of the settings.

    A body of which nothing arrives for `body_pause_s` is given up. `arriving` counts those of all requests, `unread`
    the answers that nobody reads; `offload` reads and writes large ones.
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
    """Limits of one server."""
    arriving = Arriving(AT_ONCE * max_body_bytes)
    unread = Unread(max_unread_bytes, max_page_bytes)
    return Limits(max_body_bytes, max_depth, max_parts, arriving, unread, Offload(), body_pause_s, max_text, max_values)
