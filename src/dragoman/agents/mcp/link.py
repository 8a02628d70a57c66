"""Link: carries messages to an MCP server and back; the errors when it cannot; Reach, which creates links.

    Away                the server did not do it, or nobody knows whether it did
    ├── SessionGone     the server no longer knows the session: it has done nothing
    │   └── VersionGone     it speaks another version than before
    ├── NotUnderstood   the server answered in another way than servers of the version do, or ended
    └── RequestRefused  the server answered with an error

Invariant: a Link raises only Away and CancelledError, and nothing waits for a server that is gone. Its links
or its `close` close everything that a Reach opens.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from dragoman.client.token_exchange import TokenExchange
from dragoman.dialects.mcp.client import OutgoingRequest, ServerNotification, ServerRequest, ServerResponse
from dragoman.telemetry.job_group import JobGroup

SHOWN_CHARS = 500
"""The longest text of a server that goes into an error message."""

HandleMessage = Callable[[ServerRequest | ServerNotification], Awaitable[None]]
"""Receives the server's messages that are not answers. It raises nothing."""


class Away(Exception):
    """The server did not do what it was asked, or it is unknown whether it did.

    `told` says so without addresses and other internals; the message has them.
    """

    def __init__(self, told: str, why: str = "") -> None:
        super().__init__(why or told)
        self.told = told


class SessionGone(Away):
    """The session is over: the request was not carried out."""


class VersionGone(SessionGone):
    """The server does not speak the version of the session any more: the request was not carried out."""


class NotUnderstood(Away):
    """The answer to a request of 2026-07-28, or to the first one of a session, shows that the server does not speak the
    version, or is no MCP server."""


class RequestRefused(Away):
    """The server answered with an error. `supported` are the versions that it names in it."""

    def __init__(self, code: int, message: str, supported: tuple[str, ...] = ()) -> None:
        super().__init__(message[:SHOWN_CHARS] or f"error {code}")
        self.code = code
        self.supported = supported


class Link(Protocol):
    """The connection to one server, for one session."""

    @property
    def over(self) -> bool:
        """Whether the link is used up, so that the next request needs another."""
        ...

    async def open(self) -> None:
        """Get ready. Raises Away."""
        ...

    async def ask(self, request: OutgoingRequest) -> ServerResponse:
        """Send a request and wait for its answer. The caller sets the timeout. Raises Away.

        A request whose `ask` is canceled is still to be given up.
        """
        ...

    async def give_up(self, request: OutgoingRequest, reason: str) -> None:
        """Tell the server that nobody waits for the answer any more, within a bounded time. Raises Away."""
        ...

    async def tell(self, body: bytes) -> None:
        """Send a message that has no answer, within a bounded time. Raises Away."""
        ...

    def note_version(self, version: str, *, changes: bool) -> None:
        """Note that the session is open, in this version. `changes`: the server announces changes of its tools."""
        ...

    async def subscribe(self, request: OutgoingRequest) -> None:
        """Have the server tell of changes as long as the link lasts, by a request that stays open. Raises Away."""
        ...

    async def close(self) -> None:
        """End the session and all that belongs to it, within a bounded time. Raises nothing."""
        ...


class Reach(Protocol):
    """Creates links to one server. `place` names it for people, without a query that may hold a secret."""

    @property
    def place(self) -> str: ...

    @property
    def exchange(self) -> TokenExchange | None:
        """How callers' tokens are exchanged for those of the server; None if it is called in no caller's name."""
        return None

    def link(self, group: JobGroup, hear: HandleMessage) -> Link:
        """A link for a session. Its incoming messages are read in `group`."""
        ...

    async def close(self) -> None:
        """Close what links share. A later link opens it again."""
        ...
