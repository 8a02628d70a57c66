"""Notifications to MCP sessions outside of calls: the list of tools has changed.

Invariant: a listening session is told of every change since it began, at least once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from dragoman.bindings.mcp_following import KEY
from dragoman.dialects.mcp import serve_telling
from dragoman.engine.handler import StreamItem
from dragoman.model.card import Profile
from dragoman.model.errors import TooManyRequests
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.task import Record, TaskHead, TaskState

RETRY_S = 60
"""Retry-After for a caller with too many open sessions: hosts listen for as long as they run."""


class Listening:
    """The notifications to one session, until it leaves or the server stops: see `engine.handler.Stream`."""

    head: TaskHead | None = None
    base: Record | None = None
    retry = True
    """The stream ends with the server, and the client should reconnect."""

    def __init__(self, listeners: "Listeners", owner: str, quiet_s: float) -> None:
        self._listeners = listeners
        self._owner = owner
        self._quiet_s = quiet_s
        self._news = asyncio.Event()
        self._over = False

    def tell(self) -> None:
        """Note that the tools have changed."""
        self._news.set()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """Wait for a change of the tools; see `engine.handler.Stream.next`."""
        try:
            async with asyncio.timeout(self._quiet_s if wait_s is None else wait_s):
                await self._news.wait()
        except TimeoutError:
            return ()
        self._news.clear()
        if self._over:
            return None
        unseen = StatusChanged(TaskState.WORKING, "")  # an event to carry the frame
        return (Logged(0, unseen, 0, {KEY: (serve_telling.TOOLS_CHANGED,)}),)

    def close(self) -> None:
        """End the stream because the client has left."""
        self._over = True
        self._news.set()
        self._listeners.left(self, self._owner)


class Listeners:
    """The open streams by principal, shared by all applications of the server.

    `most` is how many streams one principal may have; 0: any number.
    """

    def __init__(self, most: int, quiet_s: float) -> None:
        """`quiet_s`: how long a stream may be silent before it sends a keep-alive."""
        self._most = most
        self._quiet_s = quiet_s
        self._listening: dict[str, set[Listening]] = {}
        self._served: dict[str, Profile] = {}
        self._since_ms = 0
        self._stopped = False

    def listen(self, owner: str, session: str) -> Listening:
        """Open a stream for the session with that key. A session older than the last change is told of it at once.

        Raises TooManyRequests.
        """
        theirs = self._listening.get(owner, ())
        if self._most and len(theirs) >= self._most:
            raise TooManyRequests("max_streams", f"{self._most} sessions listen: close one", RETRY_S)
        stream = Listening(self, owner, self._quiet_s)
        self._listening.setdefault(owner, set()).add(stream)
        if began_ms(session) <= self._since_ms:
            stream.tell()
        if self._stopped:
            stream.close()
        return stream

    def left(self, stream: Listening, owner: str) -> None:
        """Forget a stream that has ended."""
        theirs = self._listening.get(owner)
        if theirs is not None:
            theirs.discard(stream)
            if not theirs:
                del self._listening[owner]

    def serve(self, profiles: Mapping[str, Profile], now_ms: int) -> None:
        """Set the agents that are served. If they differ from those before, all streams are told."""
        served = dict(profiles)
        if served == self._served:
            return
        self._served, self._since_ms = served, now_ms
        for theirs in self._listening.values():
            for stream in theirs:
                stream.tell()

    def stop(self) -> None:
        """End all streams, present and future, because the server stops."""
        self._stopped = True
        for stream in [stream for theirs in self._listening.values() for stream in theirs]:
            stream.close()


def began_ms(session: str) -> int:
    """When the session began, in milliseconds since the epoch: its key is a UUID of version 7."""
    return UUID(session).int >> 80
