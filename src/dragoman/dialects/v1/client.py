"""The client's side of A2A 1.0: calls over JSON-RPC (§9.4) and over HTTP+JSON (§11.3), and their answers.

Values that follow the specification are decoded straight into the model; if that fails, they are read leniently.

Invariant: the server's side of the dialect decodes a call to the very same operation, and the client's side a result
likewise. Nothing is written that is not in the 1.0 proto, except a webhook's `secret` and `events`, which a caller sets
only if the server is one of ours. The skill goes into `metadata.skill`. Any bytes give a value or InvalidAgentResponse;
any bytes of an error give an A2AError.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from dragoman.dialects import json_bounds
from dragoman.dialects.api import Answer, RestCall, RpcCall, Tongue
from dragoman.dialects.client import answers, objects, refusals, scalars
from dragoman.dialects.client.encode import (
    Json,
    JsonCall,
    check_id,
    compile_members,
    encoded,
    json_calls,
    named,
    no_earlier,
    row_of,
    segment,
)
from dragoman.dialects.client.objects import beyond
from dragoman.dialects.v1.errors import TABLE as ERRORS
from dragoman.dialects.v1.operations import CONFIGURATION, TABLE
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetTask,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
)
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

# -- calls -------------------------------------------------------------------------------------------------------------

NAME = "A2A 1.0"

_REACHES = f"{NAME} reaches a push configuration"

STATES = {state: state.value for state in TaskState}


class _Authentication(Struct, frozen=True, omit_defaults=True):
    scheme: str
    credentials: str | None = None


class _PushConfig(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """TaskPushNotificationConfig (A2A 1.0 §4.3.1), with its secrets."""

    url: str
    id: str = ""
    task_id: str = ""
    token: str | None = None
    authentication: _Authentication | None = None
    tenant: str = ""
    secret: str | None = None
    events: tuple[str, ...] = ()


class _Send(Struct, frozen=True, omit_defaults=True):
    """SendMessageRequest (A2A 1.0 §3.2.1)."""

    message: Message
    configuration: Json | None = None
    metadata: Json | None = None
    tenant: str = ""


def rpc(operation: Operation) -> RpcCall:
    """Encode a JSON-RPC call. Raises UnsupportedOperation if 1.0 cannot express it, InvalidParams for broken text."""
    if type(operation) is StreamMessage:
        return RpcCall(_STREAM, _send(operation, operation.tenant))
    call = _call(operation)
    return RpcCall(call.row.method, _body(call, operation, operation.tenant))


def rest(operation: Operation) -> RestCall:
    """Encode an HTTP+JSON call; a tenant is the first segment of its path (A2A 1.0 §11.3). Raises as `rpc` does.

    Subscriptions use GET, as in the proto file; if a server accepts only POST, the client falls back to that.
    """
    call = _call(operation)
    tenant = "/" + segment(operation.tenant, "tenant") if operation.tenant else ""
    match operation:
        case CancelTask(metadata=metadata):
            body = {} if metadata is None else {"metadata": metadata}
            return RestCall(call.row.verb, tenant + call.path(operation), encoded(body))
        case SendMessage() | CreatePushConfig():
            return RestCall(call.row.verb, tenant + call.path(operation), _body(call, operation, ""))
        case _:
            return RestCall(call.row.verb, tenant + call.address(operation))


_CALLS = json_calls(TABLE, STATES)
_STREAM = _CALLS[StreamMessage].row.method
_configuration = compile_members(SendMessage, CONFIGURATION, STATES)


def _call(operation: Operation) -> JsonCall:
    check_id(operation, _REACHES)
    return row_of(operation, _CALLS, NAME)


def _body(call: JsonCall, operation: Operation, tenant: str) -> bytes:
    match operation:
        case SendMessage():
            return _send(operation, tenant)
        case CreatePushConfig(config=config):
            return encoded(_config(config, operation.tenant))
        case _:
            return encoded(call.members(operation))


def _send(sent: SendMessage, tenant: str) -> bytes:
    no_earlier(sent, NAME)
    configuration = _configuration(sent)
    if sent.push_config is not None:
        configuration["taskPushNotificationConfig"] = _config(sent.push_config, "")
    return encoded(_Send(sent.message, configuration or None, named(sent), tenant))


def _config(config: PushConfig, tenant: str) -> _PushConfig:
    authentication = None
    if config.scheme or config.credentials:
        authentication = _Authentication(config.scheme or "Bearer", config.credentials)
    return _PushConfig(
        config.url, config.id, config.task_id, config.token, authentication, tenant, config.secret, config.events
    )


# -- answers -----------------------------------------------------------------------------------------------------------


class _StatusUpdate(Struct, rename="camel"):
    task_id: str
    context_id: str
    status: TaskStatus
    metadata: dict[str, Any] | None = None


class _Frame(Struct, rename="camel", gc=False):
    """StreamResponse (A2A 1.0 §3.2.3); its first half is SendMessageResponse."""

    task: Task | None = None
    message: Message | None = None
    status_update: _StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class _Event(Struct, gc=False):
    """A frame in its JSON-RPC envelope."""

    id: int | str
    result: _Frame
    error: None = None


_FRAME = Decoder(_Frame)
_EVENT = Decoder(_Event)
_TASK = Decoder(Task)

SHORT = 1 << 16
"""The length of a frame that has neither too many values nor too many escapes, whatever is in it."""

FAILURES = (A2AError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of a strict reader for bytes that differ from the specification."""

