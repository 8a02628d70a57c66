"""The endpoints of OpenAI's Responses: a response is made, read, followed, canceled and deleted.

Invariant: every answer is one that the official client's own types take. A response never
changes once its turn is over.
"""

from functools import partial
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.bindings.calls import HEAVY_BYTES, Reception, encode_result, read_decoded
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint, public
from dragoman.bindings.http import EventsResponse, HttpRequest, HttpResponse, json_response
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.openai import message_id, refuse, task_headers
from dragoman.bindings.request import IDEMPOTENCY_KEY
from dragoman.bindings.responses.conversations import Conversations
from dragoman.bindings.responses.pages import answer_page
from dragoman.bindings.responses.turns import NEWEST, ReadTurn, ResponseTurns, TurnStream, deleted, encode_turn
from dragoman.dialects import json_bounds
from dragoman.dialects.api import STREAM_HEADERS
from dragoman.dialects.responses.decode import ResponseRequest, decode, decode_look, decode_page
from dragoman.dialects.responses.objects import ResponseId
from dragoman.dialects.responses.turn import ResponseTurn, first_turn
from dragoman.engine.handler import Handler, Snapshot
from dragoman.model.errors import InvalidParams, QuestionClosed, TaskTimeout
from dragoman.model.events import Logged, Submitted
from dragoman.model.ids import Clock, timestamp_ms
from dragoman.model.operations import CancelTask, SendMessage
from dragoman.model.task import Record, TaskHead

SPOKEN = (
    "GET /v1/models, GET /v1/models/{id}, POST /v1/chat/completions, POST /v1/responses, "
    "GET and DELETE /v1/responses/{id}, POST /v1/responses/{id}/cancel, GET /v1/responses/{id}/input_items, "
    "POST /v1/conversations, GET and DELETE /v1/conversations/{id}, GET /v1/conversations/{id}/items"
)
"""The part of OpenAI's API that is spoken here."""


class Addressed(Struct, frozen=True):
    """A message that is ready to be sent. If it is for a task that there is, `turn` is the one it may begin.

    The events behind `after` of the task's log are to be added to that turn.
    """

    send: SendMessage
    turn: ResponseTurn | None = None
    after: int = 0


