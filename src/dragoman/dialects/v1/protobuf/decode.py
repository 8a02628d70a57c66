"""Decodes the requests of A2A 1.0 over gRPC (§10) to operations.

Invariant: all violations of a request are reported at once, by their paths in the proto file. Any bytes give an
operation or an A2AError.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, Struct

from dragoman.dialects import push
from dragoman.dialects.json_fields import Violations, refusal, refuse, whole
from dragoman.dialects.protobuf import bounds
from dragoman.dialects.protobuf.bounds import STRUCT, VALUE, Shape
from dragoman.dialects.protobuf.values import read, struct_dict, timestamp_ms, value_of
from dragoman.dialects.v1.decode import MAX_ID, ONE_CONTENT, REQUIRED
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.model.errors import MethodNotFound
from dragoman.model.message import Message, Part, Role
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
from dragoman.model.task import TaskState

S = TypeVar("S", bound=SendMessage)

ROLES: dict[int, Role] = {number: Role(name) for name, number in pb.Role.items() if number}
"""The roles by number."""

STATES: dict[int, TaskState] = {number: TaskState(name) for name, number in pb.TaskState.items() if number}
"""The states by number."""


_PART: Shape = {4: VALUE, 5: STRUCT}
_MESSAGE: Shape = {5: _PART, 6: STRUCT}
_SEND: Shape = {2: _MESSAGE, 3: {}, 4: STRUCT}

_SHAPES: dict[str, Shape] = {"SendMessage": _SEND, "SendStreamingMessage": _SEND, "CancelTask": {3: STRUCT}}
"""The messages within each request, by their fields' numbers in the proto file; other requests hold only values."""


class Procedure(Struct, frozen=True):
    """A procedure: the type of its request, and the maker of the operation."""

    request: Any
    operation: Callable[[Any], Operation]


def decode(method: str, request: bytes | memoryview) -> Operation:
    """Decode the request of a procedure of A2A 1.0 §10.3. Raises A2AError."""
    known = METHODS.get(method)
    if known is None:
        raise MethodNotFound(method, "A2A 1.0 §10.3 has the names")
    return known.operation(read(known.request, bytes(request)))


def check_bounds(method: str, request: bytes, max_values: int) -> None:
    """Refuse a request with more than `max_values` values, before it is decoded. Raises InvalidParams."""
    bounds.check(request, _SHAPES.get(method, {}), max_values)


def _send(operation: type[S], request: pb.SendMessageRequest) -> S:
    violations: Violations = []
    message = None
    if request.HasField("message"):
        message = _message(request.message, violations)
    else:
        violations.append(("message", REQUIRED))
    history_length = push_config = None
    return_immediately = False
    modes: tuple[str, ...] = ()
    if request.HasField("configuration"):
        given = request.configuration
        modes = tuple(given.accepted_output_modes)
        return_immediately = given.return_immediately
        if given.HasField("history_length"):
            history_length = whole(given.history_length, "configuration.history_length", violations)
        if given.HasField("task_push_notification_config"):
            config = given.task_push_notification_config
            push_config = _push_config(config, violations, "configuration.task_push_notification_config.")
    if message is None or violations:
        raise refusal(violations)
    metadata = struct_dict(request.metadata) if request.HasField("metadata") else None
    skill = None if metadata is None else _skill(metadata)
    if skill is None and message.metadata is not None:
        skill = _skill(message.metadata)
    return operation(
        message=message,
        return_immediately=return_immediately,
        history_length=history_length,
        accepted_output_modes=modes,
        metadata=metadata,
        skill=skill,
        push_config=push_config,
        tenant=request.tenant,
    )


def _skill(metadata: dict[str, Any]) -> str | None:
    skill = metadata.get("skill")
    return skill if isinstance(skill, str) and skill else None


def _message(given: pb.Message, violations: Violations) -> Message | None:
    message_id = given.message_id
    if message_id:
        _check_id(message_id, "message.message_id", violations)
    else:
        violations.append(("message.message_id", REQUIRED))
    context_id = given.context_id or None
    if context_id is not None:
        _check_id(context_id, "message.context_id", violations)
    role = ROLES.get(given.role)
    if role is None:
        violations.append(("message.role", "must be ROLE_USER or ROLE_AGENT"))
    parts: list[Part] = []
    for index, part in enumerate(given.parts):
        if part.WhichOneof("content") is None:
            violations.append((f"message.parts[{index}]", ONE_CONTENT))
        else:
            parts.append(part_of(part))
    if not parts and not violations:
        violations.append(("message.parts", "must have at least one part"))
    if violations:
        return None
    return Message(
        message_id=message_id,
        role=role or Role.USER,
        parts=tuple(parts),
        context_id=context_id,
        task_id=given.task_id or None,
        metadata=struct_dict(given.metadata) if given.HasField("metadata") else None,
        extensions=tuple(given.extensions),
        reference_task_ids=tuple(given.reference_task_ids),
    )


def part_of(given: pb.Part) -> Part:
    """Return a part in the model; one that holds nothing is an empty text."""
    text = raw = url = None
    data: Any = UNSET
    match given.WhichOneof("content"):
        case "raw":
            raw = given.raw
        case "url":
            url = given.url
        case "data":
            data = value_of(given.data)
        case _:
            text = given.text
    return Part(
        text=text,
        raw=raw,
        url=url,
        data=data,
        filename=given.filename or None,
        media_type=given.media_type or None,
        metadata=struct_dict(given.metadata) if given.HasField("metadata") else None,
    )


