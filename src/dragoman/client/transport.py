"""Calls and streams to one agent, over JSON-RPC or HTTP+JSON, in one dialect.

Invariant: errors are an A2AError (the agent's own, or InvalidAgentResponse), a PeerError or a NoAnswer. A call that may
have been carried out is not repeated unless a repeat does no harm.
"""

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.errors import HttpRefusal, no_answer
from dragoman.client.interface import Interface
from dragoman.client.place import Batch, Place
from dragoman.client.reading import Reading
from dragoman.client.retries import Again, Later
from dragoman.client.timeouts import Timeouts
from dragoman.client.tongues import tongue
from dragoman.client.wire import Way
from dragoman.dialects import sse
from dragoman.dialects.cards import JSONRPC
from dragoman.dialects.tongue import Answer, Tongue
from dragoman.model.errors import (
    A2AError,
    AgentFailed,
    InvalidAgentResponse,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.model.operations import (
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.updates import Update
from dragoman.net.egress import Reply
from dragoman.net.errors import EgressError
from dragoman.net.flow import Flow
from dragoman.net.target import Target

T = TypeVar("T")

_READS = (GetTask, ListTasks, Subscribe, GetPushConfig, ListPushConfigs, DeletePushConfig, GetExtendedCard)
"""Operations that do no harm when they are carried out twice."""

_DONE = (InvalidAgentResponse, AgentFailed)
"""Errors of a call that may have been carried out, however long the agent asks to wait."""

_TRY_AGAIN = frozenset({429, 502, 503, 504})


class _Call(Struct, frozen=True):
    """A request that is about to be sent, and the reader of its answer."""

    verb: str
    to: Target
    headers: Mapping[str, str]
    body: bytes | None
    reading: Reading
    repeats_s: float

    @property
    def repeatable(self) -> bool:
        """Whether it may be repeated, for `repeats_s`, even if it may have been carried out."""
        return self.repeats_s > 0


class Transport:
    """One endpoint of an agent. `headers` go with every request; `spoken` is a dialect that is not Dragoman's."""

    def __init__(
        self,
        way: Way,
        interface: Interface,
        *,
        timeouts: Timeouts,
        again: Again,
        headers: Mapping[str, str],
        extensions: Sequence[str] = (),
        spoken: Tongue | None = None,
    ) -> None:
        self.interface = interface
        self.tongue = tongue(interface.dialect) if spoken is None else spoken
        self._to = interface.to
        self._way = way
        self._timeouts = timeouts
        self._again = again
        self._ids = count(1)
        self._rpc = interface.binding == JSONRPC
        self._subscribes_by = ""
        if (self.tongue.rpc if self._rpc else self.tongue.rest) is None:
            raise ValueError(f"the dialect {self.tongue.name} is not supported over {interface.binding}")
        declared = "X-A2A-Extensions" if self.tongue.name == "0.3" else "A2A-Extensions"  # A2A 0.3 §3.2.2, 1.0 §3.2.6
        self._headers = {
            "Accept": "application/json" if self._rpc else "application/a2a+json, application/json",
            **self.tongue.headers,
            **({declared: ", ".join(extensions)} if extensions else {}),
            **headers,
        }

    @property
    def repeats_s(self) -> float:
        """For how long a send that may have arrived is repeated, in seconds."""
        return self._again.retries.repeats_s(self.interface.dedupes_s)

    async def call(
        self, operation: Operation, *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> Answer:
        """Return the answer to an operation that is not a stream."""
        call = self._encode(operation, idempotency_key, traceparent)
        return await self._again.call(
            partial(self._send, call), repeatable=call.repeatable, within_s=call.repeats_s or math.inf
        )

    async def stream(
        self,
        operation: StreamMessage | Subscribe,
        *,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        place: Place | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield the updates of a stream in batches: at least one, and as many as arrived together.

        `after` is sent as `Last-Event-ID`. Events that `place` already knows are left out, and it records the new ones.
        An agent that answers with a result instead of a stream yields only that result. The iterator ends when the
        agent ends the stream; to stop earlier, close it.
        """
        supported = self.tongue.streams if isinstance(operation, StreamMessage) else self.tongue.subscribes
        if not supported:
            raise UnsupportedOperation(f"the dialect {self.tongue.name} has no such stream: use send, then get")
        call = self._encode(operation, idempotency_key, traceparent, after)
        async with AsyncExitStack() as open_:
            opened = await (self._open if self._rpc or call.body else self._open_either)(call, open_)
            if isinstance(opened, tuple):
                if opened:
                    yield [("", update) for update in opened]
                return
            parser, reading, told = sse.Parser(), call.reading, ""
            try:
                async for piece in opened.pieces:
                    batch: Batch = []
                    try:
                        for event in parser.feed(piece):
                            if place is not None and place.repeats(event):
                                continue
                            quickly = reading.quickly(event)
                            if quickly is not None:
                                told = event.id
                                batch.append((told, quickly))
                                continue
                            updates = reading.updates(event)
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
                        yield batch
            except EgressError as error:
                raise no_answer(error, "idle_s") from error
            finally:
                if place is not None:
                    place.retry_ms = parser.retry_ms

    async def _open(self, call: _Call, open_: AsyncExitStack) -> Flow | tuple[Update, ...]:
        return await self._again.call(
            partial(self._begin, call, open_), repeatable=call.repeatable, within_s=call.repeats_s or math.inf
        )

    async def _open_either(self, call: _Call, open_: AsyncExitStack) -> Flow | tuple[Update, ...]:
        """Subscribe over HTTP+JSON by GET or by POST, whichever the server accepts, and remember that.

        The proto file of A2A 1.0 says GET. The official SDKs' clients use POST, and some servers accept nothing else.
        Such a server may take the GET for a read of a task whose id ends in `:subscribe`, and not find it.
        """
        known = self._subscribes_by
        first = replace(call, verb=known or call.verb)
        try:
            opened = await self._open(first, open_)
        except (A2AError, HttpRefusal) as error:
            if not _unrouted(error) or (known and isinstance(error, TaskNotFound)):
                raise
            second = replace(call, verb="POST" if first.verb == "GET" else "GET")
            try:
                opened = await self._open(second, open_)
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
        try:
            reply = await self._way.request(
                call.verb, call.to, timeout_s=self._timeouts.answer_s, headers=call.headers, body=call.body
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error
        return self._read(call, reply, call.reading.answer)

    async def _begin(self, call: _Call, open_: AsyncExitStack) -> Flow | tuple[Update, ...]:
        try:
            flow = await open_.enter_async_context(
                self._way.stream(
                    call.verb,
                    call.to,
                    head_timeout_s=self._timeouts.answer_s,
                    idle_timeout_s=self._timeouts.idle_s,
                    headers=call.headers,
                    body=call.body,
                )
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error
        if flow.ok and flow.headers.get("content-type", "").lower().startswith(sse.CONTENT_TYPE):
            return flow
        try:
            reply = Reply(flow.status, flow.headers, await flow.body())
        except EgressError as error:
            raise no_answer(error, "idle_s") from error
        finally:
            await open_.aclose()
        return self._read(call, reply, call.reading.only)

    def _read(self, call: _Call, reply: Reply, read: Callable[[bytes], T]) -> T:
        """Decode an answer. Raises Later for a refusal after which the call may be repeated."""
        try:
            if not reply.ok:
                raise call.reading.refusal(reply.body, reply.status)
            return read(reply.body)
        except (A2AError, HttpRefusal) as error:
            after_s = self._again.after_s(reply.headers)
            if after_s is not None:
                error.retry_after_s = math.ceil(after_s)
            if isinstance(error, _DONE) or (after_s is None and reply.status not in _TRY_AGAIN):
                raise
            if after_s is None and not call.repeatable:
                raise
            raise Later(error, after_s) from error

    def _encode(
        self, operation: Operation, idempotency_key: str | None, traceparent: str | None, after: str | None = None
    ) -> _Call:
        """Encode an operation as a request. Raises UnsupportedOperation or InvalidParams."""
        if self.interface.tenant and not operation.tenant:
            operation = replace(operation, tenant=self.interface.tenant)
        headers = dict(self._headers)
        if isinstance(operation, StreamMessage | Subscribe):
            headers["Accept"] = sse.CONTENT_TYPE
            if after:
                headers["Last-Event-ID"] = after
        if isinstance(operation, SendMessage):
            headers["Idempotency-Key"] = idempotency_key or operation.message.message_id
        if traceparent:
            headers["traceparent"] = traceparent
        verb, to, body, call_id = "POST", self._to, b"", 0
        if self._rpc:
            assert self.tongue.rpc is not None
            call, call_id = self.tongue.rpc(operation), next(self._ids)
            body = b'{"jsonrpc":"2.0","method":"%b","id":%d,"params":%b}' % (call.method.encode(), call_id, call.params)
        else:
            assert self.tongue.rest is not None
            asked = self.tongue.rest(operation)
            verb, to, body = asked.verb, _below(self._to, asked.path), asked.body
        if body:
            headers.setdefault("Content-Type", "application/json")
        repeats_s = math.inf if isinstance(operation, _READS) else 0.0
        if isinstance(operation, SendMessage):
            repeats_s = self.repeats_s
        reading = Reading(self.tongue, operation, to.shown, call_id)
        return _Call(verb, to, headers, body or None, reading, repeats_s)


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
