"""JSON-RPC 2.0: envelopes are opened without parsing the params, and closed around encoded bytes. Errors have A2A's
codes, except where a dialect has its own.

Invariant: an id is returned byte for byte as it came: clients compare a number with a number. An error without a code
is an internal error.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects import json_bounds
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams, InvalidRequest, ParseError

NULL_ID = b"null"
"""The id of an answer to a request whose id could not be read (JSON-RPC 2.0 §5)."""

MAX_ID_BYTES = 1024
"""Longest id echoed: it is repeated in every frame of a stream."""

COPIED_BYTES = 1 << 20
"""Params of fewer bytes are copied, so that a small request does not keep its body alive."""

_NOTHING = Raw(b"")
_STRING = ord('"')
_OBJECT = ord("{")
_NUMBER = frozenset(b"-0123456789")


class RpcRequest(Struct, frozen=True):
    """A call: its id as the raw JSON that came, its method, and its params as a JSON object in bytes.

    Large params are a view of the body, because copying 30 MB takes 20 ms, during which no other thread runs.
    """

    id: bytes
    method: str
    params: bytes | memoryview


class _Envelope(Struct):
    jsonrpc: str = ""
    id: Raw = _NOTHING
    method: str = ""
    params: Raw = _NOTHING


class _OnlyId(Struct):
    id: Raw = _NOTHING


class _OnlyVersion(Struct):
    jsonrpc: Raw = _NOTHING


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ONLY_ID = msgspec.json.Decoder(_OnlyId)
_ONLY_VERSION = msgspec.json.Decoder(_OnlyVersion)


def decode_request(
    body: bytes,
    max_depth: int = json_bounds.MAX_DEPTH,
    max_values: int = json_bounds.MAX_VALUES,
    max_wide: int | None = None,
) -> RpcRequest:
    """Open an envelope; of duplicate keys the last counts.

    Raises ParseError if it is not JSON. Raises InvalidRequest if it is not a single request with an id: A2A has no
    batches, and no notifications, since every A2A call is answered. Raises InvalidParams if `params` is not an object.
    """
    json_bounds.check(body, max_depth, max_values, max_wide)
    try:
        envelope = _ENVELOPE.decode(body)
    except msgspec.ValidationError:
        raise _why_not_a_request(body) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError("the body is not JSON") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    if envelope.jsonrpc != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"')
    if not envelope.method:
        raise InvalidRequest("method must be the name of a method")
    view = memoryview(envelope.params)
    params: bytes | memoryview = bytes(view) if view.nbytes < COPIED_BYTES else view
    if params in (b"", b"null"):
        params = b"{}"
    elif params[0] != _OBJECT:
        raise InvalidParams("params", "must be an object")
    return RpcRequest(_check_id(bytes(envelope.id)), envelope.method, params)


def decode_bare(
    body: bytes,
    method: str,
    max_depth: int = json_bounds.MAX_DEPTH,
    max_values: int = json_bounds.MAX_VALUES,
    max_wide: int | None = None,
) -> RpcRequest:
    """Return the body as the params of `method`, with the id null; for the few clients that send no envelope.

    Raises ParseError if it is not JSON, InvalidRequest if it is nested too deeply, InvalidParams if it is no object.
    """
    json_bounds.check(body, max_depth, max_values, max_wide)
    if body.lstrip()[:1] != b"{":
        raise InvalidParams("", "the body must be an object")
    return RpcRequest(NULL_ID, method, body)


def enveloped(body: bytes) -> bool:
    """Whether the body is a JSON object with the member `jsonrpc`. Never raises."""
    try:
        return _ONLY_VERSION.decode(body).jsonrpc != _NOTHING
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def id_of(body: bytes, max_depth: int = json_bounds.MAX_DEPTH, max_values: int = json_bounds.MAX_VALUES) -> bytes:
    """Return the id for the answer to a refused body: its own if it can be read, else null. Never raises."""
    try:
        json_bounds.check(body, max_depth, max_values)
        return _check_id(bytes(_ONLY_ID.decode(body).id))
    except (A2AError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NULL_ID


def result_envelope(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a result, in an answer or in a stream frame; the id is raw JSON."""
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"result":', b"}"


