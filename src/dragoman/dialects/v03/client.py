"""The client's side of A2A 0.3: calls over JSON-RPC (A2A 0.3 §7) and over HTTP+JSON below `/v1` (§3.5.6), and answers.

Over HTTP+JSON bodies are protobuf JSON, which both official servers read. The Python one refuses unknown fields, so
`referenceTaskIds` is not sent there. Updates in the form of the official servers are decoded into wire structs.
Anything else is read leniently: objects of 0.1 and 0.2, protobuf JSON, 1.0's shapes under 0.3's methods (FastA2A).

Invariant: the server's side of the dialect decodes a call to the very same operation, and the client's side a result
likewise. Nothing is written that is not in 0.3, except options that a caller sets only for a server that knows them:
`skills`, a webhook's `secret` and `events`, the parameters of `tasks/list`. (0.3 has no tenants: each agent has its own
URL.) Any bytes give a value or InvalidAgentResponse; any bytes of an error give an A2AError.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from dragoman.dialects import json_bounds
from dragoman.dialects.api import Answer, RestCall, RpcCall, Tongue
from dragoman.dialects.client import answers, objects, refusals, scalars
from dragoman.dialects.client.encode import (
    Json,
    check_id,
    encoded,
    json_calls,
    named,
    no_earlier,
    present,
    row_of,
)
from dragoman.dialects.client.objects import WRAPPED, ReadPart, beyond
from dragoman.dialects.v03.decode import STATES
from dragoman.dialects.v03.encode import STATES as STATE_NAMES
from dragoman.dialects.v03.encode import message
from dragoman.dialects.v03.operations import TABLE
from dragoman.dialects.v03.rest import ProtoJson, once, raw_bytes_twice, twice
from dragoman.dialects.v1 import client as v1_client
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
)
from dragoman.model.task import TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

# -- calls -------------------------------------------------------------------------------------------------------------

NAME = "A2A 0.3"

_REACHES = f"{NAME} reaches a push configuration here"

_CALLS = json_calls(TABLE, STATE_NAMES)


def rpc(operation: Operation) -> RpcCall:
    """Encode a JSON-RPC call. Raises UnsupportedOperation if 0.3 cannot express it, InvalidParams for broken text."""
    call = row_of(operation, _CALLS, NAME)
    match operation:
        case SendMessage():
            return RpcCall(call.row.method, _send(operation))
        case CreatePushConfig(config=config):
            members = present({"taskId": config.task_id, "pushNotificationConfig": _webhook(config)})
            return RpcCall(call.row.method, encoded(members))
        case DeletePushConfig():
            check_id(operation, _REACHES)
    return RpcCall(call.row.method, encoded(call.members(operation)))


def rest(operation: Operation) -> RestCall:
    """Encode an HTTP+JSON call. Raises as `rpc` does."""
    return _rest(operation, _ONCE)


def rest_twice(operation: Operation) -> RestCall:
    """Encode a call for the official Python servers, which expect file bytes in base64 twice (a2a-sdk 0.3.26)."""
    return _rest(operation, _TWICE)


_ONCE = ProtoJson(once)
_TWICE = ProtoJson(twice)


def _rest(operation: Operation, written: ProtoJson) -> RestCall:
    call = row_of(operation, _CALLS, NAME)
    check_id(operation, _REACHES)
    match operation:
        case SendMessage():
            body = _proto_send(operation, written)
        case CreatePushConfig(config=config):
            body = _proto_webhook(config)
        case CancelTask():
            body = b"{}"
        case _:
            return RestCall(call.row.verb, call.address(operation))
    return RestCall(call.row.verb, call.path(operation), body)


def _send(sent: SendMessage) -> bytes:
    """Encode a send. `blocking` is always written, because 0.3 leaves its default to the server."""
    no_earlier(sent, NAME)
    configuration: Json = {}
    if sent.return_immediately or not isinstance(sent, StreamMessage):
        configuration["blocking"] = not sent.return_immediately
    if sent.accepted_output_modes:
        configuration["acceptedOutputModes"] = sent.accepted_output_modes
    if sent.history_length is not None:
        configuration["historyLength"] = sent.history_length
    if sent.push_config is not None:
        configuration["pushNotificationConfig"] = _webhook(sent.push_config)
    if sent.skills:
        configuration["skills"] = sent.skills
    params: Json = {"message": message(sent.message)}
    if configuration:
        params["configuration"] = configuration
    metadata = named(sent)
    if metadata is not None:
        params["metadata"] = metadata
    return encoded(params)


def _proto_send(sent: SendMessage, written: ProtoJson) -> bytes:
    """Encode a SendMessageRequest of 0.3's proto. Members absent from `configuration` are false, `blocking` too."""
    no_earlier(sent, NAME)
    configuration: Json = {"blocking": not sent.return_immediately}
    if sent.accepted_output_modes:
        configuration["acceptedOutputModes"] = sent.accepted_output_modes
    if sent.history_length is not None:
        configuration["historyLength"] = sent.history_length
    if sent.push_config is not None:
        configuration["pushNotification"] = _webhook(sent.push_config)
    params: Json = {"message": written.message(sent.message), "configuration": configuration}
    metadata = named(sent)
    if metadata is not None:
        params["metadata"] = metadata
    return encoded(params)


