"""A2A over HTTP: JSON-RPC 2.0 (A2A 1.0 §9) and HTTP+JSON (§11; 0.3 below `/v1`), at every mount.

Invariant: over JSON-RPC every answer, even a refusal before the body was read, is a response object, and repeats the
caller's id byte for byte once it is known. Over HTTP+JSON the method and path determine the operation; if the body
contradicts the path, the path counts.
"""

from functools import partial

from dragoman.bindings.calls import (
    FOLLOWED,
    Reception,
    active_extensions,
    decode_body,
    encode_result,
    find_owner,
    make_call,
)
from dragoman.bindings.cards import Cards
from dragoman.bindings.http import EventsResponse, HttpRequest, HttpResponse, error_response, read_json
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.request import Header, Parameters, read_parameters
from dragoman.bindings.streams import EventEncoder, FoldedStream, Streams
from dragoman.dialects import json_bounds, jsonrpc, resolve
from dragoman.dialects.api import Dialect, RestRequest
from dragoman.dialects.system import ByTask
from dragoman.engine.handler import Handler
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound
from dragoman.model.events import seq_and_frame
from dragoman.model.operations import GetTask, ListTasks, Operation, SendMessage
from dragoman.model.task import Record

LENGTHS = (SendMessage, GetTask)
"""Operations that say how much of the history is wanted. (A union is built, and asked, in ten times the time.)"""


