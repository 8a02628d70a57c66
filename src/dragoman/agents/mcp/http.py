"""HttpLink: streamable HTTP (MCP 2025-11-25, Transports): a POST for each request, answered with JSON or with events.

Invariant: the session's id goes to the server that gave it, and nowhere else: redirects are not followed.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from dragoman.agents.mcp.link import SHOWN_CHARS, Away, Hear, SessionGone
from dragoman.client.errors import NoToken
from dragoman.client.wire import Way
from dragoman.dialects import sse
from dragoman.dialects.mcp import hearing, names
from dragoman.dialects.mcp.hearing import Answered, Heard, Told
from dragoman.model.errors import InvalidAgentResponse
from dragoman.net.egress import checked
from dragoman.net.errors import EgressError
from dragoman.net.flow import Flow

log = logging.getLogger("dragoman.mcp")

TELL_S = 5.0
"""How long a server may take to accept what it need not answer."""

CLOSE_S = 2.0
"""How long a server may take to hear that a session is over, when this one may be stopping."""

WAIT_S = 24 * 3600.0
"""Who asks says how long it waits: a stream has no time of its own."""

LISTEN_S = 24 * 3600.0
"""How long the stream of what a server says of its own accord may be silent."""

SOON_S, LATE_S = 1.0, 60.0
"""Shortest and longest time until a stream that ended is opened again."""

RESUMES_MAX = 20
"""How often the stream of one answer is taken up again."""

END_S = 0.05
"""How long the end of a stream is waited for once the answer is there, so that its connection can be used again."""

JSON = "application/json"
BROKE_OFF = "the connection to its server broke off: it may have been done, or not"
_SESSION = re.compile(r"[!-~]{1,1024}", re.ASCII)


class HttpLink:
    """A session with the server at `url`. What it says of its own accord is listened to in `group`. Raises BadUrl."""

    def __init__(self, url: str, way: Way, group: asyncio.TaskGroup, hear: Hear) -> None:
        self._url = url
        self._shown = checked(url)
        self._way = way
        self._group = group
        self._hear = hear
        self._session = ""
        self._version = ""
        self._listening: asyncio.Task[None] | None = None
        self.over = False

    async def open(self) -> None:
        """Nothing is open before the first request."""

    def agreed(self, version: str, *, changes: bool) -> None:
        """Listen, if there is a session to listen to."""
        self._version = version
        if self._session or changes:
            self._listening = self._group.create_task(self._listen(), name=f"listen to {self._shown}")

    async def ask(self, request_id: int, body: bytes) -> Answered:
        """Make a request. A stream that breaks off is taken up where it stood, if the server numbers its events."""
        place = _Place()
        try:
            async with self._way.stream(
                "POST",
                self._url,
                head_timeout_s=WAIT_S,
                idle_timeout_s=WAIT_S,
                headers=self._headers({"Accept": f"{JSON}, {sse.CONTENT_TYPE}", "Content-Type": JSON}),
                body=body,
            ) as flow:
                if not 200 <= flow.status < 300:
                    raise await self._refusal(flow)
                self._learn(flow.headers)
                if not _streams(flow):
                    return await self._only(request_id, await flow.body())
                if (answer := await self._followed(flow, place, request_id)) is not None:
                    return answer
        except EgressError as error:
            if not place.last_id:
                raise _away(error) from error
        except (NoToken, InvalidAgentResponse) as error:
            raise _away(error) from error
        return await self._resumed(request_id, place)

    async def tell(self, body: bytes) -> None:
        """Send a notification, or an answer."""
        try:
            reply = await self._way.request(
                "POST",
                self._url,
                timeout_s=TELL_S,
                headers=self._headers({"Accept": f"{JSON}, {sse.CONTENT_TYPE}", "Content-Type": JSON}),
                body=body,
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
            await self._way.request("DELETE", self._url, timeout_s=CLOSE_S, headers=self._headers({}))
        except (EgressError, NoToken) as error:
            log.info("the end of an mcp session was not told: %s", error)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = dict(more)
        if self._session:
            headers[names.SESSION_HEADER] = self._session
        if self._version:
            headers[names.VERSION_HEADER] = self._version
        return headers

    def _learn(self, headers: Mapping[str, str]) -> None:
        """The id of the session, which comes with the answer to the first request."""
        session = headers.get(names.SESSION_HEADER.lower(), "")
        if not self._version and _SESSION.fullmatch(session):
            self._session = session

    async def _refusal(self, flow: Flow) -> Away:
        """What a status means that is not 2xx."""
        said = (await flow.body())[: 64 * 1024]
        words = ""
        try:
            for message in hearing.heard(said):
                if isinstance(message, Answered) and message.fault is not None:
                    words = message.fault.message[:SHOWN_CHARS]
        except InvalidAgentResponse:
            pass  # a page of something on the way
        if self._session and (flow.status == 404 or (flow.status == 400 and "session" in words.lower())):
            # 404 is what the specification has; examples of the TypeScript SDK answer 400
            self.over = True
            return SessionGone("the session is over", f"{self._shown}: the session is over")
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
        return Away(told, f"{self._shown}: HTTP status {flow.status}{hint}")

    async def _only(self, request_id: int, body: bytes) -> Answered:
        for message in hearing.heard(body):
            if (answer := await self._meant(message, request_id)) is not None:
                return answer
        raise Away("its server gave no answer", f"{self._shown}: what came is no answer to the request")

    async def _followed(self, flow: Flow, place: "_Place", request_id: int | None) -> Answered | None:
        """The answer in a stream of events; None if it ended before. Without an id nothing in it is an answer."""
        answer: Answered | None = None
        try:
            async with asyncio.timeout(None) as end, aclosing(_messages(flow, place)) as messages:
                async for message in messages:
                    if answer is None and (answer := await self._meant(message, request_id)) is not None:
                        end.reschedule(asyncio.get_running_loop().time() + END_S)
        except (TimeoutError, EgressError, InvalidAgentResponse):
            if answer is None:
                raise
        return answer

    async def _resumed(self, request_id: int, place: "_Place") -> Answered:
        """Take the stream of an answer up again, as a server may want it that closed it on purpose."""
        fault: Exception | None = None
        for _ in range(RESUMES_MAX if place.last_id else 0):
            await asyncio.sleep(SOON_S if place.retry_s is None else place.retry_s)
            headers = self._headers({"Accept": sse.CONTENT_TYPE, "Last-Event-ID": place.last_id})
            try:
                async with self._way.stream(
                    "GET", self._url, head_timeout_s=TELL_S, idle_timeout_s=WAIT_S, headers=headers
                ) as flow:
                    if flow.status != 200 or not _streams(flow):
                        break
                    if (answer := await self._followed(flow, place, request_id)) is not None:
                        return answer
            except (EgressError, NoToken, InvalidAgentResponse) as error:
                fault = error
        raise Away(BROKE_OFF, f"{self._shown}: the stream ended before the answer") from fault

    async def _meant(self, message: Heard, request_id: int | None) -> Answered | None:
        """The answer, if it is that; what else the server says is passed on."""
        if isinstance(message, Answered):
            return message if message.id == request_id else None
        await self._hear(message)
        return None

    async def _listen(self) -> None:
        """What the server says of its own accord, as long as the session lasts. Not all servers have that."""
        pause_s, place, again = SOON_S, _Place(), False
        while not self.over:
            more = {"Last-Event-ID": place.last_id} if place.last_id else {}
            try:
                async with self._way.stream(
                    "GET",
                    self._url,
                    head_timeout_s=TELL_S,
                    idle_timeout_s=LISTEN_S,
                    headers=self._headers({"Accept": sse.CONTENT_TYPE, **more}),
                ) as flow:
                    if 300 <= flow.status < 500 or (flow.status == 200 and not _streams(flow)):
                        return
                    if again and not place.last_id:  # nobody heard what was said meanwhile
                        await self._hear(Told(names.TOOLS_CHANGED, b"{}"))
                    again = True
                    if flow.status == 200 and await self._followed(flow, place, None) is None:
                        pause_s = SOON_S
            except (EgressError, NoToken, InvalidAgentResponse) as error:
                log.debug("mcp: %s", error)
            await asyncio.sleep(max(pause_s, place.retry_s or 0.0))
            pause_s = min(2 * pause_s, LATE_S)


class _Place:
    """How far a stream was read: what is needed to take it up again."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s: float | None = None


def _streams(flow: Flow) -> bool:
    return flow.headers.get("content-type", "").lower().startswith(sse.CONTENT_TYPE)


async def _messages(flow: Flow, place: _Place) -> AsyncGenerator[Heard, None]:
    """The messages of a stream. Raises EgressError or InvalidAgentResponse."""
    parser = sse.Parser()
    async for piece in flow.pieces:
        events = parser.feed(piece)
        if parser.retry_ms is not None:
            place.retry_s = min(parser.retry_ms / 1000, LATE_S)
        for event in events:
            if event.event == "message" and event.data.strip():
                for message in hearing.heard(event.data.encode()):
                    yield message
            place.last_id = event.id or place.last_id
        place.last_id = parser.last_id or place.last_id


def _away(error: EgressError | NoToken | InvalidAgentResponse) -> Away:
    match error:
        case EgressError(sent=True):
            told = BROKE_OFF
        case InvalidAgentResponse():
            told = "its server gave an answer that cannot be read"
        case _:
            told = "its server cannot be reached at present"
    return Away(told, str(error))
