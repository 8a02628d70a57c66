"""Decodes A2A 1.0 requests to operations: it checks wire structs and converts them to the model.

Invariant: all violations of a request are reported at once, by their paths on the wire (A2A 1.0 §5.4, InvalidParams).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from dragoman.dialects import json_fields, push
from dragoman.dialects.json_fields import Violations, refusal, refuse, whole
from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, default_of
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.operations import CONFIGURATION, TABLE
from dragoman.model.errors import MethodNotFound
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    CreatePushConfig,
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


# -- fields of the table -----------------------------------------------------------------------------------------------

Read = Callable[[Any, Violations], Any]
"""Reads the value of a field that is present; a fault is added to the violations."""


def _text(field: FieldRow, path: str, default: Any) -> Read:
    if field.required:
        return lambda value, violations: _required(value, path, violations)
    return lambda value, violations: value or default


def _count(field: FieldRow, path: str, default: Any) -> Read:
    least, most = field.least, field.most
    return lambda value, violations: whole(value, path, violations, least, most)


def _state(field: FieldRow, path: str, default: Any) -> Read:
    def read(value: Any, violations: Violations) -> TaskState | None:
        if value not in _STATES:
            violations.append((path, f"must be one of {', '.join(TaskState)}"))
        return _STATES.get(value)

    return read


def _time(field: FieldRow, path: str, default: Any) -> Read:
    def read(value: Any, violations: Violations) -> int | None:
        ms = json_fields.timestamp_ms(value) if value else None
        if value and ms is None:
            violations.append((path, "must be an RFC 3339 time stamp such as 2026-11-20T07:00:00.000Z"))
        return ms

    return read


_READS: dict[FieldKind, Callable[[FieldRow, str, Any], Read]] = {
    FieldKind.TEXT: _text,
    FieldKind.COUNT: _count,
    FieldKind.STATE: _state,
    FieldKind.TIME: _time,
}
"""The readers of values that are checked or converted; one of another kind is taken as it is."""

_NOT_PLAIN = (FieldKind.SEQ, FieldKind.WEBHOOK)


class _Reader:
    """Reads the plain fields of a wire struct. `path` is that of the object that holds them."""

    def __init__(self, kind: type[Operation], rows: Iterable[FieldRow], path: str = "") -> None:
        fields = []
        for row in rows:
            if row.kind not in _NOT_PLAIN:
                place, name = path + row.json_name, row.proto_name
                read = _READS[row.kind](row, place, default_of(kind, row)) if row.kind in _READS else None
                fields.append((row.name, name, f"{name}_" if "_" in name else name, place, row.required, read))
        self._fields = tuple(fields)

    def values(self, given: Any, violations: Violations) -> dict[str, Any]:
        """Return the values of the fields that are present, in either spelling, by their names in the model."""
        values: dict[str, Any] = {}
        for field, name, other, place, required, read in self._fields:
            value = getattr(given, name)
            if value is None:
                value = getattr(given, other)
            if value is not None:
                values[field] = value if read is None else read(value, violations)
            elif required:
                violations.append((place, REQUIRED))
        return values


# -- operations --------------------------------------------------------------------------------------------------------


def _send(operation: type[S], request: wire.WireSend) -> S:
    violations: Violations = []
    message = _message(request.message, violations)
    given = request.configuration
    chosen: dict[str, Any] = {}
    push_config = None
    if given is not None:
        chosen = _CONFIGURATION.values(given, violations)
        push_config = _webhook(given, violations, "configuration.")
    if push_config is None:
        push_config = _webhook(request, violations)
    if message is None or violations:
        raise refusal(violations)
    return operation(
        message=message,
        metadata=request.metadata,
        skill=json_fields.named_skill(request.metadata, message.metadata),
        push_config=push_config,
        tenant=request.tenant or "",
        **chosen,
    )


_CONFIGURATION = _Reader(SendMessage, CONFIGURATION, "configuration.")


def _webhook(given: Any, violations: Violations, path: str = "") -> PushConfig | None:
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


def _subscribe(reader: _Reader, request: Any) -> Subscribe:
    violations: Violations = []
    values = reader.values(request, violations)
    refuse(violations)
    given = request.from_seq if request.from_seq is not None else request.from_seq_
    return Subscribe(after=json_fields.from_seq(given, request.metadata), **values)


def _plain(row: OperationRow) -> Method:
    """Return the method of an operation all of whose fields are in its row."""
    kind, reader = row.operation, _Reader(row.operation, row.fields)

    def operation(request: Any) -> Operation:
        violations: Violations = []
        values = reader.values(request, violations)
        refuse(violations)
        return kind(**values)

    decoder = Decoder(wire.wire_struct(row.method, row.fields))
    return Method(decoder, partial(_subscribe, reader) if kind is Subscribe else operation)


_OBJECTS: dict[type[Operation], Method] = {
    SendMessage: Method(wire.SEND, partial(_send, SendMessage)),
    StreamMessage: Method(wire.SEND, partial(_send, StreamMessage)),
    CreatePushConfig: Method(wire.PUSH_CONFIG, _create_push_config),
}
"""The operations that hold a message or a webhook."""

METHODS: dict[str, Method] = {row.method: _OBJECTS.get(kind) or _plain(row) for kind, row in TABLE.items()}
"""The methods of A2A 1.0 §9.4 by name; the HTTP+JSON routes (§11.3) go by the same names."""
