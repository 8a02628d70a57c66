"""A connection to a host, and those that are kept between two requests.

Invariant: a connection carries one exchange at a time, and outlives it only if that was clean; whatever comes while
nobody asks ends it. HTTP/1.1 does not say whose answer one is: what comes once a request has gone out is taken for its
answer, so that a host may answer too early, but only to what it is asked itself.
"""

import asyncio
import enum
import os
from collections.abc import Callable
from typing import cast

from dragoman.net.exchange import Answer, NotHttp, Want

HELD_BYTES_MAX = 64 * 1024
"""With more than that unread of an answer in pieces no more is received; what was on its way comes still."""

ENOUGH_BYTES = 16 * 1024
"""With so much unread there is nothing to be gathered."""

REST_S = 1.0
"""So long, once the status is there, the rest of an answer may take of which only that counts: who has said that all is
well has no reason to hold the line."""

Place = tuple[str, str, int]
"""Scheme, host and port: what a connection goes to."""

Begin = Callable[["asyncio.Future[None]"], None]
"""Is told that something has come, and ends the wait for more of it when it likes."""


class End(enum.Enum):
    """Why a connection is of no more use."""

    LOST = "the other side ended it, or the network did"
    LATE = "no whole answer came in time"
    GARBLED = "what came was no answer"
    CLOSED = "it was closed on this side"


