"""A2A 1.0 over HTTP+JSON (§11): decodes path variables, query and body to operations.

Invariant: a path variable overrides the same field in query or body, as the annotations of the proto say.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects import json_fields
from dragoman.dialects.api import RestRequest
from dragoman.dialects.operations import FieldKind
from dragoman.dialects.v1.decode import METHODS
from dragoman.dialects.v1.operations import TABLE
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.operations import CancelTask, CreatePushConfig, Operation, SendMessage, StreamMessage

_WITH_BODY = frozenset(TABLE[operation].method for operation in (SendMessage, StreamMessage, CreatePushConfig))
"""Routes whose fields come in the body, which is required."""

_BODY_OR_NOTHING = TABLE[CancelTask].method
"""The route that some clients send an empty body to."""

_VARIABLES = ("tenant", "task_id", "id")
"""The path variables of A2A 1.0 §11.3; `id` is the task's, or that of a push configuration below `task_id`."""

_KINDS = {
    name: field.kind for row in TABLE.values() for field in row.fields for name in (field.proto_name, field.json_name)
}
"""The kinds of fields in a query, by both of their names."""

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def decode_rest(request: RestRequest) -> Operation:
    """Decode a routed request. The bounds of its body have been checked. Raises A2AError."""
    method = METHODS.get(request.route)
    if method is None:
        raise MethodNotFound(request.route)
    json_fields.check_text(request.path)
    if request.route in _WITH_BODY or (request.route == _BODY_OR_NOTHING and request.body.strip()):
        fields: msgspec.Struct = json_fields.read(method.decoder, request.body)
    else:
        json_fields.check_text(request.query)
        fields = json_fields.convert(_values(request.query), method.decoder.type)
    named = {name: request.path[name] for name in _VARIABLES if name in request.path}
    return method.operation(replace(fields, **{k: v for k, v in named.items() if k in fields.__struct_fields__}))


def _values(query: Any) -> dict[str, Any]:
    """Convert query parameters to the values of a JSON body (A2A 1.0 §11.5). Empty ones are absent."""
    values: dict[str, Any] = {}
    for name, text in query.items():
        if text == "" or _KINDS.get(name) is FieldKind.OBJECT:
            continue
        if _KINDS.get(name) is FieldKind.FLAG:
            values[name] = _TRUTHS.get(text.lower())
            if values[name] is None:
                raise InvalidParams(name, "must be true or false")
        elif _KINDS.get(name) is FieldKind.TIME:
            values[name] = text.replace(" ", "+")  # an offset's plus sign that was not percent-encoded
        elif _KINDS.get(name) is FieldKind.STATE and text.isascii() and text.isdigit():
            values[name] = int(text[:9])
        else:
            values[name] = text
    return values