def _webhook(config: PushConfig) -> Json:
    """Encode a PushNotificationConfig (A2A 0.3 §6.8), with its secrets."""
    body = present({"id": config.id, "url": config.url, "token": config.token, "secret": config.secret})
    if config.scheme or config.credentials:
        body["authentication"] = present(
            {"schemes": [config.scheme or "Bearer"], "credentials": config.credentials or None}
        )
    if config.events:
        body["events"] = config.events
    return body


def _proto_webhook(config: PushConfig) -> bytes:
    """Encode a CreateTaskPushNotificationConfigRequest of 0.3's proto."""
    parent = f"tasks/{config.task_id}"
    inner = {"name": f"{parent}/pushNotificationConfigs/{config.id}", "pushNotificationConfig": _webhook(config)}
    return encoded(present({"parent": parent, "configId": config.id, "config": inner}))


# -- answers -----------------------------------------------------------------------------------------------------------


class _Text(Struct, tag_field="kind", tag="text"):
    text: str
    metadata: Json | None = None


class _Content(Struct, rename="camel"):
    raw: bytes | None = field(default=None, name="bytes")
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class _File(Struct, tag_field="kind", tag="file"):
    file: _Content
    metadata: Json | None = None


class _Data(Struct, tag_field="kind", tag="data"):
    data: Json
    metadata: Json | None = None


_Parts = list[_Text | _File | _Data]


class _Message(Struct, rename="camel"):
    message_id: str
    role: Literal["user", "agent"]
    parts: _Parts
    context_id: str | None = None
    task_id: str | None = None
    metadata: Json | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class _Status(Struct):
    state: str
    message: _Message | None = None
    timestamp: str | None = None


class _Artifact(Struct, rename="camel"):
    artifact_id: str
    parts: _Parts
    name: str | None = None
    description: str | None = None
    metadata: Json | None = None
    extensions: tuple[str, ...] | None = None


class _StatusUpdate(Struct, rename="camel", tag_field="kind", tag="status-update"):
    task_id: str
    context_id: str
    status: _Status
    metadata: Json | None = None


