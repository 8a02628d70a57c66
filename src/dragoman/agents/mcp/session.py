"""One MCP server, connected whenever it is needed: its tools, and the session with it from `initialize` to its end.

    session   NONE ── needed ──► OPENING ── agreed on a version ──► OPEN ── the link is over, or says so ──► NONE
               ▲                   │
               └── the pause ends ─┴─ Away ──► PAUSED: who needs it gets the same Away     any, `close` ──► CLOSED
    tools     UNKNOWN ── needed ──► LISTING ── listed ──► KNOWN ── `LIST_S`, a change, a call that is Away ──► UNKNOWN
                                       ├─ they changed meanwhile ──► UNKNOWN: this list is used once
                                       └─ Away ──► PAUSED, as above
    call      SENT ── answered ──► ended;   too late, or canceled ──► given up: the server is told, for `GIVE_UP_S`
                └── the server does not know the session any more ──► SENT once more, in a new one

The pause doubles from `PAUSE_S` to `PAUSE_S_MAX`, until tools have been listed. How a link carries messages is not
covered (`link`).

Invariant: there is at most one session. It is opened when it is first needed, shared by all runs, and replaced when it
is over. Every request ends: with its answer, with Away, or with its timeout.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from dragoman import __version__
from dragoman.agents.mcp.link import Away, HandleMessage, Link, RequestRefused, SessionGone
from dragoman.dialects.mcp import client, names
from dragoman.dialects.mcp.client import (
    InitializeResult,
    ServerNotification,
    ServerRequest,
    ServerResponse,
    ToolOffer,
    ToolOutcome,
    ToolProgress,
)
from dragoman.model.errors import InvalidAgentResponse

log = logging.getLogger("dragoman.mcp")

PAUSE_S, PAUSE_S_MAX = 2.0, 60.0
"""How long an unreachable server is not tried again, so that not every run waits for it: at first, and after many
failures."""

LIST_S = 300.0
"""How long a list of tools is used if the server does not announce changes, or was not heard."""

T = TypeVar("T")

GIVE_UP_S = 1.0
"""How long a server may take to accept that a call was given up."""

PAGES_MAX = 100
"""Most pages of tools that are read, since a faulty server may always announce one more."""

MakeLink = Callable[[HandleMessage], Link]
"""Creates a Link, which passes the server's own messages to the given receiver."""

OnProgress = Callable[[ToolProgress], None]


