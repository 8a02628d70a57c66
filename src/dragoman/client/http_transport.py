"""Calls and streams to one agent, over JSON-RPC or HTTP+JSON, in one dialect. `transport` has the invariant."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import compress, count, islice, repeat
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
    CallHeaders,
    CallTerms,
    StreamPosition,
    UpdateBatch,
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
from dragoman.model.updates import ArtifactUpdate, Update
from dragoman.net.egress import ClaimedConnection, Flow, HttpReply
from dragoman.net.errors import EgressError
from dragoman.net.target import Target

T = TypeVar("T")

Updates = tuple[Update, ...]

_TRY_AGAIN = frozenset({429, 502, 503, 504})

FEW_EVENTS = 8
"""The most events that came together which are decoded each by itself."""

CHUNKS_IN_TURN = 2
"""How many chunks of artifacts come in turn before more of them are expected, and decoded at once."""


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
        self.wire = terms.wire
        """Is told what goes over the wire; None: nobody wants to know."""
        self._to = interface.to
        self._shown = interface.to.shown
        self._sends_s = terms.sends_s(interface)
        self._way = way
        self._terms = terms
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
        if self._rpc:
            self._headers.setdefault("Content-Type", "application/json")
        self._stream_headers = {**self._headers, "Accept": sse.CONTENT_TYPE}

    async def call(self, operation: Operation, beside: CallHeaders = NO_HEADERS) -> Answer:
        """Return the answer to an operation that is not a stream."""
        call = self._encode(operation, beside)
        return await self._terms.call(partial(self._send, call), call.repeats_s, call.repetition)

    def stream(
        self, operation: StreamMessage | Subscribe, beside: CallHeaders, position: StreamPosition | None
    ) -> "HttpUpdates":
        """Return the updates of a stream.

        Events that `position` already knows are left out, and it records the new ones. An agent that answers with a
        result instead of a stream yields only that result. Raises UnsupportedOperation if the dialect has no such
        stream.
        """
        check_stream(operation, self.tongue)
        return HttpUpdates(self, self._encode(operation, beside), position)

    def begin_stream(self, operation: StreamMessage, beside: CallHeaders) -> "BegunStream | None":
        """Send the call of a stream at once, on a kept connection; None if anything has to be waited for before."""
        if self.wire is not None or not self._rpc or not self.tongue.streams:
            return None
        claimed = self._way.claim(self._to)
        if claimed is None:
            return None
        try:
            call = self._encode(operation, beside)
            timeouts = self._terms.timeouts
            waiting = claimed.send(
                call.headers, call.body or b"", head_timeout_s=timeouts.answer_s, idle_timeout_s=timeouts.idle_s
            )
        except BaseException:
            claimed.release()
            raise
        if waiting is None:
            claimed.release()
            return None
        return BegunStream(self, call, claimed, waiting, self._terms.retrier.clock.now_ms())

    def resume(self, call: _Call, claimed: ClaimedConnection, began_ms: int) -> Coroutine[Any, Any, Flow | Updates]:
        """Go on with a call whose first attempt is under way. Returns as `open`."""
        attempts = [claimed]

        def make() -> Coroutine[Any, Any, Flow | Updates]:
            return self._begin(call, attempts.pop().open() if attempts else None)

        return self._terms.call(make, call.repeats_s, call.repetition, began_ms)

    def open(self, call: _Call) -> Coroutine[Any, Any, Flow | tuple[Update, ...]]:
        """Make the call. Returns its stream, or the result that came instead."""
        return self._open(call) if self._rpc or call.body else self._open_either(call)

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

    async def _begin(self, call: _Call, opening: Coroutine[Any, Any, Flow] | None = None) -> Flow | Updates:
        self._log_request(call)
        try:
            flow = await (
                opening
                or self._way.open(
                    call.verb,
                    call.to,
                    head_timeout_s=self._terms.timeouts.answer_s,
                    idle_timeout_s=self._terms.timeouts.idle_s,
                    headers=call.headers,
                    body=call.body,
                )
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
        if self.wire is not None:
            self.wire.answer(reply.status, reply.headers, reply.body)
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
        if self.wire is not None:
            self.wire.request(call.verb, call.to.shown, call.headers, call.body or b"")

    def _encode(self, operation: Operation, beside: CallHeaders) -> _Call:
        """Encode an operation as a request. Raises UnsupportedOperation or InvalidParams."""
        if self.interface.tenant:
            operation = address(operation, self.interface)
        streams = type(operation) is StreamMessage or type(operation) is Subscribe
        headers = {**(self._stream_headers if streams else self._headers), **beside.by_name(operation)}
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


class BegunStream:
    """The call of a stream that was sent at once: see `HttpTransport.begin_stream`.

    `waiting` is done when the head of the answer has come, or nothing more will. It may be awaited once, or canceled.
    Then either `read_whole` has all updates, and the stream is closed, or the stream goes on as any other: see
    `AgentEndpoint.stream`. `began_ms` is when it was sent, and `transport` is the one by which: the agent may have
    another one by now.
    """

    __slots__ = ("_call", "_claimed", "began_ms", "transport", "waiting")

    def __init__(
        self,
        transport: HttpTransport,
        call: _Call,
        claimed: ClaimedConnection,
        waiting: "asyncio.Future[None]",
        began_ms: int,
    ) -> None:
        self.waiting = waiting
        self.began_ms = began_ms
        self.transport = transport
        self._call = call
        self._claimed = claimed

    def read_whole(self) -> list[Update] | None:
        """Decode the updates if the answer has come whole, and is a stream of usual events; else None.

        Nothing is taken of the answer: `updates` reads it from the beginning.
        """
        answer = self._claimed.whole
        if answer is None or answer.status != 200:
            return None
        streams = answer.headers.get("content-type", "").startswith(sse.CONTENT_TYPE)
        usual = sse.read_usual(answer.body) if streams else None
        if usual is None:
            return None
        ids, data = usual
        if ids[0] and len(set(ids)) < len(ids):
            return None  # some may be repeats
        updates = list(map(self._call.decoder.tongue.read_event, data, repeat(self._call.decoder.call_id)))
        return None if None in updates else updates  # type: ignore[return-value]  # none of them is None

    def updates(self, position: StreamPosition | None) -> "HttpUpdates":
        """Return the updates of the stream, as `HttpTransport.stream` does. It is closed by closing them."""
        return HttpUpdates(self.transport, self._call, position, self)

    def resume(self) -> Coroutine[Any, Any, Flow | Updates]:
        """Go on with the call. Returns its stream, or the result that came instead."""
        return self.transport.resume(self._call, self._claimed, self.began_ms)

    def close(self) -> None:
        """Give the call up, or its connection back when all was read."""
        self._claimed.release()


class HttpUpdates:
    """The updates of a stream over HTTP; see `UpdateReader`. It is read without a generator: each would cost 2 us.

    With `begun` the call has been sent.
    """

    __slots__ = (
        "_begun",
        "_call",
        "_flow",
        "_is_over",
        "_parser",
        "_position",
        "_ready",
        "_stopped",
        "_told",
        "_transport",
    )

    def __init__(
        self,
        transport: HttpTransport,
        call: _Call,
        position: StreamPosition | None,
        begun: BegunStream | None = None,
    ) -> None:
        self._begun = begun
        self._transport = transport
        self._call = call
        self._position = position
        self._parser = sse.Parser()
        self._flow: Flow | None = None
        self._is_over = False
        self._ready: list[UpdateBatch] = []
        """Batches that have been decoded, the last one first."""
        self._stopped: A2AError | None = None
        """The error that stands in the stream behind them."""
        self._told = ""
        """The id of the event before the next one."""

    async def next(self) -> UpdateBatch | None:
        """See `UpdateReader`."""
        if (flow := self._flow) is None:
            if self._is_over:
                return None
            begun, self._begun = self._begun, None
            opened = await (self._transport.open(self._call) if begun is None else begun.resume())
            if isinstance(opened, tuple):
                self._is_over = True
                return UpdateBatch([""] * len(opened), list(opened)) if opened else None
            flow = self._flow = opened
            if (wire := self._transport.wire) is not None:
                wire.answer(flow.status, flow.headers, b"")
        try:
            while not self._ready:
                if self._stopped is not None:
                    raise self._stopped
                piece = flow.take()
                if piece is None:
                    await flow.more()
                elif piece:
                    self._read(piece)
                else:
                    return None
        except EgressError as error:
            raise no_answer(error, "idle_s") from error
        batch = self._ready.pop()
        if self._position is not None:
            self._position.note_batch(over=flow.over and not self._ready and self._stopped is None)
        return batch

    def close(self) -> None:
        """See `UpdateReader`."""
        flow, self._flow, self._is_over = self._flow, None, True
        if self._begun is not None:
            self._begun.close()
            self._begun = None
        if flow is not None:
            flow.release()
            if self._position is not None:
                self._position.note_end(self._parser.retry_ms)

    def _read(self, piece: bytes) -> None:
        """Decode the events that a piece completes."""
        if (wire := self._transport.wire) is not None:
            wire.piece(piece)
        position = self._position
        batches: list[UpdateBatch] = []
        try:
            usual, events = self._parser.feed_columns(piece)
            if usual is not None:
                ids, data = usual
                if position is not None and not position.begin_all(ids, data):
                    fresh = [not position.repeats(*each) for each in zip(ids, data, strict=True)]
                    ids, data = list(compress(ids, fresh)), list(compress(data, fresh))
                self._decode_usual(batches, ids, data)
            if events:
                batch = UpdateBatch([], [])
                batches.append(batch)
                for event in events:
                    if position is not None and position.repeats(event.id, event.data):
                        continue
                    if event.event == "message":
                        self._decode(batch, event.id, event.data)
                    else:
                        self._add(batch, event.id, self._call.decoder.decode_event(event))
        except A2AError as error:
            self._stopped = error
        self._ready = [each for each in reversed(batches) if each.updates]

    def _decode_usual(self, batches: list[UpdateBatch], ids: list[str], data: list[str]) -> None:
        """Decode messages, chunks that come in turn in a batch of their own."""
        tongue, call_id = self._call.decoder.tongue, self._call.decoder.call_id
        if call_id and 0 < len(data) <= FEW_EVENTS:
            updates = list(map(tongue.read_event, data, repeat(call_id)))
            if None not in updates:
                batches.append(UpdateBatch(ids, updates))  # type: ignore[arg-type]  # none of them is None
                self._told = ids[-1]
                return
        batch = UpdateBatch([], [])
        batches.append(batch)
        at = chunks = 0
        while at < len(data):
            self._decode(batch, ids[at], data[at])
            at += 1
            chunks = chunks + 1 if batch.updates and type(batch.updates[-1]) is ArtifactUpdate else 0
            if chunks == CHUNKS_IN_TURN and call_id:
                found_chunks = tongue.read_chunks(islice(data, at, None), call_id)
                if found_chunks:
                    stop = at + len(found_chunks)
                    batch = UpdateBatch([], [])
                    batches += (UpdateBatch(ids[at:stop], found_chunks, chunks=True), batch)
                    self._told, at = ids[stop - 1], stop
                chunks = 0

    def _decode(self, batch: UpdateBatch, event_id: str, data: str) -> None:
        decoder = self._call.decoder
        plain = decoder.tongue.read_event(data, decoder.call_id) if decoder.call_id else None
        if plain is not None:  # most events are decoded in this one pass
            self._told = event_id
            batch.ids.append(event_id)
            batch.updates.append(plain)
        else:
            self._add(batch, event_id, decoder.decode_event(sse.ServerSentEvent(data, "message", event_id)))

    def _add(self, batch: UpdateBatch, event_id: str, updates: Sequence[Update]) -> None:
        """Add the updates of one event: the last of them completes it, and the others stand behind the one before."""
        if updates:
            batch.ids += [*[self._told] * (len(updates) - 1), event_id]
            batch.updates += updates
        self._told = event_id


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
