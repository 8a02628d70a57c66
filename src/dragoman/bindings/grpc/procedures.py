"""The procedures of the A2A services: from a call to a call of the handler, and back.

Invariant: who calls is checked before the request is read. The end of an RPC (its client left, or its deadline is over)
ends nothing but the RPC: the call that it made goes on, and so does its task. No status is UNKNOWN, and none has an
exception's text. Each event is encoded once for all readers of a dialect.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from msgspec.structs import replace

from dragoman.bindings.app import CurrentApp
from dragoman.bindings.calls import encode_result
from dragoman.bindings.grpc.deadlines import Deadlines
from dragoman.bindings.grpc.metadata import HttpSide
from dragoman.bindings.grpc.rpc import WRITE_ERRORS, Context, Rpc
from dragoman.bindings.grpc.services import Service
from dragoman.bindings.limits import SMALL_BYTES, Limits
from dragoman.bindings.streams import FoldedStream, Streams
from dragoman.bindings.traffic import StreamVisit
from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Stream, StreamItem
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, InternalError, Unavailable
from dragoman.model.events import Logged, seq_and_frame
from dragoman.model.ids import new_id
from dragoman.model.operations import Call, GetTask, ListTasks, Operation, SendMessage, TaskPage
from dragoman.model.task import Record

log = logging.getLogger(__name__)

T = TypeVar("T")

Messages = Any

OK, CANCELLED = 0, 1
"""The numbers of gRPC's statuses for the log."""

RETRY_S = 1
"""When the reader of a stream that a stopping server cut should come back: a restart takes about that long."""

