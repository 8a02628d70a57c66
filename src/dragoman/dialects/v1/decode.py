"""Decodes A2A 1.0 requests to operations: it checks wire structs and converts them to the model.

Invariant: all violations of a request are reported at once, by their paths on the wire (A2A 1.0 §5.4, InvalidParams).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from dragoman.dialects import json_fields, push
from dragoman.dialects.json_fields import Violations, refusal, refuse, whole
from dragoman.dialects.v1 import wire
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
from dragoman.model.task import STATES, TaskState

S = TypeVar("S", bound=SendMessage)
W = TypeVar("W", bound=Struct)

REQUIRED = "is required"

ONE_CONTENT = "must have exactly one of text, raw, url, data"
"""The oneof of A2A 1.0 §4.1.6."""

MAX_ID = 1024
"""Longest id that a caller may choose; ours have 36 characters."""

_ROLES: dict[str | int | None, Role] = {
    "ROLE_USER": Role.USER,
    "ROLE_AGENT": Role.AGENT,
    1: Role.USER,
    2: Role.AGENT,
}

_STATES: dict[str | int, TaskState | None] = {
    "": None,
    0: None,
    "TASK_STATE_UNSPECIFIED": None,
    1: TaskState.SUBMITTED,
    2: TaskState.WORKING,
    3: TaskState.COMPLETED,
    4: TaskState.FAILED,
    5: TaskState.CANCELED,
    6: TaskState.INPUT_REQUIRED,
    7: TaskState.REJECTED,
    8: TaskState.AUTH_REQUIRED,
    **{state.value: state for state in STATES},
}
"""Enum values by name and by number, as ProtoJSON reads them; the unspecified one filters nothing."""


class Method(Struct, frozen=True):
    """How the params of one method are decoded: the decoder of its wire struct, and the maker of the operation."""

    decoder: Decoder[Any]
    operation: Callable[[Any], Operation]


_OF_03 = "methods with a slash are of A2A 0.3: send A2A-Version: 0.3"


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a JSON-RPC call of A2A 1.0 §9.4. The bounds of `params` have been checked. Raises A2AError."""
    known = METHODS.get(method)
    if known is None:
        raise MethodNotFound(method, _OF_03 if "/" in method else "A2A 1.0 §9.4 has the names")
    return known.operation(json_fields.read(known.decoder, params))


def _send(operation: type[S], request: wire.WireSend) -> S:
    violations: Violations = []
    message = _message(request.message, violations)
    history_length = push_config = None
    return_immediately = False
    modes: tuple[str, ...] = ()
    given = request.configuration
    if given is not None:
        modes = given.accepted_output_modes or given.accepted_output_modes_ or ()
        return_immediately = bool(given.return_immediately or given.return_immediately_)
        length = given.history_length if given.history_length is not None else given.history_length_
        history_length = whole(length, "configuration.historyLength", violations)
        push_config = _webhook(given, violations, "configuration.")
    if push_config is None:
        push_config = _webhook(request, violations)
    if message is None or violations:
        raise refusal(violations)
    skill = None
    if request.metadata is not None:
        skill = _skill(request.metadata)
    if skill is None and message.metadata is not None:
        skill = _skill(message.metadata)
    return operation(
        message=message,
        return_immediately=return_immediately,
        history_length=history_length,
        accepted_output_modes=modes,
        metadata=request.metadata,
        skill=skill,
        push_config=push_config,
        tenant=request.tenant or "",
    )


def _webhook(
    given: wire.WireConfiguration | wire.WireSend, violations: Violations, path: str = ""
) -> PushConfig | None:
    """Return the webhook of a send, under 1.0's name or 0.3's."""
    wanted, name = given.task_push_notification_config or given.task_push_notification_config_, "taskPush"
    if wanted is None:
        wanted, name = given.push_notification_config or given.push_notification_config_, "push"
    return None if wanted is None else _push_config(wanted, violations, f"{path}{name}NotificationConfig.")


