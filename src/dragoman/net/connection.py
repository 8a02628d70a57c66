"""A connection of the Poster, and those that are kept between two calls.

Invariant: a connection carries one exchange at a time, and outlives it only if that was clean; whatever comes while
nobody asks ends it. HTTP/1.1 does not say whose answer one is: what comes once a request has gone out is taken for its
answer, so that a host may answer too early, but only to what it is asked itself.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import cast

from dragoman.net.exchange import Answer, NotHttp

Place = tuple[str, str, int]
"""Scheme, host and port: what a connection goes to."""


class End(enum.Enum):
    """Why a connection is of no more use."""

    LOST = "the other side ended it, or the network did"
    LATE = "no whole answer came in time"
    GARBLED = "what came was no answer"
    CLOSED = "it was closed on this side"


class Connection(asyncio.Protocol):
    """A connection to a place. `gone` is called once nothing is left of it."""

    __slots__ = ("_answer", "_gone", "_over", "_transport", "end", "lost", "place")

    def __init__(self, place: Place, gone: Callable[["Connection"], None]) -> None:
        self.place = place
        self.end: End | None = None
        self.lost = asyncio.get_running_loop().create_future()
        """Done when `gone` has been called."""
        self._gone = gone
        self._answer: Answer | None = None
        self._over: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    async def ask(self, request: bytes, answer: Answer, until_s: float) -> None:
        """Send a request, and give its answer what comes until it is over, or the connection ends.

        `until_s` is a time of the loop. Afterwards `end` is None if the connection may be used again.
        """
        if self.end is not None:
            return
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._answer, self._over = answer, loop.create_future()
        late = loop.call_at(until_s, self.close, End.LATE)
        try:
            self._transport.write(request)
            await self._over
        finally:
            late.cancel()
            self._answer = self._over = None
            # What answers before it has read the whole request would take the rest of it for another one.
            if not answer.clean or self._transport.get_write_buffer_size():
                self.close(End.CLOSED)

    def close(self, end: End = End.CLOSED) -> None:
        """End it at once, for a reason."""
        if self.end is None:
            self._ended(end)
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """The loop's."""
        if (answer := self._answer) is None:
            self.close(End.GARBLED)
            return
        try:
            answer.receive(data)
        except NotHttp:
            self.close(End.GARBLED)
        if answer.over:
            self._wake()

    def eof_received(self) -> None:
        """The loop's, which would write what is left to be written before it closes."""
        self.close(End.LOST)

    def connection_lost(self, error: Exception | None) -> None:
        """The loop's."""
        self._ended(End.LOST)
        self._gone(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _ended(self, end: End) -> None:
        if self.end is None:
            self.end = end
            self._wake()

    def _wake(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class Pool:
    """Connections that nobody uses, the one that was used last first. Their number and their time are bounded.

    Belongs to the event loop of its first connection.
    """

    __slots__ = ("_idle_s", "_max", "_per_place_max", "_places", "_since_s", "_timer")

    def __init__(self, *, per_place_max: int, in_all_max: int, idle_s: float) -> None:
        self._per_place_max = per_place_max
        self._max = in_all_max
        self._idle_s = idle_s
        self._places: dict[Place, list[Connection]] = {}
        self._since_s: dict[Connection, float] = {}  # in the order in which they came
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def take(self, place: Place) -> Connection | None:
        """One to a place, if there is one that has not ended."""
        while (connections := self._places.get(place)) is not None:
            connection = connections[-1]
            self.drop(connection)
            if connection.end is None:
                return connection
        return None

    def keep(self, connection: Connection) -> None:
        """One that somebody has used; for one too many, the one that was not used the longest ends."""
        loop = asyncio.get_running_loop()
        connections = self._places.setdefault(connection.place, [])
        if len(connections) >= self._per_place_max:
            self._close(connections[0])
        elif len(self._since_s) >= self._max:
            self._close(next(iter(self._since_s)))
        self._places.setdefault(connection.place, []).append(connection)
        self._since_s[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def drop(self, connection: Connection) -> None:
        """Of this one nothing more is to be known, if anything was."""
        if self._since_s.pop(connection, None) is None:
            return
        connections = self._places[connection.place]
        connections.remove(connection)
        if not connections:
            del self._places[connection.place]

    def close(self) -> None:
        """End all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._since_s):
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self.drop(connection)
        connection.close()

    def _expire(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        while self._since_s:
            oldest = next(iter(self._since_s))
            end_s = self._since_s[oldest] + self._idle_s
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._expire)
                return
            self._close(oldest)
