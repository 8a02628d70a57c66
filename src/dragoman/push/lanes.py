"""The lanes: how many calls may be under way at once, by how their hosts have done.

Invariant: hosts that are unknown, or fail, take no slot from those that do well, and a call that takes long keeps none.
"""

from msgspec import Struct

from dragoman.store.outbox import Lane

SLOTS = {Lane.HEALTHY: 256, Lane.UNKNOWN: 128, Lane.FAILING: 64}
"""Most calls at once, by how their hosts have done."""

LINGERING = {Lane.UNKNOWN: 384, Lane.FAILING: 192}
"""Of these lanes, so many calls more may be under way that have taken longer than `SLOW_S`: they leave their slots, so
that of a thousand hosts that keep silent none keeps the others waiting for ten seconds."""

CONNECTIONS_MAX = sum(SLOTS.values()) + sum(LINGERING.values())
"""As many as there are calls at once: none waits for a connection within its ten seconds."""

PACE_S = {Lane.HEALTHY: 0.02, Lane.UNKNOWN: 0.05, Lane.FAILING: 0.25}
"""So much time is between two claims, unless the first took all it could: under load one claim takes many deliveries,
and is written together with what became of others; without load it comes at once."""


class Slot(Struct):
    """What a call occupies, until it has `left` it for taking long."""

    lane: Lane
    left: bool = False


class Lanes:
    """Which slots are taken."""

    __slots__ = ("_lingering", "_taken")

    def __init__(self) -> None:
        self._taken = dict.fromkeys(Lane, 0)
        self._lingering = dict.fromkeys(LINGERING, 0)

    def room(self, lane: Lane) -> int:
        """How many slots are free; none, at the least."""
        return max(0, SLOTS[lane] - self._taken[lane])

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
