"""The client's side of 0.3 over gRPC: operations become requests, and messages become tasks, updates and the rest.

Invariant: the server's side of the dialect decodes a request to the very same operation, except for what 0.3's proto
has no field for. Any bytes give a value or InvalidAgentResponse.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage

from dragoman.dialects.api import Answer, GrpcCall
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.encode import named, no_earlier
from dragoman.dialects.client.objects import artifact_id, beyond, derive_id
from dragoman.dialects.protobuf.values import read, timestamp_text
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.protobuf.objects import (
    ROLES_READ,
    STATES_READ,
    FileBytes,
    read_metadata,
    read_parts,
    write_message,
    write_metadata,
)
from dragoman.model.card import AgentCard
from dragoman.model.errors import InvalidAgentResponse, InvalidParams, ParseError, UnsupportedOperation
from dragoman.model.message import Artifact, Message, Part, Role
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
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

NAME = "A2A 0.3 over gRPC"

M = TypeVar("M", bound=ProtoMessage)

# -- requests ----------------------------------------------------------------------------------------------------------


SERVICE = "a2a.v1.A2AService"
"""The full name of the service."""


def caller(file_bytes: FileBytes) -> Callable[[Operation], GrpcCall]:
    """Return the encoder of requests; `file_bytes` writes the bytes of a file.

    It raises UnsupportedOperation for an operation that 0.3's proto cannot express, InvalidParams for broken text.
    """

    def call(operation: Operation) -> GrpcCall:
        method, request = _request(operation, file_bytes)
        return GrpcCall(f"/{SERVICE}/{method}", request.SerializeToString())

    return call


def _request(operation: Operation, file_bytes: FileBytes) -> tuple[str, ProtoMessage]:
    try:
        match operation:
            case SendMessage():
                method = "SendStreamingMessage" if isinstance(operation, StreamMessage) else "SendMessage"
                return method, _send(operation, file_bytes)
            case GetTask():
                return "GetTask", pb.GetTaskRequest(
                    name=_task(operation.id), history_length=operation.history_length or 0
                )
            case CancelTask():
                return "CancelTask", pb.CancelTaskRequest(name=_task(operation.id))
            case Subscribe():
                return "TaskSubscription", pb.TaskSubscriptionRequest(name=_task(operation.id))
            case CreatePushConfig(config=config):
                return "CreateTaskPushNotificationConfig", _create(config)
            case GetPushConfig():
                return "GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(name=_config(operation))
            case ListPushConfigs():
                parent = _task(operation.task_id)
                return "ListTaskPushNotificationConfig", pb.ListTaskPushNotificationConfigRequest(parent=parent)
            case DeletePushConfig():
                return "DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest(
                    name=_config(operation)
                )
            case GetExtendedCard():
                return "GetAgentCard", pb.GetAgentCardRequest()
            case ListTasks():
                raise UnsupportedOperation(f"{NAME} has no list of tasks: use JSON-RPC or HTTP+JSON")
            case _:
                _lacks(operation)
    except UnicodeEncodeError:
        raise InvalidParams("", "holds text that is not Unicode: half of a surrogate pair") from None


def _send(sent: SendMessage, file_bytes: FileBytes) -> pb.SendMessageRequest:
    no_earlier(sent, NAME)
    request = pb.SendMessageRequest()
    write_message(request.request, sent.message, file_bytes)
    chosen = request.configuration
    chosen.SetInParent()
    chosen.blocking = not sent.return_immediately
    chosen.accepted_output_modes.extend(sent.accepted_output_modes)
    if sent.history_length:
        chosen.history_length = sent.history_length
    if sent.push_config is not None:
        _write_push_config(chosen.push_notification, sent.push_config)
    write_metadata(request, named(sent))
    return request


def _create(config: PushConfig) -> pb.CreateTaskPushNotificationConfigRequest:
    parent = _task(config.task_id, "taskId")
    request = pb.CreateTaskPushNotificationConfigRequest(parent=parent, config_id=config.id)
    request.config.name = f"{parent}/pushNotificationConfigs/{config.id}"
    _write_push_config(request.config.push_notification_config, config)
    return request


def _write_push_config(into: pb.PushNotificationConfig, config: PushConfig) -> None:
    if config.secret is not None or config.events:
        raise UnsupportedOperation(f"{NAME} has no `secret` and `events` of a webhook: use JSON-RPC or HTTP+JSON")
    into.id = config.id
    into.url = config.url
    into.token = config.token or ""
    if config.scheme or config.credentials:
        into.authentication.schemes.append(config.scheme or "Bearer")
        into.authentication.credentials = config.credentials or ""


def _task(task_id: str, field: str = "id") -> str:
    """Return the name of a task. An id with a slash cannot be part of one."""
    if not task_id or "/" in task_id:
        raise InvalidParams(field, "cannot be part of a name" if task_id else "is required")
    return f"tasks/{task_id}"


def _config(operation: GetPushConfig | DeletePushConfig) -> str:
    if not operation.id:
        raise UnsupportedOperation(f"{NAME} reaches a push configuration by its id only: list them to find it")
    return f"{_task(operation.task_id, 'taskId')}/pushNotificationConfigs/{operation.id}"


def _lacks(operation: Operation) -> NoReturn:
    raise UnsupportedOperation(f"{NAME} has no {type(operation).__name__}: it belongs to BeeOS")


# -- answers -----------------------------------------------------------------------------------------------------------


class Reader:
    """The decoders of answers, for one way of reading the bytes of a file."""

    def __init__(self, file_bytes: FileBytes) -> None:
        self._file_bytes = file_bytes

    def read_answer(self, operation: Operation, body: bytes) -> Answer:
        """Decode the message that answers a unary call. Raises InvalidAgentResponse."""
        try:
            return self._answer(operation, body)
        except InvalidParams as fault:
            raise InvalidAgentResponse(f"{NAME}: {fault.message}") from None

    def read_update(self, body: bytes) -> tuple[Update, ...]:
        """Decode a message of a stream, which holds exactly one update. Raises InvalidAgentResponse."""
        try:
            return (self._update(_parse(pb.StreamResponse, body)),)
        except InvalidParams as fault:
            raise InvalidAgentResponse(f"{NAME}: {fault.message}") from None

    def _answer(self, operation: Operation, body: bytes) -> Answer:
        match operation:
            case SendMessage():
                answered = self._update(_parse(pb.StreamResponse, body))
                if isinstance(answered, Task):
                    return _without_history(answered, operation.history_length)
                if isinstance(answered, Message):
                    return answered
                raise InvalidAgentResponse(f"{NAME}: expected a task or a message")
            case GetTask():
                return _without_history(self._task(_parse(pb.Task, body)), operation.history_length)
            case CancelTask():
                return self._task(_parse(pb.Task, body))
            case CreatePushConfig():
                return _push_config(_parse(pb.TaskPushNotificationConfig, body), operation.config.task_id)
            case GetPushConfig():
                found = _parse(pb.TaskPushNotificationConfig, body)
                return _push_config(found, operation.task_id) if body else None
            case ListPushConfigs():
                listed = _parse(pb.ListTaskPushNotificationConfigResponse, body)
                return tuple([_push_config(each, operation.task_id) for each in listed.configs])
            case DeletePushConfig():
                return None
            case GetExtendedCard():
                return _card(_parse(pb.AgentCard, body))
            case _:
                raise InvalidAgentResponse(f"{NAME} has no {type(operation).__name__}")

    def _update(self, frame: pb.StreamResponse) -> Update:
        match frame.WhichOneof("payload"):
            case "artifact_update":
                chunk = frame.artifact_update
                return ArtifactUpdate(
                    task_id=chunk.task_id,
                    context_id=chunk.context_id,
                    artifact=self._artifact(chunk.artifact, "artifact_update.artifact", chunk.task_id, 0),
                    append=chunk.append,
                    last_chunk=chunk.last_chunk,
                    metadata=read_metadata(chunk),
                )
            case "status_update":
                update = frame.status_update
                metadata, progress, usage = beyond(read_metadata(update))
                return StatusUpdate(
                    task_id=update.task_id,
                    context_id=update.context_id,
                    status=self._status(update.status, "status_update.status"),
                    metadata=metadata,
                    progress=progress,
                    usage=usage,
                )
            case "task":
                return self._task(frame.task)
            case "msg":
                return self._message(frame.msg, "msg")
            case _:
                raise InvalidParams("payload", "must be a task, a message, a status update or an artifact update")

    def _task(self, given: pb.Task) -> Task:
        if not given.id:
            raise InvalidParams("task.id", "is required: send a string that is not empty")
        return Task(
            id=given.id,
            context_id=given.context_id,
            status=self._status(given.status, "task.status"),
            artifacts=tuple(
                [
                    self._artifact(each, f"task.artifacts[{nth}]", given.id, nth)
                    for nth, each in enumerate(given.artifacts)
                ]
            ),
            history=tuple([self._message(each, f"task.history[{nth}]") for nth, each in enumerate(given.history)]),
            metadata=read_metadata(given),
        )

    def _status(self, given: pb.TaskStatus, path: str) -> TaskStatus:
        return TaskStatus(
            state=STATES_READ.get(given.state, TaskState.UNSPECIFIED),  # which has not ended
            message=self._message(given.update, f"{path}.update") if given.HasField("update") else None,
            timestamp=timestamp_text(given.timestamp) if given.HasField("timestamp") else "",
        )

    def _message(self, given: pb.Message, path: str) -> Message:
        return Message(
            message_id=given.message_id or derive_id("msg", given.SerializeToString(deterministic=True)),
            role=ROLES_READ.get(given.role, Role.AGENT),
            parts=self._parts(given.content, f"{path}.content"),
            context_id=given.context_id or None,
            task_id=given.task_id or None,
            metadata=read_metadata(given),
            extensions=tuple(given.extensions),
        )

    def _artifact(self, given: pb.Artifact, path: str, task_id: str, nth: int) -> Artifact:
        return Artifact(
            artifact_id=given.artifact_id or artifact_id(task_id, nth),
            parts=self._parts(given.parts, f"{path}.parts"),
            name=given.name or None,
            description=given.description or None,
            metadata=read_metadata(given),
            extensions=tuple(given.extensions),
        )

    def _parts(self, given: Sequence[pb.Part], path: str) -> tuple[Part, ...]:
        return read_parts(given, path, self._file_bytes)


def _parse(kind: type[M], body: bytes) -> M:
    try:
        return read(kind, body)
    except ParseError:
        raise InvalidAgentResponse(f"expected a {kind.DESCRIPTOR.full_name}, got {len(body)} other bytes") from None


def _without_history(task: Task, history_length: int | None) -> Task:
    """Return the task without its history if none was asked for: 0.3's proto cannot ask for none."""
    return msgspec.structs.replace(task, history=()) if history_length == 0 else task


def _push_config(given: pb.TaskPushNotificationConfig, task_id: str) -> PushConfig:
    parent, _, config_id = given.name.partition("/pushNotificationConfigs/")
    shown = given.push_notification_config
    if not shown.url:
        raise InvalidParams("push_notification_config.url", "is required: send a string that is not empty")
    return PushConfig(
        url=shown.url,
        id=shown.id or config_id,
        task_id=parent.removeprefix("tasks/") or task_id,
        token=shown.token or None,
        scheme=next(iter(shown.authentication.schemes), None) or None,
        credentials=shown.authentication.credentials or None,
    )


def _card(given: pb.AgentCard) -> AgentCard:
    try:
        return decode_card(json_format.MessageToDict(given))
    except (json_format.Error, ValueError):
        raise InvalidAgentResponse("expected an agent card, got numbers in it that JSON does not have") from None