class Responses:
    """Responses of all agents. `model` is an agent's id; without it the default agent answers."""

    def __init__(self, handler: Handler, reception: Reception, default: str, clock: Clock) -> None:
        self._handler = handler
        self._reception = reception
        self._default = default
        self._clock = clock
        self._turns = ResponseTurns(handler, reception)
        self._conversations = Conversations(self._turns)

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoints."""
        conversations = self._conversations
        return {
            "responses": HttpEndpoint(self.answer_new, refuse),
            "response": HttpEndpoint(self.answer_one, refuse),
            "response-cancel": HttpEndpoint(self.answer_cancel, refuse),
            "response-items": HttpEndpoint(self.answer_items, refuse),
            "conversations": HttpEndpoint(conversations.answer_new, refuse),
            "conversation": HttpEndpoint(conversations.answer_one, refuse),
            "conversation-items": HttpEndpoint(conversations.answer_items, refuse),
            "unsupported": public(answer_unsupported),
        }

    # -- POST /v1/responses --------------------------------------------------------------------------------------------

    async def answer_new(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer `POST /v1/responses`. Raises A2AError."""
        limits = self._reception.limits
        asked = await read_decoded(request, limits, _decode)
        addressed = await self._address(request, asked)
        if asked.streams:
            return await self._stream(request, asked, addressed)
        record = await self._send(request, asked, addressed.send)
        head = record.head
        request.task_id = head.id
        turn = first_turn(record) if addressed.turn is None else None
        if turn is None:
            turn = await self._read_sent(request, addressed, record)
        if not turn.over and not asked.stored:
            waited_ms = self._clock.now_ms() - timestamp_ms(head.created_at)
            raise TaskTimeout(head.id, round(waited_ms / 1000))
        encoded = await encode_result(request, limits, record, partial(_encode, turn.response()))
        return json_response(200, encoded, *task_headers(head))

    async def _send(self, request: HttpRequest, asked: ResponseRequest, send: SendMessage) -> Record:
        """Send the message of a request, and return its task. Raises A2AError."""
        try:
            record = await self._handler.call(await self._turns.make_call(request, send))
        except QuestionClosed as error:
            _refuse_late(asked, error)
        assert isinstance(record, Record)  # nothing else answers a SendMessage that asks for a task
        return record

    async def _address(self, request: HttpRequest, asked: ResponseRequest) -> Addressed:
        """Find the task that a message answers, or the context in which it begins one. Raises A2AError."""
        send = asked.send
        if asked.previous is not None:
            return await self._address_after(request, asked, asked.previous)
        send = send if send.tenant else replace(send, tenant=self._default)
        if asked.context_id is None:
            return Addressed(send)
        waiting = await self._conversations.find_waiting(request, asked.context_id, send.tenant)
        if waiting is not None:
            found = await self._turns.read(request, waiting, send.tenant, NEWEST)
            if found is not None and found.turn.asks:
                return _answer(asked, found)
        return Addressed(replace(send, message=replace(send.message, context_id=asked.context_id)))

    async def _address_after(self, request: HttpRequest, asked: ResponseRequest, previous: ResponseId) -> Addressed:
        """Address the message that follows a response: its question's answer, or the next message of its context."""
        place, send = "previous_response_id", asked.send
        agent = await self._turns.find_agent(request, previous.task_id)
        if agent is None:
            raise InvalidParams(place, "there is no such response: use the `id` of one")
        sent_id = send.message.message_id if IDEMPOTENCY_KEY in request.headers else ""
        found = await self._turns.read(request, previous.task_id, agent, previous.turn, sent_id)
        if found is None:  # the log of a task that has ended
            record = await self._turns.read_record(request, previous.task_id, agent)
            _check_own(request, record.head)
            return Addressed(_next_message(asked, agent, record.head.context_id))
        turn = found.turn
        if not turn.begun:
            raise InvalidParams(place, "there is no such response: use the `id` of one")
        if not turn.over:
            raise InvalidParams(place, "the response is in progress: wait until it is completed, or cancel it")
        if found.said:  # the same call before
            return _answer(asked, found, anew=True)
        if turn.asks:
            if asked.named and send.tenant != agent:
                raise InvalidParams("model", f"must be {agent} or absent: it is its question that is answered")
            return _answer(asked, found)
        if found.ended:
            _check_own(request, turn.head)
            return Addressed(_next_message(asked, agent, turn.head.context_id))
        _refuse_late(asked)

    async def _read_sent(self, request: HttpRequest, addressed: Addressed, record: Record) -> ResponseTurn:
        """Read the turn of a message that was sent, from the log up to a record. Raises A2AError."""
        head, message = record.head, addressed.send.message
        turn = addressed.turn or ResponseTurn(head, 1, quiet=True)
        async with self._turns.open_log(request, head.id, head.agent, addressed.after) as (_, events):
            async for item in events:
                if isinstance(item, Record):  # the log of an ended task is gone already
                    return first_turn(item) or turn
                turn = turn.continue_to(message.message_id)
                turn.add_event(item.event)
                if item.seq >= record.seq:
                    break
        return turn

    async def _stream(self, request: HttpRequest, asked: ResponseRequest, addressed: Addressed) -> EventsResponse:
        """Send a message and open the stream of its turn. Raises A2AError."""
        send, turn = addressed.send, addressed.turn
        if turn is not None:
            sent = SendMessage(
                message=send.message,
                metadata=send.metadata,
                skill=send.skill,
                answers=send.answers,
                tenant=send.tenant,
                return_immediately=True,
            )
            await self._send(request, asked, sent)
            head = turn.head
            log = await self._turns.follow(request, head.id, head.agent, addressed.after)
            frames = TurnStream(log, turn, message_id=send.message.message_id)
        else:
            stream = await self._handler.stream(await self._turns.make_call(request, send))
            assert stream.head is not None  # the task of a message
            head = stream.head
            match await stream.next():
                case [Snapshot(record=Record(seq=1) as record), *more]:
                    begun = Logged(1, Submitted(record.history[0], head.created_at))
                    frames = TurnStream(stream, ResponseTurn(head, 1), [begun, *more])
                case _:  # a repeated call, or a task that went on before this stream began
                    stream.close()
                    frames = TurnStream(await self._turns.follow(request, head.id, head.agent), ResponseTurn(head, 1))
        request.task_id = head.id
        return EventsResponse(frames, encode_turn, [*STREAM_HEADERS, *task_headers(head)])

    # -- /v1/responses/{id} --------------------------------------------------------------------------------------------

    async def answer_one(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer `GET` and `DELETE /v1/responses/{id}`. Raises A2AError."""
        text = request.route.ids["id"]
        if request.method == "DELETE":
            found, agent = await self._turns.read_response(request, text)
            await self._turns.delete(request, found.turn.head.id, agent)
            return json_response(200, _encode({"id": text, "object": "response", "deleted": True}))
        streams, after = decode_look(request.query_fields())
        found, agent = await self._turns.read_response(request, text)
        turn = found.turn
        if not streams:
            return await self._answer_turn(request, turn)
        if found.folded:
            raise deleted(text)
        stream = await self._turns.follow(request, turn.head.id, agent)
        frames = TurnStream(stream, ResponseTurn(turn.head, turn.number), after=-1 if after is None else after)
        return EventsResponse(frames, encode_turn, [*STREAM_HEADERS, *task_headers(turn.head)])

    async def answer_cancel(self, request: HttpRequest) -> HttpResponse:
        """Answer `POST /v1/responses/{id}/cancel`: a response that has ended stays as it is. Raises A2AError."""
        text = request.route.ids["id"]
        found, agent = await self._turns.read_response(request, text)
        if not found.turn.over:
            cancel = CancelTask(id=found.turn.head.id, tenant=agent)
            await self._handler.call(await self._turns.make_call(request, cancel))
            found, _ = await self._turns.read_response(request, text)
        return await self._answer_turn(request, found.turn)

    async def answer_items(self, request: HttpRequest) -> HttpResponse:
        """Answer `GET /v1/responses/{id}/input_items`. Raises A2AError."""
        page = decode_page(request.query_fields())
        found, _ = await self._turns.read_response(request, request.route.ids["id"])
        return answer_page(page, found.turn.encode_inputs())

    async def _answer_turn(self, request: HttpRequest, turn: ResponseTurn) -> HttpResponse:
        """Answer with the response as it stands; a large one is encoded on the thread."""
        encode, weight = partial(_encode, turn.response()), turn.weight
        if weight < HEAVY_BYTES:
            return json_response(200, encode(), *task_headers(turn.head))
        request.reserve(weight)
        return json_response(200, await self._reception.limits.offload.run(encode), *task_headers(turn.head))


async def answer_unsupported(request: HttpRequest) -> HttpResponse:
    """Answer a path below `/v1/` that is not spoken here."""
    message = f"{request.method} {request.path[:200]} is not spoken here. There are: {SPOKEN}"
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "unsupported_endpoint"}
    return json_response(404, _encode({"error": error}))


def _answer(asked: ResponseRequest, found: ReadTurn, *, anew: bool = False) -> Addressed:
    """Address a message to a task: to the question with which the turn ended, or `anew` as it was sent before."""
    head, quiet = found.turn.head, not asked.streams
    message = replace(asked.send.message, parts=asked.parts, task_id=head.id, context_id=head.context_id)
    send = replace(asked.send, message=message, earlier=(), continues=False, tenant=head.agent)
    if anew:
        return Addressed(send, ResponseTurn(head, 1, quiet=quiet))
    return Addressed(replace(send, answers=found.turn.question), found.turn.following(quiet=quiet), found.seq)


def _refuse_late(asked: ResponseRequest, cause: QuestionClosed | None = None) -> NoReturn:
    """Refuse an answer to a question that somebody has answered already. Raises InvalidParams."""
    if asked.context_id is not None:
        raise InvalidParams(
            "conversation", "its question has been answered meanwhile: send it again if it is meant for what follows"
        ) from cause
    raise InvalidParams(
        "previous_response_id", "its question has been answered: use the `id` of the response that followed"
    ) from cause


def _check_own(request: HttpRequest, head: TaskHead) -> None:
    """Raises InvalidParams for a response of another member of the caller's team: the agent would not know what it said
    before, since each member has conversations of their own."""
    if head.owner != request.principal.id:
        raise InvalidParams(
            "previous_response_id",
            "is a response of another member of your team: begin a conversation of your own, or answer its question",
        )


def _next_message(asked: ResponseRequest, agent: str, context_id: str) -> SendMessage:
    """The message that begins the next task of a context."""
    send = asked.send
    return replace(send, message=replace(send.message, context_id=context_id), tenant=send.tenant or agent)


def _decode(request: HttpRequest, body: bytes, limits: Limits) -> ResponseRequest:
    json_bounds.check(body, *limits.bounds)
    asked = decode(body, message_id(request, body))
    if request.size >= LARGE_BYTES:
        json_bounds.check_sent(asked.send, limits.max_parts, limits.max_text)
    return asked


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)