class A2a:
    """The JSON-RPC and HTTP+JSON endpoints of every mount."""

    def __init__(self, handler: Handler, reception: Reception, cards: Cards, streams: Streams) -> None:
        self._handler = handler
        self._reception = reception
        self._cards = cards
        self._streams = streams
        self._agents = frozenset(reception.agents)

    async def answer(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer one call. Raises A2AError."""
        reception, handler = self._reception, self._handler
        rpc = request.route.endpoint == "rpc"
        parameters, dialect, operation = await (self._decode_rpc(request) if rpc else self._decode_rest(request))
        call = await make_call(
            reception,
            handler,
            request,
            parameters,
            operation,
            dialect=dialect.name,
            manners=dialect.manners,
            folds=bool(dialect.folds),
        )
        more: list[Header] = []
        if call.extensions and (active := active_extensions(reception, call)):
            more.append((dialect.extensions_header, active.encode()))
        if isinstance(operation, FOLLOWED):
            opened = await handler.stream(call)
            if opened.head is not None:
                request.task_id = opened.head.id
            stream = FoldedStream(opened, dialect) if dialect.folds else opened
            around = dialect.around_frame(request.id) if rpc else (b"", b"")
            seen = (0, 0) if call.after is None else seq_and_frame(call.after)
            encoder = EventEncoder(stream.head, dialect, self._streams, around, seen)
            parkable = opened if stream is opened else None
            return EventsResponse(
                stream,
                encoder.encode,
                [*dialect.stream_headers, *more],
                parkable,
                joined_comments=(request.text(b"user-agent") or "").startswith(resolve.OFFICIAL_PYTHON),
            )
        page_of = request.principal.id if isinstance(operation, ListTasks) else None
        if page_of is not None:
            await reception.limits.unread.begin_page(page_of)
        try:
            result = await handler.call(call)
            if isinstance(result, Record):
                request.task_id = result.head.id
            elif isinstance(result, Profile):
                result = await self._cards.make_extended(request, result)
            encode = partial(dialect.encode_result, operation, result)
            around = dialect.around_answer(request.id) if rpc else (b"", b"")
            length = operation.history_length if isinstance(operation, LENGTHS) else None
            body = await encode_result(request, reception.limits, result, encode, around, length)
        finally:
            if page_of is not None:
                reception.limits.unread.end_page(page_of)
        content_type = "application/json" if rpc else dialect.content_type
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *more]
        return HttpResponse(200, headers, body)

    # -- JSON-RPC ------------------------------------------------------------------------------------------------------

    async def _decode_rpc(self, request: HttpRequest) -> tuple[Parameters, Dialect, Operation]:
        """Read the body: first the envelope, which names the dialect, then the params. Raises A2AError."""
        limits = self._reception.limits
        body = await read_json(request, limits)
        if len(body) < LARGE_BYTES:
            rpc, parameters, found = _open_envelope(request, body, limits)
        else:
            opening = partial(_open_envelope, request, body, limits)
            rpc, parameters, found = await decode_body(request, limits, opening)
            del opening
        del body
        dialect = request.dialect = found if isinstance(found, Dialect) else await self._find_dialect(request, found)
        if request.route.agent not in self._agents:
            raise AgentNotFound(request.route.agent)
        if request.size < LARGE_BYTES:
            return parameters, dialect, dialect.decode(rpc.method, rpc.params)
        decode = partial(dialect.decode, rpc.method, rpc.params)
        return parameters, dialect, await decode_body(request, limits, decode)

    async def _find_dialect(self, request: HttpRequest, named: ByTask) -> Dialect:
        """The dialect in which the caller made the task. Raises A2AError."""
        agent = await find_owner(named.id, request, self._handler)
        self._reception.callers.admit(request, agent)  # strangers must not learn the dialect of a task
        made = await self._handler.dialect_of(named.id, request.principal, agent, request.route.mount)
        return named.stored.get(made or "", named.otherwise)

    def refuse_rpc(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """Encode an error for a JSON-RPC caller, in its dialect as far as that is known."""
        dialect = request.dialect or _dialect_of_place(request)
        body = None if dialect.http_error is None else dialect.http_error(error)
        if body is None:
            before, after = dialect.around_error(request.id)
            body = b"".join((before, dialect.encode_error(error), after))
        return error_response(error, dialect.error_status(error), b"application/json", body)

    # -- HTTP+JSON -----------------------------------------------------------------------------------------------------

    async def _decode_rest(self, request: HttpRequest) -> tuple[Parameters, Dialect, Operation]:
        """Read the path, the query and, of a POST, the body. Raises A2AError."""
        route, limits = request.route, self._reception.limits
        parameters = read_parameters(request)
        dialect = request.dialect = _resolve_rest(request, parameters.version)
        body = b""
        if request.method == "POST":
            body = await read_json(request, limits, empty_allowed=bool(route.ids))
        rest = RestRequest(route.methods[request.method], route.ids, request.query_fields(), body)
        del body
        decode = partial(_decode_rest, dialect, rest, limits)
        return parameters, dialect, await decode_body(request, limits, decode)

    def refuse_rest(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """Encode an error for an HTTP+JSON caller, in its dialect as far as that is known."""
        dialect = request.dialect or _resolve_rest(request, request.text(b"a2a-version"))
        body = dialect.encode_error(error)
        return error_response(error, dialect.error_status(error), dialect.content_type.encode(), body)


def _dialect_of_place(request: HttpRequest) -> Dialect:
    """The dialect for refusing a JSON-RPC request whose body has not been read."""
    own = request.route.own
    if own is not None and own.dialect is not None:
        return own.dialect
    return resolve.of_nothing(request.text(b"a2a-version"), request.route.mount)


def _is_bounded(body: bytes, bounds: tuple[int, int, int]) -> bool:
    """Whether a body may be decoded at all: one call of the decoder holds up all other threads."""
    try:
        json_bounds.check(body, *bounds)
    except A2AError:
        return False
    return True


def _open_envelope(
    request: HttpRequest, body: bytes, limits: Limits
) -> tuple[jsonrpc.RpcRequest, Parameters, Dialect | ByTask]:
    """Decode the envelope, and find the dialect of its params, or the task that decides it. Raises A2AError."""
    own, bounds = request.route.own, limits.bounds
    found = request.dialect = None if own is None else own.dialect
    try:
        if own is not None and own.bare and not (_is_bounded(body, bounds) and jsonrpc.enveloped(body)):
            rpc = jsonrpc.decode_bare(body, own.bare, *bounds)
        else:
            rpc = jsonrpc.decode_request(body, *bounds)
    except A2AError:
        bare = resolve.of_bare(body, request.route.mount) if own is None and _is_bounded(body, bounds) else None
        if bare is None:
            request.id = jsonrpc.id_of(body, limits.max_depth, limits.max_values)
            raise
        method, found = bare
        request.dialect = found
        rpc = jsonrpc.decode_bare(body, method, *bounds)
    request.id = rpc.id
    parameters = read_parameters(request)
    if found is not None:
        return rpc, parameters, resolve.of_own_path(found, parameters.version)
    return rpc, parameters, resolve.of_call(rpc.method, rpc.params, parameters.version, request.route.mount)


def _decode_rest(dialect: Dialect, rest: RestRequest, limits: Limits) -> Operation:
    assert dialect.decode_rest is not None
    if rest.body:
        json_bounds.check(rest.body, *limits.bounds)
    return dialect.decode_rest(rest)


def _resolve_rest(request: HttpRequest, version: str | None) -> Dialect:
    route = request.route
    if route.own is not None and route.own.dialect is not None:
        return resolve.of_own_path(route.own.dialect, version)
    user_agent = request.text(b"user-agent") or ""
    return resolve.of_rest(legacy=route.legacy, version=version, mount=route.mount, user_agent=user_agent)