class Connection(asyncio.Protocol):
    """A connection to a place. `gone` is called once nothing is left of it."""

    __slots__ = (
        "_answer", "_begin", "_comes", "_draining", "_fd", "_gone", "_late", "_paused", "_transport", "_until_s",
        "_waiting", "end", "lost", "place",
    )  # fmt: skip

    def __init__(self, place: Place, gone: Callable[["Connection"], None]) -> None:
        self.place = place
        self.end: End | None = None
        self.lost = asyncio.get_running_loop().create_future()
        """Done when `gone` has been called."""
        self._gone = gone
        self._answer: Answer | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._begin: Begin | None = None
        self._comes = False
        self._draining = False
        self._fd = -1
        self._late: asyncio.TimerHandle | None = None
        self._until_s = 0.0

    async def ask(self, request: bytes, answer: Answer, until_s: float) -> None:
        """Send a request, and give its answer what comes. Returns when it is over, or the connection has ended.

        Of an answer that is wanted in pieces it returns when the head has come. Of one whose status counts, the rest
        has `REST_S`. `until_s` is a time of the loop. Whoever asked calls `finish` afterwards, in any case.
        """
        if self.end is not None:
            return
        assert self._transport is not None
        self._answer = answer
        loop = asyncio.get_running_loop()
        self._ends_at(until_s)
        self._waiting = loop.create_future()
        try:
            self._transport.write(request)
            await self._waiting
        finally:
            if self._late is not None:
                self._late.cancel()
                self._late = None
            self._waiting = None

    async def more(self) -> None:
        """Wait until something has come of an answer in pieces, or the connection has ended."""
        if self._paused:
            self._receive(True)
        if self.end is None:
            self._begin = None
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    def gathering(self, begin: Begin) -> "asyncio.Future[None] | None":
        """What is done once something has come of an answer in pieces, and then when `begin` has it; None: do not wait.

        `begin` is told when the first of it is there, and given what it is to end. What comes meanwhile is left where
        it is, and received at once then: a read for each piece would cost more than all else that is done with it. Of
        an answer that goes on coming not even the first is received before. Of one that comes in large pieces nothing
        is left. It is over earlier when the connection has ended. One is waited for at a time.
        """
        answer = self._answer
        if self.end is not None or answer is None or answer.over:
            return None
        waiting = self._waiting = asyncio.get_running_loop().create_future()
        self._begin = begin
        if self._comes or answer.held:
            self._gather()
        elif self._paused:
            self._receive(True)
        return waiting

    def _gather(self) -> None:
        assert self._begin is not None
        assert self._answer is not None
        if self._answer.held >= ENOUGH_BYTES:
            self._wake()
            return
        window = asyncio.get_running_loop().create_future()
        self._begin(window)
        if not window.done() and not self._paused:
            self._receive(False)
        window.add_done_callback(self._gathered)

    def _gathered(self, _: "asyncio.Future[None]") -> None:
        if self._waiting is None or self._waiting.done() or self.end is not None:
            return
        if self._paused:
            if self._fd >= 0 and self._read_socket():
                return
            self._receive(True)
        self._draining = True
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._drained)  # the loop of the standard library receives between the two

    def _read_socket(self) -> bool:
        """Receive what has come, past the loop, to which that is two changes of what it watches and three turns.

        False if the loop shall see to the rest: nothing is there, the end of all, or the beginning of a chunk.
        """
        assert self._transport is not None
        if self._transport.is_closing():  # what it read from may be another's by now
            return False
        try:
            data = os.read(self._fd, ENOUGH_BYTES)
        except OSError:
            return False
        if not data:
            return False
        self.data_received(data)
        if (answer := self._answer) is not None and not (answer.held or answer.over):
            return False
        self._drained()
        self._comes = self._comes and len(data) < ENOUGH_BYTES  # there is more, which is not to come a bit a window
        return True

    def _drained(self) -> None:
        self._draining = False
        if (answer := self._answer) is None:
            return
        self._comes = 0 < answer.held < ENOUGH_BYTES and not answer.over
        if answer.held:
            self._wake()

    def finish(self) -> None:
        """Nothing more is expected of the answer. Afterwards `end` is None if the connection may be used again."""
        if (answer := self._answer) is None:
            return
        self._answer = self._begin = None
        self._comes = False
        answer.close()
        if self.end is None:
            assert self._transport is not None
            # What answers before it has read the whole request would take the rest of it for another one.
            if not answer.clean or self._transport.get_write_buffer_size():
                self.close(End.CLOSED)
            elif self._paused:
                self._receive(True)

    def close(self, end: End = End.CLOSED) -> None:
        """End it at once, for a reason."""
        if self.end is None:
            self._set_end(end)
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        if os.name == "posix" and transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

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
        elif answer.want is Want.STATUS and answer.status:
            soon_s = asyncio.get_running_loop().time() + REST_S
            if self._late is not None and soon_s < self._until_s:
                self._ends_at(soon_s)
        elif answer.want is Want.PIECES and answer.status:
            if answer.held > HELD_BYTES_MAX and not self._paused and self.end is None:
                self._receive(False)
            if self._begin is None or (self._paused and answer.held):
                self._wake()
            elif not (self._paused or self._draining or self._waiting is None or self._waiting.done()):
                self._gather()

    def eof_received(self) -> None:
        """The loop's, which would write what is left to be written before it closes."""
        if self._answer is not None:
            self._answer.end()
        self.close(End.LOST)

    def connection_lost(self, error: Exception | None) -> None:
        """The loop's."""
        self._set_end(End.LOST)
        self._gone(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def _ends_at(self, until_s: float) -> None:
        """What is asked has so long; a time that was set before does not count any more."""
        if self._late is not None:
            self._late.cancel()
        self._until_s = until_s
        self._late = asyncio.get_running_loop().call_at(until_s, self.close, End.LATE)

    def _set_end(self, end: End) -> None:
        if self.end is None:
            self.end = end
            self._wake()

    def _receive(self, on: bool) -> None:
        assert self._transport is not None
        self._paused = not on
        if self.end is not None:
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Pool:
    """Connections that nobody uses, the one that was used last first. Their number and their time are bounded.

    Belongs to the event loop of its first connection.
    """

    __slots__ = ("_idle_s", "_max", "_per_place_max", "_places", "_since_s", "_timer")

    def __init__(self, *, per_place_max: int, in_all_max: int, idle_s: float) -> None:
        self._per_place_max = per_place_max
        self._max = in_all_max
        self._idle_s = idle_s
        self._places: dict[Place, dict[Connection, None]] = {}
        self._since_s: dict[Connection, float] = {}  # in the order in which they came
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def take(self, place: Place) -> Connection | None:
        """One to a place, if there is one that has not ended."""
        while (connections := self._places.get(place)) is not None:
            connection = next(reversed(connections))
            self.drop(connection)
            if connection.end is None:
                return connection
        return None

    def keep(self, connection: Connection) -> None:
        """One that somebody has used; for one too many, the one that was not used the longest ends."""
        loop = asyncio.get_running_loop()
        if len(connections := self._places.get(connection.place, ())) >= self._per_place_max:
            self._close(next(iter(connections)))
        else:
            self.shrink(self._max - 1)
        self._places.setdefault(connection.place, {})[connection] = None
        self._since_s[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def shrink(self, kept_max: int) -> None:
        """End those that were not used the longest, until no more than that are left."""
        while len(self._since_s) > max(kept_max, 0):
            self._close(next(iter(self._since_s)))

    def drop(self, connection: Connection) -> None:
        """Of this one nothing more is to be known, if anything was."""
        if self._since_s.pop(connection, None) is None:
            return
        connections = self._places[connection.place]
        del connections[connection]
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
