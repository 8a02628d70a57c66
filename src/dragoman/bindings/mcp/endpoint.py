"""The Model Context Protocol over streamable HTTP: `POST /mcp`, where every skill is a tool.

Invariant: a call of a tool is a task like any other, and outlives the request; only `notifications/cancelled` ends it.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from msgspec.structs import replace

from dragoman.bindings.calls import Reception, decode_body, encode_result, make_call
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import (
    EventsResponse,
    Gone,
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
    read_json,
)
from dragoman.bindings.limits import LARGE_BYTES, Limits
from dragoman.bindings.mcp.sessions import OpenCall, SessionKey, Sessions
from dragoman.bindings.mcp.tool_call import ToolCallStream, Wanted
from dragoman.bindings.request import TRACEPARENT, Header, read_parameters
from dragoman.bindings.streams import encode_frames
from dragoman.dialects import jsonrpc
from dragoman.dialects.json_bounds import check_parts
from dragoman.dialects.mcp import answers, names, requests, tools
from dragoman.dialects.mcp.requests import SessionTerms, decode_session, encode_session
from dragoman.dialects.mcp.tools import Tool
from dragoman.engine.handler import Handler, Stream
from dragoman.model.card import Profile
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
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.ids import Clock, new_id
from dragoman.model.operations import Call, CancelTask, GetTask, Manners, SendMessage, StreamMessage, Subscribe
from dragoman.model.principal import ANONYMOUS, Principal
from dragoman.model.task import Record
from dragoman.store.api import StoreError

log = logging.getLogger(__name__)

SESSION: bytes = names.SESSION_HEADER.lower().encode()
VERSION: bytes = names.VERSION_HEADER.lower().encode()

EVENTS, JSON, ANYTHING = "text/event-stream", "application/json", "*/*"


DIALECT = "mcp"
"""The dialect that is stored with the tasks made here."""

MANNERS = Manners(answers_with_message=False, subscribes_to_ended=True)


class Mcp:
    """The endpoint `/mcp`.

    `wait_s` is how long a call without a stream waits for its result; `version` is the version of this program.
    """

    def __init__(
        self,
        handler: Handler,
        reception: Reception,
        clock: Clock,
        sessions: Sessions,
        *,
        version: str,
        wait_s: float,
    ) -> None:
        self._handler = handler
        self._reception = reception
        self._clock = clock
        self._version = version
        self._wait_s = wait_s
        self._sessions = sessions

    @property
    def endpoints(self) -> Endpoints:
        """Its endpoint."""
        return {"mcp": HttpEndpoint(self.answer, self.refuse)}

    async def answer(self, request: HttpRequest) -> HttpResponse | EventsResponse:
        """Answer `POST /mcp`, `GET /mcp` and `DELETE /mcp`. Raises A2AError."""
        self._reception.callers.admit_any(request)
        at = decode_session(request.text(SESSION))
        key = (request.principal.id, at.key)
        if request.method == "DELETE":
            with _store_answers():
                await self._sessions.end(key)
            return HttpResponse(204, [], b"")
        if request.method == "GET":
            return await self._listen(request, key)
        limits = self._reception.limits
        body = await read_json(request, limits)
        decoding = partial(_decode, request, body, limits)
        del body
        incoming = await decode_body(request, limits, decoding)
        del decoding
        if isinstance(incoming, requests.ClientRequest):
            request.id = incoming.id
        named = request.text(VERSION)
        if named is not None and named not in names.VERSIONS and not _is_initialize(incoming):
            raise InvalidRequest(
                f"{names.VERSION_HEADER} {named[:20]!r} is not supported here: use {' or '.join(names.VERSIONS)}"
            )
        match incoming:
            case requests.ClientRequest(method=names.TOOLS_CALL):
                return await self._call(request, replace(at, version=named or at.version or names.UNSAID), incoming)
            case requests.ClientRequest():
                return await self._answer_request(request, key, incoming)
            case requests.ClientNotification():
                await self._take_notification(request, key, incoming)
            case requests.ClientResponse():
                await self._take_response(request, key, incoming)
        return HttpResponse(202, [], b"")

    def refuse(self, request: HttpRequest, error: A2AError) -> HttpResponse:
        """Encode an error. If the message expects no response, the HTTP status tells the error (Transports)."""
        status = answers.status(error)
        if status == 200 and request.id == b"null":
            status = 500 if isinstance(error, InternalError) else 400
        return error_response(error, status, b"application/json", answers.error(request.id, error))

    # -- access --------------------------------------------------------------------------------------------------------

    def _usable(self, request: HttpRequest) -> dict[str, Profile]:
        """The agents that the caller may use."""
        agents, callers = self._reception.agents, self._reception.callers
        return {agent_id: agent.profile for agent_id, agent in agents.items() if callers.admits(request, agent_id)}

    def _tools(self, request: HttpRequest) -> list[Tool]:
        """The tools of the agents that the caller may use."""
        return tools.tools(self._usable(request), extended=request.principal is not ANONYMOUS)

    # -- the stream of a session ---------------------------------------------------------------------------------------

    async def _listen(self, request: HttpRequest, key: SessionKey) -> HttpResponse | EventsResponse:
        """Open the stream of a session. Raises MethodNotAllowed without a session.

        Older clients send GET without a session to detect another transport.
        """
        owner, session_key = key
        if not session_key:
            raise MethodNotAllowed(("POST", "DELETE", "OPTIONS"))
        if not _accepted_types(request) & {EVENTS, ANYTHING}:
            return self._not_acceptable(b"null", EVENTS)
        return EventsResponse(await self._sessions.notifications.listen(owner, session_key), encode_frames)

    def _not_acceptable(self, request_id: bytes, kinds: str) -> HttpResponse:
        wrong = InvalidRequest(f"Accept must have {kinds}")
        return error_response(wrong, 406, b"application/json", answers.error(request_id, wrong))

    # -- requests that are answered at once ----------------------------------------------------------------------------

    async def _answer_request(
        self, request: HttpRequest, key: SessionKey, incoming: requests.ClientRequest
    ) -> HttpResponse:
        more: list[Header] = []
        match incoming.method:
            case names.INITIALIZE:
                greeting = requests.decode_initialize(incoming.params)
                encoded = answers.encode_greeting(greeting, self._version)
                more.append((SESSION, encode_session(new_id(), greeting).encode()))
            case names.PING:
                encoded = b"{}"
            case names.SET_LEVEL:
                level = requests.decode_level(incoming.params)
                with _store_answers():
                    await self._sessions.set_level(key, level)
                encoded = b"{}"
            case names.TOOLS_LIST:
                listed, cursor = self._tools(request), requests.decode_cursor(incoming.params)
                encoded = tools.encode_page(listed, self._usable(request), cursor)
            case method:
                raise MethodNotFound(method)
        return json_response(200, answers.result(incoming.id, encoded), *more)

    async def _take_notification(
        self, request: HttpRequest, key: SessionKey, incoming: requests.ClientNotification
    ) -> None:
        """Handle a notification. A call that cannot be canceled any more is left alone (2025-11-25, Cancellation)."""
        if incoming.method != names.CANCELLED:
            return
        request_id = requests.decode_cancelled(incoming.params)
        with _store_answers():
            await self._sessions.cancel(key, request_id, request.principal)

    async def _cancel(self, stream: ToolCallStream, call: Call, principal: Principal) -> None:
        """Cancel the task of a call in the name of a principal, and expect no result of the call then."""
        stream.cancel()
        cancel = CancelTask(id=stream.task_id, tenant=stream.agent)
        try:
            await self._handler.call(
                replace(call, operation=cancel, principal=principal, after=None, idempotency_key=None)
            )
        except InternalError:
            raise
        except A2AError:
            stream.refuse_cancel()

    async def _take_response(self, request: HttpRequest, key: SessionKey, incoming: requests.ClientResponse) -> None:
        """Pass the user's answer to a question on to the task, or end the calls if the user declined. Raises A2AError.

        A late answer is ignored, because official clients end their session when an answer is refused.
        """
        task_id = answers.task_of(incoming.id)
        if not task_id:
            raise InvalidRequest("this server sent no request with that id")
        reply = await decode_body(
            request, self._reception.limits, partial(requests.decode_elicitation, incoming.result)
        )
        if reply.text is None:
            with _store_answers():
                await self._sessions.decline(key, task_id)
            return
        agent = await self._handler.agent_of(task_id, request.principal, "/")
        if agent is None:
            return
        message = requests.build_answer(reply.text, task_id, incoming.id)
        check_parts(message, self._reception.limits.max_parts, self._reception.limits.max_text)
        send = SendMessage(message=message, return_immediately=True, tenant=agent)
        try:
            await self._handler.call(replace(await self._make_call(request, send), idempotency_key=incoming.id))
        except (AgentNotFound, TaskNotFound, UnsupportedOperation) as error:
            log.info("an answer came too late: %s", error.message)

    # -- tools/call ----------------------------------------------------------------------------------------------------

    async def _call(
        self, request: HttpRequest, at: SessionTerms, incoming: requests.ClientRequest
    ) -> HttpResponse | EventsResponse:
        tool_call = await decode_body(
            request, self._reception.limits, partial(requests.decode_tool_call, incoming.params)
        )
        tool = next((tool for tool in self._tools(request) if tool.name == tool_call.name), None)
        if tool is None:
            raise InvalidParams(
                "name", f"there is no tool {tool_call.name[:100]!r}: tools/list has those that you may use"
            )
        accepted = _accepted_types(request)
        if not accepted:
            return self._not_acceptable(incoming.id, f"{JSON} and {EVENTS}")
        try:
            return await self._begin(request, at, incoming.id, tool_call, tool, accepted)
        except (Unauthorized, InternalError):
            raise
        except A2AError as error:
            request.refusal = type(error)
            refusal = answers.result(incoming.id, answers.encode_refusal(error))
            return error_response(error, 200, b"application/json", refusal)

    async def _begin(
        self,
        request: HttpRequest,
        at: SessionTerms,
        request_id: bytes,
        tool_call: requests.ToolCall,
        tool: Tool,
        accepted: frozenset[str],
    ) -> HttpResponse | EventsResponse:
        """Send the message, or follow the task that the arguments name. Raises A2AError."""
        key = (request.principal.id, at.key)
        arguments = await decode_body(
            request, self._reception.limits, partial(self._parse_arguments, request, tool_call)
        )
        with _store_answers():
            level = await self._sessions.level(key)
        wanted = Wanted(request_id, at.version, tool_call.token, level is not None and requests.tells(level))
        streams = self._reception.agents[tool.agent].profile.streams
        operation: StreamMessage | SendMessage | Subscribe | GetTask
        if arguments.message is None:
            operation = (Subscribe if streams else GetTask)(id=arguments.task_id, tenant=tool.agent)
        else:
            skill = tool.skill.id if tool.skill is not None else None
            send = StreamMessage if streams else SendMessage
            operation = send(message=arguments.message, skill=skill, tenant=tool.agent)
        call = await self._make_call(request, operation)
        if (
            call.traceparent is None
            and tool_call.traceparent is not None
            and TRACEPARENT.fullmatch(tool_call.traceparent)
        ):
            call = replace(call, traceparent=tool_call.traceparent)
        if not streams:
            return await self._answer_record(request, request_id, wanted, call)
        try:
            task = await self._handler.stream(call)
        except UnsupportedOperation:
            if not isinstance(operation, Subscribe):
                raise
            read = replace(call, operation=GetTask(id=operation.id, tenant=tool.agent))
            return await self._answer_record(request, request_id, wanted, read)  # damaged: its state can be told
        request.task_id = "" if task.head is None else task.head.id
        streamed = EVENTS in accepted and (
            wanted.token is not None or wanted.logs or at.elicits or not accepted & {JSON, ANYTHING}
        )
        stream = ToolCallStream(
            task,
            wanted,
            self._clock,
            reopen=partial(self._reopen_stream, call) if at.elicits and streamed else None,
            on_end=partial(self._sessions.remove, key, request_id),
            until_terminal=isinstance(operation, Subscribe),
        )
        self._sessions.add(key, request_id, OpenCall(stream, partial(self._cancel, stream, call)))
        if streamed:
            return EventsResponse(stream, encode_frames)
        return await self._wait_for_result(request, stream)

    async def _answer_record(self, request: HttpRequest, request_id: bytes, wanted: Wanted, call: Call) -> HttpResponse:
        """Answer with the task as the call returns it. Raises A2AError."""
        record = await self._handler.call(call)
        assert isinstance(record, Record)  # without Manners.answers_with_message
        request.task_id = record.head.id
        encode = partial(answers.encode_task, record, wanted.version)
        encoded = await encode_result(request, self._reception.limits, record, encode)
        return json_response(200, answers.result(request_id, encoded))

    def _parse_arguments(self, request: HttpRequest, tool_call: requests.ToolCall) -> requests.CallArguments:
        """Parse the arguments of a call, and check them against the limits. Raises InvalidParams."""
        arguments, limits = requests.decode_arguments(tool_call.arguments, new_id()), self._reception.limits
        if arguments.message is not None and request.size >= LARGE_BYTES:
            check_parts(arguments.message, limits.max_parts, limits.max_text)
        return arguments

    async def _wait_for_result(self, request: HttpRequest, stream: ToolCallStream) -> HttpResponse:
        """Wait for the result, or after `wait_s` answer with the task's current state."""
        watcher = asyncio.create_task(_close_when_left(stream, request))
        try:
            async with asyncio.timeout(self._wait_s):
                while await stream.next() is not None:
                    pass
        except TimeoutError:
            pass  # the task goes on
        finally:
            watcher.cancel()
            stream.close()
        result = stream.result()
        if result is None:
            raise Gone
        return json_response(200, result)

    async def _reopen_stream(self, call: Call, task_id: str, seq: int) -> Stream:
        """Open the task's stream after the event `seq`, until the task ends."""
        further = Subscribe(id=task_id, tenant=call.agent)
        return await self._handler.stream(replace(call, operation=further, after=str(seq), idempotency_key=None))

    async def _make_call(self, request: HttpRequest, operation: SendMessage | Subscribe | CancelTask | GetTask) -> Call:
        parameters = replace(read_parameters(request), after=None)  # the streams of MCP cannot be resumed
        return await make_call(
            self._reception, self._handler, request, parameters, operation, dialect=DIALECT, manners=MANNERS
        )


def _decode(request: HttpRequest, body: bytes, limits: Limits) -> requests.ClientMessage:
    try:
        return requests.decode(body, *limits.bounds)
    except A2AError:
        request.id = jsonrpc.id_of(body, limits.max_depth, limits.max_values)
        raise


@contextmanager
def _store_answers() -> Iterator[None]:
    """Raises Unavailable if the store does not answer in the block."""
    try:
        yield
    except StoreError as error:
        raise Unavailable("the server's store cannot answer now: try again", 5) from error


def _is_initialize(incoming: requests.ClientMessage) -> bool:
    return isinstance(incoming, requests.ClientRequest) and incoming.method == names.INITIALIZE


def _accepted_types(request: HttpRequest) -> frozenset[str]:
    """The media types of answers that the caller accepts; JSON if there is no Accept header."""
    sent = request.items(b"accept")
    if not sent:
        return frozenset({JSON})
    kinds = {item.partition(";")[0].strip().lower() for item in sent}
    return frozenset(kinds & {EVENTS, JSON, ANYTHING}) | ({JSON} if "application/*" in kinds else frozenset())


async def _close_when_left(stream: ToolCallStream, request: HttpRequest) -> None:
    await request.wait_until_left()
    stream.close()
