"""OpenAI's chat completions over agents: `POST /v1/chat/completions` and `GET /v1/models`.

Invariant: every answer, including a refusal, has the shape that OpenAI's own clients expect. A completion is a task
like any other, and its id is in the answer's headers.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.bindings.calls import Reception, encode_result, make_call, read_decoded
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import (
    EventsResponse,
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
)
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.question_finder import DIALECT, QuestionFinder
from dragoman.bindings.request import IDEMPOTENCY_KEY, Header, Parameters, read_parameters
from dragoman.bindings.streams import UNSEEN, encode_frames
from dragoman.dialects import json_bounds
from dragoman.dialects.api import STREAM_HEADERS
from dragoman.dialects.openai import encode
from dragoman.dialects.openai.conversation import conversation_id_of
from dragoman.dialects.openai.decode import ID_LENGTH_MAX, Chat, decode
from dragoman.dialects.openai.encode import encode_error, error_status, row, task_of
from dragoman.dialects.v03.decode import fresh_id
from dragoman.engine.handler import Answered, Direct, Handler, Snapshot, Stream, StreamItem
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError, AgentNotFound, InvalidParams, QuestionClosed, TaskTimeout, Unavailable
from dragoman.model.events import ArtifactChunk, Event, Logged, StatusChanged
from dragoman.model.ids import Clock, timestamp, timestamp_ms
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import GetTask, ListTasks, Manners, SendMessage
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState

TASK_ID = b"x-dragoman-task-id"
CONTEXT_ID = b"x-dragoman-context-id"
"""In an answer: the task and its context. In a request: the task to answer, and the context to continue."""

NO_RETRY: Header = (b"x-should-retry", b"false")
"""OpenAI's official clients obey it. Without it they retry after a 5xx, and the agent would work twice."""

MANNERS = Manners(late_is_error=True)


class ChatSettings(Struct, frozen=True, kw_only=True):
    """How the answer to a question is recognised.

    With `question_mark` the content of a question ends with a mark. `conversation_header` names the header, in lower
    case, in which an interface sends the id of its conversation; None: none does. Earlier turns count if the question
    was asked at most `reply_within_s` ago.
    """

    question_mark: bool = True
    conversation_header: bytes | None = None
    reply_within_s: float = 3600.0


