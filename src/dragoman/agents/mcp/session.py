"""One MCP server, connected whenever it is needed: its tools, and the session with it from its opening to its end.

    session   NONE ── needed ──► OPENING ── agreed on a version ──► OPEN ── the link is over, or says so ──► NONE
               ▲                   │
               └── the pause ends ─┴─ Away ──► PAUSED: who needs it gets the same Away     any, `close` ──► CLOSED
    opening   PROBING ── it speaks 2026-07-28 ──► STATELESS
                 ├─ another answer, or it ended: it is remembered for the next session ──► INITIALIZING ──► SESSIONS
                 └─ silence, which is not remembered ──► INITIALIZING
    tools     UNKNOWN ── needed ──► LISTING ── listed ──► KNOWN ── time, a change, a call that is Away ──► UNKNOWN
                                       ├─ they changed meanwhile ──► UNKNOWN: this list is used once
                                       └─ Away ──► PAUSED, as above
    request   SENT ── answered ──► ended;   too late, or canceled ──► given up: the server is told, for `GIVE_UP_S`
                └── the server does not know the session, or the version, any more ──► SENT once more, in a new one

The pause doubles from `PAUSE_S` to `PAUSE_S_MAX`, until tools have been listed. A server that speaks 2026-07-28 has no
sessions: ours is then only the link, and the terms that go with every request. How a link carries messages is not
covered (`link`), nor what becomes of a call that is not over with its first answer (`calls`).

Invariant: there is at most one session. It is opened when it is first needed, shared by all runs, and replaced when it
is over. Every request ends: with its answer, with Away, or with its timeout.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from itertools import count
from typing import Any, TypeVar

from dragoman import __version__
from dragoman.agents.mcp.link import Away, HandleMessage, Link, NotUnderstood, RequestRefused, SessionGone, VersionGone
from dragoman.dialects.mcp import client, names, outcomes
from dragoman.dialects.mcp.client import (
    CallInput,
    DiscoverResult,
    OutgoingRequest,
    RequestTerms,
    ServerNotification,
    ServerRequest,
    ServerResponse,
    ToolOffer,
    ToolProgress,
)
from dragoman.dialects.mcp.outcomes import InputNeeded, ServerTask, ToolOutcome
from dragoman.dialects.mcp.param_headers import encode_param_headers
from dragoman.model.errors import InvalidAgentResponse

log = logging.getLogger("dragoman.mcp")

PAUSE_S, PAUSE_S_MAX = 2.0, 60.0
"""How long an unreachable server is not tried again, so that not every run waits for it: at first, and after many
failures."""

LIST_S = 300.0
"""How long a list of tools is used if the server does not say how long, in case that it announces no changes, or was
not heard."""

LIST_S_MIN, LIST_S_MAX = 1.0, 3600.0
"""How long a list is used at least, so that tasks that begin together share one, and at most, whatever the server says
(2026-07-28, Caching)."""

PROBE_S = 10.0
"""How long the first question to a server may stay without an answer until it is taken for one of an earlier version:
some of those are silent (2026-07-28, stdio, Backward Compatibility)."""

DOUBTFUL = frozenset({names.PARSE_ERROR, names.INVALID_REQUEST, *range(-32019, -31999)})
"""Errors by which a server of an earlier version may refuse a request without a session."""

T = TypeVar("T")

GIVE_UP_S = 1.0
"""How long a server may take to accept that a call was given up."""

PAGES_MAX = 100
"""Most pages of tools that are read, since a faulty server may always announce one more."""

MakeLink = Callable[[HandleMessage], Link]
"""Creates a Link, which passes the server's own messages to the given receiver."""

OnProgress = Callable[[ToolProgress], None]

CallAnswer = ToolOutcome | InputNeeded | ServerTask


class ServerEra(Enum):
    """How a server is spoken to: with requests that stand for themselves (2026-07-28), or in sessions (before)."""

    STATELESS = "stateless"
    SESSIONS = "sessions"


