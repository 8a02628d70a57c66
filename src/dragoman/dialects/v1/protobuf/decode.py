"""Decodes the requests of A2A 1.0 over gRPC (§10) to operations, by the rows that JSON is decoded by.

Invariant: a request means what it means over JSON-RPC, and all its violations are reported at once, by their paths in
the proto file. Any bytes give an operation or an A2AError.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message as ProtoMessage
from msgspec import UNSET, Struct

from dragoman.dialects.json_fields import Violations, refusal
from dragoman.dialects.operations import FieldKind, FieldRow
from dragoman.dialects.protobuf import bounds
from dragoman.dialects.protobuf.bounds import STRUCT, VALUE, Shape
from dragoman.dialects.protobuf.fields import EnumForm, map_fields
from dragoman.dialects.protobuf.schema import requests_of
from dragoman.dialects.protobuf.values import read, struct_dict, timestamp_ms
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.decode import (
    ONE_CONTENT,
    READS,
    REQUIRED,
    FieldAccess,
    Read,
    check_head,
    compile_send,
    create_push_config,
    plain,
    read_push_config,
)
from dragoman.dialects.v1.operations import TABLE
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.dialects.v1.protobuf.objects import ROLES
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.message import Message, Part
from dragoman.model.operations import CreatePushConfig, Operation, SendMessage, StreamMessage

S = TypeVar("S", bound=SendMessage)

_PART: Shape = {4: VALUE, 5: STRUCT}
_MESSAGE: Shape = {5: _PART, 6: STRUCT}
_SEND: Shape = {2: _MESSAGE, 3: {}, 4: STRUCT}

_SHAPES: dict[str, Shape] = {"SendMessage": _SEND, "SendStreamingMessage": _SEND, "CancelTask": {3: STRUCT}}
"""The messages within each request, by their fields' numbers in the proto file; other requests hold only values."""

_CAPITAL = re.compile("[A-Z]")


def decode(method: str, request: bytes | memoryview) -> Operation:
    """Decode the request of a procedure of A2A 1.0 §10.3. Raises A2AError."""
    known = METHODS.get(method)
    if known is None:
        raise MethodNotFound(method, "A2A 1.0 §10.3 has the names")
    given = read(known.request, bytes(request))
    try:
        return known.operation(given)
    except InvalidParams as fault:
        raise refusal([(_proto_path(path), text) for path, text in fault.violations]) from None


def _proto_path(path: str) -> str:
    """Spell a path in JSON as in the proto file: `message.messageId` is `message.message_id`."""
    return _CAPITAL.sub(lambda capital: "_" + capital[0].lower(), path)


def check_bounds(method: str, request: bytes, max_values: int) -> None:
    """Refuse a request with more than `max_values` values, before it is decoded. Raises InvalidParams."""
    bounds.check(request, _SHAPES.get(method, {}), max_values)


# -- plain fields ------------------------------------------------------------------------------------------------------


def _access(message: type[ProtoMessage]) -> FieldAccess:
    """Return the access to a message's fields. Those without presence are never absent."""
    fields = message.DESCRIPTOR.fields_by_name

    def spoken(name: str) -> str:
        return f"tuple(given.{name})" if fields[name].is_repeated else f"given.{name}"

    def absent(name: str) -> str:
        return f"not given.HasField({name!r})" if fields[name].has_presence else "False"

    return FieldAccess(spoken, absent, lambda name: f"given.{name}")


def _time(field: FieldRow, path: str) -> Read:
    def read_time(given: Any, violations: Violations) -> int | None:
        if (ms := timestamp_ms(given)) is None:
            violations.append((path, "must be a time from 1970 to 9999"))
        return ms

    return read_time


def _object(field: FieldRow, path: str) -> Read:
    return lambda given, violations: struct_dict(given)


_READS = {**READS, FieldKind.TIME: _time, FieldKind.OBJECT: _object}


# -- messages and webhooks ---------------------------------------------------------------------------------------------

_PART_FORM = map_fields(Part, pb.Part, keeps_empty=True)
_MESSAGE_FORM = map_fields(
    Message, pb.Message, forms={"parts": _PART_FORM}, enums={"role": EnumForm(ROLES.numbers, None)}, keeps_empty=True
)
_WEBHOOK_FORM = map_fields(
    wire.WirePushConfig,
    pb.TaskPushNotificationConfig,
    forms={"authentication": map_fields(wire.WireAuthentication, pb.AuthenticationInfo)},
)

_make_send = compile_send(_access(pb.SendMessageConfiguration), _READS)


def _send(operation: type[S], request: pb.SendMessageRequest) -> S:
    violations: Violations = []
    faults: Violations = []
    message = given = push_config = None
    if request.HasField("message"):
        message = _message(request.message, violations)
    else:
        violations.append(("message", REQUIRED))
    if request.HasField("configuration"):
        given = request.configuration
        if given.HasField("task_push_notification_config"):
            webhook = _WEBHOOK_FORM.read(given.task_push_notification_config)
            push_config = read_push_config(webhook, faults, "configuration.taskPushNotificationConfig.")
    metadata = struct_dict(request.metadata) if request.HasField("metadata") else None
    sent: S = _make_send(operation, given, message, metadata, push_config, request.tenant, violations, faults)
    return sent


def _message(given: pb.Message, violations: Violations) -> Message:
    message = _MESSAGE_FORM.read(given)
    check_head(message.message_id, message.context_id, message.role, violations)
    if not message.parts:
        violations.append(("message.parts", "must have at least one part"))
    for index, part in enumerate(message.parts):
        if part.text is None and part.raw is None and part.url is None and part.data is UNSET:
            violations.append((f"message.parts[{index}]", ONE_CONTENT))
    return message


# -- procedures --------------------------------------------------------------------------------------------------------


class Procedure(Struct, frozen=True):
    """A procedure: the type of its request, and the maker of the operation."""

    request: type[ProtoMessage]
    operation: Callable[[Any], Operation]


_OBJECTS: dict[type[Operation], Callable[[Any], Operation]] = {
    SendMessage: partial(_send, SendMessage),
    StreamMessage: partial(_send, StreamMessage),
    CreatePushConfig: lambda request: create_push_config(_WEBHOOK_FORM.read(request)),
}
"""The operations that hold a message or a webhook."""


def _procedure(kind: type[Operation], request: type[ProtoMessage]) -> Procedure:
    if (operation := _OBJECTS.get(kind)) is None:
        operation = plain(kind, TABLE[kind].fields, _access(request), _READS)
    return Procedure(request, operation)


_KINDS = {row.procedure: kind for kind, row in TABLE.items()}

METHODS: dict[str, Procedure] = {name: _procedure(_KINDS[name], request) for name, request in requests_of(pb).items()}
"""The procedures of A2A 1.0 §10.3 by name; they are those of JSON-RPC."""
