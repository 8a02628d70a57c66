"""Decodes A2A 1.0 requests to operations: it checks wire structs and converts them to the model.

Invariant: all violations of a request are reported at once, by their paths on the wire (A2A 1.0 §5.4, InvalidParams).
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from dragoman.dialects import json_fields, push
from dragoman.dialects.json_fields import Violations, refusal, refuse, whole
from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.operations import TABLE
from dragoman.model.errors import InvalidParams, MethodNotFound
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
        came: Any = given.raw
        raw = came if isinstance(came, bytes) else json_fields.raw_bytes_in(came)
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


def _required(value: str | None, field: str, violations: Violations) -> str:
    if not value:
        violations.append((field, REQUIRED))
    return value or ""


# -- operations with plain fields --------------------------------------------------------------------------------------

Read = Callable[[Any, Violations], Any]
"""Reads one field of a wire struct; a fault is added to the violations."""


def _spelling(field: FieldRow) -> Callable[[Any], Any]:
    """Return the getter of a field: the first of its two spellings that is not null."""
    name, other = field.proto_name, field.proto_name + "_"
    if "_" not in name:
        return attrgetter(name)

    def value(request: Any) -> Any:
        found = getattr(request, name)
        return getattr(request, other) if found is None else found

    return value


def _text(field: FieldRow, default: Any) -> Read:
    value, path = _spelling(field), field.json_name
    if field.required:
        return lambda request, violations: _required(value(request), path, violations)
    return lambda request, violations: value(request) or default


def _count(field: FieldRow, default: Any) -> Read:
    value, path, least, most = _spelling(field), field.json_name, field.least, field.most

    def read(request: Any, violations: Violations) -> Any:
        number = whole(value(request), path, violations, least, most)
        return default if number is None else number

    return read


def _flag(field: FieldRow, default: Any) -> Read:
    value = _spelling(field)
    return lambda request, violations: bool(value(request))


def _object(field: FieldRow, default: Any) -> Read:
    value = _spelling(field)
    return lambda request, violations: value(request)


def _state(field: FieldRow, default: Any) -> Read:
    value, path = _spelling(field), field.json_name

    def read(request: Any, violations: Violations) -> TaskState | None:
        given = value(request)
        if given is not None and given not in _STATES:
            violations.append((path, f"must be one of {', '.join(TaskState)}"))
        return _STATES.get(given)

    return read


def _time(field: FieldRow, default: Any) -> Read:
    value, path = _spelling(field), field.json_name

    def read(request: Any, violations: Violations) -> int | None:
        given = value(request)
        ms = json_fields.timestamp_ms(given) if given else None
        if given and ms is None:
            violations.append((path, "must be an RFC 3339 time stamp such as 2026-11-20T07:00:00.000Z"))
        return ms

    return read


def _seq(field: FieldRow, default: Any) -> Read:
    value = _spelling(field)

    def read(request: Any, violations: Violations) -> str | None:
        try:
            return json_fields.from_seq(value(request), request.metadata)
        except InvalidParams as fault:
            violations.extend(fault.violations)
            return None

    return read


_READS: dict[FieldKind, Callable[[FieldRow, Any], Read]] = {
    FieldKind.TEXT: _text,
    FieldKind.COUNT: _count,
    FieldKind.FLAG: _flag,
    FieldKind.OBJECT: _object,
    FieldKind.STATE: _state,
    FieldKind.TIME: _time,
    FieldKind.SEQ: _seq,
}


def _plain(row: OperationRow) -> Callable[[Any], Operation]:
    """Return the maker of an operation all of whose fields are in its row."""
    kind = row.operation
    reads = tuple([(field.name, _READS[field.kind](field, row.default(field))) for field in row.fields])

    def operation(request: Any) -> Operation:
        violations: Violations = []
        values = {name: read(request, violations) for name, read in reads}
        refuse(violations)
        return kind(**values)

    return operation


_WIRE: dict[type[Operation], Decoder[Any]] = {
    SendMessage: wire.SEND,
    StreamMessage: wire.SEND,
    GetTask: wire.TASK_QUERY,
    ListTasks: wire.LIST_TASKS,
    CancelTask: wire.TASK_QUERY,
    Subscribe: wire.TASK_QUERY,
    CreatePushConfig: wire.PUSH_CONFIG,
    GetPushConfig: wire.PUSH_QUERY,
    ListPushConfigs: wire.PUSH_QUERY,
    DeletePushConfig: wire.PUSH_QUERY,
    GetExtendedCard: wire.EXTENDED_CARD,
}

_MAKERS: dict[type[Operation], Callable[[Any], Operation]] = {
    SendMessage: partial(_send, SendMessage),
    StreamMessage: partial(_send, StreamMessage),
    CreatePushConfig: _create_push_config,
}
"""The makers of operations that hold a message or a webhook."""

METHODS: dict[str, Method] = {
    row.method: Method(_WIRE[kind], _MAKERS.get(kind) or _plain(row)) for kind, row in TABLE.items()
}
"""The methods of A2A 1.0 §9.4 by name; the HTTP+JSON routes (§11.3) go by the same names."""
