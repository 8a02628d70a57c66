"""HttpLink: streamable HTTP (MCP 2026-07-28 and before): a POST for each request, answered with JSON or events.

A request of 2026-07-28 belongs to no session and brings its own headers. Closing its stream gives it up, and the stream
cannot be resumed. All other requests are as in 2025-11-25, Transports.

Invariant: the session's id goes only to the server that gave it: redirects are not followed.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial

from dragoman.agents.mcp.link import SHOWN_CHARS, Away, HandleMessage, Link, NotUnderstood, SessionGone, VersionGone
from dragoman.client.credentials import Authorized, CredentialsFactory
from dragoman.client.errors import NoToken
from dragoman.client.http import HttpClient
from dragoman.client.token_exchange import TokenExchange
from dragoman.dialects import sse
from dragoman.dialects.mcp import client, names
from dragoman.dialects.mcp.client import (
    Fault,
    OutgoingRequest,
    ServerMessage,
    ServerNotification,
    ServerResponse,
)
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import OPERATORS_RULES, EgressRules, Flow, checked
from dragoman.net.errors import EgressError
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.mcp")

TELL_S = 5.0
"""How long a server may take to accept a message that it need not answer."""

CLOSE_S = 2.0
"""How long a server may take to accept the end of a session, as this server may be stopping."""

WAIT_S = 24 * 3600.0
"""The caller sets the timeout of a request: the stream has none of its own."""

LISTEN_S = 24 * 3600.0
"""How long the stream of a server's own messages may be silent."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time until a stream that ended is opened again."""

RESUMES_MAX = 20
"""How often the stream of one answer is resumed."""

END_S = 0.05
"""How long to wait for the end of a stream whose answer has arrived, so that its connection can be reused."""

NO_VERDICT = frozenset({401, 403, 408, 429, 502, 503, 504})
"""Statuses beside redirects that say nothing of the versions that a server speaks: it was not asked, or is busy."""

JSON = "application/json"
POSTED = {"Accept": f"{JSON}, {sse.CONTENT_TYPE}", "Content-Type": JSON}
UNREADABLE = "its server gave an answer that cannot be read"
BROKE_OFF = "the connection to its server broke off: it may or may not have been done"
_SESSION = re.compile(r"[!-~]{1,1024}", re.ASCII)


CONNECTIONS_MAX = 1000
"""Most connections to one server at once: each call holds one."""


class HttpReach:
    """A server at `url`, which is called under the `rules`. `make_credentials` creates the credentials for it.

    Raises BadUrl.
    """

    def __init__(self, url: str, make_credentials: CredentialsFactory, rules: EgressRules = OPERATORS_RULES) -> None:
        self.place = checked(url)
        self._url = url
        self._egress = rules.make_egress(connections_max=CONNECTIONS_MAX)
        credentials = make_credentials(self._egress)
        self.exchange = credentials if isinstance(credentials, TokenExchange) else None
        """How callers' tokens are exchanged for those of the server; None if they are not."""
        self._http: HttpClient = self._egress if credentials is None else Authorized(self._egress, credentials)

    def link(self, group: JobGroup, hear: HandleMessage) -> Link:
        """A link over HTTP."""
        return HttpLink(self._url, self._http, group, hear)

    async def close(self) -> None:
        """Close the connections."""
        await self._egress.close()


