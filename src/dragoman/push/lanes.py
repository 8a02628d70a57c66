"""The lanes and the hosts: how many calls may be under way at once, by the state of their hosts and for each host.

Invariant: unknown and failing hosts take neither slots nor memory from healthy hosts, and a call that takes long keeps
no slot. A host that is slow or has failed has few deliveries in flight, however many are pending for it.
"""

from collections import deque

from msgspec import Struct

from dragoman.push.outcome import WINDOW_MAX, AttemptResult, Schedule, Window, settle
from dragoman.store.outbox import SMALL_BYTES_MAX, Due, Lane, Settled

SLOTS = {Lane.HEALTHY: 256, Lane.UNKNOWN: 128, Lane.FAILING: 64}
"""Most calls at once in each lane."""

SPARE = 128
"""Unknown hosts may also use the free slots of healthy hosts, except for this many."""

LINGERING = {Lane.UNKNOWN: 512, Lane.FAILING: 192}
"""How many more calls may be under way in these lanes after `SLOW_S`: a slow call leaves its slot, so that a thousand
silent hosts do not keep the others waiting for ten seconds."""

LARGE_BYTES_MAX = {Lane.HEALTHY: 24 << 20, Lane.UNKNOWN: 24 << 20, Lane.FAILING: 16 << 20}
"""Most bytes of claimed bodies that are not small; a single larger body is admitted. Small bodies are bounded only by
their number: all calls that may be under way at once, of 16 KB each, are another 16 MB."""

PACE_S = {Lane.HEALTHY: 0.06, Lane.UNKNOWN: 0.1, Lane.FAILING: 0.25}
"""The time between two claims, unless the first took all it could. Under load one claim takes many deliveries and is
written together with the outcomes of others; without load it is made at once."""

HOSTS_MAX = 4096
"""How many idle hosts are remembered."""


class Slot(Struct):
    """The slot of a call: taken, perhaps left (`left`) because the call takes long, and released when it is over."""

    lane: Lane
    left: bool = False

    def leave(self) -> None:
        """Leave it to another call, because this one takes long."""
        self.left = True


class Lanes:
    """Counts the slots and bytes in use."""

    __slots__ = ("_held_bytes", "_lingering", "_taken")

    def __init__(self) -> None:
        self._taken = dict.fromkeys(Lane, 0)
        self._held_bytes = dict.fromkeys(Lane, 0)
        self._lingering = dict.fromkeys(LINGERING, 0)

    def room(self, lane: Lane) -> int:
        """How many slots are free, at least zero."""
        free = SLOTS[lane] - self._taken[lane]
        if lane is Lane.UNKNOWN:
            free += max(0, SLOTS[Lane.HEALTHY] - self._taken[Lane.HEALTHY] - SPARE)
        return max(0, free)

    def crowded(self, lane: Lane) -> bool:
        """Whether half of the room for slow calls is taken, or half of the memory."""
        return (
            2 * self._lingering.get(lane, 0) >= LINGERING.get(lane, 1)
            or 2 * self._held_bytes[lane] >= LARGE_BYTES_MAX[lane]
        )

    def room_bytes(self, lane: Lane) -> int | None:
        """How many more bytes of large bodies may be held; None: a body of any size, because none is held now."""
        held = self._held_bytes[lane]
        return max(0, LARGE_BYTES_MAX[lane] - held) if held else None

    def take_bytes(self, lane: Lane, body: bytes) -> None:
        """Count a claimed body, if it is large."""
        if len(body) > SMALL_BYTES_MAX:
            self._held_bytes[lane] += len(body)

    def release_bytes(self, lane: Lane, body: bytes) -> None:
        """Stop counting a body that is no longer needed."""
        if len(body) > SMALL_BYTES_MAX:
            self._held_bytes[lane] -= len(body)

    def take(self, lane: Lane) -> Slot:
        """Take a slot for a call."""
        self._taken[lane] += 1
        return Slot(lane)

    def linger(self, slot: Slot) -> bool:
        """Free the slot of a slow call, if the lane has room for another such call. Returns whether it did."""
        lane = slot.lane
        if slot.left or self._lingering[lane] >= LINGERING[lane]:
            return False
        slot.leave()
        self._taken[lane] -= 1
        self._lingering[lane] += 1
        return True

    def release(self, slot: Slot) -> None:
        """Release the slot of a call that is over."""
        (self._lingering if slot.left else self._taken)[slot.lane] -= 1


class Host:
    """A host. `window` is how many deliveries it gets at once.

    `waiting` are claimed deliveries beyond its window, each with its lane and the end of its claim in ms.
    """

    __slots__ = ("in_flight", "name", "waiting", "window")

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0
        self.window = Window()
        self.waiting: deque[tuple[Due, Lane, int]] = deque()

    def begin(self) -> None:
        """Count a delivery as under way."""
        self.in_flight += 1

    def end(self) -> None:
        """Undo one `begin`: the delivery is over."""
        self.in_flight -= 1

    @property
    def room(self) -> int:
        """How many more deliveries it may get; zero while some wait."""
        return 0 if self.waiting else max(0, self.window.size - self.in_flight)

    def settle(self, due: Due, result: AttemptResult, schedule: Schedule, now_ms: int, chance: float) -> Settled:
        """Adjust the window after an attempt, and return the outcome of the delivery: see `outcome.settle`."""
        self.window, settled = settle(self.window, due, result, schedule, now_ms, chance)
        return settled


class Hosts:
    """The hosts with deliveries under way, by name, and those that were busy lately."""

    __slots__ = ("_idle", "busy")

    def __init__(self) -> None:
        self.busy: dict[str, Host] = {}
        self._idle: dict[str, Host] = {}

    def __len__(self) -> int:
        return len(self.busy) + len(self._idle)

    def engage(self, name: str) -> Host:
        """Return the host named `scheme://host:port`, which counts as busy from now on."""
        host = self.busy.get(name)
        if host is None:
            host = self._idle.pop(name) if name in self._idle else Host(name)
            self.busy[name] = host
        return host

    def release(self, host: Host) -> None:
        """Make a host idle if nothing is under way to it any more. Beyond `HOSTS_MAX` the longest idle is forgotten."""
        if host.in_flight == 0 and not host.waiting:
            del self.busy[host.name]
            self._idle[host.name] = host
            if len(self._idle) > HOSTS_MAX:
                del self._idle[next(iter(self._idle))]

    def without_room(self, room: int = WINDOW_MAX + 1) -> list[str]:
        """The busy hosts that have less room than `room`."""
        return [name for name, host in self.busy.items() if host.room < room]
