"""0.3 over HTTP+JSON: decodes requests to the routes below `/v1`, and encodes answers in 0.3's protobuf JSON.

Bodies may be protobuf JSON, or tagged with `kind`. Both official 0.3 clients are understood as they mean it: a flag
that their protobuf JSON leaves out is false.

Invariant: every field that is written is in the proto of A2A 0.3.0 (package `a2a.v1`), because the Python client
refuses unknown ones. So there is no `kind` and no `referenceTaskIds`; a message's parts are `content`;
`TASK_STATE_CANCELLED` has two L.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, assert_never
from urllib.parse import unquote

import msgspec

from dragoman.dialects.api import RestRequest, no_frames
from dragoman.dialects.client.objects import ReadBytes
from dragoman.dialects.json_fields import check_text, raw_bytes
from dragoman.dialects.v03 import decode, webhooks
from dragoman.dialects.v03.card import proto_card
from dragoman.dialects.v03.encode import (
    Json,
    chunk_members,
    history_limit,
    newest,
    page_of,
    plain_data,
    present,
    push_config,
    record_metadata,
    status_members,
    submitted,
)
from dragoman.dialects.v03.fields import Fields, read
from dragoman.dialects.v1.operations import TABLE
from dragoman.model.card import AgentCard
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    Result,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
)
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus

# -- requests ----------------------------------------------------------------------------------------------------------

_CONFIG_NAME = re.compile(r"tasks/[^/]+/pushNotificationConfigs/([^/]+)")


def decode_rest(request: RestRequest) -> Operation:
    """Decode a request whose file bytes are base64 once. Raises MethodNotFound, ParseError or InvalidParams."""
    return _decode(request, raw_bytes)


def decode_rest_twice(request: RestRequest) -> Operation:
    """Decode a request of the official Python clients, which encode file bytes twice (a2a-sdk 0.3.26, 1.3.0)."""
    return _decode(request, raw_bytes_twice)


def _decode(request: RestRequest, read_bytes: ReadBytes) -> Operation:
    check_text(request.path)
    check_text(request.query)
    route = _ROUTES.get(request.route)
    if route is None:
        raise MethodNotFound(request.route)
    return route(request, read_bytes)


def raw_bytes_twice(text: str) -> bytes | None:
    """Decode bytes that are in base64 of base64, or in base64 once; None if they are neither."""
    once = raw_bytes(text)
    if once is None or not once.isascii():
        return once
    twice = raw_bytes(once.decode("ascii"))
    return once if twice is None else twice


def _send(kind: type[SendMessage], request: RestRequest, read_bytes: ReadBytes) -> SendMessage:
    fields = read(request.body)
    message = fields.object("message", "request")
    if message is None or not message.has("content"):
        read_bytes = raw_bytes  # clients that encode twice write 0.3's protobuf JSON, and this is not
    return decode.send(_spell_out(fields), kind, read_bytes)


def _spell_out(fields: Fields) -> Fields:
    """Add the `blocking: false` that protobuf JSON leaves out.

    The official clients always send a `configuration`, with `blocking` in it only if it is true. A body is protobuf
    JSON if its message has `content`; in any other body an absent `blocking` leaves the choice to the server.
    """
    message, configuration = fields.object("message", "request"), fields.mapping("configuration")
    if message is None or configuration is None or not message.has("content"):
        return fields
    return Fields({**fields.members, "configuration": {"blocking": False, **configuration}}, fields.path)


def _task_id(path: Mapping[str, str]) -> str:
    """Return the task id of the path: the variable `id`, or `task_id` below a task."""
    task = path.get("id") if "task_id" not in path else path["task_id"]
    if not task:
        raise InvalidParams("id", "is required: send a string that is not empty")
    return task


def _config_id(path: Mapping[str, str]) -> str:
    return path.get("config_id") or (path.get("id", "") if "task_id" in path else "")


def _query(request: RestRequest) -> Fields:
    members: dict[str, Any] = {name: value for name, value in request.query.items() if value != ""}
    return Fields(members)


def _get_task(request: RestRequest, read_bytes: ReadBytes) -> GetTask:
    limit = _query(request).count("historyLength", "history_length")
    return GetTask(id=_task_id(request.path), history_length=limit)


def _create_push_config(request: RestRequest, read_bytes: ReadBytes) -> CreatePushConfig:
    """Decode a registration.

    Python sends `{parent, configId, config: {name, pushNotificationConfig}}`, JavaScript only the value of `config`.
    """
    fields = read(request.body)
    outer = fields.object("config") or fields
    inner = webhooks.unwrapped(outer)
    named = _CONFIG_NAME.fullmatch(outer.text("name") or "")
    given = fields.text("configId", "config_id") or (unquote(named[1]) if named else "")
    if given and not inner.has("id"):
        inner = Fields({**inner.members, "id": given}, inner.path)
    return CreatePushConfig(config=webhooks.push_config(inner, _task_id(request.path)))


_DECODERS: dict[type[Operation], Callable[[RestRequest, ReadBytes], Operation]] = {
    SendMessage: lambda request, read_bytes: _send(SendMessage, request, read_bytes),
    StreamMessage: lambda request, read_bytes: _send(StreamMessage, request, read_bytes),
    GetTask: _get_task,
    ListTasks: lambda request, _: decode.list_tasks(_query(request)),
    CancelTask: lambda request, _: CancelTask(id=_task_id(request.path)),
    Subscribe: lambda request, _: Subscribe(id=_task_id(request.path)),
    CreatePushConfig: _create_push_config,
    GetPushConfig: lambda request, _: GetPushConfig(task_id=_task_id(request.path), id=_config_id(request.path)),
    ListPushConfigs: lambda request, _: ListPushConfigs(task_id=_task_id(request.path)),
    DeletePushConfig: lambda request, _: DeletePushConfig(task_id=_task_id(request.path), id=_config_id(request.path)),
    GetExtendedCard: lambda request, _: GetExtendedCard(),
}

_ROUTES = {TABLE[kind].method: decoder for kind, decoder in _DECODERS.items()}
"""The decoders by route, which has the name of the operation in 1.0."""


# -- answers -----------------------------------------------------------------------------------------------------------

STATES = {state: state.value for state in TaskState} | {TaskState.CANCELED: "TASK_STATE_CANCELLED"}

EncodeCard = Callable[[AgentCard], Json]
"""Encodes a card."""

FileBytes = Callable[[bytes], bytes]
"""Prepares the bytes of a file for base64."""


def once(raw: bytes) -> bytes:
    """Return the bytes themselves, as the proto says."""
    return raw


def twice(raw: bytes) -> bytes:
    """Return the bytes in base64. The official Python clients decode the result once more (a2a-sdk 0.3.26, 1.3.0)."""
    return base64.b64encode(raw)


class ProtoJson:
    """The encoders of a Dialect, for one way of writing file bytes and one of writing cards."""

    def __init__(self, file_bytes: FileBytes, card: EncodeCard = proto_card) -> None:
        self._file_bytes = file_bytes
        self._card = card

    def encode_result(self, operation: Operation, result: Result) -> bytes:
        """Encode the body of an answer: SendMessage's in an envelope, any other bare, an empty one as `{}`."""
        match result:
            case Record():
                task = self._task(result, history_limit(operation))
                return msgspec.json.encode({"task": task} if isinstance(operation, SendMessage) else task)
            case Message():
                return self.encode_message(result)
            case TaskPage():
                return msgspec.json.encode(page_of(operation, result, self._task))
            case PushConfig():
                return msgspec.json.encode(_push_config(result))
            case AgentCard():
                return msgspec.json.encode(self._card(result))
            case tuple():
                return msgspec.json.encode({"configs": [_push_config(config) for config in result]})
            case None:
                return b"{}"
            case _:
                assert_never(result)

    def encode_snapshot(self, record: Record, history_length: int | None) -> bytes:
        """Encode the task, as a stream's first frame."""
        return msgspec.json.encode({"task": self._task(record, history_length)})

    def encode_message(self, answer: Message) -> bytes:
        """Encode the Message of an agent that answers directly; the proto's `msg` has the JSON name `message`."""
        return msgspec.json.encode({"message": self.message(answer)})

    def encode_event(self, head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
        """Encode the frame of an event; none for the caller's own messages. Submitted gives the task as it was then."""
        match event:
            case Submitted():
                return (self.encode_snapshot(submitted(head, event), None),)
            case StatusChanged():
                update = status_members(head, event, self._status)
                return (msgspec.json.encode({"statusUpdate": update}),)
            case ArtifactChunk():
                chunk = chunk_members(head, event, self._artifact(event.artifact))
                return (msgspec.json.encode({"artifactUpdate": chunk}),)
            case _:
                return no_frames(event)

    def _task(self, record: Record, history_length: int | None, artifacts: bool = True) -> Json:
        return present(
            {
                "id": record.head.id,
                "contextId": record.head.context_id,
                "status": self._status(record.status),
                "artifacts": [self._artifact(artifact) for artifact in record.artifacts] if artifacts else None,
                "history": [self.message(each) for each in newest(record.history, history_length)],
                "metadata": record_metadata(record),
            }
        )

    def _status(self, status: TaskStatus) -> Json:
        told = None if status.message is None else self.message(status.message)
        return present({"state": STATES[status.state], "message": told, "timestamp": status.timestamp})

    def message(self, said: Message) -> Json:
        """Build a Message, with its parts as `content`."""
        return present(
            {
                "messageId": said.message_id,
                "contextId": said.context_id,
                "taskId": said.task_id,
                "role": said.role.value,
                "content": [self._part(each) for each in said.parts],
                "metadata": said.metadata,
                "extensions": said.extensions,
            }
        )

    def _artifact(self, artifact: Artifact) -> Json:
        return present(
            {
                "artifactId": artifact.artifact_id,
                "name": artifact.name,
                "description": artifact.description,
                "parts": [self._part(each) for each in artifact.parts],
                "metadata": artifact.metadata,
                "extensions": artifact.extensions,
            }
        )

    def _part(self, part: Part) -> Json:
        metadata = part.metadata
        body: Json
        if part.text is not None:
            body = {"text": part.text}
        elif part.raw is not None or part.url is not None:
            content: Json = (
                {"fileWithUri": part.url} if part.raw is None else {"fileWithBytes": self._file_bytes(part.raw)}
            )
            if part.media_type:
                content["mimeType"] = part.media_type
            if part.filename:
                content["name"] = part.filename
            body = {"file": content}
        else:
            data, metadata = plain_data(part)
            body = {"data": {"data": data}}
        if metadata:
            body["metadata"] = metadata
        return body


def _push_config(config: PushConfig) -> Json:
    name = f"tasks/{config.task_id}/pushNotificationConfigs/{config.id}"
    return {"name": name, "pushNotificationConfig": push_config(config)}
