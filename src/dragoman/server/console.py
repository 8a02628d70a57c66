"""The console as configured: the sessions of operators, and the agents elsewhere that they may try.

Invariant: without the console neither exists.
"""

from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.sessions import OperatorSessions
from dragoman.bindings.remote import RemoteAgents, RemoteWays
from dragoman.config import Config, loopback
from dragoman.engine.handlers.access import AccessNotes
from dragoman.engine.handlers.audit import Trail
from dragoman.store.api import Store


class ConsoleParts(Struct, frozen=True):
    """The parts of the console that outlive a reload; None where there is no console."""

    operators: OperatorSessions | None = None
    remote: RemoteAgents | None = None

    def stop(self) -> None:
        """End the open exchanges with agents elsewhere, because the server stops."""
        if self.remote is not None:
            self.remote.stop()

    async def close(self) -> None:
        """Close every connection to agents elsewhere."""
        if self.remote is not None:
            await self.remote.close()


def make_console(config: Config, store: Store, trail: Trail, authenticator: Authenticator) -> ConsoleParts:
    """Make the parts of the console that the configuration asks for."""
    if not config.console or not config.tasks or config.profile is not None:
        return ConsoleParts()
    public = urlsplit(config.public_url).hostname if config.public_url else None
    alone = loopback(config.host) and (public is None or loopback(public))
    ways = RemoteWays(config.console_allowed_hosts, lambda: alone and not authenticator.required)
    return ConsoleParts(
        OperatorSessions(store.shared, store.keys, store.clock, lambda: authenticator.required),
        RemoteAgents(ways, AccessNotes(trail, store.clock), config.keepalive_s),
    )