def error_envelope(request_id: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after an error object; the id is raw JSON."""
    return b'{"jsonrpc":"2.0","id":' + request_id + b',"error":', b"}"


def _check_id(raw: bytes) -> bytes:
    if not raw:
        raise InvalidRequest("id is missing: every A2A call is answered, so notifications are not taken")
    if len(raw) > MAX_ID_BYTES:
        raise InvalidRequest(f"id must have at most {MAX_ID_BYTES} bytes")
    if raw[0] == _STRING or raw[0] in _NUMBER or raw == NULL_ID:
        return raw
    raise InvalidRequest("id must be a string, a number or null")


def _why_not_a_request(body: bytes) -> A2AError:
    """Distinguish JSON of another shape from a body that stops being JSON further on."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ParseError("the body is not JSON")
    if isinstance(value, list):
        return InvalidRequest("batches are not supported: send one request object")
    if not isinstance(value, dict):
        return InvalidRequest("the body must be a JSON-RPC request object")
    if value.get("jsonrpc") != "2.0":
        return InvalidRequest('jsonrpc must be "2.0"')
    return InvalidRequest("method must be the name of a method")


# -- errors ------------------------------------------------------------------------------------------------------------

INTERNAL = -32603

CODES: Mapping[type[A2AError], int] = {
    errors.ParseError: -32700,
    errors.InvalidRequest: -32600,
    errors.MethodNotFound: -32601,
    errors.InvalidParams: -32602,
    errors.LeaseLost: -32602,
    errors.InternalError: INTERNAL,
    errors.TaskNotFound: -32001,
    errors.TaskNotCancelable: -32002,
    errors.PushNotificationNotSupported: -32003,
    errors.UnsupportedOperation: -32004,
    errors.ContentTypeNotSupported: -32005,
    errors.InvalidAgentResponse: -32006,
    errors.ExtendedAgentCardNotConfigured: -32007,
    errors.ExtensionSupportRequired: -32008,
    errors.VersionNotSupported: -32009,
    errors.AgentNotFound: -32602,
    errors.NotFound: -32601,
    errors.MethodNotAllowed: -32600,
    errors.UnsupportedMediaType: -32600,
    errors.PayloadTooLarge: -32600,
    errors.RequestTimeout: -32600,
    errors.Unavailable: INTERNAL,
    errors.AgentOffline: INTERNAL,
    errors.TaskTimeout: INTERNAL,
    errors.AgentFailed: INTERNAL,
    errors.Unauthorized: -32600,
    errors.Forbidden: -32600,
    # As in 1.0: the one server error of JSON-RPC 2.0 §5.1 that A2A gives no meaning to.
    errors.TooManyRequests: -32000,
}
"""JSON-RPC's codes (JSON-RPC 2.0 §5.1) and A2A's (A2A 1.0 §9.5); a dialect overrides them with its own."""

STATUSES: Mapping[type[A2AError], int] = {
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.UnsupportedMediaType: 415,
    errors.PayloadTooLarge: 413,
    errors.RequestTimeout: 408,
    errors.Unavailable: 503,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooManyRequests: 429,
}
"""Errors of the HTTP request rather than of the call in it: only these have an HTTP status other than 200."""


def error_code(error: A2AError, table: Mapping[type[A2AError], int]) -> int:
    """Return the code of the error's class in `table`, or of its nearest base class that has one."""
    return next((table[kind] for kind in type(error).__mro__ if kind in table), INTERNAL)


def error_status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC answer with the error."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 200)


def encode_error(number: int, message: str, data: dict[str, Any] | None) -> bytes:
    """Encode the `error` member of a JSON-RPC answer."""
    return msgspec.json.encode({"code": number, "message": clean(message), "data": data})


def clean(text: str) -> str:
    """Replace lone surrogates in `text`: paths and headers can contain them, but UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