_KINDS: dict[str, type[A2AError]] = {row.reason: kind for kind, row in ERRORS.items()}
"""Errors by their reason. If several share one, the last counts, which is the most specific."""

_GRPC: dict[str, type[A2AError]] = {
    "INVALID_ARGUMENT": errors.InvalidParams,
    "NOT_FOUND": errors.NotFound,
    "UNIMPLEMENTED": errors.UnsupportedOperation,
    "FAILED_PRECONDITION": errors.UnsupportedOperation,
    "UNAUTHENTICATED": errors.Unauthorized,
    "PERMISSION_DENIED": errors.Forbidden,
    "RESOURCE_EXHAUSTED": errors.TooManyRequests,
    "UNAVAILABLE": errors.Unavailable,
    "DEADLINE_EXCEEDED": errors.Unavailable,
    "INTERNAL": errors.InternalError,
}
"""Errors by the `status` of a google.rpc.Status that has no reason (A2A 1.0 §5.4)."""


def read_update(data: bytes) -> tuple[Update, ...]:
    """Decode a frame, which holds exactly one update."""
    return (_exact_update(data) or scalars.decode_answer(data, objects.update),)


def read_event(data: str, call_id: int) -> Update | None:
    """Decode a frame in the envelope of that call; None if anything about it is unusual."""
    try:
        event = _EVENT.decode(data)
        if event.id != call_id:
            return None
        chunk = event.result.artifact_update
        if chunk is not None and _plain(chunk):  # most events: it has no nested values to check
            return chunk
        update = event.result.status_update
        if update is not None and update.metadata is None and update.status.message is None:  # nor has this one
            status = _normalize_time(update.status)
            return StatusUpdate(task_id=update.task_id, context_id=update.context_id, status=status)
        if len(data) > SHORT or data.count("[") + data.count("{") > scalars.MAX_DEPTH:
            json_bounds.check(data.encode(), scalars.MAX_DEPTH, scalars.MAX_VALUES)
    except FAILURES:
        return None
    return _decode_member(event.result)


def read_chunks(data: Iterable[str], call_id: int) -> list[Update]:
    """Decode frames in the envelope of that call as far as each is a chunk that is nothing but a text."""
    updates: list[Update] = []
    try:
        for event in map(_EVENT.decode, data):
            chunk = event.result.artifact_update
            if chunk is None or event.id != call_id or not _plain(chunk):
                break
            updates.append(chunk)
    except FAILURES:
        pass
    return updates


def read_answer(operation: Operation, body: bytes) -> Answer:
    """Decode the answer to an operation. For a delete any answer means success, and the result is None."""
    told: Update | None = None
    match operation:
        case SendMessage():
            told = _exact_update(body)
        case GetTask() | CancelTask():
            told = _exact_task(body)
        case DeletePushConfig():
            return None
        case _:
            pass
    if isinstance(told, Task | Message):
        return told
    return scalars.decode_answer(body, lambda value: answers.answer(operation, value))


def read_error(body: bytes, status: int) -> A2AError:
    """Decode an `error` member (§9.5), or a google.rpc.Status (§11.6).

    The reason decides, or else the code, the HTTP status and the gRPC status, in this order.
    """
    try:
        given = scalars.decode_answer(body, error_object)
    except InvalidAgentResponse:
        return refusals.read(body, status)
    details = given.get("data") if isinstance(given.get("data"), list) else given.get("details")
    told = _merge_details(details if isinstance(details, list) else [])
    code, grpc, reason = given.get("code"), given.get("status"), told.get("reason")
    kind = _KINDS.get(reason) if isinstance(reason, str) else None
    if code == -32700:
        kind = errors.ParseError  # it shares the reason of an invalid request
    if kind is None and isinstance(grpc, str) and not isinstance(code, int) and status not in refusals.STATUSES:
        kind = _GRPC.get(grpc)
    if kind is None:
        return refusals.of(given, status)
    return refusals.made(kind, scalars.text_in(given, "message") or "", told)


