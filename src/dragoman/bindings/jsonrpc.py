"""JSON-RPC 2.0 over HTTP (A2A 1.0 §9): `POST /` and `POST /agents/{id}`.

Invariant: every answer, even a refusal before the body was read, is a JSON-RPC response object. Once the caller's id is
known, the answer repeats it byte for byte.
"""

from functools import partial

from dragoman.bindings.body import decode_body, read_json
from dragoman.bindings.calls import Reception, activated, call_of, checked, version, whose
from dragoman.bindings.cards import Cards
from dragoman.bindings.composing import compose
from dragoman.bindings.http import JSON, Answer, Request, Streaming, refusal
from dragoman.bindings.limits import Limits
from dragoman.bindings.offload import LARGE_BYTES
from dragoman.bindings.stream import seen
from dragoman.dialects import jsonrpc, resolve
from dragoman.dialects.api import Dialect
from dragoman.dialects.system import ByTask
from dragoman.engine.handler import Handler
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound
from dragoman.model.operations import Call, ListTasks, StreamMessage, Subscribe


class JsonRpc:
    """The JSON-RPC endpoint of every mount."""

    def __init__(self, handler: Handler, reception: Reception, cards: Cards) -> None:
        self._handler = handler
        self._reception = reception
        self._cards = cards

    async def answer(self, request: Request) -> Answer | Streaming:
        """Answer one call. Raises A2AError."""
        reception, limits = self._reception, self._reception.limits
        body = await read_json(request, limits, empty_allowed=False)
        if len(body) < LARGE_BYTES:
            rpc, found = _open_envelope(request, body, limits)
        else:
            rpc, found = await decode_body(request, limits, partial(_open_envelope, request, body, limits))
        del body
        dialect = request.dialect = await self._resolve_dialect(request, found)
        if request.route.agent not in reception.profiles:
            raise AgentNotFound(request.route.agent)
        if request.size < LARGE_BYTES:
            operation = dialect.decode(rpc.method, rpc.params)
        else:
            decoding = partial(dialect.decode, rpc.method, rpc.params)
            operation = await decode_body(request, limits, partial(checked, decoding, limits))
        call = await call_of(request, operation, dialect, reception, self._handler)
        more = activated(request, call, dialect, reception)
        if isinstance(operation, StreamMessage | Subscribe):
            stream = await self._handler.stream(call)
            headers = [*dialect.stream_headers, *more]
            return Streaming(stream, dialect, *dialect.around_frame(request.id), headers, seen(call.after))
        if isinstance(operation, ListTasks):
            async with limits.unread.listing(request.principal.id):
                answer = await self._call_and_encode(request, dialect, call)
        else:
            answer = await self._call_and_encode(request, dialect, call)
        headers = [JSON, (b"content-length", b"%d" % len(answer)), *more]
        return Answer(200, headers, answer)

    async def _call_and_encode(self, request: Request, dialect: Dialect, call: Call) -> bytes:
        """Make the call and encode its result as a response. Raises A2AError."""
        result = await self._handler.call(call)
        if isinstance(result, Profile):
            result = await self._cards.extended(request, result)
        before, after = dialect.around_answer(request.id)

        def encode() -> bytes:
            return b"".join((before, dialect.encode_result(call.operation, result), after))

        return await compose(request, self._reception.limits, result, encode)

    async def _resolve_dialect(self, request: Request, found: Dialect | ByTask) -> Dialect:
        route = request.route
        if isinstance(found, Dialect):
            return found
        agent = await whose(request, found.id, self._handler)
        self._reception.callers.admit(request, agent)  # strangers must not learn the dialect of a task
        made = await self._handler.dialect_of(found.id, request.principal, agent, route.mount)
        return found.stored.get(made or "", found.otherwise)

    def refuse(self, request: Request, error: A2AError) -> Answer:
        """Encode an error in the caller's dialect, as far as it is known."""
        dialect = request.dialect or resolve.of_nothing(request.text(b"a2a-version"), request.route.mount)
        if dialect.http_error is not None and (body := dialect.http_error(error)) is not None:
            return refusal(error, dialect.error_status(error), b"application/json", body)
        before, after = dialect.around_error(request.id)
        body = b"".join((before, dialect.encode_error(error), after))
        return refusal(error, dialect.error_status(error), b"application/json", body)


def _open_envelope(request: Request, body: bytes, limits: Limits) -> tuple[jsonrpc.Request, Dialect | ByTask]:
    """Decode the envelope, and find the dialect of its params, or the task that decides it. Raises A2AError."""
    try:
        rpc = jsonrpc.decode_request(body, limits.max_depth, limits.max_values)
    except A2AError:
        request.id = jsonrpc.id_of(body, limits.max_depth, limits.max_values)
        raise
    request.id = rpc.id
    return rpc, resolve.of_call(rpc.method, rpc.params, version(request), request.route.mount)
