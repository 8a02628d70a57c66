"""Link: carries messages to an MCP server and back; the errors when it cannot; Reach, which creates links.

    Away                the server did not do it, or nobody knows whether it did
    ├── SessionGone     the server no longer knows the session: it has done nothing
    └── RequestRefused  the server answered with an error

Invariant: a Link raises only Away and CancelledError, and nothing waits for a server that is gone. Its links
or its `close` close everything that a Reach opens.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from dragoman.dialects.mcp.client import ServerNotification, ServerRequest, ServerResponse
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


class RequestRefused(Away):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message[:SHOWN_CHARS] or f"error {code}")
        self.code = code


class Link(Protocol):
    """The connection to one server, for one session."""

    @property
    def over(self) -> bool:
        """Whether the link is used up, so that the next request needs another."""
        ...

    async def open(self) -> None:
        """Get ready. Raises Away."""
        ...

    async def ask(self, request_id: int, body: bytes) -> ServerResponse:
        """Send a request and wait for its answer. The caller sets the timeout. Raises Away."""
        ...

    async def tell(self, body: bytes) -> None:
        """Send a message that has no answer, within a bounded time. Raises Away."""
        ...

    def note_version(self, version: str, *, changes: bool) -> None:
        """Note that the session is open, in this version. `changes`: the server announces changes of its tools."""
        ...

    async def close(self) -> None:
        """End the session and all that belongs to it, within a bounded time. Raises nothing."""
        ...


class Reach(Protocol):
    """Creates links to one server. `place` names it for people, without a query that may hold a secret."""

    @property
    def place(self) -> str: ...

    def link(self, group: JobGroup, hear: HandleMessage) -> Link:
        """A link for a session. Its incoming messages are read in `group`."""
        ...

    async def close(self) -> None:
        """Close what links share. A later link opens it again."""
        ...
