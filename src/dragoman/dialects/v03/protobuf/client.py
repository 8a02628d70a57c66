"""The client's side of 0.3 over gRPC: operations become requests, and messages become tasks, updates and the rest.

Invariant: the server's side of the dialect decodes a request to the very same operation, except for what 0.3's proto
has no field for. Any bytes give a value or InvalidAgentResponse.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from msgspec.structs import replace

from dragoman.dialects.api import Answer, GrpcCall
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.encode import check_id, named, no_earlier, row_of
from dragoman.dialects.client.objects import complete
from dragoman.dialects.protobuf.fields import Form, within
from dragoman.dialects.protobuf.values import fill_struct, read
from dragoman.dialects.v03.operations import TABLE
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.protobuf.objects import CONFIG, ObjectForms
from dragoman.model.card import AgentCard
from dragoman.model.errors import InvalidAgentResponse, InvalidParams, ParseError, UnsupportedOperation
from dragoman.model.message import Message
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
    Subscribe,
)
from dragoman.model.task import Task
from dragoman.model.updates import Update

NAME = "A2A 0.3 over gRPC"

M = TypeVar("M", bound=ProtoMessage)

# -- requests ----------------------------------------------------------------------------------------------------------


SERVICE = "a2a.v1.A2AService"
"""The full name of the service."""


def caller(forms: ObjectForms) -> Callable[[Operation], GrpcCall]:
    """Return the encoder of requests, for one way of writing the bytes of a file.

    It raises UnsupportedOperation for an operation that 0.3's proto cannot express, InvalidParams for broken text.
    """

    def call(operation: Operation) -> GrpcCall:
        if isinstance(operation, ListTasks):
            raise UnsupportedOperation(f"{NAME} has no list of tasks: use JSON-RPC or HTTP+JSON")
        row = row_of(operation, TABLE, NAME)
        check_id(operation, f"{NAME} reaches a push configuration")
        try:
            return GrpcCall(f"/{SERVICE}/{row.procedure}", _request(operation, forms).SerializeToString())
        except UnicodeEncodeError:
            raise InvalidParams("", "holds text that is not Unicode: half of a surrogate pair") from None

    return call


def _request(operation: Operation, forms: ObjectForms) -> ProtoMessage:
    match operation:
        case SendMessage():
            return _send(operation, forms)
        case GetTask():
            return pb.GetTaskRequest(name=_task(operation.id), history_length=operation.history_length or 0)
        case CancelTask():
            return pb.CancelTaskRequest(name=_task(operation.id))
        case Subscribe():
            return pb.TaskSubscriptionRequest(name=_task(operation.id))
        case CreatePushConfig(config=config):
            return _create(config)
        case GetPushConfig():
            return pb.GetTaskPushNotificationConfigRequest(name=_config(operation))
        case ListPushConfigs():
            return pb.ListTaskPushNotificationConfigRequest(parent=_task(operation.task_id))
        case DeletePushConfig():
            return pb.DeleteTaskPushNotificationConfigRequest(name=_config(operation))
        case _:
            return pb.GetAgentCardRequest()


def _send(sent: SendMessage, forms: ObjectForms) -> pb.SendMessageRequest:
    no_earlier(sent, NAME)
    request = pb.SendMessageRequest()
    forms.message.write(request.request, sent.message)
    chosen = request.configuration
    chosen.SetInParent()
    chosen.blocking = not sent.return_immediately
    chosen.accepted_output_modes.extend(sent.accepted_output_modes)
    if sent.history_length:
        chosen.history_length = sent.history_length
    if sent.push_config is not None:
        _write_push_config(chosen.push_notification, sent.push_config)
    if metadata := named(sent):
        fill_struct(request.metadata, metadata)
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
    CONFIG.write(into, config)
    if config.scheme or config.credentials:
        into.authentication.schemes.append(config.scheme or "Bearer")
        into.authentication.credentials = config.credentials or ""


def _task(task_id: str, field: str = "id") -> str:
    """Return the name of a task. An id with a slash cannot be part of one."""
    if not task_id or "/" in task_id:
        raise InvalidParams(field, "cannot be part of a name" if task_id else "is required")
    return f"tasks/{task_id}"


def _config(operation: GetPushConfig | DeletePushConfig) -> str:
    return f"{_task(operation.task_id, 'taskId')}/pushNotificationConfigs/{operation.id}"


# -- answers -----------------------------------------------------------------------------------------------------------


class Reader:
    """The decoders of answers, for one way of reading the bytes of a file."""

    def __init__(self, forms: ObjectForms) -> None:
        self._held: dict[str, Form[Any]] = {
            "task": forms.task,
            "msg": forms.message,
            "status_update": forms.status_update,
            "artifact_update": forms.artifact_update,
        }

    def read_answer(self, operation: Operation, body: bytes) -> Answer:
        """Decode the message that answers a unary call. Raises InvalidAgentResponse."""
        try:
            return self._answer(operation, body)
        except InvalidParams as fault:
            raise InvalidAgentResponse(f"{NAME}: {fault.message}") from None

    def read_update(self, body: bytes) -> tuple[Update, ...]:
        """Decode a message of a stream, which holds exactly one update. Raises InvalidAgentResponse."""
        try:
            return (self._frame(body),)
        except InvalidParams as fault:
            raise InvalidAgentResponse(f"{NAME}: {fault.message}") from None

    def _answer(self, operation: Operation, body: bytes) -> Answer:
        match operation:
            case SendMessage():
                answered = self._frame(body)
                if isinstance(answered, Task):
                    return _without_history(answered, operation.history_length)
                if isinstance(answered, Message):
                    return answered
                raise InvalidAgentResponse(f"{NAME}: expected a task or a message")
            case GetTask():
                return _without_history(self._update("task", _parse(pb.Task, body)), operation.history_length)
            case CancelTask():
                task: Task = self._update("task", _parse(pb.Task, body))
                return task
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

    def _frame(self, body: bytes) -> Update:
        frame = _parse(pb.StreamResponse, body)
        held = frame.WhichOneof("payload")
        if held is None:
            raise InvalidParams("payload", "must be a task, a message, a status update or an artifact update")
        update: Update = self._update(held, getattr(frame, held))
        return update

    def _update(self, held: str, given: Any) -> Any:
        try:
            update = complete(self._held[held].read(given))
        except InvalidParams as fault:
            raise within(held, fault) from None
        if isinstance(update, Task) and not update.id:
            raise InvalidParams("task.id", "is required: send a string that is not empty")
        return update


def _parse(kind: type[M], body: bytes) -> M:
    try:
        return read(kind, body)
    except ParseError:
        raise InvalidAgentResponse(f"expected a {kind.DESCRIPTOR.full_name}, got {len(body)} other bytes") from None


def _without_history(task: Task, history_length: int | None) -> Task:
    """Return the task without its history if none was asked for: 0.3's proto cannot ask for none."""
    return replace(task, history=()) if history_length == 0 else task


def _push_config(given: pb.TaskPushNotificationConfig, task_id: str) -> PushConfig:
    parent, _, config_id = given.name.partition("/pushNotificationConfigs/")
    shown = given.push_notification_config
    if not shown.url:
        raise InvalidParams("push_notification_config.url", "is required: send a string that is not empty")
    return replace(
        CONFIG.read(shown),
        id=shown.id or config_id,
        task_id=parent.removeprefix("tasks/") or task_id,
        scheme=next(iter(shown.authentication.schemes), None) or None,
        credentials=shown.authentication.credentials or None,
    )


def _card(given: pb.AgentCard) -> AgentCard:
    try:
        return decode_card(json_format.MessageToDict(given))
    except (json_format.Error, ValueError):
        raise InvalidAgentResponse("expected an agent card, got numbers in it that JSON does not have") from None