class HttpLink:
    """A session with the server at `url`. Its own messages are read in `group`. Raises BadUrl."""

    def __init__(self, url: str, http: HttpClient, group: JobGroup, hear: HandleMessage) -> None:
        self._url = url
        self._shown = checked(url)
        self._http = http
        self._group = group
        self._hear = hear
        self._session = ""
        self._version = ""
        self._listening: asyncio.Task[None] | None = None
        self.over = False

    async def open(self) -> None:
        """Do nothing: no connection is needed before the first request."""

    def note_version(self, version: str, *, changes: bool) -> None:
        """Listen to the server's own messages, if there is a session or the server announces changes."""
        self._version = version
        if self._session or changes:
            self._listening = self._group.keep(f"tools: {self._shown}", self._listen)

    async def subscribe(self, request: OutgoingRequest) -> None:
        """Keep the request open, and ask again when its stream has ended."""
        self._listening = self._group.keep(f"tools: {self._shown}", partial(self._listen, request))

    async def ask(self, request: OutgoingRequest) -> ServerResponse:
        """Send a request. In a session, a stream that breaks off is resumed where it was, if its events have ids."""
        place = _Place()
        try:
            async with self._http.stream(
                "POST",
                self._url,
                head_timeout_s=WAIT_S,
                idle_timeout_s=WAIT_S,
                headers=self._headers({**POSTED, **request.headers}),
                body=request.body,
            ) as flow:
                if not 200 <= flow.status < 300:
                    return await self._refused(request, flow)
                if not request.stateless:
                    self._learn_session(flow.headers)
                if not _streams(flow):
                    return await self._single_answer(request.id, await flow.body())
                if (answer := await self._follow(flow, place, request.id)) is not None:
                    return answer
        except EgressError as error:
            if request.stateless or not place.last_id:
                raise _away(error) from error
        except (NoToken, InvalidAgentResponse) as error:
            if request.stateless and isinstance(error, InvalidAgentResponse):
                raise NotUnderstood(UNREADABLE, error.message) from error
            raise _away(error) from error
        if request.stateless:
            raise Away(BROKE_OFF, f"{self._shown}: the stream ended before the answer")
        return await self._resume(request.id, place)

    async def give_up(self, request: OutgoingRequest, reason: str) -> None:
        """Tell the server of the session. Any other has seen that the stream was closed (2026-07-28, Cancellation)."""
        if not request.stateless:
            await self.tell(client.cancelled(request.id, reason))

    async def tell(self, body: bytes) -> None:
        """Send a notification, or an answer."""
        try:
            reply = await self._http.request(
                "POST", self._url, timeout_s=TELL_S, headers=self._headers(POSTED), body=body
            )
        except (EgressError, NoToken) as error:
            raise _away(error) from error
        if not reply.ok:
            raise Away(
                f"its server answered with HTTP status {reply.status}", f"{self._shown}: HTTP status {reply.status}"
            )

    async def close(self) -> None:
        """End the session, and tell the server."""
        self.over = True
        if self._listening is not None:
            self._listening.cancel()
        if not self._session:
            return
        try:
            await self._http.request("DELETE", self._url, timeout_s=CLOSE_S, headers=self._headers({}))
        except (EgressError, NoToken) as error:
            log.info("the server was not told of the end of an mcp session: %s", error)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = dict(more)
        if self._session:
            headers[names.SESSION_HEADER] = self._session
        if self._version:
            headers[names.VERSION_HEADER] = self._version
        return headers

    def _learn_session(self, headers: Mapping[str, str]) -> None:
        """Learn the session's id, which comes with the answer to the first request."""
        session = headers.get(names.SESSION_HEADER.lower(), "")
        if not self._version and _SESSION.fullmatch(session):
            self._session = session

    async def _refused(self, request: OutgoingRequest, flow: Flow) -> ServerResponse:
        """The answer in a response with a status other than 2xx. Raises Away if there is none.

        Servers of 2026-07-28 give errors such statuses (Streamable HTTP, Server Validation). Earlier ones were not to.
        """
        fault = _fault_in((await flow.body())[: 64 * 1024])
        if request.stateless and fault is not None and flow.status not in NO_VERDICT:
            return ServerResponse(request.id, fault=fault)
        words = "" if fault is None else fault.message[:SHOWN_CHARS]
        if fault is not None and fault.code in names.STATELESS_ERRORS:
            self.over = bool(self._version)  # else there is no session yet
            raise VersionGone("its server speaks another version of MCP", f"{self._shown}: {words}")
        if self._session and (flow.status == 404 or (flow.status == 400 and "session" in words.lower())):
            # the specification says 404; examples of the TypeScript SDK answer 400
            self.over = True
            raise SessionGone("the session is over", f"{self._shown}: the session is over")
        match flow.status:
            case 401 | 403:
                hint = ": check its credentials"
            case 301 | 302 | 303 | 307 | 308:
                leads = flow.headers.get("location", "nowhere")[:SHOWN_CHARS]
                hint = f": redirects are not followed, it leads to {leads}"
            case 404 | 405:
                hint = ": there is no MCP at this URL"
            case _:
                hint = f": {words}" if words else ""
        shows = words and flow.status not in (401, 403)  # those may repeat the credentials
        told = f"its server answered with HTTP status {flow.status}" + (f": {words}" if shows else "")
        opens = request.stateless or not self._version
        says_so = opens and flow.status >= 400 and flow.status not in NO_VERDICT
        raise (NotUnderstood if says_so else Away)(told, f"{self._shown}: HTTP status {flow.status}{hint}")

    async def _single_answer(self, request_id: int, body: bytes) -> ServerResponse:
        for message in client.decode_messages(body):
            if (answer := await self._sort(message, request_id)) is not None:
                return answer
        raise Away("its server gave no answer", f"{self._shown}: what came is no answer to the request")

    async def _follow(self, flow: Flow, place: "_Place", request_id: int | None) -> ServerResponse | None:
        """Return the answer in a stream of events; None if the stream ended before. Without an id, no event is one."""
        answer: ServerResponse | None = None
        try:
            async with asyncio.timeout(None) as end, aclosing(_messages(flow, place)) as messages:
                async for message in messages:
                    if answer is None and (answer := await self._sort(message, request_id)) is not None:
                        end.reschedule(asyncio.get_running_loop().time() + END_S)
        except (TimeoutError, EgressError, InvalidAgentResponse):
            if answer is None:
                raise
        return answer

    async def _resume(self, request_id: int, place: "_Place") -> ServerResponse:
        """Resume the stream of an answer. A server may have closed it on purpose and expect this."""
        fault: Exception | None = None
        for _ in range(RESUMES_MAX if place.last_id else 0):
            await asyncio.sleep(SOON_S if place.retry_s is None else place.retry_s)
            headers = self._headers({"Accept": sse.CONTENT_TYPE, "Last-Event-ID": place.last_id})
            try:
                async with self._http.stream(
                    "GET", self._url, head_timeout_s=TELL_S, idle_timeout_s=WAIT_S, headers=headers
                ) as flow:
                    if flow.status != 200 or not _streams(flow):
                        break
                    if (answer := await self._follow(flow, place, request_id)) is not None:
                        return answer
            except (EgressError, NoToken, InvalidAgentResponse) as error:
                fault = error
        raise Away(BROKE_OFF, f"{self._shown}: the stream ended before the answer") from fault

    async def _sort(self, message: ServerMessage, request_id: int | None) -> ServerResponse | None:
        """Return the message if it is the answer, and pass all others on."""
        if isinstance(message, ServerResponse):
            return message if message.id == request_id else None
        await self._hear(message)
        return None

    async def _listen(self, request: OutgoingRequest | None = None) -> None:
        """Read the server's own messages as long as the link lasts. Not all servers have such a stream.

        It is the answer to the request; without one it is that of the session.
        """
        pause_s, place, again = SOON_S, _Place(), False
        while not self.over:
            more = {"Last-Event-ID": place.last_id} if place.last_id and request is None else {}
            try:
                async with self._http.stream(
                    "GET" if request is None else "POST",
                    self._url,
                    head_timeout_s=TELL_S,
                    idle_timeout_s=LISTEN_S,
                    headers=self._headers(
                        {"Accept": sse.CONTENT_TYPE, **more} if request is None else {**POSTED, **request.headers}
                    ),
                    body=None if request is None else request.body,
                ) as flow:
                    if 300 <= flow.status < 500 or (flow.status == 200 and not _streams(flow)):
                        return
                    if again and not more:  # messages may have been missed in between
                        await self._hear(ServerNotification(names.TOOLS_CHANGED, b"{}"))
                    again = True
                    if flow.status == 200:
                        await self._follow(flow, place, None if request is None else request.id)
                        pause_s = SOON_S
            except (EgressError, NoToken, InvalidAgentResponse) as error:
                log.debug("mcp: %s", error)
            await asyncio.sleep(max(pause_s, place.retry_s or 0.0))
            pause_s = min(2 * pause_s, LATE_S)


