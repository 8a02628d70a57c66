"""The Model Context Protocol over streamable HTTP: `POST /mcp`, where every skill is a tool.

Invariant: a call of a tool is a task like any other. In a session it outlives the request, and only
`notifications/cancelled` ends it.
"""

import logging
from functools import partial

from msgspec.structs import replace

from dragoman.bindings.calls import decode_body, encode_result, read_decoded
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import (
    EventsResponse,
    Gone,
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
)
from dragoman.bindings.limits import Limits
from dragoman.bindings.mcp.sessions import OpenCall, SessionKey, Sessions
from dragoman.bindings.mcp.skills import (
    ANYTHING,
    EVENTS,
    JSON,
    SkillTools,
    accepted_types,
    not_acceptable,
    store_answers,
    wait_for_end,
)
from dragoman.bindings.mcp.stateless import StatelessMcp
from dragoman.bindings.mcp.tool_call import ToolCallStream, Wanted
from dragoman.bindings.request import Header
from dragoman.bindings.streams import encode_frames
from dragoman.dialects import jsonrpc
from dragoman.dialects.json_bounds import check_parts
from dragoman.dialects.mcp import answers, names, requests, tools
from dragoman.dialects.mcp.questions import build_message
from dragoman.dialects.mcp.requests import SessionTerms, decode_session, encode_session
from dragoman.dialects.mcp.stateless import MARK, is_stateless
from dragoman.dialects.mcp.tools import Tool
from dragoman.dialects.v03.fields import read
from dragoman.engine.handler import Stream
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    TaskNotFound,
    Unauthorized,
    UnsupportedOperation,
)
from dragoman.model.ids import Clock, new_id
from dragoman.model.operations import Call, CancelTask, GetTask, SendMessage, StreamMessage, Subscribe
from dragoman.model.principal import Principal
from dragoman.model.task import Record

log = logging.getLogger(__name__)

SESSION: bytes = names.SESSION_HEADER.lower().encode()
VERSION: bytes = names.VERSION_HEADER.lower().encode()