def _check_id(value: str, field: str, violations: Violations) -> None:
    if len(value) > MAX_ID or "\0" in value:
        violations.append((field, f"must have at most {MAX_ID} characters and no null character"))


def _get_task(request: pb.GetTaskRequest) -> GetTask:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    length = request.history_length if request.HasField("history_length") else None
    history_length = whole(length, "history_length", violations)
    refuse(violations)
    return GetTask(id=task_id, history_length=history_length, tenant=request.tenant)


def _cancel_task(request: pb.CancelTaskRequest) -> CancelTask:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    refuse(violations)
    metadata = struct_dict(request.metadata) if request.HasField("metadata") else None
    return CancelTask(id=task_id, metadata=metadata, tenant=request.tenant)


def _subscribe(request: pb.SubscribeToTaskRequest) -> Subscribe:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    refuse(violations)
    return Subscribe(id=task_id, tenant=request.tenant)


def _list_tasks(request: pb.ListTasksRequest) -> ListTasks:
    violations: Violations = []
    size = request.page_size if request.HasField("page_size") else None
    page_size = whole(size, "page_size", violations, 1, 100)  # A2A 1.0 §3.1.4
    length = request.history_length if request.HasField("history_length") else None
    history_length = whole(length, "history_length", violations)
    state = STATES.get(request.status)
    if state is None and request.status:
        violations.append(("status", f"must be one of {', '.join(TaskState)}"))
    after_ms = None
    if request.HasField("status_timestamp_after"):
        after_ms = timestamp_ms(request.status_timestamp_after)
        if after_ms is None:
            violations.append(("status_timestamp_after", "must be a time from 1970 to 9999"))
    refuse(violations)
    return ListTasks(
        context_id=request.context_id or None,
        state=state,
        page_size=50 if page_size is None else page_size,
        page_token=request.page_token,
        history_length=history_length,
        status_after_ms=after_ms,
        include_artifacts=request.include_artifacts,
        tenant=request.tenant,
    )


def _push_config(given: pb.TaskPushNotificationConfig, violations: Violations, path: str = "") -> PushConfig:
    url = _required(given.url, f"{path}url", violations)
    scheme = credentials = None
    if given.HasField("authentication"):
        scheme = _required(given.authentication.scheme, f"{path}authentication.scheme", violations) or None
        credentials = given.authentication.credentials or None
    config = PushConfig(
        url=url,
        id=given.id,
        task_id=given.task_id,
        token=given.token or None,
        scheme=scheme,
        credentials=credentials,
    )
    push.check(config, path, violations)
    return config


def _create_push_config(request: pb.TaskPushNotificationConfig) -> CreatePushConfig:
    violations: Violations = []
    _required(request.task_id, "task_id", violations)
    config = _push_config(request, violations)
    refuse(violations)
    return CreatePushConfig(config=config, tenant=request.tenant)


def _get_push_config(request: pb.GetTaskPushNotificationConfigRequest) -> GetPushConfig:
    violations: Violations = []
    task_id = _required(request.task_id, "task_id", violations)
    config_id = _required(request.id, "id", violations)
    refuse(violations)
    return GetPushConfig(task_id=task_id, id=config_id, tenant=request.tenant)


def _delete_push_config(request: pb.DeleteTaskPushNotificationConfigRequest) -> DeletePushConfig:
    violations: Violations = []
    task_id = _required(request.task_id, "task_id", violations)
    config_id = _required(request.id, "id", violations)
    refuse(violations)
    return DeletePushConfig(task_id=task_id, id=config_id, tenant=request.tenant)


def _list_push_configs(request: pb.ListTaskPushNotificationConfigsRequest) -> ListPushConfigs:
    violations: Violations = []
    task_id = _required(request.task_id, "task_id", violations)
    page_size = whole(request.page_size, "page_size", violations)
    refuse(violations)
    return ListPushConfigs(
        task_id=task_id, page_size=page_size or 0, page_token=request.page_token, tenant=request.tenant
    )


def _get_extended_card(request: pb.GetExtendedAgentCardRequest) -> GetExtendedCard:
    return GetExtendedCard(tenant=request.tenant)


def _required(value: str, field: str, violations: Violations) -> str:
    if not value:
        violations.append((field, REQUIRED))
    return value


METHODS: dict[str, Procedure] = {
    "SendMessage": Procedure(pb.SendMessageRequest, partial(_send, SendMessage)),
    "SendStreamingMessage": Procedure(pb.SendMessageRequest, partial(_send, StreamMessage)),
    "GetTask": Procedure(pb.GetTaskRequest, _get_task),
    "ListTasks": Procedure(pb.ListTasksRequest, _list_tasks),
    "CancelTask": Procedure(pb.CancelTaskRequest, _cancel_task),
    "SubscribeToTask": Procedure(pb.SubscribeToTaskRequest, _subscribe),
    "CreateTaskPushNotificationConfig": Procedure(pb.TaskPushNotificationConfig, _create_push_config),
    "GetTaskPushNotificationConfig": Procedure(pb.GetTaskPushNotificationConfigRequest, _get_push_config),
    "ListTaskPushNotificationConfigs": Procedure(pb.ListTaskPushNotificationConfigsRequest, _list_push_configs),
    "DeleteTaskPushNotificationConfig": Procedure(pb.DeleteTaskPushNotificationConfigRequest, _delete_push_config),
    "GetExtendedAgentCard": Procedure(pb.GetExtendedAgentCardRequest, _get_extended_card),
}
"""The procedures of A2A 1.0 §10.3 by name; they are those of JSON-RPC."""
