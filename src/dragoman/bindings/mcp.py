"""The Model Context Protocol over streamable HTTP: `POST /mcp`, where every skill is a tool.

Invariant: a call of a tool is a task like any other, and outlives the request; only `notifications/cancelled` ends it.
"""

import asyncio
import logging
from functools import partial

from msgspec.structs import replace

from dragoman.bindings.body import decode_body, read_json
from dragoman.bindings.calls import TRACEPARENT, Reception, call_of
from dragoman.bindings.composing import compose
from dragoman.bindings.http import Answer, Gone, Header, Request, Streaming, plain, refusal
from dragoman.bindings.limits import Limits
from dragoman.bindings.mcp_following import KEY, Following, Told
from dragoman.bindings.mcp_underway import Place, Underway
from dragoman.bindings.offload import LARGE_BYTES
from dragoman.dialects import jsonrpc
from dragoman.dialects.api import STREAM_HEADERS, Dialect
from dragoman.dialects.json_bounds import check_parts
from dragoman.dialects.mcp import names, serve, serve_arguments, serve_results, serve_telling, serve_tools
from dragoman.dialects.mcp.serve_session import Session, opened, session
from dragoman.dialects.mcp.serve_tools import Tool
from dragoman.engine.handler import Handler, Stream
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    TaskNotFound,
    Unauthorized,
    UnsupportedOperation,
)
from dragoman.model.ids import Clock, new_id
from dragoman.model.operations import Call, CancelTask, GetTask, Manners, SendMessage, StreamMessage, Subscribe
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import Record

log = logging.getLogger(__name__)

SESSION: bytes = names.SESSION_HEADER.lower().encode()
VERSION: bytes = names.VERSION_HEADER.lower().encode()

EVENTS, JSON, ANYTHING = "text/event-stream", "application/json", "*/*"


def _nothing(*_: object) -> bytes:
    raise MethodNotFound("MCP is not A2A")


DIALECT = Dialect(
    name="mcp",
    key=KEY,
    content_type=JSON,
    decode=lambda method, params: _no_operation(),
    decode_rest=None,
    encode_result=_nothing,
    encode_snapshot=_nothing,
    encode_message=_nothing,
    encode_event=lambda head, event, record: (),  # events bring their frames: see Following
    encode_error=lambda error: serve_telling.error(b"null", error),
    error_status=serve_telling.status,
    manners=Manners(answers_with_message=False, subscribes_to_ended=True),
)
"""The dialect that is stored with the tasks made here."""


def _no_operation() -> SendMessage:
    raise MethodNotFound("MCP is not A2A")