class McpSession:
    """A session with the server `name`. `changed` is called when the server's tools have changed."""

    def __init__(self, name: str, make_link: MakeLink, changed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self._link = make_link(self._hear)
        self._ids = count(1)
        self._progress: dict[int, OnProgress] = {}
        self.server = ""

    @property
    def over(self) -> bool:
        """Whether a new session is needed."""
        return self._link.over

    async def open(self, within_s: float) -> None:
        """Agree with the server on a version. If that fails, the link is closed. Raises Away."""
        try:
            async with asyncio.timeout(within_s):
                await self._link.open()
                opened = await self._initialize()
                await self._say(client.notification(names.INITIALIZED))
        except BaseException as error:
            await self._link.close()
            if isinstance(error, TimeoutError):
                raise Away(f"its server gave no answer within {within_s:g} s") from error
            raise
        if not opened.tools:
            log.warning("mcp server %s (%s) says that it has no tools", self._name, opened.server)
        log.info("mcp server %s: %s, version %s of MCP", self._name, opened.server or "unnamed", opened.version)
        self.server = opened.server

    async def offers(self, within_s: float) -> tuple[ToolOffer, ...]:
        """All tools of the server, in its order. Raises Away."""
        offers: list[ToolOffer] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(within_s):
                for _ in range(PAGES_MAX):
                    request_id = next(self._ids)
                    answer = await self._link.ask(request_id, client.tools_list(request_id, cursor))
                    page = _read(answer, client.decode_page)
                    offers += page.tools
                    if (cursor := page.cursor) is None:
                        return tuple(offers)
        except RequestRefused as error:
            if error.code != names.METHOD_NOT_FOUND:
                raise
            return tuple(offers)  # it has only resources or prompts
        except TimeoutError as error:
            raise Away(f"its server did not list its tools within {within_s:g} s") from error
        raise Away(f"its server has more than {PAGES_MAX} pages of tools")

    async def call(
        self, tool: str, arguments: dict[str, Any], *, within_s: float, traceparent: str | None, on_progress: OnProgress
    ) -> ToolOutcome:
        """Call a tool, and return the outcome. `on_progress` gets its progress. Raises Away.

        When the call takes too long, or nobody waits any more, the server is told.
        """
        request_id = next(self._ids)
        self._progress[request_id] = on_progress
        try:
            async with asyncio.timeout(within_s):
                body = client.tools_call(request_id, tool, arguments, traceparent)
                return _read(await self._link.ask(request_id, body), client.decode_outcome)
        except TimeoutError as error:
            await self._give_up(request_id, "it took too long")
            raise Away(f"its server gave no answer within {within_s:g} s") from error
        except asyncio.CancelledError:
            await self._give_up(request_id, "the task was canceled")
            raise
        finally:
            del self._progress[request_id]

    async def close(self) -> None:
        """End the session."""
        await self._link.close()

    async def _initialize(self) -> InitializeResult:
        request_id = next(self._ids)
        answer = await self._link.ask(request_id, client.initialize(request_id, version=__version__))
        opened = _read(answer, client.decode_initialize_result)
        self._link.note_version(opened.version, changes=opened.changes)
        return opened

    async def _give_up(self, request_id: int, reason: str) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._link.tell(client.cancelled(request_id, reason))
        except (TimeoutError, Away) as error:
            log.info("mcp server %s did not hear that a call was given up: %s", self._name, error)

    async def _hear(self, message: ServerRequest | ServerNotification) -> None:
        """Handle a message that the server sends on its own."""
        match message:
            case ServerRequest(request_id, names.PING):
                await self._say(client.pong(request_id))
            case ServerRequest(request_id, method):
                log.info("mcp server %s asks for %s, which is declined", self._name, method[:100])
                await self._say(client.declined(request_id, method))
            case ServerNotification(names.PROGRESS, params):
                self._hear_progress(params)
            case ServerNotification(names.TOOLS_CHANGED, _):
                self._changed()
            case ServerNotification(method, _):
                log.debug("mcp server %s sends %s", self._name, method[:100])

    async def _say(self, body: bytes) -> None:
        """Send a message that the server can do without: some do not accept notifications."""
        try:
            await self._link.tell(body)
        except Away as error:
            log.info("mcp server %s did not hear what it was told: %s", self._name, error)

    def _hear_progress(self, params: bytes) -> None:
        try:
            progress = client.decode_progress(params)
        except InvalidAgentResponse as error:
            log.info("mcp server %s: %s", self._name, error.message)
            return
        if progress is not None and (on_progress := self._progress.get(progress.id)) is not None:
            on_progress(progress)


class McpServer:
    """The server `name`. `start_s` bounds its start and the list of its tools, `call_s` bounds a call."""

    def __init__(
        self,
        name: str,
        make_link: MakeLink,
        *,
        start_s: float,
        call_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._make_link = make_link
        self._start_s = start_s
        self._call_s = call_s
        self._clock = clock
        self._session: McpSession | None = None
        self._opening = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._offers: tuple[ToolOffer, ...] | None = None
        self._listed_at = 0.0
        self._stale = False
        self._again_at = 0.0
        self._pause_s = PAUSE_S
        self._away = Away("")
        self._closed = asyncio.Event()

    @property
    def says(self) -> str:
        """The server's own name; empty if there is no session."""
        return "" if self._session is None else self._session.server

    async def offers(self) -> tuple[ToolOffer, ...]:
        """The server's tools, in its order. Raises Away."""
        async with self._listing:
            session = await self._ensure_session()
            if self._offers is not None and self._clock() - self._listed_at < LIST_S:
                return self._offers
            if self._clock() < self._again_at:  # the list did not come; runs do not wait for it one after the other
                raise self._away
            self._stale = False
            try:
                offers = await self._within(session, lambda session: session.offers(self._start_s))
            except Away as error:
                self._put_off(error)
                raise
            self._pause_s = PAUSE_S
            if not self._stale:  # they may have changed while they were listed
                self._offers, self._listed_at = offers, self._clock()
            return offers

    async def call(
        self, tool: str, arguments: dict[str, Any], *, traceparent: str | None, on_progress: OnProgress
    ) -> ToolOutcome:
        """Call a tool, and return the outcome. Raises Away."""
        try:
            return await self._within(
                await self._ensure_session(),
                lambda session: session.call(
                    tool, arguments, within_s=self._call_s, traceparent=traceparent, on_progress=on_progress
                ),
            )
        except RequestRefused:
            raise
        except Away:
            self._offers = None  # reach the server again before its tools are offered
            raise

    async def close(self) -> None:
        """End the session. No other follows."""
        self._closed.set()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _within(self, session: McpSession, request: Callable[[McpSession], Awaitable[T]]) -> T:
        """Make a request within the session; in a new one if it is over, since nothing was carried out then."""
        try:
            return await request(session)
        except SessionGone:
            return await request(await self._ensure_session())

    async def _ensure_session(self) -> McpSession:
        """The session, opened if there is none. Raises Away."""
        async with self._opening:
            if self._session is not None and not self._session.over:
                return self._session
            if self._closed.is_set():
                raise Away("the tool is no longer served")
            if self._clock() < self._again_at:
                raise self._away
            await self._drop_session()
            session = McpSession(self.name, self._make_link, self._changed)
            try:
                await session.open(self._start_s)
            except Away as error:
                self._put_off(error)
                raise
            if self._closed.is_set():
                await session.close()
                raise Away("the tool is no longer served")
            self._session = session
            return session

    def _put_off(self, error: Away) -> None:
        """Do not try again for a while, because the server is unreachable or does not list its tools."""
        if error is not self._away:  # else the failed opening has put it off already
            self._again_at, self._away = self._clock() + self._pause_s, error
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _drop_session(self) -> None:
        """Close a session that is over."""
        session, self._session, self._offers = self._session, None, None
        if session is not None:
            await session.close()

    def _changed(self) -> None:
        log.info("mcp server %s: its tools have changed", self.name)
        self._offers, self._stale = None, True


def _read(answer: ServerResponse, read: Callable[[bytes], T]) -> T:
    """Parse an answer. Raises Away."""
    if answer.fault is not None:
        raise RequestRefused(answer.fault.code, answer.fault.message)
    try:
        return read(answer.result)
    except InvalidAgentResponse as error:
        raise Away("its server gave an answer that cannot be read", error.message) from error
