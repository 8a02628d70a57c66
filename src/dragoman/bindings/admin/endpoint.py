"""The endpoint of the admin API: finds the route, reads what was given, and encodes the answer.

Invariant: nobody but an operator gets here, which `Callers.admit_operator` decides before.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman import __version__
from dragoman.admin.question import AnyQuestion
from dragoman.bindings.admin.openapi import make_admin_document
from dragoman.bindings.admin.routes import find_route, remote_questions
from dragoman.bindings.callers import Callers
from dragoman.bindings.calls import decode_body
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint, PageSessions
from dragoman.bindings.http import (
    EventsResponse,
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
    read_json,
    unless_gone,
)
from dragoman.bindings.limits import Limits
from dragoman.bindings.request import RESUMES_AFTER, Header, Request
from dragoman.dialects import json_bounds, json_fields, sse
from dragoman.dialects.api import STREAM_HEADERS
from dragoman.dialects.v1.errors import encode_http_error, http_status
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.answers import Asked, Functions
from dragoman.engine.admin.feeds import FeedItem
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.key_stops import KeyStops
from dragoman.model.errors import A2AError, InvalidParams, MethodNotAllowed, NotFound

DOCUMENT = ("openapi.json",)

_VERSION = re.compile(r'(?:W/)?"?([0-9]{1,16})"?', re.ASCII)
"""An ETag with a version."""

NO_STORE: Header = (b"cache-control", b"no-store")


class RemoteAnswers(Protocol):
    """Answers operators' questions about agents elsewhere."""

    @property
    def answers(self) -> Functions:
        """The functions that answer, by the names of the questions."""
        ...

    @property
    def streams(self) -> Functions:
        """The functions that answer with a feed."""
        ...


class Admin:
    """Answers requests below `/admin/v1`."""

    def __init__(
        self,
        administration: Administration,
        limits: Limits,
        facts: ServerFacts,
        remote: RemoteAnswers | None = None,
        stops: KeyStops | None = None,
    ) -> None:
        """`remote` are the agents elsewhere, which operators name by URL; None: no such path exists.

        `stops` has the keys that another operator stopped: what they had half sent by then is refused.
        """
        self._administration = administration
        self._stops = stops
        self._limits = limits
        self._remote = remote
        self._elsewhere: Functions = {} if remote is None else remote.answers
        self._streams: Functions = administration.streams | ({} if remote is None else remote.streams)
        administration.serve(facts)

    def endpoints(self, callers: Callers, sessions: PageSessions | None = None) -> Endpoints:
        """Its endpoint, for the operators among the callers, and for those who are signed in with a browser."""
        identify = None if sessions is None else sessions.identify
        return {"admin": HttpEndpoint(self.answer, self.refuse, admit=callers.admit_operator, identify=identify)}

    async def answer(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer one request of an operator. Raises A2AError."""
        segments = request.route.segments
        if segments == DOCUMENT:
            if request.method not in ("GET", "HEAD"):
                raise MethodNotAllowed(["GET", "HEAD"], "")
            return json_response(200, make_admin_document(__version__), NO_STORE)
        route, of = find_route(request.method, segments)
        principal = request.principal
        agents = principal.agents if principal.team else None
        operator = Operator(principal.id, request.peer, principal.key, principal.team, agents)
        self._administration.admit(route, operator)
        given = _match_version(request, await self._read(request, route), route)
        if self._stops is not None:
            self._stops.check(request.principal.key)
        if self._remote is None and route in remote_questions():
            raise NotFound("no such path here: this server was started without its console (console = false)")
        if route.events and (route.answer is None or _wants_events(request)):
            if request.method == "HEAD":
                return HttpResponse(200, list(STREAM_HEADERS), b"")
            sent = request.headers.get(RESUMES_AFTER)
            position = None if sent is None else sent.decode("latin-1")
            stream = await self._streams[route.name](Asked(operator, given, of, position))
            return EventsResponse(stream, _encode_feed)
        asked = Asked(operator, given, of)
        elsewhere = self._elsewhere.get(route.name)
        acting = self._administration.answer(route, asked) if elsewhere is None else elsewhere(asked)
        found = await (unless_gone(acting, request) if route.method == "GET" else acting)  # a change is carried out
        tag: tuple[Header, ...] = ((b"etag", b'"%d"' % found.version),) if route.versioned else ()
        return json_response(200, msgspec.json.encode(found), NO_STORE, *tag)

    def refuse(self, request: Request, error: A2AError) -> HttpResponse:
        """Encode an error, as A2A 1.0 does over HTTP+JSON (§11.6)."""
        return error_response(error, http_status(error), b"application/json", encode_http_error(error))

    async def _read(self, request: HttpRequest, route: AnyQuestion) -> Any:
        if route.given is None:
            return None
        if route.has_body:
            limits = self._limits
            body = await read_json(request, limits, empty_allowed=route.optional)
            if not body:
                return _convert({}, route.given, strict=True)
            await decode_body(request, limits, partial(json_bounds.check, body, limits.max_depth, limits.max_values))
            return _convert(json_fields.read(msgspec.json.Decoder(dict[str, Any]), body), route.given, strict=True)
        return _convert(request.query_fields(), route.given, strict=False)


def _match_version(request: HttpRequest, given: Any, route: AnyQuestion) -> Any:
    """Put the version that If-Match names, if any, into what was given. Raises InvalidParams."""
    sent = request.text(b"if-match")
    if sent is None or not route.takes_version or sent.strip() == "*":
        return given
    if (found := _VERSION.fullmatch(sent.strip())) is None:
        raise InvalidParams("If-Match", 'must be the ETag of one answer, such as "7"')
    version = int(found[1])
    if given.version not in (None, version):
        raise InvalidParams("version", "differs from If-Match: send one of them")
    return replace(given, version=version)


def _wants_events(request: HttpRequest) -> bool:
    return sse.CONTENT_TYPE.encode() in request.headers.get(b"accept", b"").lower()


def _encode_feed(batch: Sequence[FeedItem]) -> Iterable[bytes]:
    """Encode the items of a feed as one piece. All feeds that tell an item share its bytes."""
    frames = []
    for item in batch:
        if not item.encoded:
            position = f"id: {item.position}\n" if item.position else ""
            data = msgspec.json.encode(item.data)
            item.encoded.append(b"event: %s\n%sdata: %s\n\n" % (item.name.encode(), position.encode(), data))
        frames.append(item.encoded[0])
    return (b"".join(frames),)


def _convert(values: dict[str, Any], into: type[Struct], *, strict: bool) -> Struct:
    """Read a body, or a query (not `strict`), whose values are all text. Raises InvalidParams."""
    unknown = [name for name in values if name not in into.__struct_fields__]
    if unknown:
        raise InvalidParams(unknown[0][:100], f"is unknown here: there are {', '.join(into.__struct_fields__)}")
    try:
        return msgspec.convert(values, into, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidParams(*json_fields.violation(error)) from None
