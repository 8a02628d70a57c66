"""How many deliveries a host gets at a time: its window opens while it is quick and closes when it is slow.

Invariant: a host that is slow or has failed has few deliveries in flight, however many are pending for it.
"""

from collections import deque

from dragoman.store.outbox import Due, Lane

WINDOW_START = 4
"""Deliveries in flight to a host that has answered, before more is known about it."""

WINDOW_MAX = 64
QUICK_S = 0.1
"""A window opens to twice its size when as many deliveries as it holds have each taken less than this."""

SLOW_S = 1.0
"""A delivery that takes longer closes the window to half its size."""

TOO_MANY = 429
"""The only status below 500 with which a host asks for fewer calls (RFC 6585 §4)."""

KNOWN_MAX = 4096
"""How many idle hosts are remembered."""


class Host:
    """A host. `waiting` are claimed deliveries beyond its window, each with its lane and the end of its claim in ms."""

    __slots__ = ("_quick", "in_flight", "name", "waiting", "window")

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0
        self.window = WINDOW_START
        self.waiting: deque[tuple[Due, Lane, int]] = deque()
        self._quick = 0

    @property
    def room(self) -> int:
        """How many more deliveries it may get; zero while some wait."""
        return 0 if self.waiting else max(0, self.window - self.in_flight)

    def took(self, took_s: float) -> None:
        """Adjust the window after the host took a delivery."""
        if took_s > SLOW_S:
            self._close()
        elif took_s < QUICK_S:
            self._quick += 1
            if self._quick >= self.window:
                self.window = min(WINDOW_MAX, self.window * 2)
                self._quick = 0

    def refused(self, status: int, took_s: float) -> None:
        """Close the window if a refusal tells of a problem of the host, rather than of one webhook."""
        if took_s > SLOW_S or status == TOO_MANY or status >= 500:
            self._close()

    def failed(self) -> None:
        """Close the window to one, because the host did not answer."""
        self.window = 1
        self._quick = 0

    def _close(self) -> None:
        self.window = max(1, self.window // 2)
        self._quick = 0


class Hosts:
    """The hosts with deliveries under way, by name, and those that were busy lately."""

    __slots__ = ("_idle", "busy")

    def __init__(self) -> None:
        self.busy: dict[str, Host] = {}
        self._idle: dict[str, Host] = {}

    def __len__(self) -> int:
        return len(self.busy) + len(self._idle)

    def busied(self, name: str) -> Host:
        """The host named `scheme://host:port`, which counts as busy from now on."""
        host = self.busy.get(name)
        if host is None:
            host = self._idle.pop(name) if name in self._idle else Host(name)
            self.busy[name] = host
        return host

    def settled(self, host: Host) -> None:
        """Make a host idle if nothing is under way to it any more. Beyond `KNOWN_MAX` the longest idle is forgotten."""
        if host.in_flight == 0 and not host.waiting:
            del self.busy[host.name]
            self._idle[host.name] = host
            if len(self._idle) > KNOWN_MAX:
                del self._idle[next(iter(self._idle))]

    def under_way(self, room: int = WINDOW_MAX + 1) -> list[str]:
        """The busy hosts that have less room than `room`."""
        return [name for name, host in self.busy.items() if host.room < room]
