"""An answer that is read as it comes: what Egress.stream gives.

Invariant: pieces come in order, as they came; the answer ends without an error only if the peer ended it. No more is
held of it than the connection lets in: whoever does not read, is not written to.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from dragoman.net.connection import Begin, Connection, End
from dragoman.net.dialer import silence
from dragoman.net.errors import Broken, TooLarge
from dragoman.net.exchange import Answer, coded

NEVER = float("inf")


class Flow:
    """An answer whose head has come, and whose body is on its way. The names of headers are in lower case.

    To be read once, by `pieces` or by `body`.
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

        Raises TimedOut if for `idle_s` nothing comes, Broken if the connection ends before the answer does.
        """
        return self._pieces()

    async def body(self) -> bytes:
        """All that is left of the body. Raises TooLarge, or as `pieces`."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self._pieces():
            size += len(piece)
            if size > self._max_bytes:
                raise TooLarge(self._shown, self._max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def gathering(self, begin: Begin) -> "asyncio.Future[None] | None":
        """What is to be waited for before `gathered`: the next piece, and then what `begin` makes of it; None: nothing.

        `begin` is told when the first of the piece is there, and given what it is to end; that ends at once when the
        answer does. For whoever reads neither `pieces` nor `body`, and waits for each of these to its end.
        """
        self._late_at = self._loop.time() + self._idle_s
        return self._connection.gathering(begin)

    def gathered(self) -> bytes:
        """All that has come since; empty at the end of the body. Raises as `pieces`."""
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
        """Nobody waits for more of it."""
        self._timer.cancel()

    def _look(self) -> None:
        """Whether what is waited for is late: one timer for all waits, as one for each would cost a third of a read."""
        now = self._loop.time()
        if now >= self._late_at:
            self._connection.close(End.LATE)
            return
        self._timer = self._loop.call_at(min(self._late_at, now + self._idle_s), self._look)


def compressed(shown: str) -> Broken:
    """An answer that nobody unpacks: a small one can become a huge one."""
    return Broken(shown, "the answer is compressed although the request asked for identity")
