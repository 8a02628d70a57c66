"""The server's side of MCP: what outlives a reload, and the endpoint for the agents of the moment.

Invariant: a session and its calls belong to the server, not to one application.
"""

from collections.abc import Mapping

from dragoman import __version__
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.calls import Reception
from dragoman.bindings.endpoints import Endpoints
from dragoman.bindings.mcp import (
    CallTimes,
    Mcp,
    McpSeal,
    Notifications,
    PartialAnswers,
    ServerCardPage,
    Sessions,
    SkillTools,
    StatelessMcp,
)
from dragoman.bus.api import Bus
from dragoman.config import Config
from dragoman.dialects.mcp.stateless_results import ResultEncoder
from dragoman.engine.handler import Handler
from dragoman.model.card import Described
from dragoman.server.usage import UsageCounters
from dragoman.store.api import Store


class McpParts:
    """The sessions of MCP, and what their clients are notified of."""

    def __init__(self, config: Config, store: Store, bus: Bus, usage: UsageCounters, signing: SigningRoom) -> None:
        self._clock = store.clock
        self._seal = McpSeal(signing.secret, store.clock)
        self._partial_answers = PartialAnswers(store.shared)
        self._notifications = Notifications(usage.listeners, config.keepalive_s, exchange=usage.exchange)
        self._sessions = Sessions(self._notifications, store.shared if store.replicas.shared else None, bus)

    def serve(self, agents: Mapping[str, Described]) -> None:
        """Tell the sessions which agents are tools from now on."""
        self._notifications.serve({agent: each.profile for agent, each in agents.items()}, self._clock.now_ms())

    def endpoints(self, handler: Handler, reception: Reception, config: Config) -> Endpoints:
        """Its endpoints in an application."""
        skills = SkillTools(handler, reception)
        results = ResultEncoder(
            __version__,
            fresh_s=config.card_max_age_s,
            retention=config.task_retention,
            waiting_retention=config.waiting_retention,
        )
        times = CallTimes(config.blocking_timeout_s, config.mcp_task_after_s, config.keepalive_s)
        stateless = StatelessMcp(
            skills, self._clock, self._notifications, results, self._seal, self._partial_answers, times
        )
        mcp = Mcp(skills, stateless, self._clock, self._sessions, version=__version__, wait_s=times.wait_s)
        return mcp.endpoints

    def make_card(self, authenticator: Authenticator, config: Config) -> ServerCardPage:
        """Make its card in an application."""
        return ServerCardPage(authenticator, __version__, config.public_url, config.card_max_age_s)

    async def run(self) -> None:
        """Take up words about calls that wait here, for ever."""
        await self._sessions.run()

    def stop(self) -> None:
        """End the streams of notifications, because the server stops."""
        self._notifications.stop()
