"""An answer that is read while it arrives, as Egress.stream returns it.

Invariant: pieces come in order, unchanged. The answer ends without an error only if the peer ended it. No more of it is
held than the connection's limit: a slow reader slows down the sender.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from dragoman.net.connection import Begin, Connection, End
from dragoman.net.dialer import silence
from dragoman.net.errors import Broken, TooLarge
from dragoman.net.exchange import Answer, coded

NEVER = float("inf")


class Flow:
    """An answer whose head has arrived and whose body is on its way. Header names are in lower case.

    Read it once, by `pieces` or by `body`.
    """

    __slots__ = (
        "_answer", "_coded", "_connection", "_idle_s", "_late_at", "_loop", "_max_bytes", "_shown", "_timer",
        "headers", "status",
    )  # fmt: skip

    def __init__(self, connection: Connection, answer: Answer, *, shown: str, idle_s: float, max_bytes: int) -> None:
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._coded = coded(answer.headers)
        self._connection = connection
        self._answer = answer
        self._shown = shown
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._late_at = NEVER
        self._timer = self._loop.call_later(idle_s, self._look)

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    @property
    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces of any size, none empty, until the peer ends it.

        Raises TimedOut if nothing comes for `idle_s`, Broken if the connection ends before the answer does.
        """
        return self._pieces()

    async def body(self) -> bytes:
        """Read the rest of the body. Raises TooLarge, or as `pieces`."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self._pieces():
            size += len(piece)
            if size > self._max_bytes:
                raise TooLarge(self._shown, self._max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def gathering(self, begin: Begin) -> "asyncio.Future[None] | None":
        """Return a future to await before `gathered`: it covers the next piece and `begin`'s window. None: do not wait.

        When the piece has begun, `begin` is called with a future that it resolves to end the window. The window ends at
        once when the answer does. This is for readers that use neither `pieces` nor `body`, and that await each future
        to its end.
        """
        self._late_at = self._loop.time() + self._idle_s
        return self._connection.gathering(begin)

    def gathered(self) -> bytes:
        """Return everything that has come since; empty at the end of the body. Raises as `pieces`."""
        self._late_at = NEVER
        if self._coded:
            raise compressed(self._shown)
        answer = self._answer
        if answer.held:
            return answer.take()
        if answer.whole:
            return b""
        raise silence(self._connection, self._shown, self._idle_s)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        if self._coded:
            raise compressed(self._shown)
        answer, connection = self._answer, self._connection
        while True:
            if answer.held:
                yield answer.take()
            elif answer.whole:
                return
            elif answer.over or connection.end is not None:
                raise silence(connection, self._shown, self._idle_s)
            else:
                self._late_at = self._loop.time() + self._idle_s
                try:
                    await connection.more()
                finally:
                    self._late_at = NEVER

    def close(self) -> None:
        """Stop watching for a late peer; nothing more will be read."""
        self._timer.cancel()

    def _look(self) -> None:
        """Close the connection if the current wait is too long.

        One timer serves all waits: a timer for each would cost a third of a read.
        """
        now = self._loop.time()
        if now >= self._late_at:
            self._connection.close(End.LATE)
            return
        self._timer = self._loop.call_at(min(self._late_at, now + self._idle_s), self._look)


def compressed(shown: str) -> Broken:
    """Return the error for a compressed answer. None is unpacked: a small one can expand to a huge one."""
    return Broken(shown, "the answer is compressed although the request asked for identity")
