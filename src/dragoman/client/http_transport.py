"""Calls and streams to one agent, over JSON-RPC or HTTP+JSON, in one dialect. `transport` has the invariant."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.card import Interface
from dragoman.client.decode import AnswerDecoder
from dragoman.client.errors import HttpRefusal, no_answer
from dragoman.client.http import HttpClient
from dragoman.client.retries import Repetition
from dragoman.client.transport import (
    NO_HEADERS,
    Batch,
    CallHeaders,
    CallTerms,
    StreamPosition,
    address,
    check_stream,
    extensions_header,
    refusal,
    repeated_s,
)
from dragoman.dialects import sse
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.cards import JSONRPC
from dragoman.model.errors import A2AError, MethodNotAllowed, MethodNotFound, NotFound, TaskNotFound
from dragoman.model.operations import Operation, StreamMessage, Subscribe
from dragoman.model.updates import Update
from dragoman.net.egress import Flow, HttpReply
from dragoman.net.errors import EgressError
from dragoman.net.target import Target

T = TypeVar("T")

_TRY_AGAIN = frozenset({429, 502, 503, 504})


class _Call(Struct, frozen=True):
    """A request that is about to be sent, and the reader of its answer."""

    verb: str
    to: Target
    headers: Mapping[str, str]
    body: bytes | None
    decoder: AnswerDecoder
    repeats_s: float
    repetition: Repetition

    @property
    def repeatable(self) -> bool:
        """Whether it may be repeated, for `repeats_s`, even if it may have been carried out."""
        return self.repeats_s > 0


class HttpTransport:
    """One endpoint of an agent, over HTTP. `way` adds the caller's credentials."""

    def __init__(self, way: HttpClient, interface: Interface, spoken: Tongue, terms: CallTerms) -> None:
        self.interface = interface
        self.tongue = spoken
        self._to = interface.to
        self._shown = interface.to.shown
        self._sends_s = terms.sends_s(interface)
        self._way = way
        self._terms = terms
        self._wire = terms.wire
        self._ids = count(1)
        self._rpc = interface.binding == JSONRPC
        self._subscribes_by = ""
        if (spoken.rpc if self._rpc else spoken.rest) is None:
            raise ValueError(f"the dialect {spoken.name} is not supported over {interface.binding}")
        self._headers = {
            "Accept": "application/json" if self._rpc else "application/a2a+json, application/json",
            **spoken.headers,
            **({extensions_header(spoken): ", ".join(terms.extensions)} if terms.extensions else {}),
            **terms.headers,
        }

    async def call(self, operation: Operation, beside: CallHeaders = NO_HEADERS) -> Answer:
        """Return the answer to an operation that is not a stream."""
        call = self._encode(operation, beside)
        return await self._terms.call(partial(self._send, call), call.repeats_s, call.repetition)

    async def stream(
        self, operation: StreamMessage | Subscribe, beside: CallHeaders, position: StreamPosition | None
    ) -> AsyncGenerator[Batch, None]:
        """Yield the updates of a stream in batches: at least one, and as many as arrived together.

        Events that `position` already knows are left out, and it records the new ones. An agent that answers with a
        result instead of a stream yields only that result. The iterator ends when the agent ends the stream; to stop
        earlier, close it. Raises UnsupportedOperation if the dialect has no such stream.
        """
        check_stream(operation, self.tongue)
        call = self._encode(operation, beside)
        opened = await (self._open if self._rpc or call.body else self._open_either)(call)
        if isinstance(opened, tuple):
            if opened:
                yield [("", update) for update in opened]
            return
        parser, decoder, told = sse.Parser(), call.decoder, ""
        read_event, call_id = decoder.tongue.read_event, decoder.call_id
        try:
            if self._wire is not None:
                self._wire.answer(opened.status, opened.headers, b"")
            async for piece in opened.pieces:
                if self._wire is not None:
                    self._wire.piece(piece)
                batch: Batch = []
                try:
                    for event in parser.feed(piece):
                        if position is not None and position.repeats(event.id, event.data):
                            continue
                        plain = read_event(event.data, call_id) if call_id and event.event == "message" else None
                        if plain is not None:  # most events are decoded in this one pass
                            told = event.id
                            batch.append((told, plain))
                            continue
                        updates = decoder.decode_event(event)
                        if len(updates) > 1:
                            batch += [(told, update) for update in updates[:-1]]
                        told = event.id
                        if updates:
                            batch.append((told, updates[-1]))
                except A2AError as error:
                    if batch:  # yield what came before the error first
                        yield batch
                    raise error
                if batch:
                    if position is not None:
                        position.note_batch(over=opened.over)
                    yield batch
        except EgressError as error:
            raise no_answer(error, "idle_s") from error
        finally:
            opened.release()
            if position is not None:
                position.note_end(parser.retry_ms)

    def _open(self, call: _Call) -> Coroutine[Any, Any, Flow | tuple[Update, ...]]:
        return self._terms.call(partial(self._begin, call), call.repeats_s, call.repetition)

    async def _open_either(self, call: _Call) -> Flow | tuple[Update, ...]:
        """Subscribe over HTTP+JSON by GET or by POST, whichever the server accepts, and remember that.

        The proto file of A2A 1.0 says GET. The official SDKs' clients use POST, and some servers accept nothing else.
        Such a server may take the GET for a read of a task whose id ends in `:subscribe`, and not find it.
        """
        known = self._subscribes_by
        first = replace(call, verb=known or call.verb)
        try:
            opened = await self._open(first)
        except (A2AError, HttpRefusal) as error:
            if not _unrouted(error) or (known and isinstance(error, TaskNotFound)):
                raise
            second = replace(call, verb="POST" if first.verb == "GET" else "GET")
            try:
                opened = await self._open(second)
            except (A2AError, HttpRefusal) as other:
                if not _unrouted(other):
                    self._subscribes_by = second.verb
                elif not isinstance(other, TaskNotFound):
                    raise error from None
                raise
            self._subscribes_by = second.verb
            return opened
        self._subscribes_by = first.verb
        return opened

    async def _send(self, call: _Call) -> Answer:
        self._log_request(call)
        try:
            reply = await self._way.request(
                call.verb, call.to, timeout_s=self._terms.timeouts.answer_s, headers=call.headers, body=call.body
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error
        return self._read(call, reply, call.decoder.decode_answer)

    async def _begin(self, call: _Call) -> Flow | tuple[Update, ...]:
        self._log_request(call)
        try:
            flow = await self._way.open(
                call.verb,
                call.to,
                head_timeout_s=self._terms.timeouts.answer_s,
                idle_timeout_s=self._terms.timeouts.idle_s,
                headers=call.headers,
                body=call.body,
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error
        if flow.ok and flow.headers.get("content-type", "").lower().startswith(sse.CONTENT_TYPE):
            return flow
        try:
            reply = HttpReply(flow.status, flow.headers, await flow.body())
        except EgressError as error:
            raise no_answer(error, "idle_s") from error
        finally:
            flow.release()
        return self._read(call, reply, call.decoder.decode_instead)

    def _read(self, call: _Call, reply: HttpReply, read: Callable[[bytes], T]) -> T:
        """Decode an answer. Raises RetryLater for a refusal after which the call may be repeated."""
        if self._wire is not None:
            self._wire.answer(reply.status, reply.headers, reply.body)
        try:
            if not reply.ok:
                raise call.decoder.decode_refusal(reply.body, reply.status)
            return read(reply.body)
        except (A2AError, HttpRefusal) as error:
            after_s = self._terms.retrier.after_s(reply.headers)
            raise refusal(
                error,
                after_s,
                for_now=reply.status in _TRY_AGAIN,
                repeatable=call.repeatable,
                full=reply.status == 429,
                away=reply.status == 503,
            ) from error.__cause__

    def _log_request(self, call: _Call) -> None:
        if self._wire is not None:
            self._wire.request(call.verb, call.to.shown, call.headers, call.body or b"")

    def _encode(self, operation: Operation, beside: CallHeaders) -> _Call:
        """Encode an operation as a request. Raises UnsupportedOperation or InvalidParams."""
        operation = address(operation, self.interface)
        headers = dict(self._headers)
        if isinstance(operation, StreamMessage | Subscribe):
            headers["Accept"] = sse.CONTENT_TYPE
        headers |= beside.by_name(operation)
        verb, to, shown, body, call_id = "POST", self._to, self._shown, b"", 0
        if self._rpc:
            assert self.tongue.rpc is not None
            call, call_id = self.tongue.rpc(operation), next(self._ids)
            body = b'{"jsonrpc":"2.0","method":"%b","id":%d,"params":%b}' % (call.method.encode(), call_id, call.params)
        else:
            assert self.tongue.rest is not None
            asked = self.tongue.rest(operation)
            verb, to, body = asked.verb, _below(self._to, asked.path), asked.body
            shown = to.shown
        if body:
            headers.setdefault("Content-Type", "application/json")
        decoder = AnswerDecoder(self.tongue, operation, shown, call_id)
        repeats_s = repeated_s(operation, self._sends_s)
        return _Call(verb, to, headers, body or None, decoder, repeats_s, beside.repetition)


def _unrouted(error: A2AError | HttpRefusal) -> bool:
    """Whether an error may mean that the server has no such route for this HTTP method."""
    if isinstance(error, HttpRefusal):
        return error.status in (404, 405)
    return isinstance(error, NotFound | MethodNotAllowed | MethodNotFound | TaskNotFound)


def _below(base: Target, path: str) -> Target:
    """Return the URL of a route: the interface's path, then the route's, with the queries of both."""
    above, _, query = base.url.partition("?")
    route, _, more = path.partition("?")
    queries = "&".join(filter(None, (query, more)))
    return replace(base, url=f"{above.rstrip('/')}{route}" + (f"?{queries}" if queries else ""))