def _exact_update(data: bytes) -> Update | None:
    """Decode a frame that follows the specification; None for any other."""
    try:
        json_bounds.check(data, scalars.MAX_DEPTH, scalars.MAX_VALUES)
        frame = _FRAME.decode(data)
    except FAILURES:
        return None
    return _decode_member(frame)


def _decode_member(frame: _Frame) -> Update | None:
    if (chunk := frame.artifact_update) is not None:
        return chunk if chunk.usage is None and _whole(chunk.artifact.parts) else None  # 1.0 has no usage there
    if (update := frame.status_update) is not None:
        said = update.status.message
        if said is not None and not _whole(said.parts):
            return None
        metadata, told, used = beyond(update.metadata)
        return StatusUpdate(
            task_id=update.task_id,
            context_id=update.context_id,
            status=_normalize_time(update.status),
            metadata=metadata,
            progress=told,
            usage=used,
        )
    if frame.task is not None:
        return _check_task(frame.task)
    if frame.message is not None and _whole(frame.message.parts):
        return frame.message
    return None


def _plain(chunk: ArtifactUpdate) -> bool:
    """Whether the chunk is a single text without metadata, and without anything else."""
    artifact = chunk.artifact
    parts = artifact.parts
    if len(parts) != 1 or chunk.usage is not None or not chunk.metadata is artifact.metadata is None:
        return False
    text = parts[0].text
    return text is not None and parts[0] == Part(text=text)


def _exact_task(body: bytes) -> Task | None:
    try:
        json_bounds.check(body, scalars.MAX_DEPTH, scalars.MAX_VALUES)
        return _check_task(_TASK.decode(body))
    except FAILURES:
        return None


def _check_task(task: Task) -> Task | None:
    """Return the task if its parts are valid in 1.0, else None."""
    said = task.status.message
    if task.artifacts or task.history:
        held: list[Message | Artifact] = [*task.artifacts, *task.history]
        if not all(_whole(each.parts) for each in held):
            return None
    if said is not None and not _whole(said.parts):
        return None
    status = _normalize_time(task.status)
    return task if status is task.status else replace(task, status=status)


def _normalize_time(status: TaskStatus) -> TaskStatus:
    """Return the status with its time in UTC, or empty if it is none."""
    if scalars.USUAL_TIME.fullmatch(status.timestamp) is not None:
        return status
    moment = scalars.timestamp(status.timestamp)
    return status if moment == status.timestamp else replace(status, timestamp=moment)


def _whole(parts: Iterable[Part]) -> bool:
    """Whether each part has content that 1.0 defines; a part of another dialect looks empty.

    A reference to bytes in our own store may not come from outside: only the store sets it.
    """
    for part in parts:
        if part.blob is not None or part.file is not None:
            return False
        if part.text is None and part.raw is None and part.url is None and part.data is UNSET:
            return False
    return True


def error_object(value: object) -> Json:
    """Return the error object, inside an envelope or bare."""
    given = scalars.members(value, "an error with code and message")
    inner = given.get("error")
    return inner if isinstance(inner, dict) else given


def _merge_details(details: list[Any]) -> Json:
    """Merge the details of an error into one object."""
    told: Json = {}
    for each in details:
        if not isinstance(each, dict):
            continue
        metadata = each.get("metadata")
        told |= metadata if isinstance(metadata, dict) else {}
        told |= {name: each[name] for name in ("reason", "fieldViolations") if name in each and name not in told}
        delay = _DELAY.fullmatch(scalars.text_in(each, "retryDelay") or "")
        if delay is not None:
            told["retryAfterS"] = delay[1]
    return told


_DELAY = re.compile(r"([0-9]{1,9})(?:\.[0-9]*)?s")
"""A google.protobuf.Duration; the group is its whole seconds."""


# -- the dialect -------------------------------------------------------------------------------------------------------

TONGUE = Tongue(
    name="1.0",
    rpc=rpc,
    rest=rest,
    read_answer=read_answer,
    read_update=read_update,
    read_event=read_event,
    read_chunks=read_chunks,
    read_error=read_error,
    headers={"A2A-Version": "1.0"},
)