class Mcp:
    """The endpoint `/mcp`. Requests of 2026-07-28 are answered by `stateless`, those of earlier versions here.

    `wait_s` is how long a call without a stream waits for its result; `version` is the version of this program.
    """

    def __init__(
        self,
        skills: SkillTools,
        stateless: StatelessMcp,
        clock: Clock,
        sessions: Sessions,
        *,
        version: str,
        wait_s: float,
    ) -> None:
        self._skills = skills
        self._stateless = stateless
        self._handler = skills.handler
        self._reception = skills.reception
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
        named = request.text(VERSION)
        if named == names.STATELESS:
            if request.method != "POST":
                raise MethodNotAllowed(("POST", "OPTIONS"))
            at = SessionTerms()
        else:
            at = decode_session(request.text(SESSION))
        key = (request.principal.id, at.key)
        level = None
        if at.key:
            with store_answers():
                level = await self._sessions.level(key)  # a session that has ended is not found
        if request.method == "DELETE":
            with store_answers():
                await self._sessions.end(key)
            return HttpResponse(204, [], b"")
        if request.method == "GET":
            return await self._listen(request, key)
        limits = self._reception.limits
        incoming = await read_decoded(request, limits, _decode)
        if isinstance(incoming, requests.ClientRequest):
            request.id = incoming.id
            if named == names.STATELESS or MARK in incoming.params:
                fields = await decode_body(request, limits, partial(read, incoming.params))
                if named == names.STATELESS or is_stateless(fields):
                    return await self._stateless.answer(request, incoming, fields)
        if named is not None and named not in names.SPOKEN and not _is_initialize(incoming):
            raise InvalidRequest(
                f"{names.VERSION_HEADER} {named[:20]!r} is not supported here: use {' or '.join(names.VERSIONS)}"
            )
        match incoming:
            case requests.ClientResponse() if named == names.STATELESS:
                raise InvalidRequest(
                    "send a request: in this version the server asks nothing that is answered this way"
                )
            case requests.ClientNotification() if named == names.STATELESS:
                pass  # there is none that means anything here
            case requests.ClientRequest(method=names.TOOLS_CALL):
                at = replace(at, version=named or at.version or names.UNSAID)
                return await self._call(request, at, level, incoming)
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

    # -- the stream of a session ---------------------------------------------------------------------------------------

    async def _listen(self, request: HttpRequest, key: SessionKey) -> HttpResponse | EventsResponse:
        """Open the stream of a session. Raises MethodNotAllowed without a session.

        Older clients send GET without a session to detect another transport.
        """
        owner, session_key = key
        if not session_key:
            raise MethodNotAllowed(("POST", "DELETE", "OPTIONS"))
        if not accepted_types(request) & {EVENTS, ANYTHING}:
            return not_acceptable(b"null", EVENTS)
        stream = await self._sessions.notifications.listen(owner, answers.IN_SESSION, session_key)
        return EventsResponse(stream, encode_frames)

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
                with store_answers():
                    await self._sessions.set_level(key, level)
                encoded = b"{}"
            case names.TOOLS_LIST:
                listed, cursor = self._skills.list_tools(request), requests.decode_cursor(incoming.params)
                encoded = tools.encode_page(listed, self._skills.usable(request), cursor)
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
        with store_answers():
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
        answer = await decode_body(
            request, self._reception.limits, partial(requests.decode_elicitation, incoming.result)
        )
        if answer is None:
            with store_answers():
                await self._sessions.decline(key, task_id)
            return
        agent = await self._handler.agent_of(task_id, request.principal, "/")
        if agent is None:
            return
        message = build_message(answer, task_id, incoming.id)
        check_parts(message, self._reception.limits.max_parts, self._reception.limits.max_text)
        send = SendMessage(message=message, return_immediately=True, tenant=agent)
        try:
            await self._handler.call(replace(await self._skills.make_call(request, send), idempotency_key=incoming.id))
        except (AgentNotFound, TaskNotFound, UnsupportedOperation) as error:
            log.info("an answer came too late: %s", error.message)

    # -- tools/call ----------------------------------------------------------------------------------------------------

    async def _call(
        self, request: HttpRequest, at: SessionTerms, level: str | None, incoming: requests.ClientRequest
    ) -> HttpResponse | EventsResponse:
        tool_call = await decode_body(
            request, self._reception.limits, partial(requests.decode_tool_call, incoming.params)
        )
        tool = self._skills.find_tool(request, tool_call.name)
        accepted = accepted_types(request)
        if not accepted:
            return not_acceptable(incoming.id, f"{JSON} and {EVENTS}")
        try:
            return await self._begin(request, at, level, incoming.id, tool_call, tool, accepted)
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
        level: str | None,
        request_id: bytes,
        tool_call: requests.ToolCall,
        tool: Tool,
        accepted: frozenset[str],
    ) -> HttpResponse | EventsResponse:
        """Send the message, or follow the task that the arguments name. Raises A2AError."""
        key = (request.principal.id, at.key)
        arguments = await self._skills.decode_arguments(request, tool, tool_call.arguments)
        wanted = Wanted(
            partial(_respond, request_id, at.version), tool_call.token, level is not None and requests.tells(level)
        )
        streams = self._reception.agents[tool.agent].profile.streams
        operation: StreamMessage | SendMessage | Subscribe | GetTask
        if arguments.message is None:
            operation = (Subscribe if streams else GetTask)(id=arguments.task_id, tenant=tool.agent)
        else:
            skill = tool.skill.id if tool.skill is not None else None
            send = StreamMessage if streams else SendMessage
            operation = send(message=arguments.message, skill=skill, tenant=tool.agent)
        call = await self._skills.make_call(request, operation, tool_call.traceparent)
        if not streams:
            return await self._answer_record(request, request_id, at.version, call)
        try:
            task = await self._handler.stream(call)
        except UnsupportedOperation:
            if not isinstance(operation, Subscribe):
                raise
            read = replace(call, operation=GetTask(id=operation.id, tenant=tool.agent))
            return await self._answer_record(request, request_id, at.version, read)  # damaged: its state can be told
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

    async def _answer_record(self, request: HttpRequest, request_id: bytes, version: str, call: Call) -> HttpResponse:
        """Answer with the task as the call returns it. Raises A2AError."""
        record = await self._handler.call(call)
        assert isinstance(record, Record)  # without Manners.answers_with_message
        request.task_id = record.head.id
        encode = partial(answers.encode_task, record, version)
        encoded = await encode_result(request, self._reception.limits, record, encode)
        return json_response(200, answers.result(request_id, encoded))

    async def _wait_for_result(self, request: HttpRequest, stream: ToolCallStream) -> HttpResponse:
        """Wait for the result, or after `wait_s` answer with the task's current state."""
        await wait_for_end(stream, request, self._wait_s)
        stream.close()
        result = stream.result()
        if result is None:
            raise Gone
        return json_response(200, result)

    async def _reopen_stream(self, call: Call, task_id: str, seq: int) -> Stream:
        """Open the task's stream after the event `seq`, until the task ends."""
        further = Subscribe(id=task_id, tenant=call.agent)
        return await self._handler.stream(replace(call, operation=further, after=str(seq), idempotency_key=None))


def _decode(request: HttpRequest, body: bytes, limits: Limits) -> requests.ClientMessage:
    try:
        return requests.decode(body, *limits.bounds)
    except A2AError:
        request.id = jsonrpc.id_of(body, limits.max_depth, limits.max_values)
        raise


def _respond(request_id: bytes, version: str, record: Record) -> bytes:
    """Encode the response to a call of a session, which never becomes a task."""
    return answers.result(request_id, answers.encode_task(record, version))


def _is_initialize(incoming: requests.ClientMessage) -> bool:
    return isinstance(incoming, requests.ClientRequest) and incoming.method == names.INITIALIZE
