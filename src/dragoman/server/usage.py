"""The counters of the limits on principals, as configured.

Invariant: rates and open streams are counted once, whatever binding a call comes from. A store that no other process
writes to is not asked for counts: its only replica knows everything.
"""

from msgspec import Struct

from dragoman.config import Config
from dragoman.engine.handlers.usage import OpenStreams, Rates, UsageExchange
from dragoman.store.api import Store


class UsageCounters(Struct, frozen=True):
    """The counters of the limits; None where there is no limit, or no other replica. A key may have its own rate."""

    rates: Rates
    streams: OpenStreams | None
    listeners: OpenStreams | None
    exchange: UsageExchange | None

    async def close(self) -> None:
        """Tell the other replicas that the streams of this one are closed."""
        if self.exchange is not None:
            await self.exchange.exchange()


def make_usage(config: Config, store: Store, replica: str) -> UsageCounters:
    """Make the counters. `replica` is a name for this replica that no other has."""
    shared, most = store.replicas.shared, config.max_streams
    rates = Rates(config.max_requests_per_s, shared=shared)
    streams = OpenStreams(most, shared=shared) if most else None
    listeners = OpenStreams(most, kind="listeners", shared=shared) if most else None
    exchange = None
    if shared:
        counted = [one for one in (streams, listeners) if one is not None]
        exchange = UsageExchange(store, replica, store.clock, rates, counted)
    return UsageCounters(rates, streams, listeners, exchange)
