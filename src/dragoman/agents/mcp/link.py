"""Link: how messages get to a server of MCP and back, and what is raised when they do not.

    Away            the server did not do it, or nobody knows; `told` is for models and callers, the message for the log
    ├── SessionGone the server knows the session no more: it has done nothing
    └── Refused     the server answered with an error

Invariant: nothing but Away and CancelledError leaves a Link, and nothing waits on a server that is gone.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from dragoman.dialects.mcp.hearing import Answered, Asked, Told

SHOWN_CHARS = 500
"""As much of a server's own words as goes into a message."""

Hear = Callable[[Asked | Told], Awaitable[None]]
"""Is given what a server says that is no answer. It raises nothing."""


class Away(Exception):
    """The server did not do what it was asked, or it is not known whether it did.

    `told` says so without addresses and other internals; the message has them.
    """

    def __init__(self, told: str, why: str = "") -> None:
        super().__init__(why or told)
        self.told = told


class SessionGone(Away):
    """The session is over: what was asked was not done."""


class Refused(Away):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message[:SHOWN_CHARS] or f"error {code}")
        self.code = code


class Link(Protocol):
    """The way to one server, for one session."""

    @property
    def over(self) -> bool:
        """Whether it is of no more use: what is asked next needs another."""
        ...

    async def open(self) -> None:
        """Make ready. Raises Away."""
        ...

    async def ask(self, request_id: int, body: bytes) -> Answered:
        """Send a request and wait for its answer, for as long as the caller does. Raises Away."""
        ...

    async def tell(self, body: bytes) -> None:
        """Send what has no answer, within a bounded time. Raises Away."""
        ...

    def agreed(self, version: str, *, changes: bool) -> None:
        """The session is open, in this version; with `changes` the server tells when its tools change."""
        ...

    async def close(self) -> None:
        """End the session and all that belongs to it, within a bounded time. Raises nothing."""
        ...
