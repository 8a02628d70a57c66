"""The sessions of MCP: their calls in progress, their log levels, and notifications outside of calls.

A session has hardly any state here, so that it outlives replicas and restarts: its key says when it began, and what is
kept of it may be lost at any time. It ends when its client says so; what was kept expires otherwise (`LEVEL_MS`).

    session         begun, with a key from `initialize` ── DELETE ──► ended: it is not found any more; calls go on
    notifications   LISTENING ◄── the tools change; sent ──► NEWS;   the client leaves, the server stops ──► OVER
    call            its states are drawn in `tool_call`
    note            a word about a call, to cancel or to decline, that is not here: LEFT in the store
                    ── the bus says so, or within `NOTES_S` ──► READ by each replica, FOLLOWED where the call waits
                    ── after `NOTE_MS` ──► EXPIRED, read or not

Invariant: a call is found only by the principal and in the session that made it, on whatever replica it waits. A
session that listens is notified of every change of the tools since it began, at least once.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from uuid import UUID

import msgspec
from msgspec import Struct

from dragoman.bindings.mcp.tool_call import ToolCallStream
from dragoman.bus.api import Bus
from dragoman.dialects.mcp.answers import ListenFrames
from dragoman.dialects.mcp.names import INITIALIZE, SESSION_HEADER
from dragoman.dialects.mcp.requests import LEVELS
from dragoman.engine.handlers.usage import OpenStreams, UsageExchange
from dragoman.model.card import Profile
from dragoman.model.errors import InternalError, NotFound, TooManyRequests
from dragoman.model.ids import new_id
from dragoman.model.principal import Principal
from dragoman.store.api import StoreError
from dragoman.store.codec import DamagedRow, decode
from dragoman.store.shared import Shared
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

SESSIONS_REMEMBERED = 10_000
"""How many sessions' log levels are remembered, and that they have ended; the oldest are forgotten first."""

ENDED = "ended"
"""In place of a level: the session has ended."""

LEVEL_MS = 7 * 86_400_000
"""How long the store keeps a session's log level."""

NOTE_MS = 30_000
"""How long the store keeps a client's word about a call. Replicas read it within `NOTES_S`."""

NOTES_S = 1.0
"""How often a replica on which calls wait looks for such words, if the bus does not tell of them."""

NOTES = "mcp/note/"
SIGNAL = "mcp"

SessionKey = tuple[str, str]
"""The principal's id, and the key of the session."""

RETRY_S = 60
"""Retry-After for a caller with too many open sessions: hosts listen for as long as they run."""


class NotificationStream:
    """The notifications to one session, until it leaves or the server stops: see `bindings.streams.Batches`."""

    retry = True
    """The stream ends with the server, and the client should reconnect."""

    def __init__(self, notifications: "Notifications", owner: str, frames: ListenFrames, quiet_s: float) -> None:
        self._notifications = notifications
        self._owner = owner
        self._frames = frames
        self._first = frames.first
        self._last: bytes | None = None
        self._quiet_s = quiet_s
        self._news = asyncio.Event()
        self._over = False

    def notify(self) -> None:
        """Note that the tools have changed."""
        if self._frames.changed is not None:
            self._news.set()

    async def next(self, wait_s: float | None = None) -> Sequence[bytes] | None:
        """Wait for a change of the tools: see `bindings.streams.Batches.next`."""
        if self._first is not None:
            first, self._first = self._first, None
            return (first,)
        try:
            async with asyncio.timeout(self._quiet_s if wait_s is None else wait_s):
                await self._news.wait()
        except TimeoutError:
            return ()
        if self._last is not None:
            last, self._last = self._last, None
            return (last,)
        if self._over:
            return None
        self._news.clear()
        assert self._frames.changed is not None  # else there are no news
        return (self._frames.changed,)

    def stop(self) -> None:
        """End the stream because the server stops."""
        self._last = self._frames.last
        self.close()

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

    async def listen(self, owner: str, frames: ListenFrames, session: str | None = None) -> NotificationStream:
        """Open a stream with those messages. A session older than the last change is told of it at once.

        Raises TooManyRequests.
        """
        counted = self._counted
        if counted is not None:
            if self._exchange is not None:
                await self._exchange.let_open(counted, owner)
            if not counted.take(owner):
                raise TooManyRequests("max_streams", f"{counted.most} sessions listen: close one", RETRY_S)
        stream = NotificationStream(self, owner, frames, self._quiet_s)
        self._listening.setdefault(owner, set()).add(stream)
        if session is not None and began_ms(session) <= self._since_ms:
            stream.notify()
        if self._stopped:
            stream.stop()
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
            stream.stop()


class CallNote(Struct, frozen=True):
    """The word of a client about a call that waits on another replica: it cancels the call, or declines a question.

    `session` stands for the session and its principal. `request_id` is that of the call to cancel, and `principal` who
    cancels it. Without them the calls that wait for the task `task_id` are ended.
    """

    session: bytes
    request_id: bytes = b""
    principal: Principal | None = None
    task_id: str = ""


NOTE = msgspec.msgpack.Decoder(CallNote)


class OpenCall(Struct, frozen=True):
    """A call under way. `cancel` cancels its task in the name of a principal; it raises nothing but InternalError."""

    stream: ToolCallStream
    cancel: Callable[[Principal], Awaitable[None]]


