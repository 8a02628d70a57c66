"""Decodes A2A 1.0 requests to operations: it checks wire structs and converts them to the model.

Invariant: all violations of a request are reported at once, by their paths on the wire (A2A 1.0 §5.4, InvalidParams).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from dragoman.dialects import json_fields, push
from dragoman.dialects.json_fields import Violations, refusal, refuse, whole
from dragoman.dialects.operations import FieldKind, FieldRow, OperationRow, default_of
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.operations import CONFIGURATION, TABLE
from dragoman.dialects.v1.wire import ABSENT, NULL
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

_LONG_ID = f"must have at most {MAX_ID} characters and no null character"

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
"""Reads a value, or an object's fields; faults are added to the violations."""


class FieldAccess(Struct, frozen=True):
    """How the source of a compiled reader gets a field of the object `given`. Each function takes the field's name.

    `spoken` is an expression for the value, false if it is absent or empty. `absent` is one that is true if the field
    is absent, and `value` one for its value, evaluated after `absent`.
    """

    spoken: Callable[[str], str]
    absent: Callable[[str], str]
    value: Callable[[str], str]


def _spellings(field: str) -> tuple[str, ...]:
    return (f"given.{field}", f"given.{field}_") if "_" in field else (f"given.{field}",)


_WIRE = FieldAccess(
    spoken=lambda field: " or ".join(_spellings(field)),
    absent=lambda field: " and ".join(f"(value := {each}) is None" for each in _spellings(field)),
    value=lambda field: "value",
)
"""Fields of wire structs, in either spelling."""


def _count(field: FieldRow, path: str) -> Read:
    least, most = field.least, field.most
    return lambda value, violations: whole(value, path, violations, least, most)


def _state(field: FieldRow, path: str) -> Read:
    def read(value: Any, violations: Violations) -> TaskState | None:
        if value not in _STATES:
            violations.append((path, f"must be one of {', '.join(TaskState)}"))
        return _STATES.get(value)

    return read


def _time(field: FieldRow, path: str) -> Read:
    def read(value: Any, violations: Violations) -> int | None:
        ms = json_fields.timestamp_ms(value) if value else None
        if value and ms is None:
            violations.append((path, "must be an RFC 3339 time stamp such as 2026-11-20T07:00:00.000Z"))
        return ms

    return read


def _object(field: FieldRow, path: str) -> Read:
    return lambda value, violations: value


Reads = Mapping[FieldKind, Callable[[FieldRow, str], Read]]
"""The readers of values that are checked or converted, or may be empty. Others are taken as they are, if they say
something."""

READS: Reads = {
    FieldKind.COUNT: _count,
    FieldKind.STATE: _state,
    FieldKind.TIME: _time,
    FieldKind.OBJECT: _object,
}

_NOT_PLAIN = (FieldKind.SEQ, FieldKind.WEBHOOK)


def compile_reader(
    kind: type[Operation],
    rows: Iterable[FieldRow],
    path: str = "",
    also: Iterable[str] = (),
    access: FieldAccess = _WIRE,
    reads: Reads = READS,
) -> Callable[..., Any]:
    """Compile the reader of the plain fields of an operation, some of which an object at `path` holds.

    It takes the type of the operation, the object, the violations, and the values of the fields `also`, and returns
    the operation. The source is Python with an expression for each field, because a loop over the rows doubles the
    time of a GetTask (0.5 µs).
    """
    scope: dict[str, Any] = {"missing": _missing}
    arguments = [f"{name}={name}" for name in also]
    for row in rows:
        name, place = row.proto_name, path + row.json_name
        if row.kind in _NOT_PLAIN:
            continue
        if row.required:
            source = f"{access.spoken(name)} or missing({place!r}, violations)"
        else:
            scope[f"default_{name}"] = default_of(kind, row)
            if row.kind in reads:
                scope[f"read_{name}"] = reads[row.kind](row, place)
                source = f"read_{name}({access.value(name)}, violations)"
                source = f"default_{name} if {access.absent(name)} else {source}"
            else:
                source = f"{access.spoken(name)} or default_{name}"
        arguments.append(f"{row.name}={source}")
    parameters = ", ".join(("make", "given", "violations", *also))
    exec(f"def read({parameters}):\n    return make({', '.join(arguments)})", scope)
    read: Callable[..., Any] = scope["read"]
    return read


def _missing(place: str, violations: Violations) -> str:
    violations.append((place, REQUIRED))
    return ""


# -- operations --------------------------------------------------------------------------------------------------------


_BESIDE = ("message", "metadata", "skill", "push_config", "tenant")
"""The fields of a send beside those plain ones that its configuration holds."""


