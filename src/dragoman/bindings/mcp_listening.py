"""What sessions of MCP are told that no call of theirs asked for: that there are other tools.

Invariant: a session that listens is told of every change since it began, once or more often.
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
"""When a caller that listens too often shall try again: hosts listen for as long as they run."""


class Listening:
    """What one session is told, until it leaves or the server stops: see `engine.handler.Stream`."""

    head: TaskHead | None = None
    base: Record | None = None
    retry = True
    """It ends when the server does, and whoever listened shall come back."""

    def __init__(self, listeners: "Listeners", owner: str, quiet_s: float) -> None:
        self._listeners = listeners
        self._owner = owner
        self._quiet_s = quiet_s
        self._news = asyncio.Event()
        self._over = False

    def tell(self) -> None:
        """There are other tools."""
        self._news.set()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """That there are other tools, when there are; see `engine.handler.Stream.next`."""
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
        """Whoever listened has left."""
        self._over = True
        self._news.set()
        self._listeners.left(self, self._owner)


class Listeners:
    """Who listens, by principal; whichever application answers. `most` is how many one principal may have; 0: any."""

    def __init__(self, most: int, quiet_s: float) -> None:
        """After `quiet_s` without news a stream shows that it is there."""
        self._most = most
        self._quiet_s = quiet_s
        self._listening: dict[str, set[Listening]] = {}
        self._served: dict[str, Profile] = {}
        self._since_ms = 0
        self._stopped = False

    def listen(self, owner: str, session: str) -> Listening:
        """A stream for the session with that key, which began before or after the tools were changed.

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
        """One listens no more."""
        theirs = self._listening.get(owner)
        if theirs is not None:
            theirs.discard(stream)
            if not theirs:
                del self._listening[owner]

    def serve(self, profiles: Mapping[str, Profile], now_ms: int) -> None:
        """The agents from now on: if they are others than before, all who listen are told."""
        served = dict(profiles)
        if served == self._served:
            return
        self._served, self._since_ms = served, now_ms
        for theirs in self._listening.values():
            for stream in theirs:
                stream.tell()

    def stop(self) -> None:
        """The server stops: nobody is told any more."""
        self._stopped = True
        for stream in [stream for theirs in self._listening.values() for stream in theirs]:
            stream.close()


def began_ms(session: str) -> int:
    """When the session with that key began, in milliseconds since the epoch: its key is a UUID of version 7."""
    return UUID(session).int >> 80
