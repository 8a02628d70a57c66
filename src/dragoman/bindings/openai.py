"""OpenAI's chat completions over agents: `POST /v1/chat/completions` and `GET /v1/models`.

Invariant: every answer, including a refusal, has the shape that OpenAI's own clients expect. A completion is a task
like any other, and its id is in the answer's headers.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.bindings.calls import Reception, decode_body, encode_result, make_call
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import (
    EventsResponse,
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
    read_json,
)
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.request import IDEMPOTENCY_KEY, Header, read_parameters
from dragoman.bindings.streams import UNSEEN, encode_frames
from dragoman.dialects import json_bounds
from dragoman.dialects.api import STREAM_HEADERS
from dragoman.dialects.openai import encode
from dragoman.dialects.openai.decode import Chat, decode
from dragoman.dialects.openai.encode import encode_error, error_status, row, task_of
from dragoman.dialects.v03.decode import fresh_id
from dragoman.engine.handler import Direct, Handler, Snapshot, Stream, StreamItem
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound, TaskTimeout, Unavailable
from dragoman.model.events import ArtifactChunk, Event, Logged, StatusChanged
from dragoman.model.ids import Clock, timestamp, timestamp_ms
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import Manners
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState

TASK_ID = b"x-dragoman-task-id"
CONTEXT_ID = b"x-dragoman-context-id"
"""In an answer: the task and its context. In a request: the task to answer, and the context to continue."""

NO_RETRY: Header = (b"x-should-retry", b"false")
"""OpenAI's official clients obey it. Without it they retry after a 5xx, and the agent would work twice."""


DIALECT = "openai"
"""The dialect that is stored with the tasks made here."""

MANNERS = Manners(late_is_error=True)


