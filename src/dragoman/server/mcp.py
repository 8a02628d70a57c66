"""The server's side of MCP: what outlives a reload, and the endpoint for the agents of the moment.

Invariant: a session and its calls belong to the server, not to one application.
"""

from collections.abc import Mapping

from dragoman import __version__
from dragoman.bindings.calls import Reception
from dragoman.bindings.endpoints import Endpoints
from dragoman.bindings.mcp import Mcp, Notifications, Sessions
from dragoman.bus.api import Bus
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.engine.handler import Handler
from dragoman.server.usage import UsageCounters
from dragoman.store.api import Store


class McpParts:
    """The sessions of MCP, and what their clients are notified of."""

    def __init__(self, config: Config, store: Store, bus: Bus, usage: UsageCounters) -> None:
        self._clock = store.clock
        self._notifications = Notifications(usage.listeners, config.keepalive_s, exchange=usage.exchange)
        self._sessions = Sessions(self._notifications, store.shared if store.replicas.shared else None, bus)

    def serve(self, runners: Mapping[str, Runner]) -> None:
        """Tell the sessions which agents are tools from now on."""
        self._notifications.serve({agent: runner.profile for agent, runner in runners.items()}, self._clock.now_ms())

    def endpoints(self, handler: Handler, reception: Reception, wait_s: float) -> Endpoints:
        """Its endpoints in an application."""
        return Mcp(handler, reception, self._clock, self._sessions, version=__version__, wait_s=wait_s).endpoints

    async def run(self) -> None:
        """Take up words about calls that wait here, for ever."""
        await self._sessions.run()

    def stop(self) -> None:
        """End the streams of notifications, because the server stops."""
        self._notifications.stop()