class McpSession:
    """A session with the server `name`, or the link to one that has none. `changed` is called when the server's tools
    have changed. `terms` are those of requests to a server without sessions."""

    def __init__(self, name: str, make_link: MakeLink, changed: Callable[[], None], terms: RequestTerms) -> None:
        self._name = name
        self._changed = changed
        self._link = make_link(self._hear)
        self._ids = count(1)
        self._progress: dict[int, OnProgress] = {}
        self._offered = terms
        self._terms: RequestTerms | None = None
        """The terms of its requests; None in a version with sessions."""
        self.server = ""
        self.outdated = False
        """Whether the server seems to have changed its version, so that it is asked again before the next request."""
        self.era: ServerEra | None = None
        """How the server is spoken to, as its answers show; None as long as it has not said."""

    @property
    def over(self) -> bool:
        """Whether a new session is needed."""
        return self.outdated or self._link.over

    async def open(self, within_s: float, era: ServerEra | None) -> None:
        """Agree with the server on a version. If that fails, the link is closed. Raises Away.

        `era` is what is known of the server. NotUnderstood: it ended when it was asked, so it knows an earlier version.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._link.open()
                if era is ServerEra.SESSIONS or not await self._probe(within_s, known=era is not None):
                    await self._initialize_after(within_s, silent=era is not ServerEra.SESSIONS and self.era is None)
        except BaseException as error:
            await self._link.close()
            if isinstance(error, TimeoutError):
                raise Away(f"its server gave no answer within {within_s:g} s") from error
            raise

    async def offers(self, within_s: float) -> tuple[tuple[ToolOffer, ...], float]:
        """All tools of the server, in its order, and how many seconds they stay as they are. Raises Away."""
        offers: list[ToolOffer] = []
        cursor: str | None = None
        fresh_s = LIST_S_MAX
        try:
            async with asyncio.timeout(within_s):
                for _ in range(PAGES_MAX):
                    request = client.tools_list(next(self._ids), cursor, self._terms)
                    page = _read(await self._ask(request), client.decode_page)
                    offers += filter(self._usable, page.tools)
                    fresh_s = min(fresh_s, LIST_S if page.fresh_s is None else page.fresh_s)
                    if (cursor := page.cursor) is None:
                        return tuple(offers), max(fresh_s, LIST_S_MIN)
        except RequestRefused as error:
            if error.code != names.METHOD_NOT_FOUND:
                raise
            return tuple(offers), LIST_S  # it has only resources or prompts
        except TimeoutError as error:
            raise Away(f"its server did not list its tools within {within_s:g} s") from error
        raise Away(f"its server has more than {PAGES_MAX} pages of tools")

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        key: str,
        within_s: float,
        traceparent: str | None,
        on_progress: OnProgress,
        headers: Mapping[str, str],
        given: CallInput | None,
    ) -> CallAnswer:
        """Call a tool, and return the answer. `key` tells the server a repetition, `on_progress` gets its progress,
        `headers` repeat arguments, and `given` is what it has asked for. Raises Away.

        When the call takes too long, or nobody waits any more, the server is told.
        """
        request = client.tools_call(
            next(self._ids), tool, arguments, key, traceparent, self._terms, headers=headers, given=given
        )
        self._progress[request.id] = on_progress
        try:
            read = outcomes.decode_outcome if self._terms is None else outcomes.decode_call
            return await self._ask_within(request, within_s, read)
        finally:
            del self._progress[request.id]

    async def find_task(self, task_id: str, within_s: float) -> ServerTask:
        """The server's task. Raises Away."""
        request = client.tasks_get(next(self._ids), task_id, self._stated_terms())
        return await self._ask_within(request, within_s, outcomes.decode_task)

    async def update_task(self, task_id: str, answers: Mapping[str, Any], within_s: float) -> None:
        """Give a task of the server what it asks for. It ignores what it has been given before. Raises Away."""
        request = client.tasks_update(next(self._ids), task_id, answers, self._stated_terms())
        await self._ask_within(request, within_s, bytes)

    async def cancel_task(self, task_id: str, within_s: float) -> None:
        """Have the server stop a task, if it can. Raises Away."""
        request = client.tasks_cancel(next(self._ids), task_id, self._stated_terms())
        await self._ask_within(request, within_s, bytes)

    async def close(self) -> None:
        """End the session."""
        await self._link.close()

    # -- opening -------------------------------------------------------------------------------------------------------

    async def _probe(self, within_s: float, *, known: bool, again: bool = True) -> bool:
        """Ask the server for its versions. Returns whether it speaks the one without sessions. Raises Away.

        Every answer that is not one of that version counts for an earlier one, whatever its code (2026-07-28, stdio,
        Backward Compatibility).
        """
        request = client.discover(next(self._ids), self._offered)
        try:
            async with asyncio.timeout(within_s if known else min(PROBE_S, within_s / 2)):
                found = _read(await self._link.ask(request), _discovered)
        except TimeoutError:
            return False
        except (NotUnderstood, RequestRefused) as error:
            if isinstance(error, RequestRefused) and error.code in (names.HEADER_MISMATCH, names.MISSING_CAPABILITY):
                raise
            supported = error.supported if isinstance(error, RequestRefused) else ()
            if again and names.STATELESS in supported:
                return await self._probe(within_s, known=True, again=False)
            if supported:
                self._check_versions(supported)
            self.era = ServerEra.SESSIONS
            return False
        except Away as error:
            if not self._link.over:
                raise
            raise NotUnderstood(error.told, str(error)) from error
        if names.STATELESS not in found.versions:
            self._check_versions(found.versions)
            self.era = ServerEra.SESSIONS
            return False
        self.era, self._terms = ServerEra.STATELESS, self._offered
        self._note_opened(found.server, names.STATELESS, tools=found.tools)
        if found.changes:
            await self._tell(self._link.subscribe(client.listen(next(self._ids), self._offered)))
        return True

    def _check_versions(self, spoken: tuple[str, ...]) -> None:
        """Raise Away unless a version with sessions is among those that the server speaks."""
        if not set(spoken) & set(names.VERSIONS):
            said = ", ".join(spoken)[:100] or "no version"
            why = f"the server speaks MCP {said}, here it is {', '.join(names.SPOKEN)}"
            raise Away("its server speaks another version of MCP", why)

    async def _initialize_after(self, within_s: float, *, silent: bool) -> None:
        """Open a session. If that fails with a server that was `silent`, it is asked again: it may be slow to start."""
        try:
            await self._initialize()
        except Away:
            if not silent or self._link.over or not await self._probe(within_s, known=True):
                raise

    async def _initialize(self) -> None:
        """Open a session as before 2026-07-28. Raises Away."""
        request = client.initialize(next(self._ids), program=self._offered.program)
        opened = _read(await self._link.ask(request), client.decode_initialize_result)
        self._link.note_version(opened.version, changes=opened.changes)
        self._note_opened(opened.server, opened.version, tools=opened.tools)
        await self._tell(self._link.tell(client.notification(names.INITIALIZED)))

    def _note_opened(self, server: str, version: str, *, tools: bool) -> None:
        if not tools:
            log.warning("mcp server %s (%s) says that it has no tools", self._name, server)
        log.info("mcp server %s: %s, version %s of MCP", self._name, server or "unnamed", version)
        self.server = server

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _ask_within(self, request: OutgoingRequest, within_s: float, read: Callable[[bytes], T]) -> T:
        """Send a request and read its answer. Raises Away. The server is told if the request is given up."""
        try:
            async with asyncio.timeout(within_s):
                return _read(await self._ask(request), read)
        except TimeoutError as error:
            await self._give_up(request, "it took too long")
            raise Away(f"its server gave no answer within {within_s:g} s") from error
        except asyncio.CancelledError:
            await self._give_up(request, "the task was canceled")
            raise

    async def _ask(self, request: OutgoingRequest) -> ServerResponse:
        """Send a request, and return the answer. Raises Away; VersionGone if the server has changed its version."""
        try:
            answer = await self._link.ask(request)
        except (NotUnderstood, VersionGone):
            self.outdated = True
            raise
        if self._terms is not None and answer.fault is not None:
            code = answer.fault.code
            self.outdated = code in DOUBTFUL or code == names.UNSUPPORTED_VERSION
            if code == names.UNSUPPORTED_VERSION:
                raise VersionGone("its server speaks another version of MCP", answer.fault.message)
        return answer

    def _stated_terms(self) -> RequestTerms:
        """The terms of a request about a task. Raises Away if the server has none any more."""
        if self._terms is None:
            raise Away("its server speaks a version of MCP without tasks")
        return self._terms

    def _usable(self, offer: ToolOffer) -> bool:
        """Whether requests of the version that is spoken can be made of the tool."""
        if self._terms is None or not offer.unusable:
            return True
        log.warning("mcp server %s: its tool %r is left out: %s", self._name, offer.name[:100], offer.unusable)
        return False

    async def _give_up(self, request: OutgoingRequest, reason: str) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._link.give_up(request, reason)
        except (TimeoutError, Away) as error:
            log.info("mcp server %s did not hear that a call was given up: %s", self._name, error)

    # -- messages of the server ----------------------------------------------------------------------------------------

    async def _hear(self, message: ServerRequest | ServerNotification) -> None:
        """Handle a message that the server sends on its own."""
        match message:
            case ServerRequest(request_id, names.PING):
                await self._tell(self._link.tell(client.pong(request_id)))
            case ServerRequest(request_id, method):
                log.info("mcp server %s asks for %s, which is declined", self._name, method[:100])
                await self._tell(self._link.tell(client.declined(request_id, method)))
            case ServerNotification(names.PROGRESS, params):
                self._hear_progress(params)
            case ServerNotification(names.TOOLS_CHANGED, _):
                self._changed()
            case ServerNotification(method, _):
                log.debug("mcp server %s sends %s", self._name, method[:100])

    async def _tell(self, telling: Awaitable[None]) -> None:
        """Send a message that the server can do without: some do not accept notifications."""
        try:
            await telling
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
    """The server `name`. `start_s` bounds its start and the list of its tools, `call_s` every other request.

    `elicits`: it may ask the caller of a task, if it speaks a version in which that can be recorded.
    """

    def __init__(
        self,
        name: str,
        make_link: MakeLink,
        *,
        start_s: float,
        call_s: float,
        elicits: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.elicits = elicits
        self.call_s = call_s
        self._make_link = make_link
        self._terms = RequestTerms(__version__, elicits)
        self._start_s = start_s
        self._clock = clock
        self._session: McpSession | None = None
        self._era: ServerEra | None = None
        """How the server is spoken to, as an earlier session has found."""
        self._opening = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._offers: tuple[ToolOffer, ...] | None = None
        self._fresh_until = 0.0
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
            if self._offers is not None and self._clock() < self._fresh_until:
                return self._offers
            if self._clock() < self._again_at:  # the list did not come; runs do not wait for it one after the other
                raise self._away
            self._stale = False
            try:
                offers, fresh_s = await self._within(session, lambda session: session.offers(self._start_s))
            except Away as error:
                self._put_off(error)
                raise
            self._pause_s = PAUSE_S
            if not self._stale:  # they may have changed while they were listed
                self._offers, self._fresh_until = offers, self._clock() + fresh_s
            return offers

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        key: str,
        traceparent: str | None,
        on_progress: OnProgress,
        given: CallInput | None = None,
    ) -> CallAnswer:
        """Call a tool, and return the answer. `key` tells the server a repetition, `given` what it has asked for.

        Raises Away. If the server misses headers, its tools have changed: they are listed, and the call is made again
        (2026-07-28, Client Behavior).
        """

        def call() -> Awaitable[CallAnswer]:
            headers = self._param_headers(tool, arguments)
            return self._request(
                lambda session: session.call(
                    tool,
                    arguments,
                    key=key,
                    within_s=self.call_s,
                    traceparent=traceparent,
                    on_progress=on_progress,
                    headers=headers,
                    given=given,
                )
            )

        try:
            return await call()
        except RequestRefused as error:
            if error.code != names.HEADER_MISMATCH:
                raise
        self._changed()
        await self.offers()
        return await call()

    async def find_task(self, task_id: str) -> ServerTask:
        """A task of the server (SEP-2663). Raises Away."""
        return await self._request(lambda session: session.find_task(task_id, self.call_s))

    async def update_task(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Give a task of the server what it asks for. Raises Away."""
        await self._request(lambda session: session.update_task(task_id, answers, self.call_s))

    async def cancel_task(self, task_id: str) -> None:
        """Have the server stop a task, within `GIVE_UP_S`; if it cannot be reached, the task goes on there."""
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._request(lambda session: session.cancel_task(task_id, GIVE_UP_S))
        except (TimeoutError, Away) as error:
            log.info("mcp server %s did not hear that a task was canceled: %s", self.name, error)

    async def close(self) -> None:
        """End the session. No other follows."""
        self._closed.set()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _param_headers(self, tool: str, arguments: dict[str, Any]) -> dict[str, str]:
        offer = next((offer for offer in self._offers or () if offer.name == tool), None)
        return {} if offer is None else encode_param_headers(offer.headers, arguments)

    async def _request(self, request: Callable[[McpSession], Awaitable[T]]) -> T:
        """Make a request. Raises Away; then the server is reached again before its tools are offered."""
        try:
            return await self._within(await self._ensure_session(), request)
        except RequestRefused:
            raise
        except Away:
            self._offers = None
            raise

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
            try:
                session = await self._open_session()
            except Away as error:
                if isinstance(error, NotUnderstood | VersionGone | RequestRefused):
                    self._era = None  # the server may speak another version now
                self._put_off(error)
                raise
            if self._closed.is_set():
                await session.close()
                raise Away("the tool is no longer served")
            self._session = session
            return session

    async def _open_session(self) -> McpSession:
        """Open a session. A server that ends when it is asked for its versions is started again, without that question.

        Raises Away.
        """
        session = self._make_session()
        try:
            await session.open(self._start_s, self._era)
        except NotUnderstood:
            if self._era is ServerEra.SESSIONS or session.era is not None:
                raise
            session = self._make_session()
            session.era = ServerEra.SESSIONS
            await session.open(self._start_s, ServerEra.SESSIONS)
        self._era = session.era or self._era
        return session

    def _make_session(self) -> McpSession:
        return McpSession(self.name, self._make_link, self._changed, self._terms)

    def _put_off(self, error: Away) -> None:
        """Do not try again for a while, because the server is unreachable or does not list its tools."""
        if error is not self._away:  # else the failed opening has put it off already
            self._again_at, self._away = self._clock() + self._pause_s, error
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _drop_session(self) -> None:
        """Close a session that is over. If the server has changed its version, it is asked again."""
        session, self._session, self._offers = self._session, None, None
        if session is not None:
            if session.outdated:
                self._era = None
            await session.close()

    def _changed(self) -> None:
        log.info("mcp server %s: its tools have changed", self.name)
        self._offers, self._stale = None, True


def _discovered(result: bytes) -> DiscoverResult:
    """Decode the answer to `server/discover`. Raises NotUnderstood."""
    try:
        return client.decode_discover_result(result)
    except InvalidAgentResponse as error:
        raise NotUnderstood("its server gave an answer that cannot be read", error.message) from error


def _read(answer: ServerResponse, read: Callable[[bytes], T]) -> T:
    """Parse an answer. Raises Away."""
    if answer.fault is not None:
        raise RequestRefused(answer.fault.code, answer.fault.message, answer.fault.supported)
    try:
        return read(answer.result)
    except InvalidAgentResponse as error:
        raise Away("its server gave an answer that cannot be read", error.message) from error
