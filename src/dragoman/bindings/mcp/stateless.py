"""MCP 2026-07-28, and its extension for tasks: each request says everything about itself.

    a call       OPEN ── its task ends ──► the result       ── it asks ──► the forms, and a `requestState`
                 ── its task works for `task_after_s`, and the client knows tasks ──► the task's id
                 ── its caller leaves before that ──► the task is canceled, as this version says (invariant 6)
    the forms    filled in by a call with the `requestState` ──► a call as above, of the same task
    a task       asked for (`tasks/get`), its forms filled in (`tasks/update`), canceled (`tasks/cancel`)

The states of a call on its way are drawn in `tool_call`, those of a task in `dialects/mcp/stateless_results`.

Invariant: nothing is remembered between two requests but the task itself, and forms of one question that are filled in
one by one. A caller finds no task but their own. No client is told of a task that did not declare, in the very
request, that it knows tasks.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dragoman.bindings.calls import encode_result
from dragoman.bindings.http import EventsResponse, Gone, HttpRequest, HttpResponse, error_response, json_response
from dragoman.bindings.mcp.partial_answers import Filled, PartialAnswers
from dragoman.bindings.mcp.seal import McpSeal, WaitingCall
from dragoman.bindings.mcp.sessions import Notifications
from dragoman.bindings.mcp.skills import (
    ANYTHING,
    EVENTS,
    JSON,
    Operation,
    SkillTools,
    accepted_types,
    not_acceptable,
    store_answers,
    wait_a_while,
    wait_for_end,
)
from dragoman.bindings.mcp.tool_call import ToolCallStream, Wanted
from dragoman.bindings.request import IDEMPOTENCY_KEY
from dragoman.bindings.streams import encode_frames
from dragoman.dialects.json_bounds import check_parts
from dragoman.dialects.mcp import answers, names, requests, stateless, tools
from dragoman.dialects.mcp.param_headers import encode_param_headers
from dragoman.dialects.mcp.questions import QuestionForm, build_answer, decode_response, forms_of, mark_of, question_of
from dragoman.dialects.mcp.refusals import needs_tasks
from dragoman.dialects.mcp.schemas import find_violation
from dragoman.dialects.mcp.stateless import ClientTerms, MirroredHeaders, StatelessCall, TaskUpdate
from dragoman.dialects.mcp.stateless_results import ResultEncoder, build_fault, is_fault
from dragoman.dialects.mcp.tools import Tool
from dragoman.dialects.v03.fields import Fields
from dragoman.engine.handler import Stream
from dragoman.engine.handlers.admission import check_scope
from dragoman.engine.rights import Right, check_right
from dragoman.model.errors import (
    A2AError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    QuestionClosed,
    TaskNotCancelable,
    TaskNotFound,
    Unauthorized,
    UnsupportedOperation,
)
from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.operations import Call, CancelTask, GetTask, SendMessage, StreamMessage, Subscribe
from dragoman.model.principal import Scope
from dragoman.model.task import Record, TaskState

log = logging.getLogger(__name__)

METHOD: bytes = names.METHOD_HEADER.lower().encode()
NAME: bytes = names.NAME_HEADER.lower().encode()
VERSION: bytes = names.VERSION_HEADER.lower().encode()

AT_WORK = frozenset({TaskState.SUBMITTED, TaskState.WORKING})


class CallTimes(Struct, frozen=True):
    """How long a call is waited for, and how long it works before it becomes a task.

    An answer that is not there after `quiet_s` comes as a stream, if the caller takes one.
    """

    wait_s: float
    task_after_s: float
    quiet_s: float


class Begun(Struct, frozen=True):
    """A tool call on its way: its request's id and terms, its tool, and the caller's principal."""

    request_id: bytes
    terms: ClientTerms
    tool: Tool
    owner: str


class StatelessMcp:
    """Answers the requests of 2026-07-28."""

    def __init__(
        self,
        skills: SkillTools,
        clock: Clock,
        notifications: Notifications,
        results: ResultEncoder,
        seal: McpSeal,
        partial_answers: PartialAnswers,
        times: CallTimes,
    ) -> None:
        self._skills = skills
        self._handler = skills.handler
        self._limits = skills.reception.limits
        self._clock = clock
        self._notifications = notifications
        self._results = results
        self._seal = seal
        self._partial_answers = partial_answers
        self._times = times
        self._cancels: set[asyncio.Task[None]] = set()

    async def answer(
        self, request: HttpRequest, incoming: requests.ClientRequest, fields: Fields
    ) -> HttpResponse | EventsResponse:
        """Answer a request; `fields` are its params."""
        try:
            return await self._answer(request, incoming, fields)
        except A2AError as error:
            request.refusal = type(error)
            return error_response(error, _status(error), b"application/json", answers.error(incoming.id, error))

    async def _answer(
        self, request: HttpRequest, incoming: requests.ClientRequest, fields: Fields
    ) -> HttpResponse | EventsResponse:
        headers = MirroredHeaders(request.text(VERSION), request.text(METHOD), request.text(NAME))
        terms = stateless.decode_terms(incoming.method, fields, headers)
        match incoming.method:
            case names.TOOLS_CALL:
                return await self._call(request, incoming.id, terms, fields)
            case names.TASKS_GET | names.TASKS_UPDATE | names.TASKS_CANCEL:
                if not terms.tasks:
                    raise needs_tasks(incoming.method)
                encoded = await self._answer_about_task(request, incoming.method, terms, fields)
            case names.TOOLS_LIST:
                listed, usable = self._skills.list_tools(request), self._skills.usable(request)
                encoded = self._results.encode_page(tools.build_page(listed, usable, fields.text("cursor")))
            case names.DISCOVER:
                encoded = self._results.encode_discovery()
            case names.LISTEN:
                return await self._listen(request, incoming.id, terms, fields)
            case method:
                raise MethodNotFound(method)
        return json_response(200, answers.result(incoming.id, encoded))

    async def _listen(
        self, request: HttpRequest, request_id: bytes, terms: ClientTerms, fields: Fields
    ) -> HttpResponse | EventsResponse:
        """Open a stream of notifications, which lasts until its client leaves or the server stops."""
        wanted = stateless.decode_listen(fields, terms)
        if not accepted_types(request) & {EVENTS, ANYTHING}:
            return not_acceptable(request_id, EVENTS)
        frames = answers.encode_subscription(request_id, changes=wanted)
        return EventsResponse(await self._notifications.listen(request.principal.id, frames), encode_frames)

    # -- tools/call ----------------------------------------------------------------------------------------------------

    async def _call(
        self, request: HttpRequest, request_id: bytes, terms: ClientTerms, fields: Fields
    ) -> HttpResponse | EventsResponse:
        call = stateless.decode_call(fields)
        tool = self._skills.find_tool(request, call.name)
        said = encode_param_headers(tool.headers, call.arguments.members)
        for each in tool.headers:
            stateless.compare_param(each.header, request.text(each.header.lower().encode()), said.get(each.header))
        if tool.only_as_task and not terms.tasks:
            raise needs_tasks(f"tool {tool.name}")
        accepted = accepted_types(request)
        if not accepted:
            return not_acceptable(request_id, f"{JSON} and {EVENTS}")
        begun = Begun(request_id, terms, tool, request.principal.id)
        if not self._seal.prepared and (terms.tasks or terms.elicits or call.state is not None):
            with store_answers():
                await self._seal.prepare()
        waiting = None if call.state is None else self._seal.open_call(call.state, begun.owner, tool.name)
        try:
            if waiting is not None:
                return await self._resume(request, begun, call, waiting, accepted)
            arguments = await self._skills.decode_arguments(request, tool, call.arguments)
            if arguments.message is None:
                return await self._follow(request, begun, self._wait_for(begun, arguments.task_id), accepted)
            send = self._send(begun, arguments.message)
            return await self._follow(request, begun, send, accepted, owns=IDEMPOTENCY_KEY not in request.headers)
        except (Unauthorized, InternalError):
            raise
        except A2AError as error:
            if waiting is not None and isinstance(error, InvalidParams):
                raise
            request.refusal = type(error)
            refusal = self._results.encode(answers.build_refusal(error))
            return error_response(error, 200, b"application/json", answers.result(request_id, refusal))

    def _send(self, begun: Begun, message: Message, answers: str = "") -> SendMessage:
        """The operation that sends a message to the tool's agent, and follows its task or not."""
        tool, at_once = begun.tool, begun.terms.tasks and (begun.tool.only_as_task or not self._times.task_after_s)
        skill = tool.skill.id if tool.skill is not None and not message.task_id else None
        if self._streams(tool) and not at_once:
            return StreamMessage(message=message, skill=skill, answers=answers, tenant=tool.agent)
        return SendMessage(
            message=message, skill=skill, answers=answers, tenant=tool.agent, return_immediately=begun.terms.tasks
        )

    def _wait_for(self, begun: Begun, task_id: str) -> Subscribe | GetTask:
        return (Subscribe if self._streams(begun.tool) else GetTask)(id=task_id, tenant=begun.tool.agent)

    def _streams(self, tool: Tool) -> bool:
        return self._skills.reception.agents[tool.agent].profile.streams

    async def _resume(
        self,
        request: HttpRequest,
        begun: Begun,
        call: StatelessCall,
        waiting: WaitingCall,
        accepted: frozenset[str],
    ) -> HttpResponse | EventsResponse:
        """Go on with a call whose forms are filled in; what is not filled in is asked again. Raises A2AError."""
        read = GetTask(id=waiting.task_id, tenant=begun.tool.agent)
        record = await self._read(await self._skills.make_call(request, read))
        request.task_id = waiting.task_id
        wait_for = self._wait_for(begun, waiting.task_id)
        if record.state is not TaskState.INPUT_REQUIRED or mark_of(record) != waiting.mark:
            # The answer was delivered, and the result of that call was lost.
            return await self._follow(request, begun, wait_for, accepted)
        forms = forms_of(record.status.message)
        message = await self._answer_question(record, forms, {form.name: form for form in forms}, call.responses)
        if isinstance(message, Message):
            send = self._send(begun, message, question_of(record))
            try:
                answer = await self._follow(request, begun, send, accepted, owns=True)
            except QuestionClosed:  # somebody else has answered it meanwhile
                answer = await self._follow(request, begun, wait_for, accepted)
            await self._partial_answers.forget(waiting.task_id, waiting.mark, forms)
            return answer
        if None in message.values():  # dismissed: the model is told what the agent asks
            encoded = self._results.encode(answers.build_result(record, names.STATELESS))
            return json_response(200, answers.result(begun.request_id, encoded))
        missing = {form.name: form for form in forms if form.name not in message}
        return json_response(200, self._ask(begun, record, missing))

    async def _answer_question(
        self,
        record: Record,
        forms: tuple[QuestionForm, ...],
        by_key: Mapping[str, QuestionForm],
        responses: Mapping[str, Fields],
    ) -> Message | Filled:
        """Return the answer to a question if all its forms are filled in now, else those that are. Raises A2AError.

        `by_key` are the forms under the keys of the responses. Keys of others are ignored (SEP-2663, Task Update).
        """
        task_id, mark = record.head.id, mark_of(record)
        filled: Filled = {}
        for key, form in by_key.items():
            if key not in responses:
                continue
            content = decode_response(responses[key])
            violation = None if content is None else find_violation(content, form.schema, responses[key].at("content"))
            if violation is not None:
                raise InvalidParams(*violation)
            filled[form.name] = content
        if len(forms) > 1 or None in filled.values():
            with store_answers():
                filled = await self._partial_answers.add_answers(task_id, mark, filled)
        whole = {name: content for name, content in filled.items() if content is not None}
        if len(whole) < len(forms):
            return filled
        message = build_answer(forms, whole, task_id, f"{task_id}/{mark}")
        check_parts(message, self._limits.max_parts, self._limits.max_text)
        return message

    async def _follow(
        self,
        request: HttpRequest,
        begun: Begun,
        operation: Operation,
        accepted: frozenset[str],
        *,
        owns: bool = False,
    ) -> HttpResponse | EventsResponse:
        """Follow the task of a call to its end. `owns`: the task is canceled if the caller leaves. Raises A2AError."""
        terms = begun.terms
        call = await self._skills.make_call(request, operation, terms.traceparent)
        if isinstance(operation, SendMessage) and operation.answers:
            call = replace(call, idempotency_key=None)  # it is known again by its question
        if not isinstance(operation, StreamMessage | Subscribe):
            return await self._answer_record(request, begun, await self._read(call))
        try:
            task: Stream = await self._handler.stream(call)
        except UnsupportedOperation:
            if not isinstance(operation, Subscribe):
                raise
            read = replace(call, operation=GetTask(id=operation.id, tenant=operation.tenant))
            return await self._answer_record(request, begun, await self._read(read))  # damaged: its state can be told
        request.task_id = "" if task.head is None else task.head.id
        logs = terms.level is not None and requests.tells(terms.level)
        task_at_ms = self._clock.now_ms() + int(self._times.task_after_s * 1000) if terms.tasks else None
        stream = ToolCallStream(
            task,
            Wanted(partial(self._respond, begun), terms.token, logs, task_at_ms),
            self._clock,
            reopen=None,
            on_end=partial(self._note_end, call if owns else None),
            until_terminal=isinstance(operation, Subscribe),
        )
        if EVENTS in accepted and (terms.token is not None or logs or not accepted & {JSON, ANYTHING}):
            return EventsResponse(stream, encode_frames)
        handed_on = False
        try:
            if EVENTS in accepted and self._times.quiet_s < self._times.wait_s:
                await wait_a_while(stream, request, self._times.quiet_s)
                handed_on = not stream.over
                if handed_on:  # no proxy may take its silence for an end, which would cancel the task
                    return EventsResponse(stream, encode_frames)
            else:
                await wait_for_end(stream, request, self._times.wait_s)
            response = stream.settle()
        finally:
            if not handed_on:
                stream.close()
        if response is None:
            raise Gone
        return json_response(200, response)

    async def _read(self, call: Call) -> Record:
        record = await self._handler.call(call)
        assert isinstance(record, Record)  # without Manners.answers_with_message
        return record

    async def _answer_record(self, request: HttpRequest, begun: Begun, record: Record) -> HttpResponse:
        request.task_id = record.head.id
        respond = partial(self._respond, begun, record)
        return json_response(200, await encode_result(request, self._limits, record, respond))

    def _respond(self, begun: Begun, record: Record) -> bytes:
        """Encode the response to a call from its task."""
        if is_fault(record):
            return answers.encode_error(begun.request_id, build_fault(record))
        if record.state is TaskState.INPUT_REQUIRED and begun.terms.elicits:
            return self._ask(begun, record, {form.name: form for form in forms_of(record.status.message)})
        if record.state in AT_WORK and begun.terms.tasks:
            encoded = self._results.encode_handle(record, self._seal.seal_task(record.head.id))
        else:
            encoded = self._results.encode(answers.build_result(record, names.STATELESS))
        return answers.result(begun.request_id, encoded)

    def _ask(self, begun: Begun, record: Record, forms: Mapping[str, QuestionForm]) -> bytes:
        state = self._seal.seal_call(record.head.id, mark_of(record), begun.owner, begun.tool.name)
        return answers.result(begun.request_id, self._results.encode_forms(forms, state))

    def _note_end(self, call: Call | None, stream: ToolCallStream) -> None:
        """Cancel the task of a call whose caller has left (2026-07-28, Cancellation)."""
        if call is not None and stream.left:
            job = asyncio.get_running_loop().create_task(self._cancel_left(call, stream.task_id))
            self._cancels.add(job)
            job.add_done_callback(self._cancels.discard)

    async def _cancel_left(self, call: Call, task_id: str) -> None:
        try:
            await self._cancel(call, task_id)
        except A2AError as error:
            log.warning("task %s goes on, although its caller has left: %s", task_id, error.message)

    async def _cancel(self, call: Call, task_id: str) -> None:
        """Cancel a task in the name of the call's principal. One that has ended stays as it is. Raises A2AError."""
        cancel = CancelTask(id=task_id, tenant=call.agent)
        try:
            await self._handler.call(replace(call, operation=cancel, after=None, idempotency_key=None))
        except TaskNotCancelable:
            pass

    # -- tasks/get, tasks/update, tasks/cancel -------------------------------------------------------------------------

    async def _answer_about_task(self, request: HttpRequest, method: str, terms: ClientTerms, fields: Fields) -> bytes:
        update = stateless.decode_update(fields) if method == names.TASKS_UPDATE else None
        sealed = stateless.decode_task_id(fields)
        try:
            call = await self._find_task(request, sealed)
            if method == names.TASKS_CANCEL:
                await self._cancel(call, request.task_id)
                return self._results.encode({})
            record = await self._read(call)
            if update is not None:
                await self._update(call, record, update)
                return self._results.encode({})
            encode = partial(self._results.encode_task, record, sealed, await self._open_forms(record, terms))
            return await encode_result(request, self._limits, record, encode)
        except TaskNotFound:
            raise _no_task() from None

    async def _find_task(self, request: HttpRequest, sealed: str) -> Call:
        """Return the call that reads the caller's task with that id. Raises A2AError."""
        if not self._seal.prepared:
            with store_answers():
                await self._seal.prepare()
        task_id = self._seal.open_task(sealed)
        agent = None if task_id is None else await self._handler.agent_of(task_id, request.principal, "/")
        if task_id is None or agent is None:
            raise _no_task()
        request.task_id = task_id
        return await self._skills.make_call(request, GetTask(id=task_id, tenant=agent))

    async def _open_forms(self, record: Record, terms: ClientTerms) -> Mapping[str, QuestionForm] | None:
        """The forms that are still to be filled in, by their keys; None if the task asks for none."""
        if record.state is not TaskState.INPUT_REQUIRED or not terms.elicits:
            return None
        with store_answers():
            filled = await self._partial_answers.read(record.head.id, mark_of(record))
        if None in filled.values():
            return None
        return {key: form for key, form in _by_key(record).items() if form.name not in filled}

    async def _update(self, call: Call, record: Record, update: TaskUpdate) -> None:
        """Take the reactions to forms, and answer the question once they are all filled in. Raises A2AError.

        A reaction is part of an answer, so its sender has to have the right to answer although nothing is sent yet.
        """
        check_right(call.principal, record.head, Right.CHANGE)
        if call.principal.scopes is not None:
            check_scope(call.principal.scopes, Scope.SEND)
        if record.state is not TaskState.INPUT_REQUIRED:
            return
        forms = forms_of(record.status.message)
        message = await self._answer_question(record, forms, _by_key(record), update.responses)
        if not isinstance(message, Message):
            return
        question = question_of(record)
        send = SendMessage(message=message, return_immediately=True, answers=question, tenant=call.agent)
        try:
            await self._handler.call(replace(call, operation=send, idempotency_key=None))
        except UnsupportedOperation as error:
            log.info("an answer came too late: %s", error.message)
        await self._partial_answers.forget(record.head.id, mark_of(record), forms)


def _by_key(record: Record) -> dict[str, QuestionForm]:
    """The forms of the task's question by keys that no other question of the task has (SEP-2663, Task Update)."""
    return {f"{form.name}.{mark_of(record)}": form for form in forms_of(record.status.message)}


def _no_task() -> InvalidParams:
    return InvalidParams("taskId", "there is no such task, or it is not kept any more")


def _status(error: A2AError) -> int:
    """The HTTP status of a refusal: 404 for an unknown method, 400 for what is malformed (Streamable HTTP)."""
    if isinstance(error, MethodNotFound):
        return 404
    return 400 if isinstance(error, InvalidParams) else answers.status(error)
