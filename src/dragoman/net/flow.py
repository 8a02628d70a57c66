"""An answer that is read as it comes: what Egress.stream gives.

Invariant: pieces come in order, as they came; the answer ends without an error only if the peer ended it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from dragoman.net.errors import Broken, EgressError, TooLarge

if TYPE_CHECKING:  # aiohttp takes longer to import than a server may take to start
    import aiohttp

NEVER = float("inf")

Translate = Callable[[Exception], EgressError]
"""From an exception of the driver to what it means."""


class Flow:
    """An answer whose head has come, and whose body is on its way. The names of headers are in lower case.

    To be read once, by `pieces` or by `body`.
    """

    __slots__ = (
        "_answer",
        "_failures",
        "_idle_s",
        "_late_at",
        "_loop",
        "_max_bytes",
        "_shown",
        "_timer",
        "_translate",
        "headers",
        "status",
    )

    def __init__(
        self,
        answer: "aiohttp.ClientResponse",
        *,
        shown: str,
        idle_s: float,
        max_bytes: int,
        failures: tuple[type[Exception], ...],
        translate: Translate,
    ) -> None:
        self.status: int = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}
        self._answer = answer
        self._shown = shown
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._failures = failures
        self._translate = translate
        self._loop = asyncio.get_running_loop()
        self._late_at = NEVER
        self._timer = self._loop.call_later(idle_s, self._look)

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    @property
    def pieces(self) -> AsyncIterator[bytes]:
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

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise Broken(self._shown, "the answer is compressed although the request asked for identity")
        content = self._answer.content
        while True:
            try:
                piece = content.read_nowait()  # what is there already costs no timer
                if not piece:
                    if content.at_eof():
                        return
                    self._late_at = self._loop.time() + self._idle_s
                    piece = await content.readany()
            except self._failures as error:
                raise self._translate(error) from error
            finally:
                self._late_at = NEVER
            if piece:
                yield piece

    def close(self) -> None:
        """End the connection, unless all of the answer has been read."""
        self._timer.cancel()
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()

    def _look(self) -> None:
        """Whether what is waited for is late: one timer for all waits, as one for each would cost a third of a read."""
        now = self._loop.time()
        if now >= self._late_at:
            self._answer.content.set_exception(TimeoutError())
            return
        self._timer = self._loop.call_at(min(self._late_at, now + self._idle_s), self._look)