def compile_send(access: FieldAccess = _WIRE, reads: Reads = READS) -> Callable[..., Any]:
    """Compile the maker of a send.

    It takes the type of the operation, the configuration or None, the message, the metadata, the webhook, the tenant,
    the violations of the message, and those of the webhook. It raises InvalidParams if there are violations.
    """
    read = compile_reader(SendMessage, CONFIGURATION, "configuration.", _BESIDE, access, reads)

    def make(
        operation: Callable[..., S],
        given: Any,
        message: Message | None,
        metadata: dict[str, Any] | None,
        push_config: PushConfig | None,
        tenant: str,
        violations: Violations,
        faults: Violations,
    ) -> S:
        skill = None
        if message is not None and not (metadata is message.metadata is None):
            skill = json_fields.named_skill(metadata, message.metadata)
        if given is None:
            sent = operation(message=message, metadata=metadata, skill=skill, push_config=push_config, tenant=tenant)
        else:
            sent = read(operation, given, violations, message, metadata, skill, push_config, tenant)
        if violations or faults:
            raise refusal(violations + faults)
        return sent

    return make


_make_send = compile_send()


def _send(operation: type[S], request: wire.WireSend) -> S:
    violations: Violations = []
    faults: Violations = []
    message = _message(request.message, violations)
    given, push_config = request.configuration, None
    if given is not None:
        push_config = _webhook(given, faults, "configuration.")
    if push_config is None:
        push_config = _webhook(request, faults)
    tenant = request.tenant or ""
    sent: S = _make_send(operation, given, message, request.metadata, push_config, tenant, violations, faults)
    return sent


def _webhook(given: Any, violations: Violations, path: str = "") -> PushConfig | None:
    """Return the webhook of a send, under 1.0's name or 0.3's."""
    if (wanted := given.task_push_notification_config or given.task_push_notification_config_) is not None:
        return read_push_config(wanted, violations, f"{path}taskPushNotificationConfig.")
    if (wanted := given.push_notification_config or given.push_notification_config_) is not None:
        return read_push_config(wanted, violations, f"{path}pushNotificationConfig.")
    return None


def _message(given: wire.WireMessage | None, violations: Violations) -> Message | None:
    if given is None:
        violations.append(("message", REQUIRED))
        return None
    message_id = given.message_id or given.message_id_ or ""
    context_id = given.context_id or given.context_id_ or None
    role = _ROLES.get(given.role)
    check_head(message_id, context_id, role, violations)
    if not given.parts:
        violations.append(("message.parts", "must have at least one part"))
        return None
    parts: list[Part] = []
    for index, part in enumerate(given.parts):
        parts.append(_part(part, index, violations))
    if violations:
        return None
    return Message(
        message_id=message_id,
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
    if given.raw is not ABSENT and given.raw != NULL:
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


def check_head(message_id: str, context_id: str | None, role: Role | None, violations: Violations) -> None:
    """Check the fields of a message beside its parts."""
    if not message_id:
        violations.append(("message.messageId", REQUIRED))
    elif len(message_id) > MAX_ID or "\0" in message_id:
        violations.append(("message.messageId", _LONG_ID))
    if context_id is not None and (len(context_id) > MAX_ID or "\0" in context_id):
        violations.append(("message.contextId", _LONG_ID))
    if role is None:
        violations.append(("message.role", "must be ROLE_USER or ROLE_AGENT"))


def read_push_config(given: wire.WirePushConfig, violations: Violations, path: str = "") -> PushConfig:
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


def create_push_config(request: wire.WirePushConfig) -> CreatePushConfig:
    violations: Violations = []
    _required(request.task_id or request.task_id_, "taskId", violations)
    config = read_push_config(request, violations)
    refuse(violations)
    return CreatePushConfig(config=config, tenant=request.tenant or "")


def _required(value: str | None, field: str, violations: Violations) -> str:
    return value or _missing(field, violations)


def plain(
    kind: type[Operation], rows: Iterable[FieldRow], access: FieldAccess = _WIRE, reads: Reads = READS
) -> Callable[[Any], Any]:
    """Return the maker of an operation all of whose fields are plain. It raises InvalidParams."""
    read = compile_reader(kind, rows, access=access, reads=reads)

    def operation(request: Any) -> Any:
        violations: Violations = []
        made = read(kind, request, violations)
        if violations:
            raise refusal(violations)
        return made

    return operation


def _plain(row: OperationRow) -> Method:
    operation = plain(row.operation, row.fields)
    decoder = Decoder(wire.wire_struct(row.method, row.fields))
    return Method(decoder, partial(_subscribe, operation) if row.operation is Subscribe else operation)


def _subscribe(read: Callable[[Any], Subscribe], request: Any) -> Subscribe:
    given = request.from_seq if request.from_seq is not None else request.from_seq_
    return replace(read(request), after=json_fields.from_seq(given, request.metadata))


_OBJECTS: dict[type[Operation], Method] = {
    SendMessage: Method(wire.SEND, partial(_send, SendMessage)),
    StreamMessage: Method(wire.SEND, partial(_send, StreamMessage)),
    CreatePushConfig: Method(wire.PUSH_CONFIG, create_push_config),
}
"""The operations that hold a message or a webhook."""

METHODS: dict[str, Method] = {row.method: _OBJECTS.get(kind) or _plain(row) for kind, row in TABLE.items()}
"""The methods of A2A 1.0 §9.4 by name; the HTTP+JSON routes (§11.3) go by the same names."""