class OpenAi:
    """Chat completions of all agents. `model` is an agent's id; without it the default agent answers."""

    def __init__(
        self, handler: Handler, reception: Reception, default: str, clock: Clock, settings: ChatSettings
    ) -> None:
        self._handler = handler
        self._reception = reception
        self._agents = reception.listed
        self._default = default
        self._clock = clock
        self._settings = settings
        self._since_s = clock.now_ms() // 1000

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        return {"chat": HttpEndpoint(self.answer, refuse), "models": HttpEndpoint(self.answer_models, refuse)}

    async def answer(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer `POST /v1/chat/completions`. Raises A2AError."""
        limits = self._reception.limits
        chat = await read_decoded(request, limits, _decode)
        send = chat.send if chat.send.tenant else replace(chat.send, tenant=self._default)
        conversation_id = None
        if not (send.message.task_id or send.message.context_id or send.unattended):
            conversation_id = self._read_conversation_id(request)
        if conversation_id is not None:
            send = replace(send, message=replace(send.message, context_id=conversation_id))
        found = None
        if not (send.message.task_id or send.unattended) and (chat.before or conversation_id is not None):
            find = QuestionFinder(partial(self._look, request, send.tenant), self._settings, self._clock)
            found = await find.find_question(chat, send.message, request.principal, conversation_id)
        if found is not None:
            try:
                answer = partial(found.answered_by, send)
                answering = answer() if request.size < LARGE_BYTES else await limits.offload.run(answer)
                return await self._complete(request, chat, answering)
            except QuestionClosed:
                pass  # somebody has answered it meanwhile, in other words: what is said now begins a task
        return await self._complete(request, chat, send)

    def _read_conversation_id(self, request: HttpRequest) -> str | None:
        """The id of the interface's conversation. Raises InvalidParams."""
        name = self._settings.conversation_header
        value = None if name is None else request.text(name)
        if name is None or value is None:
            return None
        if len(value) > ID_LENGTH_MAX:
            raise InvalidParams(name.decode(), f"must have at most {ID_LENGTH_MAX} characters")
        return conversation_id_of(value)

    async def _look(self, request: HttpRequest, agent: str, operation: GetTask | ListTasks) -> Answered:
        """Look at tasks of the caller. Raises A2AError."""
        wanted = replace(operation, tenant=agent)
        call = await make_call(
            self._reception, self._handler, request, Parameters(), wanted, dialect=DIALECT, manners=MANNERS
        )
        return await self._handler.look(replace(call, room=None))

    async def _complete(self, request: HttpRequest, chat: Chat, send: SendMessage) -> HttpResponse | EventsResponse:
        """Send the message, and answer with the completion. Raises A2AError."""
        limits, marks = self._reception.limits, self._settings.question_mark
        parameters = replace(read_parameters(request), after=None)  # completions cannot be resumed
        call = await make_call(
            self._reception, self._handler, request, parameters, send, dialect=DIALECT, manners=MANNERS
        )
        if chat.streams:
            stream = await self._handler.stream(call)
            request.task_id = "" if stream.head is None else stream.head.id
            completion = CompletionStream(stream, call.agent, self._clock, tells_usage=chat.tells_usage, marks=marks)
            return EventsResponse(completion, encode_frames, [*STREAM_HEADERS, *task_headers(stream.head)])
        result = await self._handler.call(call)
        if isinstance(result, Message):
            return json_response(200, encode.encode_message(result, call.agent, self._clock.now_ms() // 1000))
        assert isinstance(result, Record)  # nothing else answers a SendMessage
        request.task_id = result.head.id
        if not (result.terminal or result.state in INTERRUPTED):
            waited_ms = self._clock.now_ms() - timestamp_ms(result.head.created_at)
            raise TaskTimeout(result.head.id, round(waited_ms / 1000))
        encoded = await encode_result(request, limits, result, partial(encode.encode_record, result, marks=marks))
        return json_response(200, encoded, *task_headers(result.head))

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


class CompletionStream:
    """A task's stream as completion chunks: see `bindings.streams.Batches`.

    A chunk depends on the chunks before it, so they are not shared with other readers of the task.
    """

    retry = False
    """A stream that a stopping server cuts ends with an error, and cannot be resumed."""

    def __init__(self, stream: Stream, agent: str, clock: Clock, *, tells_usage: bool, marks: bool = False) -> None:
        self._stream = stream
        self._agent = agent
        self._clock = clock
        self._tells_usage = tells_usage
        self._marks = marks
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
            frames: list[bytes] = []
            for event in events:
                if self._chunks.over:  # the stream of a repeated call may reach beyond what that call was answered
                    break
                frames += self._chunks.of(event)
            return frames or UNSEEN
        return None

    def close(self) -> None:
        """End the stream because the caller has left: see `bindings.streams.Batches.close`."""
        self._stream.close()

    def _start_chunks(self, source: str, created: int) -> encode.Chunks:
        return encode.Chunks(source, created, self._agent, tells_usage=self._tells_usage, marks=self._marks)

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
    chat = decode(body, message_id(request, body), request.text(CONTEXT_ID), request.text(TASK_ID))
    if request.size >= LARGE_BYTES:
        json_bounds.check_sent(chat.send, limits.max_parts, limits.max_text)
    return chat


def refuse(request: HttpRequest, error: A2AError) -> HttpResponse:
    """Encode an error, and tell OpenAI's clients whether to retry."""
    answer = error_response(error, error_status(error), b"application/json", encode_error(error))
    if (task_id := task_of(error)) is not None:
        answer.headers.append((TASK_ID, task_id.encode()))
    if request.done or not row(error).again:
        answer.headers.append(NO_RETRY)
    return answer


def message_id(request: HttpRequest, body: bytes) -> str:
    """A fresh id, or with an Idempotency-Key a digest of the body: the same body is then the same message."""
    return blake2b(body, digest_size=16).hexdigest() if IDEMPOTENCY_KEY in request.headers else fresh_id()


def task_headers(head: TaskHead | None) -> list[Header]:
    """The headers that name the task of an answer, and its context; none without a task."""
    if head is None:
        return []
    headers: list[Header] = [(TASK_ID, head.id.encode())]
    if head.context_id.isascii() and head.context_id.isprintable():  # a caller may have named it anything
        headers.append((CONTEXT_ID, head.context_id.encode()))
    return headers
