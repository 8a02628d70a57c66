"""ConnectionCounter: counts the open connections of a listener, and decides about each new one.

Invariant: at most `max_connections` connections are served in full, and no more than there are descriptors of files
for; `RESERVE` more are read on. Descriptors are kept back for the store and for calls to others, however many clients
connect.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.bindings.http1")

CONNECTIONS_MAX = 20_000
"""Most connections by default. Idle streams of so many take a quarter of a gigabyte."""

RESERVE = 64
"""Connections beyond the bound that are read on, so that a probe learns that the server lives."""

RESERVE_HEAD_S = 5.0
"""How long the head of a request may take on a connection of the reserve, from the connect on."""

RESERVE_HEAD_BYTES = 8192
"""Longest head of a request on a connection of the reserve."""

DESCRIPTORS_KEPT = 64
"""Descriptors of files that no connection takes. Those before them are for the reserve, as many as it has."""

FEWEST_SHARE = 8
"""Where few descriptors are allowed, those that are kept and those of the reserve are no more than an eighth each."""

FEW_DESCRIPTORS = "few descriptors of files are left: raise its limit (ulimit -n, LimitNOFILE)"

FEW_CONNECTIONS = "the limit of descriptors of files allows no more (ulimit -n, LimitNOFILE)"


class Seat(Enum):
    """The fate of a new connection: it is served, it is read on for a probe of `/healthz`, or it is closed."""

    SERVED = "served"
    RESERVED = "reserved"
    REFUSED = "refused"


class ConnectionBounds(Struct, frozen=True):
    """The operator's bounds; 0 sets none. `per_address` does not hold for addresses for which `exempt` is true."""

    in_all: int = CONNECTIONS_MAX
    per_address: int = 0
    exempt: Callable[[str], bool] = lambda peer: False


class ConnectionCounter:
    """The open connections, and how many were refused since the start, by reason.

    The reasons: `busy` for those that were read on and told so, `full` for those beyond them, `address` for those of
    one address, and `files` for those for which there were no descriptors.
    """

    def __init__(self, bounds: ConnectionBounds = ConnectionBounds()) -> None:  # noqa: B008 — it is frozen
        self._bounds = bounds
        self._by_address: dict[str, int] = {}
        self.open = 0
        """The connections that are served in full."""
        self.reserved = 0
        self.refused = {"busy": 0, "full": 0, "address": 0, "files": 0}

    def enter(self, transport: asyncio.BaseTransport) -> Seat:
        """Decide about a new connection. `leave` must be called once for each that is not refused."""
        peer, bounds = peer_of(transport), self._bounds
        left = _descriptors_left(transport)
        if left < 0:
            return self.refuse("files", FEW_DESCRIPTORS)
        if bounds.per_address and self._by_address.get(peer, 0) >= bounds.per_address and not bounds.exempt(peer):
            return self.refuse("address", f"{peer} has {bounds.per_address} of them (max_connections_per_address)")
        if left >= RESERVE and (not bounds.in_all or self.open < bounds.in_all):
            self.open += 1
            if bounds.per_address:
                self._by_address[peer] = self._by_address.get(peer, 0) + 1
            return Seat.SERVED
        if self.reserved < RESERVE:
            self.reserved += 1
            return Seat.RESERVED
        if left < RESERVE:
            return self.refuse("files", FEW_DESCRIPTORS)
        return self.refuse("full", f"{bounds.in_all} are open (max_connections), and the reserve is taken")

    def leave(self, seat: Seat, transport: asyncio.BaseTransport) -> None:
        """Count a connection as gone."""
        if seat is Seat.RESERVED:
            self.reserved -= 1
        elif seat is Seat.SERVED:
            self.open -= 1
            if self._bounds.per_address:
                peer = peer_of(transport)
                left = self._by_address.get(peer, 1) - 1
                if left:
                    self._by_address[peer] = left
                else:
                    self._by_address.pop(peer, None)

    def answer_busy(self) -> None:
        """Count a request that was refused on a connection of the reserve."""
        bound = self._bounds.in_all
        full = bound and self.open >= bound
        self.refuse("busy", f"{bound} are open (max_connections)" if full else FEW_CONNECTIONS)

    def refuse(self, reason: str, why: str) -> Seat:
        """Count a connection that is refused. The log has a line a minute for each reason, with their number."""
        self.refused[reason] += 1
        log.warning("a connection was refused: %s", why, extra=about(reason, reason=reason))
        return Seat.REFUSED


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address of a connection's client, empty for a socket that has none."""
    found = transport.get_extra_info("peername")
    return str(found[0]) if isinstance(found, tuple) and found else ""


def _descriptors_left(transport: asyncio.BaseTransport) -> int:
    """How many descriptors connections may take beside this one's: less than 0 if it has one of those that are kept.

    The system gives out the lowest one that is free. The last `RESERVE` of them are for the reserve. A listener that
    runs out of descriptors closes clients before anybody is told (libuv's uv__emfile_trick), and the store and calls to
    others fail.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or (found := transport.get_extra_info("socket")) is None:
        return RESERVE
    descriptor: int = found.fileno()
    left = most - min(DESCRIPTORS_KEPT, most // FEWEST_SHARE) - 1 - descriptor
    return left if left < 0 else left + RESERVE - min(RESERVE, most // FEWEST_SHARE)