def _message(given: wire.WireMessage | None, violations: Violations) -> Message | None:
    if given is None:
        violations.append(("message", REQUIRED))
        return None
    message_id = given.message_id or given.message_id_
    if message_id:
        _check_id(message_id, "message.messageId", violations)
    else:
        violations.append(("message.messageId", REQUIRED))
    context_id = given.context_id or given.context_id_ or None
    if context_id is not None:
        _check_id(context_id, "message.contextId", violations)
    role = _ROLES.get(given.role)
    if role is None:
        violations.append(("message.role", "must be ROLE_USER or ROLE_AGENT"))
    if not given.parts:
        violations.append(("message.parts", "must have at least one part"))
        return None
    parts: list[Part] = []
    for index, part in enumerate(given.parts):
        parts.append(_part(part, index, violations))
    if violations:
        return None
    return Message(
        message_id=message_id or "",
        role=role or Role.USER,
        parts=tuple(parts),
        context_id=context_id,
        task_id=given.task_id or given.task_id_ or None,
        metadata=given.metadata,
        extensions=given.extensions or (),
        reference_task_ids=given.reference_task_ids or given.reference_task_ids_ or (),
    )


def _part(given: wire.WirePart, index: int, violations: Violations) -> Part:
    raw = None
    if given.raw is not wire.ABSENT and given.raw != wire.NULL:
        raw = json_fields.raw_bytes_in(given.raw)
        if raw is None:
            violations.append((f"message.parts[{index}].raw", "must be base64 in a string"))
            raw = b""
    contents = (given.text is not None) + (raw is not None) + (given.url is not None)
    data = given.data
    if data is None and contents:
        data = UNSET  # some encoders write every member of the oneof: a null beside other content is no content
    if contents + (data is not UNSET) != 1:
        violations.append((f"message.parts[{index}]", ONE_CONTENT))
    return Part(
        text=given.text,
        raw=raw,
        url=given.url,
        data=data,
        filename=given.filename or None,
        media_type=given.media_type or given.media_type_ or None,
        metadata=given.metadata,
    )


def _check_id(value: str, field: str, violations: Violations) -> None:
    if len(value) > MAX_ID or "\0" in value:
        violations.append((field, f"must have at most {MAX_ID} characters and no null character"))


def _skill(metadata: dict[str, Any]) -> str | None:
    skill = metadata.get("skill")
    return skill if isinstance(skill, str) and skill else None


def _get_task(request: wire.WireTaskQuery) -> GetTask:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    length = request.history_length if request.history_length is not None else request.history_length_
    history_length = whole(length, "historyLength", violations)
    refuse(violations)
    return GetTask(id=task_id, history_length=history_length, tenant=request.tenant or "")


def _cancel_task(request: wire.WireTaskQuery) -> CancelTask:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    refuse(violations)
    return CancelTask(id=task_id, metadata=request.metadata, tenant=request.tenant or "")


def _subscribe(request: wire.WireTaskQuery) -> Subscribe:
    violations: Violations = []
    task_id = _required(request.id, "id", violations)
    refuse(violations)
    given = request.from_seq if request.from_seq is not None else request.from_seq_
    after = json_fields.from_seq(given, request.metadata)
    return Subscribe(id=task_id, after=after, tenant=request.tenant or "")


def _list_tasks(request: wire.WireListTasks) -> ListTasks:
    violations: Violations = []
    size = request.page_size if request.page_size is not None else request.page_size_
    page_size = whole(size, "pageSize", violations, 1, 100)  # A2A 1.0 §3.1.4
    length = request.history_length if request.history_length is not None else request.history_length_
    history_length = whole(length, "historyLength", violations)
    state = None
    if request.status is not None:
        if request.status in _STATES:
            state = _STATES[request.status]
        else:
            violations.append(("status", f"must be one of {', '.join(TaskState)}"))
    after = request.status_timestamp_after or request.status_timestamp_after_
    after_ms = json_fields.timestamp_ms(after) if after else None
    if after and after_ms is None:
        violations.append(("statusTimestampAfter", "must be an RFC 3339 time stamp such as 2026-11-20T07:00:00.000Z"))
    refuse(violations)
    return ListTasks(
        context_id=request.context_id or request.context_id_ or None,
        state=state,
        page_size=50 if page_size is None else page_size,
        page_token=request.page_token or request.page_token_ or "",
        history_length=history_length,
        status_after_ms=after_ms,
        include_artifacts=bool(request.include_artifacts or request.include_artifacts_),
        tenant=request.tenant or "",
    )


