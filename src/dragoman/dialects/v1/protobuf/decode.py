"""Decodes the requests of A2A 1.0 over gRPC (§10): messages become the wire structs that JSON is read into.

Invariant: a request means what it means over JSON-RPC, and all its violations are reported at once, by their paths in
the proto file. Any bytes give an operation or an A2AError.
"""

import re
from typing import Any

from google.protobuf.message import Message
from msgspec import Struct

from dragoman.dialects.json_fields import refusal
from dragoman.dialects.protobuf import bounds
from dragoman.dialects.protobuf.bounds import STRUCT, VALUE, Shape
from dragoman.dialects.protobuf.fields import Form, map_fields
from dragoman.dialects.protobuf.schema import requests_of
from dragoman.dialects.protobuf.values import read, timestamp_text
from dragoman.dialects.v1 import wire
from dragoman.dialects.v1.decode import METHODS as JSON_METHODS
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.operations import Operation

_PART: Shape = {4: VALUE, 5: STRUCT}
_MESSAGE: Shape = {5: _PART, 6: STRUCT}
_SEND: Shape = {2: _MESSAGE, 3: {}, 4: STRUCT}

_SHAPES: dict[str, Shape] = {"SendMessage": _SEND, "SendStreamingMessage": _SEND, "CancelTask": {3: STRUCT}}
"""The messages within each request, by their fields' numbers in the proto file; other requests hold only values."""

_OTHER_TEXTS = {"statusTimestampAfter": "must be a time from 1970 to 9999"}
"""What is wrong with a field whose type is another one in JSON."""

_CAPITAL = re.compile("[A-Z]")


def decode(method: str, request: bytes | memoryview) -> Operation:
    """Decode the request of a procedure of A2A 1.0 §10.3. Raises A2AError."""
    known = METHODS.get(method)
    if known is None:
        raise MethodNotFound(method, "A2A 1.0 §10.3 has the names")
    given = known.wire.read(read(known.request, bytes(request)))
    try:
        return JSON_METHODS[method].operation(given)
    except InvalidParams as fault:
        raise refusal([(_proto_path(path), _OTHER_TEXTS.get(path, text)) for path, text in fault.violations]) from None


def _proto_path(path: str) -> str:
    """Spell a path in JSON as in the proto file: `message.messageId` is `message.message_id`."""
    return _CAPITAL.sub(lambda capital: "_" + capital[0].lower(), path)


def check_bounds(method: str, request: bytes, max_values: int) -> None:
    """Refuse a request with more than `max_values` values, before it is decoded. Raises InvalidParams."""
    bounds.check(request, _SHAPES.get(method, {}), max_values)


def _after(given: pb.ListTasksRequest) -> str | None:
    if not given.HasField("status_timestamp_after"):
        return None
    return timestamp_text(given.status_timestamp_after) or "out of range"


_FORMS: dict[str, Form[Any]] = {}
"""The messages within requests, by the names of their fields."""


def _form(struct: type[Struct], message: type[Message]) -> Form[Any]:
    reads = {"status_timestamp_after": _after}
    return map_fields(struct, message, forms=_FORMS, reads=reads, keeps_empty=True)


_FORMS["authentication"] = _form(wire.WireAuthentication, pb.AuthenticationInfo)
_FORMS["task_push_notification_config"] = _form(wire.WirePushConfig, pb.TaskPushNotificationConfig)
_FORMS["configuration"] = _form(wire.WireConfiguration, pb.SendMessageConfiguration)
_FORMS["parts"] = _form(wire.WirePart, pb.Part)
_FORMS["message"] = _form(wire.WireMessage, pb.Message)


class Procedure(Struct, frozen=True):
    """A procedure: the type of its request, and the form of the wire struct of the method of its name."""

    request: type[Message]
    wire: Form[Any]


METHODS: dict[str, Procedure] = {
    name: Procedure(request, _form(JSON_METHODS[name].decoder.type, request))
    for name, request in requests_of(pb).items()
}
"""The procedures of A2A 1.0 §10.3 by name; they are those of JSON-RPC."""