class Mcp:
    """The endpoint `/mcp`.

    `wait_s` is how long a call without a stream waits for its result; `version` is the version of this program.
    """

    def __init__(
        self,
        handler: Handler,
        reception: Reception,
        clock: Clock,
        underway: Underway,
        *,
        version: str,
        wait_s: float,
    ) -> None:
        self._handler = handler
        self._reception = reception
        self._clock = clock
        self._version = version
        self._wait_s = wait_s
        self._underway = underway

    async def answer(self, request: Request) -> Answer | Streaming:
        """Answer `POST /mcp`, `GET /mcp` and `DELETE /mcp`. Raises A2AError."""
        request.dialect = DIALECT
        self._reception.callers.admit_any(request)
        at = session(request.text(SESSION))
        place = (request.principal.id, at.key)
        if request.method == "DELETE":
            self._underway.forget(place)
            return Answer(204, [], b"")
        if request.method == "GET":
            return self._listen(request, place)
        limits = self._reception.limits
        body = await read_json(request, limits, empty_allowed=False)
        decoding = partial(_decode, request, body, limits)
        del body
        said = await decode_body(request, limits, decoding)
        del decoding
        if isinstance(said, serve.Request):
            request.id = said.id
        named = request.text(VERSION)
        if named is not None and named not in names.VERSIONS and not _is_initialize(said):
            raise InvalidRequest(
                f"{names.VERSION_HEADER} {named[:20]!r} is not supported here: use {' or '.join(names.VERSIONS)}"
            )
        match said:
            case serve.Request(method=names.TOOLS_CALL):
                return await self._call(request, replace(at, version=named or at.version or names.UNSAID), said)
            case serve.Request():
                return self._answer_request(request, place, said)
            case serve.Notification():
                await self._take_notification(request, place, said)
            case serve.Response():
                await self._take_response(request, place, said)
        return Answer(202, [], b"")

    def refuse(self, request: Request, error: A2AError) -> Answer:
        """Encode an error. If the message expects no response, the HTTP status tells the error (Transports)."""
        status = serve_telling.status(error)
        if status == 200 and request.id == b"null":
            status = 500 if isinstance(error, InternalError) else 400
        return refusal(error, status, b"application/json", serve_telling.error(request.id, error))

    # -- access --------------------------------------------------------------------------------------------------------

    def _tools(self, request: Request) -> list[Tool]:
        """The tools of the agents that the caller may use."""
        profiles, callers = self._reception.profiles, self._reception.callers
        usable = {agent: profile for agent, profile in profiles.items() if callers.admits(request, agent)}
        return serve_tools.tools(usable, extended=request.principal is not ANONYMOUS)

    # -- the stream of a session ---------------------------------------------------------------------------------------

    def _listen(self, request: Request, place: Place) -> Answer | Streaming:
        """Open the stream of a session. Raises MethodNotAllowed without a session.

        Older clients send GET without a session to detect another transport.
        """
        owner, session_key = place
        if not session_key:
            raise MethodNotAllowed(("POST", "DELETE", "OPTIONS"))
        if not _accepted_types(request) & {EVENTS, ANYTHING}:
            return self._not_acceptable(b"null", EVENTS)
        return Streaming(self._underway.listeners.listen(owner, session_key), DIALECT, b"", b"", list(STREAM_HEADERS))

    def _not_acceptable(self, request_id: bytes, kinds: str) -> Answer:
        wrong = InvalidRequest(f"Accept must have {kinds}")
        return refusal(wrong, 406, b"application/json", serve_telling.error(request_id, wrong))

    # -- requests that are answered at once ----------------------------------------------------------------------------

    def _answer_request(self, request: Request, place: Place, said: serve.Request) -> Answer:
        more: list[Header] = []
        match said.method:
            case names.INITIALIZE:
                greeting = serve.greeting(said.params)
                encoded = serve_telling.encode_greeting(greeting, self._version)
                more.append((SESSION, opened(new_id(), greeting).encode()))
            case names.PING:
                encoded = b"{}"
            case names.SET_LEVEL:
                self._underway.listen(place, serve.level(said.params))
                encoded = b"{}"
            case names.TOOLS_LIST:
                listed = self._tools(request)
                encoded = serve_tools.encode_page(listed, self._reception.profiles, serve.cursor(said.params))
            case method:
                raise MethodNotFound(method)
        return plain(200, serve_telling.result(said.id, encoded), *more)

    async def _take_notification(self, request: Request, place: Place, said: serve.Notification) -> None:
        """Handle a notification. A call that cannot be canceled any more is left alone (2025-11-25, Cancellation)."""
        if said.method != names.CANCELLED:
            return
        call = self._underway.find(place, serve.cancelled(said.params))
        if call is None:
            return
        call.canceled = True
        try:
            await self._handler.call(await self._call_of(request, CancelTask(id=call.task_id, tenant=call.agent)))
        except InternalError:
            raise
        except A2AError:
            call.canceled = False

    async def _take_response(self, request: Request, place: Place, said: serve.Response) -> None:
        """Pass the user's answer to a question on to the task, or end the calls if the user declined. Raises A2AError.

        A late answer is ignored, because official clients end their session when an answer is refused.
        """
        task_id = serve_telling.task_of(said.id)
        if not task_id:
            raise InvalidRequest("this server sent no request with that id")
        reply = await decode_body(request, self._reception.limits, partial(serve.reply, said.result))
        if reply.text is None:
            for call in self._underway.of_task(place, task_id):
                call.declined()
            return
        agent = await self._handler.agent_of(task_id, request.principal, "/")
        if agent is None:
            return
        message = serve_arguments.answer(reply.text, task_id, said.id)
        check_parts(message, self._reception.limits.max_parts, self._reception.limits.max_text)
        send = SendMessage(message=message, return_immediately=True, tenant=agent)
        try:
            await self._handler.call(replace(await self._call_of(request, send), idempotency_key=said.id))
        except (AgentNotFound, TaskNotFound, UnsupportedOperation) as error:
            log.info("an answer came too late: %s", error.message)

    # -- tools/call ----------------------------------------------------------------------------------------------------

    async def _call(self, request: Request, at: Session, said: serve.Request) -> Answer | Streaming:
        asked = await decode_body(request, self._reception.limits, partial(serve.tool_call, said.params))
        tool = next((tool for tool in self._tools(request) if tool.name == asked.name), None)
        if tool is None:
            raise InvalidParams("name", f"there is no tool {asked.name[:100]!r}: tools/list has those that you may use")
        accepted = _accepted_types(request)
        if not accepted:
            return self._not_acceptable(said.id, f"{JSON} and {EVENTS}")
        try:
            return await self._begin(request, at, said.id, asked, tool, accepted)
        except (Unauthorized, InternalError):
            raise
        except A2AError as error:
            told = serve_telling.result(said.id, serve_results.encode_refusal(error))
            return refusal(error, 200, b"application/json", told)

    async def _begin(
        self,
        request: Request,
        at: Session,
        request_id: bytes,
        asked: serve.ToolCall,
        tool: Tool,
        accepted: frozenset[str],
    ) -> Answer | Streaming:
        """Send the message, or follow the task that the arguments name. Raises A2AError."""
        place = (request.principal.id, at.key)
        wants = await decode_body(request, self._reception.limits, partial(self._parse_arguments, request, asked))
        level = self._underway.level(place)
        told = Told(request_id, at.version, asked.token, level is not None and serve.tells(level))
        streams = self._reception.profiles[tool.agent].streams
        operation: StreamMessage | SendMessage | Subscribe | GetTask
        if wants.message is None:
            operation = (Subscribe if streams else GetTask)(id=wants.task_id, tenant=tool.agent)
        else:
            skill = tool.skill.id if tool.skill is not None else None
            send = StreamMessage if streams else SendMessage
            operation = send(message=wants.message, skill=skill, tenant=tool.agent)
        call = await self._call_of(request, operation)
        if call.traceparent is None and asked.traceparent is not None and TRACEPARENT.fullmatch(asked.traceparent):
            call = replace(call, traceparent=asked.traceparent)
        if not streams:
            record = await self._handler.call(call)
            assert isinstance(record, Record)  # without Manners.answers_with_message
            encoding = partial(serve_results.encode_task, record, told.version)
            encoded = await compose(request, self._reception.limits, record, encoding)
            return plain(200, serve_telling.result(request_id, encoded))
        stream = await self._handler.stream(call)
        streamed = EVENTS in accepted and (
            told.token is not None or told.logs or at.elicits or not accepted & {JSON, ANYTHING}
        )
        following = Following(
            stream,
            told,
            self._clock,
            asks=partial(self._reopen_stream, call) if at.elicits and streamed else None,
            ended=partial(self._underway.remove, place, request_id),
            until_terminal=isinstance(operation, Subscribe),
        )
        self._underway.add(place, request_id, following)
        if streamed:
            return Streaming(following, DIALECT, b"", b"", list(STREAM_HEADERS))
        return await self._wait_for_result(request, following)

    def _parse_arguments(self, request: Request, asked: serve.ToolCall) -> serve_arguments.Asked:
        """Parse the arguments of a call, and check them against the limits. Raises InvalidParams."""
        wants, limits = serve_arguments.asked(asked.arguments, new_id()), self._reception.limits
        if wants.message is not None and request.size >= LARGE_BYTES:
            check_parts(wants.message, limits.max_parts, limits.max_text)
        return wants

    async def _wait_for_result(self, request: Request, following: Following) -> Answer:
        """Wait for the result, or after `wait_s` answer with the task's current state."""
        gone = asyncio.create_task(_close_when_gone(following, request))
        try:
            async with asyncio.timeout(self._wait_s):
                while await following.next() is not None:
                    pass
        except TimeoutError:
            pass  # the task goes on
        finally:
            gone.cancel()
            following.close()
        result = following.result()
        if result is None:
            raise Gone
        return plain(200, result)

    async def _reopen_stream(self, call: Call, task_id: str, seq: int) -> Stream:
        """Open the task's stream after the event `seq`, until the task ends."""
        further = Subscribe(id=task_id, tenant=call.agent)
        return await self._handler.stream(replace(call, operation=further, after=str(seq), idempotency_key=None))

    async def _call_of(self, request: Request, operation: SendMessage | Subscribe | CancelTask | GetTask) -> Call:
        return replace(await call_of(request, operation, DIALECT, self._reception, self._handler), after=None)


def _decode(request: Request, body: bytes, limits: Limits) -> serve.Said:
    try:
        return serve.decode(body, limits.max_depth, limits.max_values)
    except A2AError:
        request.id = jsonrpc.id_of(body, limits.max_depth, limits.max_values)
        raise


def _is_initialize(said: serve.Said) -> bool:
    return isinstance(said, serve.Request) and said.method == names.INITIALIZE


def _accepted_types(request: Request) -> frozenset[str]:
    """The media types of answers that the caller accepts; JSON if there is no Accept header."""
    sent = request.values(b"accept")
    if not sent:
        return frozenset({JSON})
    kinds = {item.partition(";")[0].strip().lower() for item in sent}
    return frozenset(kinds & {EVENTS, JSON, ANYTHING}) | ({JSON} if "application/*" in kinds else frozenset())


async def _close_when_gone(following: Following, request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    following.close()