class OpenAi:
    """Chat completions of all agents. `model` is an agent's id; without it the default agent answers."""

    def __init__(self, handler: Handler, reception: Reception, default: str, clock: Clock) -> None:
        self._handler = handler
        self._reception = reception
        self._agents = reception.agents
        self._default = default
        self._clock = clock
        self._since_s = clock.now_ms() // 1000

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        return {"chat": HttpEndpoint(self.answer, self.refuse), "models": HttpEndpoint(self.answer_models, self.refuse)}

    async def answer(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer `POST /v1/chat/completions`. Raises A2AError."""
        limits = self._reception.limits
        body = await read_json(request, limits)
        decoding = partial(_decode, request, body, limits)
        del body
        chat = await decode_body(request, limits, decoding)
        del decoding
        send = chat.send if chat.send.tenant else replace(chat.send, tenant=self._default)
        parameters = replace(read_parameters(request), after=None)  # completions cannot be resumed
        call = await make_call(
            self._reception, self._handler, request, parameters, send, dialect=DIALECT, manners=MANNERS
        )
        if chat.streams:
            stream = await self._handler.stream(call)
            request.task_id = "" if stream.head is None else stream.head.id
            completion = CompletionStream(stream, call.agent, self._clock, tells_usage=chat.tells_usage)
            return EventsResponse(completion, encode_frames, [*STREAM_HEADERS, *_task_headers(stream.head)])
        result = await self._handler.call(call)
        if isinstance(result, Message):
            return json_response(200, encode.encode_message(result, call.agent, self._clock.now_ms() // 1000))
        assert isinstance(result, Record)  # nothing else answers a SendMessage
        request.task_id = result.head.id
        if not (result.terminal or result.state in INTERRUPTED):
            waited_ms = self._clock.now_ms() - timestamp_ms(result.head.created_at)
            raise TaskTimeout(result.head.id, round(waited_ms / 1000))
        encoded = await encode_result(request, limits, result, partial(encode.encode_record, result))
        return json_response(200, encoded, *_task_headers(result.head))

    async def answer_models(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /v1/models` with the agents that the caller may use, and `GET /v1/models/{id}` with one agent.

        Raises AgentNotFound, Unauthorized or Forbidden.
        """
        agent, callers = request.route.ids.get("id"), self._reception.callers
        if agent is None:
            callers.admit_any(request)
            usable = [each.profile for name, each in self._agents.items() if callers.admits(request, name)]
            listed = [self._model(profile) for profile in usable]
            return json_response(200, msgspec.json.encode({"object": "list", "data": listed}))
        if agent not in self._agents:
            raise AgentNotFound(agent)
        callers.admit(request, agent)
        return json_response(200, msgspec.json.encode(self._model(self._agents[agent].profile)))

    def _model(self, profile: Profile) -> dict[str, Any]:
        return {
            "id": profile.id,
            "object": "model",
            "created": self._since_s,
            "owned_by": profile.provider.organization if profile.provider is not None else "dragoman",
            "name": profile.name,
            "description": profile.description,
        }

    def refuse(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """Encode an error, and tell OpenAI's clients whether to retry."""
        answer = error_response(error, error_status(error), b"application/json", encode_error(error))
        if (task_id := task_of(error)) is not None:
            answer.headers.append((TASK_ID, task_id.encode()))
        if request.done or not row(error).again:
            answer.headers.append(NO_RETRY)
        return answer


class CompletionStream:
    """A task's stream as completion chunks: see `bindings.streams.Batches`.

    A chunk depends on the chunks before it, so they are not shared with other readers of the task.
    """

    retry = False
    """A stream that a stopping server cuts ends with an error, and cannot be resumed."""

    def __init__(self, stream: Stream, agent: str, clock: Clock, *, tells_usage: bool) -> None:
        self._stream = stream
        self._agent = agent
        self._clock = clock
        self._tells_usage = tells_usage
        self._chunks: encode.Chunks | None = None
        if stream.head is not None:
            self._chunks = self._start_chunks(stream.head.id, encode.created_s(stream.head))

    async def next(self, wait_s: float | None = None) -> Sequence[bytes] | None:
        """Return the chunks since the last call: see `bindings.streams.Batches.next`."""
        if self._chunks is None or not self._chunks.over:
            batch = await self._stream.next(wait_s)
            if batch is None:
                return self._end_early()
            if not batch:
                return ()
            events = [event for item in batch for event in self._events(item)]
            assert self._chunks is not None  # a direct answer has made them at the latest
            frames = [frame for event in events for frame in self._chunks.of(event)]
            return frames or UNSEEN
        return None

    def close(self) -> None:
        """End the stream because the caller has left: see `bindings.streams.Batches.close`."""
        self._stream.close()

    def _start_chunks(self, source: str, created: int) -> encode.Chunks:
        return encode.Chunks(source, created, self._agent, tells_usage=self._tells_usage)

    def _end_early(self) -> Sequence[bytes] | None:
        """The last frames of a stream that ended before its task: the caller left, or the server is stopping."""
        if self._chunks is None or not self._stream.retry:
            return None
        return self._chunks.failed(Unavailable("the server is stopping: the task goes on, ask for it by its id", 1))

    def _events(self, item: StreamItem) -> list[Event]:
        match item:
            case Logged(event=event):
                return [event]
            case Snapshot(record=record):
                return _replay(record)
            case Direct(message=message):
                now_ms = self._clock.now_ms()
                self._chunks = self._start_chunks(message.message_id, now_ms // 1000)
                whole = Artifact(artifact_id=message.message_id, parts=message.parts)
                return [ArtifactChunk(whole), StatusChanged(TaskState.COMPLETED, timestamp(now_ms))]


def _replay(record: Record) -> list[Event]:
    """The events that bring a reader's completion to the state in which the stream begins."""
    status = record.status
    chunks = [ArtifactChunk(artifact) for artifact in record.artifacts]
    return [*chunks, StatusChanged(status.state, status.timestamp, status.message, usage=record.usage)]


def _decode(request: HttpRequest, body: bytes, limits: Limits) -> Chat:
    json_bounds.check(body, *limits.bounds)
    chat = decode(body, _message_id(request, body), request.text(CONTEXT_ID), request.text(TASK_ID))
    if request.size >= LARGE_BYTES:
        json_bounds.check_sent(chat.send, limits.max_parts, limits.max_text)
    return chat


def _message_id(request: HttpRequest, body: bytes) -> str:
    """A fresh id, or with an Idempotency-Key a digest of the body: the same body is then the same message."""
    return blake2b(body, digest_size=16).hexdigest() if IDEMPOTENCY_KEY in request.headers else fresh_id()


def _task_headers(head: TaskHead | None) -> list[Header]:
    if head is None:
        return []
    headers: list[Header] = [(TASK_ID, head.id.encode())]
    if head.context_id.isascii() and head.context_id.isprintable():  # a caller may have named it anything
        headers.append((CONTEXT_ID, head.context_id.encode()))
    return headers