def _push_config(given: wire.WirePushConfig, violations: Violations, path: str = "") -> PushConfig:
    url = _required(given.url, f"{path}url", violations)
    authentication = given.authentication
    scheme = None
    if authentication is not None:
        first = authentication.scheme or next(iter(authentication.schemes or ()), None)
        scheme = _required(first, f"{path}authentication.scheme", violations)
    config = PushConfig(
        url=url,
        id=given.id or "",
        task_id=given.task_id or given.task_id_ or "",
        token=given.token or None,
        scheme=scheme or None,
        credentials=(authentication.credentials or None) if authentication is not None else None,
        secret=given.secret,
        events=push.events(given.events or (), f"{path}events", violations),
    )
    push.check(config, path, violations)
    return config


def _create_push_config(request: wire.WirePushConfig) -> CreatePushConfig:
    violations: Violations = []
    _required(request.task_id or request.task_id_, "taskId", violations)
    config = _push_config(request, violations)
    refuse(violations)
    return CreatePushConfig(config=config, tenant=request.tenant or "")


def _get_push_config(request: wire.WirePushQuery) -> GetPushConfig:
    violations: Violations = []
    task_id = _required(request.task_id or request.task_id_, "taskId", violations)
    config_id = _required(request.id, "id", violations)
    refuse(violations)
    return GetPushConfig(task_id=task_id, id=config_id, tenant=request.tenant or "")


def _delete_push_config(request: wire.WirePushQuery) -> DeletePushConfig:
    violations: Violations = []
    task_id = _required(request.task_id or request.task_id_, "taskId", violations)
    config_id = _required(request.id, "id", violations)
    refuse(violations)
    return DeletePushConfig(task_id=task_id, id=config_id, tenant=request.tenant or "")


def _list_push_configs(request: wire.WirePushQuery) -> ListPushConfigs:
    violations: Violations = []
    task_id = _required(request.task_id or request.task_id_, "taskId", violations)
    size = request.page_size if request.page_size is not None else request.page_size_
    page_size = whole(size, "pageSize", violations)
    refuse(violations)
    return ListPushConfigs(
        task_id=task_id,
        page_size=page_size or 0,
        page_token=request.page_token or request.page_token_ or "",
        tenant=request.tenant or "",
    )


def _get_extended_card(request: wire.WireExtendedCard) -> GetExtendedCard:
    return GetExtendedCard(tenant=request.tenant or "")


def _required(value: str | None, field: str, violations: Violations) -> str:
    if not value:
        violations.append((field, REQUIRED))
    return value or ""


METHODS: dict[str, Method] = {
    "SendMessage": Method(wire.SEND, partial(_send, SendMessage)),
    "SendStreamingMessage": Method(wire.SEND, partial(_send, StreamMessage)),
    "GetTask": Method(wire.TASK_QUERY, _get_task),
    "ListTasks": Method(wire.LIST_TASKS, _list_tasks),
    "CancelTask": Method(wire.TASK_QUERY, _cancel_task),
    "SubscribeToTask": Method(wire.TASK_QUERY, _subscribe),
    "CreateTaskPushNotificationConfig": Method(wire.PUSH_CONFIG, _create_push_config),
    "GetTaskPushNotificationConfig": Method(wire.PUSH_QUERY, _get_push_config),
    "ListTaskPushNotificationConfigs": Method(wire.PUSH_QUERY, _list_push_configs),
    "DeleteTaskPushNotificationConfig": Method(wire.PUSH_QUERY, _delete_push_config),
    "GetExtendedAgentCard": Method(wire.EXTENDED_CARD, _get_extended_card),
}
"""The methods of A2A 1.0 §9.4 by name; the HTTP+JSON routes (§11.3) go by the same names."""