PAGE_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Most bytes of a page of tasks. Clients refuse messages of more than 4 MiB unless they are told otherwise."""

Answer = Callable[[Rpc, bytes], Coroutine[Any, Any, T]]
"""Answers an RPC with its response, or with a stream of items."""


class FrameEncoder:
    """Encodes the batches of a task's stream for one reader, a message for each frame.

    `seen` is (seq, frame): the reader has the frames of the event `seq` up to that number, and the stream begins with
    the rest of them. `add_event_id` adds the id of each frame, which is that of SSE; None: frames have no ids.
    """

    __slots__ = ("_add_event_id", "_dialect", "_head", "_seen", "_streams")

    def __init__(
        self,
        stream: Stream,
        dialect: Dialect,
        streams: Streams,
        seen: tuple[int, int],
        add_event_id: Callable[[bytes, str], bytes] | None = None,
    ) -> None:
        self._add_event_id = add_event_id
        self._head = stream.head
        self._dialect = dialect
        self._streams = streams
        self._seen = seen

    def frames(self, batch: Sequence[StreamItem]) -> Iterator[bytes]:
        """Encode a batch. Each event is encoded once for all readers."""
        key, (seq, number) = self._dialect.key, self._seen
        for item in batch:
            if not isinstance(item, Logged):
                stands, whole = self._streams.encode_whole(self._dialect, item)
                yield from self._with_ids(whole.frames, stands)
                continue
            frames = item.frames.get(key)
            if frames is None:
                assert self._head is not None  # a stream of events has a task
                frames = item.frames[key] = self._dialect.encode_event(self._head, item.event, None)
            marked = self._with_ids(frames, item.seq)
            if seq == item.seq and item is batch[0] and len(frames) > 1:
                marked = marked[number:]
            yield from marked
        if batch:
            self._seen = (0, 0)  # only the first event can have frames that the reader has seen

    def _with_ids(self, frames: tuple[bytes, ...], seq: int) -> Sequence[bytes]:
        """The frames with their ids, if they have any: of several the last has the seq alone (`7.1`, `7.2`, `7`)."""
        add = self._add_event_id
        if add is None or not seq:
            return frames
        last = len(frames)
        return [add(frame, str(seq) if number == last else f"{seq}.{number}") for number, frame in enumerate(frames, 1)]


class Procedures:
    """Answers the calls of all services with the backend of the `current` application."""

    def __init__(self, services: Sequence[Service], current: CurrentApp, *, server: HttpSide, pause_s: float) -> None:
        """A reader that takes nothing for `pause_s` is given up."""
        self._services = services
        self._current = current
        self._server = server
        self._pause_s = pause_s
        self._deadlines = Deadlines()
        self._work: set[asyncio.Task[Any]] = set()

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """gRPC's handlers of all procedures by full name."""
        found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for service in self._services:
            for name, streams in service.procedures.items():
                found[f"/{service.name}/{name}"] = self._handler(service, name, streams)
        return found

    async def finish(self) -> None:
        """Wait for the calls whose RPCs have ended before them."""
        while self._work:
            await asyncio.wait(tuple(self._work))

    def _handler(self, service: Service, name: str, streams: bool) -> "grpc.RpcMethodHandler[Any, Any]":
        # As if the request were a stream: then gRPC lets us read it, after the caller is known.
        if streams:

            async def stream(messages: Messages, context: Context) -> None:
                await self._serve(service, name, context, self._stream)

            return grpc.stream_stream_rpc_method_handler(stream)

        async def answer(messages: Messages, context: Context) -> bytes | None:
            return await self._serve(service, name, context, self._answer)

        return grpc.stream_unary_rpc_method_handler(answer)

    async def _serve(
        self,
        service: Service,
        name: str,
        context: Context,
        answer: Answer[T],
    ) -> T:
        """Answer one RPC, or abort it with the status of an error."""
        backend = self._current.app.backend
        rpc = Rpc(service, name, context, backend, self._server)
        request, traffic = rpc.request, backend.traffic
        error: A2AError
        try:
            callers = backend.reception.callers
            rpc.route()
            principal = callers.known(request)
            request.principal = await self._outlive(callers.identify(request)) if principal is None else principal
            answered = await answer(rpc, await rpc.read(self._deadlines))
            if isinstance(answered, bytes):
                if len(answered) > SMALL_BYTES:
                    rpc.take_bytes(len(answered))
                if traffic is not None:
                    traffic.answered(request, rpc.began_s, OK, len(answered))
            return answered
        except A2AError as refused:
            error = await backend.locate(refused)
        except asyncio.CancelledError:
            rpc.leave()
            if traffic is not None and not rpc.streams:
                traffic.answered(request, rpc.began_s, CANCELLED, 0, left=True)
            raise
        except Exception:  # the outermost door: the log has the text, the caller gets a reference
            reference = new_id()
            log.exception("%s/%s failed: reference %s", service.name, name, reference)
            error = InternalError(reference)
        finally:
            if request.reserved:
                request.release()
        if traffic is not None and not rpc.streams:
            request.refusal = type(error)
            traffic.answered(request, rpc.began_s, rpc.service.status(error).code, 0)
        await rpc.abort(error)

    async def _outlive(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that goes on if this RPC ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # an RPC that has ended reads it no more

    async def _answer(self, rpc: Rpc, body: bytes) -> bytes:
        """Answer a unary call. Raises A2AError."""
        call, operation = await rpc.decode(body)
        del body
        answered = await self._result(rpc, call, operation)
        await rpc.send_extensions(call)
        return answered

    async def _result(self, rpc: Rpc, call: Call, operation: Operation) -> bytes:
        backend, request, dialect = rpc.backend, rpc.request, rpc.dialect
        handler, limits = backend.handler, backend.reception.limits
        if isinstance(operation, GetTask):  # a read may end with its RPC, and this one has to be quick
            return await self._encode(rpc, operation, await handler.call(call), dialect, limits)
        if not isinstance(operation, ListTasks):
            result = await self._outlive(_finish(rpc, handler.call(call)))
            return await self._encode(rpc, operation, result, dialect, limits)
        await limits.unread.begin_page(request.principal.id)
        try:
            return await self._list(rpc, call, operation)
        finally:
            limits.unread.end_page(request.principal.id)

    async def _list(self, rpc: Rpc, call: Call, operation: ListTasks) -> bytes:
        """Answer with a page that clients accept: with fewer tasks than asked for, if those are large."""
        backend, dialect = rpc.backend, rpc.dialect
        while True:
            page = await self._outlive(backend.handler.call(call))
            body = await self._encode(rpc, operation, page, dialect, backend.reception.limits)
            tasks = len(page.records) if isinstance(page, TaskPage) else 0
            if len(body) <= PAGE_BYTES or tasks <= 1:
                return body
            fewer = max(1, min(tasks * PAGE_BYTES // len(body), tasks // 2))
            operation = replace(operation, page_size=fewer)
            call = replace(call, operation=operation)

    async def _encode(self, rpc: Rpc, operation: Operation, result: Any, dialect: Dialect, limits: Limits) -> bytes:
        if isinstance(result, Profile):
            result = await rpc.backend.cards.make_extended(rpc.request, result)
        elif isinstance(result, Record):
            rpc.request.task_id = result.head.id
        length = operation.history_length if isinstance(operation, SendMessage | GetTask) else None
        encode = partial(dialect.encode_result, operation, result)
        return await encode_result(rpc.request, limits, result, encode, history_length=length)

    async def _stream(self, rpc: Rpc, body: bytes) -> None:
        """Answer a call with a stream, until that ends or its client leaves. Raises A2AError."""
        call, _ = await rpc.decode(body)
        del body
        await self._outlive(self._follow(rpc, call))

    async def _follow(self, rpc: Rpc, call: Call) -> None:
        dialect, streams = rpc.dialect, rpc.backend.streams
        opened = await rpc.backend.handler.stream(call)
        if opened.head is not None:
            rpc.request.task_id = opened.head.id
        rpc.begin_stream()
        traffic = rpc.backend.traffic
        visit = None if traffic is None else traffic.opened(rpc.request, rpc.began_s)
        stream: Stream = FoldedStream(opened, dialect) if dialect.folds else opened
        rpc.attach(stream)
        streams.enter(stream, call.principal.key)
        try:
            await rpc.send_extensions(call)
            seen = (0, 0) if call.after is None else seq_and_frame(call.after)
            await self._send(rpc, stream, FrameEncoder(stream, dialect, streams, seen, rpc.event_ids(call)), visit)
        finally:
            streams.leave(stream, call.principal.key)
            if visit is not None:
                visit.ended(CANCELLED if rpc.left else OK, left=rpc.left)
            stream.close()
        if stream.retry:
            raise Unavailable("the server is stopping: subscribe again", RETRY_S)

    async def _send(self, rpc: Rpc, stream: Stream, encoder: FrameEncoder, visit: StreamVisit | None) -> None:
        """Write the items of a stream, as fast as its reader takes them."""
        loop, context, pause_s = asyncio.get_running_loop(), rpc.context, self._pause_s
        try:
            async with asyncio.timeout(None) as patience:
                while (batch := await stream.next()) is not None:
                    if rpc.left:
                        return
                    renewed_s = 0.0
                    for frame in encoder.frames(batch):
                        now_s = loop.time()
                        if now_s - renewed_s > pause_s / 8:
                            patience.reschedule(now_s + pause_s)
                            renewed_s = now_s
                        if len(frame) > SMALL_BYTES:
                            rpc.take_bytes(len(frame))
                            await context.write(frame)
                            rpc.release_bytes(len(frame))
                        else:
                            await context.write(frame)
                        if visit is not None:
                            if not visit.bytes_out:
                                visit.begun()
                            visit.sent(len(frame))
                    if renewed_s:
                        patience.reschedule(None)
                    batch = ()  # hold no bytes while the stream is silent
        except TimeoutError:
            rpc.backend.streams.cut(rpc.request.peer, pause_s)
            raise Unavailable(f"nothing was read for {pause_s:g} s: subscribe again", RETRY_S) from None
        except WRITE_ERRORS:
            rpc.leave()


async def _finish(rpc: Rpc, work: Coroutine[Any, Any, T]) -> T:
    """Do work that may go on when its RPC has ended; then release the room that it has taken since."""
    try:
        return await work
    finally:
        if rpc.left:
            rpc.request.release()
