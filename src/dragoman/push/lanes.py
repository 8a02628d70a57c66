"""The lanes: how many calls may be under way at once, by how their hosts have done.

Invariant: hosts that are unknown, or fail, take neither slots nor memory from those that do well, and a call that takes
long keeps no slot.
"""

from msgspec import Struct

from dragoman.store.outbox import SMALL_BYTES_MAX, Lane

SLOTS = {Lane.HEALTHY: 256, Lane.UNKNOWN: 128, Lane.FAILING: 64}
"""Most calls at once, by how their hosts have done."""

SPARE = 128
"""Unknown hosts also have the slots of healthy ones that are free beyond so many."""

LINGERING = {Lane.UNKNOWN: 512, Lane.FAILING: 192}
"""Of these lanes, so many calls more may be under way that have taken longer than `SLOW_S`: they leave their slots, so
that of a thousand hosts that keep silent none keeps the others waiting for ten seconds."""

LARGE_BYTES_MAX = {Lane.HEALTHY: 24 << 20, Lane.UNKNOWN: 24 << 20, Lane.FAILING: 16 << 20}
"""So many bytes are the bodies together that were claimed and are not small, unless one alone is larger. Small ones
have no bound but their number: all calls that may be under way at once, of 16 KB each, are another 16 MB."""

PACE_S = {Lane.HEALTHY: 0.06, Lane.UNKNOWN: 0.1, Lane.FAILING: 0.25}
"""So much time is between two claims, unless the first took all it could: under load one claim takes many deliveries,
and is written together with what became of others; without load it comes at once."""


class Slot(Struct):
    """What a call occupies, until it has `left` it for taking long."""

    lane: Lane
    left: bool = False


class Lanes:
    """Which slots are taken."""

    __slots__ = ("_held_bytes", "_lingering", "_taken")

    def __init__(self) -> None:
        self._taken = dict.fromkeys(Lane, 0)
        self._held_bytes = dict.fromkeys(Lane, 0)
        self._lingering = dict.fromkeys(LINGERING, 0)

    def room(self, lane: Lane) -> int:
        """How many slots are free; none, at the least."""
        free = SLOTS[lane] - self._taken[lane]
        if lane is Lane.UNKNOWN:
            free += max(0, SLOTS[Lane.HEALTHY] - self._taken[Lane.HEALTHY] - SPARE)
        return max(0, free)

    def crowded(self, lane: Lane) -> bool:
        """Whether half of what there is for calls that take long is taken, or of the memory."""
        return (
            2 * self._lingering.get(lane, 0) >= LINGERING.get(lane, 1)
            or 2 * self._held_bytes[lane] >= LARGE_BYTES_MAX[lane]
        )

    def room_bytes(self, lane: Lane) -> int | None:
        """How much more may be held of what is not small; None: whatever it is, as nothing is held."""
        held = self._held_bytes[lane]
        return max(0, LARGE_BYTES_MAX[lane] - held) if held else None

    def hold(self, lane: Lane, body: bytes) -> None:
        """A body has been claimed."""
        if len(body) > SMALL_BYTES_MAX:
            self._held_bytes[lane] += len(body)

    def let_go(self, lane: Lane, body: bytes) -> None:
        """It is not needed any more."""
        if len(body) > SMALL_BYTES_MAX:
            self._held_bytes[lane] -= len(body)

    def take(self, lane: Lane) -> Slot:
        """A slot for a call."""
        self._taken[lane] += 1
        return Slot(lane)

    def linger(self, slot: Slot) -> bool:
        """A call takes long: whether it has left its slot to another."""
        lane = slot.lane
        if slot.left or self._lingering[lane] >= LINGERING[lane]:
            return False
        slot.left = True
        self._taken[lane] -= 1
        self._lingering[lane] += 1
        return True

    def end(self, slot: Slot) -> None:
        """A call is over."""
        (self._lingering if slot.left else self._taken)[slot.lane] -= 1
