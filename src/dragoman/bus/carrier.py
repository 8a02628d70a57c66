"""Carrier: the protocol for sending sealed messages from one replica to the others, by subject.

Invariant: a carrier does not read messages. It makes connections; its user replaces one that was lost.
"""

from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

Received = Callable[[bytes], None]
"""Called on the loop with each message that arrives."""

Dropped = Callable[[], None]
"""Called on the loop for each message that arrived and found no room."""


class CarrierDown(Exception):
    """There is no connection, or it was lost. The text says why, for the operator's log."""


class BusConnection(Protocol):
    """A connection that carries messages until it is lost."""

    lost: Future[str]
    """Finishes when the connection is lost, with the reason."""

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages, each to a subject. Raises CarrierDown."""
        ...

    async def subscribe(self, subjects: Collection[str]) -> None:
        """Receive what is sent to these subjects. Once this returns, nothing is missed. Raises CarrierDown."""
        ...

    async def unsubscribe(self, subjects: Collection[str]) -> None:
        """Stop receiving them. Raises CarrierDown."""
        ...

    async def close(self) -> None:
        """Disconnect, whatever state the connection is in."""
        ...


class Carrier(Protocol):
    """Makes connections. A subject is made of words with dots between them: letters, digits and '_'."""

    name: str
    """The name that the operator sees: a URL without its password."""

    gather_s: float
    """How long messages wait for others, to be sent with them."""

    bytes_max: int
    """The largest message."""

    advice: str
    """A hint for the operator if there is a connection, but nothing comes back through it."""

    async def connect(self, received: Received, dropped: Dropped) -> BusConnection:
        """Make a connection. Raises CarrierDown. The caller gives it a few seconds, and then cancels it."""
        ...
