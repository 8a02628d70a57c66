"""The sessions of MCP: their calls in progress, their log levels, and notifications outside of calls.

Invariant: a call is found only by the principal and in the session that made it. A session that listens is notified of
every change of the tools since it began, at least once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from uuid import UUID

from dragoman.bindings.mcp.tool_call import ToolCallStream
from dragoman.dialects.mcp import answers
from dragoman.engine.handlers.usage import OpenStreams, UsageExchange
from dragoman.model.card import Profile
from dragoman.model.errors import TooManyRequests

SESSIONS_REMEMBERED = 10_000
"""How many sessions' log levels are remembered; the oldest are forgotten first."""

SessionKey = tuple[str, str]
"""The principal's id, and the key of the session."""

RETRY_S = 60
"""Retry-After for a caller with too many open sessions: hosts listen for as long as they run."""


class NotificationStream:
    """The notifications to one session, until it leaves or the server stops: see `bindings.streams.Batches`."""

    retry = True
    """The stream ends with the server, and the client should reconnect."""

    def __init__(self, notifications: "Notifications", owner: str, quiet_s: float) -> None:
        self._notifications = notifications
        self._owner = owner
        self._quiet_s = quiet_s
        self._news = asyncio.Event()
        self._over = False

    def notify(self) -> None:
        """Note that the tools have changed."""
        self._news.set()

    async def next(self, wait_s: float | None = None) -> Sequence[bytes] | None:
        """Wait for a change of the tools: see `bindings.streams.Batches.next`."""
        try:
            async with asyncio.timeout(self._quiet_s if wait_s is None else wait_s):
                await self._news.wait()
        except TimeoutError:
            return ()
        self._news.clear()
        if self._over:
            return None
        return (answers.TOOLS_CHANGED,)

    def close(self) -> None:
        """End the stream because the client has left."""
        self._over = True
        self._news.set()
        self._notifications.forget(self, self._owner)


class Notifications:
    """The open streams by principal, shared by all applications of the server.

    `counted` limits how many streams one principal may have; None: any number. With an `exchange` those on other
    replicas count, too.
    """

    def __init__(self, counted: OpenStreams | None, quiet_s: float, *, exchange: UsageExchange | None = None) -> None:
        """`quiet_s`: how long a stream may be silent before it sends a keep-alive."""
        self._counted = counted
        self._exchange = exchange
        self._quiet_s = quiet_s
        self._listening: dict[str, set[NotificationStream]] = {}
        self._served: dict[str, Profile] = {}
        self._since_ms = 0
        self._stopped = False

    async def listen(self, owner: str, session: str) -> NotificationStream:
        """Open a stream for the session with that key. A session older than the last change is told of it at once.

        Raises TooManyRequests.
        """
        counted = self._counted
        if counted is not None:
            if self._exchange is not None:
                await self._exchange.let_open(counted, owner)
            if not counted.take(owner):
                raise TooManyRequests("max_streams", f"{counted.most} sessions listen: close one", RETRY_S)
        stream = NotificationStream(self, owner, self._quiet_s)
        self._listening.setdefault(owner, set()).add(stream)
        if began_ms(session) <= self._since_ms:
            stream.notify()
        if self._stopped:
            stream.close()
        return stream

    def forget(self, stream: NotificationStream, owner: str) -> None:
        """Forget a stream that has ended."""
        theirs = self._listening.get(owner)
        if theirs is None or stream not in theirs:
            return
        theirs.remove(stream)
        if not theirs:
            del self._listening[owner]
        if self._counted is not None:
            self._counted.release(owner)

    def serve(self, profiles: Mapping[str, Profile], now_ms: int) -> None:
        """Set the agents that are served. If they differ from those before, all streams are told."""
        served = dict(profiles)
        if served == self._served:
            return
        self._served, self._since_ms = served, now_ms
        for theirs in self._listening.values():
            for stream in theirs:
                stream.notify()

    def stop(self) -> None:
        """End all streams, present and future, because the server stops."""
        self._stopped = True
        for stream in [stream for theirs in self._listening.values() for stream in theirs]:
            stream.close()


class Sessions:
    """Calls by the raw id of their request, and log levels, for each principal and session.

    `notifications` has the streams for notifications outside of calls.
    """

    def __init__(self, notifications: Notifications) -> None:
        self.notifications = notifications
        self._calls: dict[SessionKey, dict[bytes, ToolCallStream]] = {}
        self._levels: OrderedDict[SessionKey, str] = OrderedDict()

    def add(self, key: SessionKey, request_id: bytes, call: ToolCallStream) -> None:
        """Add a call that has begun. Without a session none is kept, because such clients all count ids from 1."""
        if key[1]:
            self._calls.setdefault(key, {})[request_id] = call

    def remove(self, key: SessionKey, request_id: bytes, call: ToolCallStream) -> None:
        """Remove a call that has ended."""
        calls = self._calls.get(key, {})
        if calls.get(request_id) is call:
            del calls[request_id]
            if not calls:
                del self._calls[key]

    def find(self, key: SessionKey, request_id: bytes) -> ToolCallStream | None:
        """Find the call of a request."""
        return self._calls.get(key, {}).get(request_id)

    def of_task(self, key: SessionKey, task_id: str) -> list[ToolCallStream]:
        """Find the calls that wait for a task."""
        return [call for call in self._calls.get(key, {}).values() if call.task_id == task_id]

    def set_level(self, key: SessionKey, level: str) -> None:
        """Set the lowest level of the log messages that a session wants."""
        if not key[1]:
            return
        self._levels[key] = level
        self._levels.move_to_end(key)
        if len(self._levels) > SESSIONS_REMEMBERED:
            self._levels.popitem(last=False)

    def level(self, key: SessionKey) -> str | None:
        """The level that a session has set; None if it wants no log messages."""
        return self._levels.get(key)

    def forget(self, key: SessionKey) -> None:
        """End a session. Its calls go on until their callers leave."""
        self._levels.pop(key, None)


def began_ms(session: str) -> int:
    """When the session began, in milliseconds since the epoch: its key is a UUID of version 7."""
    return UUID(session).int >> 80
