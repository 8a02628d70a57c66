"""Chooses the driver for the setting `bus`.

Invariant: no other module knows which drivers there are. The library of a driver is imported only if it is chosen.
"""

from collections.abc import Sequence

from dragoman.bus.api import Bus, BusError, NoBus
from dragoman.bus.cluster import ClusterBus
from dragoman.model.extras import install_command


def make_bus(bus: str, secret: bytes, dsns: Sequence[str] = ()) -> Bus:
    """The bus that `bus` names, not yet open: `none`, `postgres`, or the URLs of a NATS, with commas between them.

    All replicas of a store have the same `secret`. `dsns` are the hosts of the database of `postgres`, as asyncpg takes
    them.

    Raises BusError, naming the fix.
    """
    if bus == "none":
        return NoBus()
    if bus == "postgres":
        if not dsns:
            raise BusError("bus 'postgres' is for a store on PostgreSQL: name a NATS server, or none")
        try:
            from dragoman.bus.postgres import NotifyCarrier
        except ImportError as error:
            raise BusError(_missing("postgres", "postgres")) from error
        return ClusterBus(NotifyCarrier(dsns), secret)
    try:
        from dragoman.bus.nats import NatsCarrier
    except ImportError as error:
        raise BusError(_missing("nats://…", "nats")) from error
    return ClusterBus(NatsCarrier(bus), secret)


def _missing(bus: str, extra: str) -> str:
    return f"bus {bus!r} needs the extra {extra}: run {install_command(extra)}"