class Sessions:
    """Calls by the raw id of their request, and log levels, for each principal and session.

    `notifications` has the streams for notifications outside of calls. With a `store` other replicas serve the same
    sessions: levels are kept there, and so are, for a while, words about calls that wait elsewhere. With a `bus` these
    are looked for at once, otherwise every `NOTES_S`.
    """

    def __init__(self, notifications: Notifications, store: Shared | None = None, bus: Bus | None = None) -> None:
        """The `bus` must not be open yet."""
        self.notifications = notifications
        self._store = store
        self._bus = bus
        self._calls: dict[SessionKey, dict[bytes, OpenCall]] = {}
        self._levels: OrderedDict[SessionKey, str] = OrderedDict()
        self._told: asyncio.Queue[bytes] = asyncio.Queue(1)
        """Full when a call has begun while none was under way, and when another replica has left a note."""
        if bus is not None:
            bus.on_signal(SIGNAL, self._told)

    def add(self, key: SessionKey, request_id: bytes, call: OpenCall) -> None:
        """Add a call that has begun. Without a session none is kept, because such clients all count ids from 1."""
        if key[1]:
            if not (self._calls or self._told.full()):
                self._told.put_nowait(b"")
            self._calls.setdefault(key, {})[request_id] = call

    def remove(self, key: SessionKey, request_id: bytes, stream: ToolCallStream) -> None:
        """Remove a call that has ended."""
        calls = self._calls.get(key, {})
        call = calls.get(request_id)
        if call is not None and call.stream is stream:
            del calls[request_id]
            if not calls:
                del self._calls[key]

    async def cancel(self, key: SessionKey, request_id: bytes, principal: Principal) -> None:
        """Cancel a call of the session, wherever it waits. One that nobody knows is left alone. Raises StoreError."""
        call = self._calls.get(key, {}).get(request_id)
        if call is not None:
            await call.cancel(principal)
        else:
            await self._leave(CallNote(_digest(key), request_id=request_id, principal=principal), key)

    async def decline(self, key: SessionKey, task_id: str) -> None:
        """End the calls that wait for a task, wherever they wait, because its question was declined.

        Raises StoreError.
        """
        if not self._decline(self._calls.get(key, {}), task_id):
            await self._leave(CallNote(_digest(key), task_id=task_id), key)

    def _decline(self, calls: Mapping[bytes, OpenCall], task_id: str) -> bool:
        waiting = [call.stream for call in calls.values() if call.stream.task_id == task_id]
        for stream in waiting:
            stream.decline()
        return bool(waiting)

    async def set_level(self, key: SessionKey, level: str) -> None:
        """Set the lowest level of the log messages that a session wants. Raises StoreError."""
        if not key[1]:
            return
        if self._store is not None:
            await self._store.put(_level_key(key), level.encode(), LEVEL_MS)
            return
        self._levels[key] = level
        self._levels.move_to_end(key)
        if len(self._levels) > SESSIONS_REMEMBERED:
            self._levels.popitem(last=False)

    async def level(self, key: SessionKey) -> str | None:
        """The level that a session has set; None if it wants no log messages.

        Raises NotFound if the session has ended, StoreError.
        """
        if self._store is None or not key[1]:
            level = self._levels.get(key)
        else:
            entry = await self._store.get(_level_key(key))
            level = None if entry is None else entry.value.decode(errors="replace")
        if level == ENDED:
            raise NotFound(f"the session has ended: begin a new one with {INITIALIZE}, without {SESSION_HEADER}")
        return level if level in LEVELS else None

    async def end(self, key: SessionKey) -> None:
        """End a session. Its calls go on until their callers leave. Raises StoreError."""
        await self.set_level(key, ENDED)

    # -- other replicas ------------------------------------------------------------------------------------------------

    async def _leave(self, note: CallNote, key: SessionKey) -> None:
        if self._store is None or not key[1]:
            return
        await self._store.put(f"{NOTES}{new_id()}", msgspec.msgpack.encode(note), NOTE_MS)
        if self._bus is not None:
            self._bus.signal(SIGNAL)

    async def run(self) -> None:
        """Read for ever what other replicas leave for the calls that wait here. Asks nothing while none does."""
        if self._store is None:
            return
        read: frozenset[str] = frozenset()
        while True:
            try:
                async with asyncio.timeout(NOTES_S if self._calls else None):
                    await self._told.get()
            except TimeoutError:
                pass
            try:
                entries = await self._store.scan(NOTES)
            except StoreError as error:
                log.warning("words about calls of MCP cannot be read: %s", error)
                await asyncio.sleep(NOTES_S)
                continue
            for entry in entries:
                if entry.key in read:
                    continue
                try:
                    note = decode(NOTE, entry.value)
                except DamagedRow as error:
                    log.error("a word about a call of MCP cannot be read: %s", error, extra=about("MCP"))
                    continue
                await self._follow(note)
            read = frozenset(entry.key for entry in entries)

    async def _follow(self, note: CallNote) -> None:
        for key, calls in tuple(self._calls.items()):
            if _digest(key) != note.session:
                continue
            if note.principal is None:
                self._decline(calls, note.task_id)
            elif (call := calls.get(note.request_id)) is not None:
                try:
                    await call.cancel(note.principal)
                except InternalError:
                    log.exception("a call of MCP that was canceled on another replica goes on")


def _digest(key: SessionKey) -> bytes:
    """The stored part of a session, which every replica can read."""
    return blake2b("\0".join(key).encode(), digest_size=16).digest()


def _level_key(key: SessionKey) -> str:
    return f"mcp/level/{_digest(key).hex()}"


def began_ms(session: str) -> int:
    """When the session began, in milliseconds since the epoch: its key is a UUID of version 7."""
    return UUID(session).int >> 80
