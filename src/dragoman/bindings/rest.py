"""HTTP+JSON (A2A 1.0 §11; 0.3 below `/v1`).

Invariant: the HTTP method and path determine the operation; if the body contradicts the path, the path counts.
"""

from functools import partial

from dragoman.bindings.body import decode_body, read_json
from dragoman.bindings.calls import Reception, activated, call_of, checked, version
from dragoman.bindings.cards import Cards
from dragoman.bindings.composing import compose
from dragoman.bindings.http import Answer, Header, Request, Streaming, refusal
from dragoman.bindings.limits import Limits
from dragoman.bindings.offload import LARGE_BYTES
from dragoman.bindings.stream import seen
from dragoman.dialects import json_bounds, resolve
from dragoman.dialects.api import Dialect, RestRequest
from dragoman.engine.handler import Handler
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.operations import Call, ListTasks, Operation, StreamMessage, Subscribe


class Rest:
    """The HTTP+JSON endpoints of every mount."""

    def __init__(self, handler: Handler, reception: Reception, cards: Cards) -> None:
        self._handler = handler
        self._reception = reception
        self._cards = cards

    async def answer(self, request: Request) -> Answer | Streaming:
        """Answer one request. Raises A2AError."""
        route, reception, limits = request.route, self._reception, self._reception.limits
        name = route.methods[request.method]
        dialect = request.dialect = _resolve_dialect(request, version(request))
        body = b""
        if request.method == "POST":
            body = await read_json(request, limits, empty_allowed=bool(route.ids))
        rest = RestRequest(name, route.ids, request.query(), body)
        del body
        if request.size < LARGE_BYTES:
            operation = _decode(dialect, rest, limits)
        else:
            decoding = partial(_decode, dialect, rest, limits)
            operation = await decode_body(request, limits, partial(checked, decoding, limits))
        del rest
        call = await call_of(request, operation, dialect, reception, self._handler)
        more = activated(request, call, dialect, reception)
        if isinstance(operation, StreamMessage | Subscribe):
            stream = await self._handler.stream(call)
            return Streaming(stream, dialect, b"", b"", [*dialect.stream_headers, *more], seen(call.after))
        if isinstance(operation, ListTasks):
            async with limits.unread.listing(request.principal.id):
                body = await self._call_and_encode(request, dialect, call)
        else:
            body = await self._call_and_encode(request, dialect, call)
        headers: list[Header] = [
            (b"content-type", dialect.content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            *more,
        ]
        return Answer(200, headers, body)

    async def _call_and_encode(self, request: Request, dialect: Dialect, call: Call) -> bytes:
        """Make the call and encode its result. Raises A2AError."""
        result = await self._handler.call(call)
        if isinstance(result, Profile):
            result = await self._cards.extended(request, result)
        encode = partial(dialect.encode_result, call.operation, result)
        return await compose(request, self._reception.limits, result, encode)

    def refuse(self, request: Request, error: A2AError) -> Answer:
        """Encode an error in the caller's dialect, as far as it is known."""
        dialect = request.dialect or _resolve_dialect(request, request.text(b"a2a-version"))
        body = dialect.encode_error(error)
        return refusal(error, dialect.error_status(error), dialect.content_type.encode(), body)


def _decode(dialect: Dialect, rest: RestRequest, limits: Limits) -> Operation:
    assert dialect.decode_rest is not None
    if rest.body:
        json_bounds.check(rest.body, limits.max_depth, limits.max_values)
    return dialect.decode_rest(rest)


def _resolve_dialect(request: Request, named: str | None) -> Dialect:
    route = request.route
    if route.own is not None and route.own.dialect is not None:
        return resolve.of_own_path(route.own.dialect, named)
    user_agent = request.text(b"user-agent") or ""
    return resolve.of_rest(legacy=route.legacy, version=named, mount=route.mount, user_agent=user_agent)