class _Place:
    """How far a stream was read: the facts needed to resume it."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s: float | None = None


def _streams(flow: Flow) -> bool:
    return flow.headers.get("content-type", "").lower().startswith(sse.CONTENT_TYPE)


def _fault_in(body: bytes) -> Fault | None:
    """The error in a body that may be a page of something in between; None if there is none."""
    try:
        messages = client.decode_messages(body)
    except InvalidAgentResponse:
        return None
    return next((each.fault for each in messages if isinstance(each, ServerResponse) and each.fault is not None), None)


async def _messages(flow: Flow, place: _Place) -> AsyncGenerator[ServerMessage, None]:
    """Yield the messages of a stream. Raises EgressError or InvalidAgentResponse."""
    parser = sse.Parser()
    async for piece in flow.pieces:
        events = parser.feed(piece)
        if parser.retry_ms is not None:
            place.retry_s = min(parser.retry_ms / 1000, LATE_S)
        for event in events:
            if event.event == "message" and event.data.strip():
                for message in client.decode_messages(event.data.encode()):
                    yield message
            place.last_id = event.id or place.last_id
        place.last_id = parser.last_id or place.last_id


def _away(error: EgressError | NoToken | InvalidAgentResponse) -> Away:
    match error:
        case EgressError(sent=True):
            told = BROKE_OFF
        case InvalidAgentResponse():
            told = UNREADABLE
        case _:
            told = "its server cannot be reached at present"
    return Away(told, str(error))