class _ArtifactUpdate(Struct, rename="camel", tag_field="kind", tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: _Artifact
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Json | None = None


_UPDATE: Decoder[_StatusUpdate | _ArtifactUpdate] = Decoder(_StatusUpdate | _ArtifactUpdate)

_STATUSES: Mapping[int, type[A2AError]] = {
    **refusals.STATUSES,
    409: errors.TaskNotCancelable,
    415: errors.ContentTypeNotSupported,
    501: errors.UnsupportedOperation,
}
"""HTTP+JSON statuses of the official servers."""

_WORDS: Mapping[str, type[A2AError]] = {
    "task_not_found": errors.TaskNotFound,
    "conflict": errors.TaskNotCancelable,
    "agent_not_found": errors.AgentNotFound,
    "agent_offline": errors.AgentOffline,
    "service_timeout": errors.TaskTimeout,
}
"""Error words of BeeOS. It numbers these errors differently, and is reached at the same URL where a mount serves both.
"""

_TEXTS: Mapping[str, type[A2AError]] = {
    "task not found": errors.TaskNotFound,
    "task cannot be canceled": errors.TaskNotCancelable,
    "push notification is not supported": errors.PushNotificationNotSupported,
    "push notifications are not supported": errors.PushNotificationNotSupported,
    "this operation is not supported": errors.UnsupportedOperation,
    "streaming is not supported": errors.UnsupportedOperation,
    "incompatible content types": errors.ContentTypeNotSupported,
    "invalid agent response": errors.InvalidAgentResponse,
    "authenticated extended card is not configured": errors.ExtendedAgentCardNotConfigured,
    "method not found": errors.MethodNotFound,
    "invalid parameters": errors.InvalidParams,
}
"""The beginnings of error texts. Over HTTP+JSON the official Python server sends nothing but the text (a2a-sdk 0.3.26).
"""


def read_update(data: bytes) -> tuple[Update, ...]:
    """Decode a frame, which holds exactly one update."""
    return (_exact_update(data) or scalars.decode_answer(data, lambda value: objects.update(value, part)),)


def read_answer(operation: Operation, body: bytes) -> Answer:
    """Decode the answer to an operation. For a delete any answer means success, and the result is None."""
    return _answer(operation, body, part)


def read_update_twice(data: bytes) -> tuple[Update, ...]:
    """The same from a server that puts file bytes into base64 twice, in protobuf JSON."""
    return (_exact_update(data) or scalars.decode_answer(data, lambda value: objects.update(value, part_twice)),)


def read_answer_twice(operation: Operation, body: bytes) -> Answer:
    """The same from a server that puts file bytes into base64 twice, in protobuf JSON."""
    return _answer(operation, body, part_twice)


def read_error(body: bytes, status: int) -> A2AError:
    """Decode an `error` member, or an HTTP body with `code` or with only a text."""
    try:
        given = scalars.decode_answer(body, v1_client.error_object)
    except InvalidAgentResponse:
        return refusals.read(body, status, words=_WORDS, statuses=_STATUSES)
    # The official Python server sends the form of 1.0 (§5.4) since its own version 1.0.
    if status and isinstance(given.get("details"), list):
        return v1_client.read_error(body, status)
    message = scalars.text_in(given, "message") or ""
    if status and not isinstance(given.get("code"), int):
        for text, kind in _TEXTS.items():
            if message.lower().startswith(text):
                return refusals.made(kind, message, {})
        if status == 404 and message.startswith("Task "):  # "Task … was specified but does not exist"
            return refusals.made(errors.TaskNotFound, message, {})
    return refusals.of(given, status, words=_WORDS, statuses=_STATUSES)


def part(value: object) -> Part:
    """Read a part; in protobuf JSON, which has no tags, data is `{"data": {"data": {…}}}`."""
    return objects.part(_unwrap(value))


def part_twice(value: object) -> Part:
    """Read a part of which the file bytes in protobuf JSON are base64 of base64."""
    return objects.part(_unwrap(value), file_bytes=raw_bytes_twice)


def _answer(operation: Operation, body: bytes, read_part: ReadPart) -> Answer:
    if isinstance(operation, DeletePushConfig):
        return None
    return scalars.decode_answer(body, lambda value: answers.answer(operation, value, read_part))


def _unwrap(value: object) -> object:
    if not isinstance(value, dict) or "kind" in value or "type" in value:
        return value
    data = value.get("data")
    if isinstance(data, dict) and data.keys() == {"data"} and isinstance(data["data"], dict):
        return {**value, "data": data["data"]}
    return value


def _exact_update(data: bytes) -> Update | None:
    """Decode a frame in the form of the official servers over JSON-RPC; None for any other."""
    if b'"kind"' not in data:
        return None
    try:
        json_bounds.check(data, scalars.MAX_DEPTH, scalars.MAX_VALUES)
        frame = _UPDATE.decode(data)
    except v1_client.FAILURES:
        return None
    if isinstance(frame, _ArtifactUpdate):
        return _artifact_update(frame)
    return _status_update(frame)


def _artifact_update(frame: _ArtifactUpdate) -> ArtifactUpdate | None:
    given = frame.artifact
    parts = _parts(given.parts)
    if parts is None:
        return None
    return ArtifactUpdate(
        task_id=frame.task_id,
        context_id=frame.context_id,
        artifact=Artifact(
            artifact_id=given.artifact_id,
            parts=parts,
            name=given.name,
            description=given.description,
            metadata=given.metadata or None,
            extensions=given.extensions or (),
        ),
        append=frame.append is True,
        last_chunk=frame.last_chunk is True,
        metadata=frame.metadata or None,
    )


def _status_update(frame: _StatusUpdate) -> StatusUpdate | None:
    given = frame.status
    state = STATES.get(given.state)
    said = None if given.message is None else _message(given.message)
    if state is None or (said is None and given.message is not None):
        return None
    metadata, told, used = beyond(frame.metadata or None)
    return StatusUpdate(
        task_id=frame.task_id,
        context_id=frame.context_id,
        status=TaskStatus(state=state, message=said, timestamp=scalars.timestamp(given.timestamp)),
        metadata=metadata,
        progress=told,
        usage=used,
    )


def _message(given: _Message) -> Message | None:
    parts = _parts(given.parts)
    if parts is None:
        return None
    return Message(
        message_id=given.message_id,
        role=Role.USER if given.role == "user" else Role.AGENT,
        parts=parts,
        context_id=given.context_id or None,
        task_id=given.task_id or None,
        metadata=given.metadata or None,
        extensions=given.extensions or (),
        reference_task_ids=given.reference_task_ids or (),
    )


def _parts(given: _Parts) -> tuple[Part, ...] | None:
    """Convert the parts; None if one of them cannot be taken literally, or is empty."""
    parts: list[Part] = []
    for each in given:
        metadata = each.metadata or None
        if isinstance(each, _Text):
            parts.append(Part(text=each.text, metadata=metadata))
        elif isinstance(each, _File):
            file = each.file
            if (file.raw is None) == (file.uri is None):
                return None
            parts.append(
                Part(
                    raw=file.raw,
                    url=file.uri,
                    filename=file.name or None,
                    media_type=file.mime_type or None,
                    metadata=metadata,
                )
            )
        elif metadata is not None and WRAPPED in metadata:
            return None
        else:
            parts.append(Part(data=each.data, metadata=metadata))
    return tuple(parts)


# -- the dialect -------------------------------------------------------------------------------------------------------

TONGUE = Tongue(
    name="0.3",
    rpc=rpc,
    rest=rest,
    read_answer=read_answer,
    read_update=read_update,
    read_error=read_error,
    headers={"A2A-Version": "0.3"},
)

TWICE = replace(TONGUE, rest=rest_twice, read_answer=read_answer_twice, read_update=read_update_twice)
"""For HTTP+JSON with the official Python servers, which encode the bytes of a file in base64 twice (a2a-sdk 0.3.26)."""
