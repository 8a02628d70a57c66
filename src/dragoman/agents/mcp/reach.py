"""How an MCP server is reached, by its URL or as a program, and what a model may do with it.

Invariant: whatever a Reach opens is closed by its links or by its `close`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from dragoman.agents.mcp.http import HttpLink
from dragoman.agents.mcp.link import Hear, Link
from dragoman.agents.mcp.program import ProgramLink
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.http import HttpClient
from dragoman.net.egress import Egress, checked

CONNECTIONS_MAX = 1000
"""Most connections to one server at once: each call holds one."""

Made = Callable[[Egress], Credentials | None]
"""Creates the credentials, given the egress by which tokens are fetched."""


class Reach(Protocol):
    """Creates links to one server. `place` names it for people, without a query that may hold a secret."""

    @property
    def place(self) -> str: ...

    def link(self, group: asyncio.TaskGroup, hear: Hear) -> Link:
        """A link for a session. Its incoming messages are read in `group`."""
        ...

    async def close(self) -> None:
        """Close what links share. A later link opens it again."""
        ...


class HttpReach:
    """A server at `url`. `made` creates the credentials for it. Raises BadUrl."""

    def __init__(self, url: str, made: Made) -> None:
        self.place = checked(url)
        self._url = url
        self._egress = Egress(connections_max=CONNECTIONS_MAX)
        credentials = made(self._egress)
        self._way: HttpClient = self._egress if credentials is None else Authorized(self._egress, credentials)

    def link(self, group: asyncio.TaskGroup, hear: Hear) -> Link:
        """A link over HTTP."""
        return HttpLink(self._url, self._way, group, hear)

    async def close(self) -> None:
        """Close the connections."""
        await self._egress.close()


class ProgramReach:
    """A program of `words` that sees `environ`. `name` is the server's, for the log."""

    def __init__(self, name: str, words: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self.place = " ".join(words)
        self._name = name
        self._words = words
        self._environ = environ

    def link(self, group: asyncio.TaskGroup, hear: Hear) -> Link:
        """A link to a program of its own."""
        return ProgramLink(self._name, self._words, self._environ, group, hear)

    async def close(self) -> None:
        """Do nothing: links share nothing."""


class Grant(Struct, frozen=True, kw_only=True):
    """The permissions of a model on a server: it may call the tools in `allow`, all if that is None.

    `approve` names the tools whose calls the caller of a task must approve first.
    """

    name: str
    reach: Reach
    allow: frozenset[str] | None = None
    approve: Literal["always", "never"] | frozenset[str] = "never"
    start_s: float = 30.0
    call_s: float = 120.0

    def allows(self, tool: str) -> bool:
        """Whether the model may call the tool."""
        return self.allow is None or tool in self.allow

    def asks(self, tool: str) -> bool:
        """Whether the caller must approve calls of the tool."""
        return self.approve == "always" or (self.approve != "never" and tool in self.approve)

    def missing(self, there: Collection[str]) -> tuple[tuple[str, str], ...]:
        """The configured tools that are not in `there`, each after its key: nobody is asked to approve those."""
        named = {"allow": self.allow or frozenset()}
        if not isinstance(self.approve, str):
            named["approve"] = self.approve
        return tuple((key, tool) for key, tools in named.items() for tool in sorted(tools.difference(there)))
