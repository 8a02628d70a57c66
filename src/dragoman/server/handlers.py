"""Assembly of the handlers between the bindings and the engine, with the limits on principals that they keep.

Invariant: every call passes the admission, on a server without tasks too. Rates and open streams are counted once,
whatever binding a call comes from. A store that no other process writes to is not asked for counts: its only replica
knows everything.
"""

from msgspec import Struct

from dragoman.config import Config
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.admission import Admission
from dragoman.engine.handlers.no_store import NoStore
from dragoman.engine.handlers.tracing import Traced
from dragoman.engine.handlers.usage import OpenStreams, Rates, UsageExchange
from dragoman.engine.key_stops import KeyStops
from dragoman.server.engine import EngineParts
from dragoman.server.observation import Observation
from dragoman.store.api import Store


class UsageCounters(Struct, frozen=True):
    """The counters of the limits; None where there is no limit, or no other replica. A key may have its own rate."""

    rates: Rates
    streams: OpenStreams | None
    listeners: OpenStreams | None
    exchange: UsageExchange | None

    async def run(self) -> None:
        """Exchange with other replicas for ever."""
        if self.exchange is not None:
            await self.exchange.run()

    async def close(self) -> None:
        """Tell the other replicas that the streams of this one are closed."""
        if self.exchange is not None:
            await self.exchange.exchange()


class Handlers(Struct, frozen=True):
    """The stacks of handlers: `a2a` answers A2A calls, `agents` chat completions, MCP and workers.

    They are the same object on a server that keeps tasks.
    """

    a2a: Handler
    agents: Handler
    usage: UsageCounters
    stops: KeyStops


def make_handlers(config: Config, parts: EngineParts, observation: Observation) -> Handlers:
    """Make both stacks, over the engine."""
    usage = make_usage(config, parts.store, parts.holder)
    stops = KeyStops(parts.store.shared, parts.store.clock)

    def admit(behind: Handler) -> Handler:
        return Admission(
            behind,
            rates=usage.rates,
            streams=usage.streams,
            trail=parts.trail,
            clock=parts.store.clock,
            exchange=usage.exchange,
            stops=stops,
        )

    agents = admit(parts.files.wrap_links(parts.engine.operations))
    if observation.telemetry is not None:
        agents = Traced(agents, observation.telemetry)
    return Handlers(agents if config.tasks else admit(NoStore(parts.store.clock)), agents, usage, stops)


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
