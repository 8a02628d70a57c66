"""The server's side of MCP, what arrives: the messages of a client, the arguments of its tool calls, and its sessions.

A session's id holds its whole state. No server remembers a session, so any server can answer for it. A caller with a
forged session id deceives only itself: the principal decides who owns a task.

Invariant: any bytes give a value or an A2AError, with the path of the field where there is one. Nothing is lost: an
argument without a meaning here is refused by name.
"""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects import json_bounds
from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.questions import ANSWER, decode_response, split_content
from dragoman.dialects.mcp.schemas import find_violation
from dragoman.dialects.v03.fields import MAX_ID, Fields, read
from dragoman.model.errors import InvalidParams, InvalidRequest, NotFound, ParseError
from dragoman.model.message import Message, Part, Role

# -- messages ----------------------------------------------------------------------------------------------------------

MAX_ID_BYTES = 1024
"""Longest id or progress token that is accepted: it is repeated in the answers."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages (2025-11-25, Logging; RFC 5424 §6.2.1), the least severe first."""

WORK_LEVEL = "info"
"""The level of an agent's messages about its work."""

_NOTHING = Raw(b"")
_OBJECT = ord("{")


class ClientRequest(Struct, frozen=True):
    """A request; its id is the raw JSON that came, its params are the JSON of an object."""

    id: bytes
    method: str
    params: bytes


class ClientNotification(Struct, frozen=True):
    """A notification, which gets no answer."""

    method: str
    params: bytes


class ClientResponse(Struct, frozen=True):
    """The client's answer to a request of the server. `result` None: the client answered with an error."""

    id: str
    result: bytes | None


ClientMessage = ClientRequest | ClientNotification | ClientResponse


class Greeting(Struct, frozen=True):
    """The params of `initialize`: the version for the session; `elicits`: the client can show its user a form."""

    version: str
    elicits: bool


class ToolCall(Struct, frozen=True):
    """A tool call. `token` is the raw JSON for its progress notifications; None: the client wants none."""

    name: str
    arguments: Fields
    token: bytes | None
    traceparent: str | None


class _Message(Struct):
    jsonrpc: str = ""
    id: Raw = _NOTHING
    method: str = ""
    params: Raw = _NOTHING
    result: Raw = _NOTHING
    error: Raw = _NOTHING


class _Ids(Struct, rename="camel"):
    """Ids of the other side, kept as raw JSON."""

    request_id: Raw = _NOTHING
    progress_token: Raw = _NOTHING


class _Meta(Struct):
    _meta: _Ids | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_IDS = msgspec.json.Decoder(_Ids)
_META = msgspec.json.Decoder(_Meta)
_STRING = msgspec.json.Decoder(str)


def decode(
    body: bytes,
    max_depth: int = json_bounds.MAX_DEPTH,
    max_values: int = json_bounds.MAX_VALUES,
    max_wide: int | None = None,
) -> ClientMessage:
    """Decode the message in a body. Raises ParseError, InvalidRequest (also for a batch), InvalidParams."""
    json_bounds.check(body, max_depth, max_values, max_wide)
    try:
        message = _MESSAGE.decode(body)
    except msgspec.ValidationError:
        if body.lstrip()[:1] == b"[":
            raise InvalidRequest("batches are not supported: send one message") from None
        raise InvalidRequest("the body must be a JSON-RPC message: an object whose method is a string") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError("the body is not JSON") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    if message.jsonrpc != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"')
    raw_id = bytes(message.id)
    if not message.method:
        if not raw_id or not (message.result or message.error):
            raise InvalidRequest("method must be the name of a method")
        result = bytes(message.result)
        return ClientResponse(_text(raw_id), result if result[:1] == b"{" else None)
    params = bytes(message.params)
    if params in (b"", b"null"):
        params = b"{}"
    elif params[0] != _OBJECT:
        raise InvalidParams("params", "must be an object")
    if not raw_id:
        return ClientNotification(message.method, params)
    return ClientRequest(check_id(raw_id, "id"), message.method, params)


def decode_initialize(params: bytes) -> Greeting:
    """Decode `initialize`. The answer to an unsupported version is the newest one (2025-11-25, Lifecycle)."""
    fields = read(params)
    requested = fields.required_text("protocolVersion")
    forms = shows_forms(fields.object("capabilities"))
    version = requested if requested in names.VERSIONS else names.LATEST
    return Greeting(version, forms and version != names.UNSAID)  # that version has no elicitation


def shows_forms(capabilities: Fields | None) -> bool:
    """Whether a client with these capabilities can show its user a form."""
    elicitation = None if capabilities is None else capabilities.mapping("elicitation")
    return elicitation is not None and (not elicitation or "form" in elicitation)  # empty: forms, as before 2025-11-25


def decode_tool_call(params: bytes) -> ToolCall:
    """Decode `tools/call`. Raises InvalidParams."""
    fields = read(params)
    meta = fields.object("_meta") or Fields({})
    token = None
    if meta.has("progressToken"):
        found = _META.decode(params)._meta
        assert found is not None
        token = check_id(bytes(found.progress_token), "_meta.progressToken")
    arguments = fields.object("arguments") or Fields({}, "arguments")
    traceparent = meta.find("traceparent")
    return ToolCall(
        fields.required_text("name"), arguments, token, traceparent if isinstance(traceparent, str) else None
    )


def decode_cursor(params: bytes) -> str | None:
    """Decode the cursor of `tools/list`; None: begin with the first page."""
    return read(params).text("cursor")


def decode_level(params: bytes) -> str:
    """Decode the level of `logging/setLevel`."""
    named = read(params).required_text("level")
    if named not in LEVELS:
        raise InvalidParams("level", f"must be one of {', '.join(LEVELS)}")
    return named


def tells(level: str) -> bool:
    """Whether a client with that level gets an agent's messages about its work."""
    return LEVELS.index(level) <= LEVELS.index(WORK_LEVEL)


def decode_cancelled(params: bytes) -> bytes:
    """Return the raw id of the request that `notifications/cancelled` is about."""
    read(params)
    return check_id(bytes(_IDS.decode(params).request_id), "requestId")


def decode_elicitation(result: bytes | None) -> Any:
    """Decode the answer to `elicitation/create`: a text, or what was filled in; None: there is no answer.

    `result` None: the client could not ask its user.
    """
    content = None if result is None else decode_response(read(result))
    if content is None:
        return None
    if not any(value is not None for value in content.values()):
        raise InvalidParams(f"content.{ANSWER}", "is required with accept")
    answer = split_content(content)
    return answer if isinstance(answer, str | dict) else msgspec.json.encode(answer).decode()


def check_id(raw: bytes, field: str) -> bytes:
    """Check that an id is a string or an integer (2025-11-25, Requests), and return it unchanged; null is refused."""
    if raw[:1] == b'"' or raw.removeprefix(b"-").isdigit():
        if len(raw) > MAX_ID_BYTES:
            raise InvalidRequest(f"{field} must have at most {MAX_ID_BYTES} bytes")
        return raw
    raise InvalidRequest(f"{field} must be a string or an integer")


def _text(raw: bytes) -> str:
    """Decode the id of one of our requests, which are all strings; empty for any other id."""
    try:
        return _STRING.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


# -- arguments of a tool call ------------------------------------------------------------------------------------------

ARGUMENTS = ("message", "data", "files", "context_id", "task_id")

DATA_URI = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.ASCII | re.IGNORECASE)


class CallArguments(Struct, frozen=True):
    """The purpose of a call: to send `message` or, if that is None, to wait for the task `task_id`."""

    message: Message | None
    task_id: str = ""


def decode_arguments(arguments: Fields, message_id: str) -> CallArguments:
    """Decode the arguments. `message_id` is for the message, which has none. Raises InvalidParams."""
    for name in arguments.members:
        if name not in ARGUMENTS:
            raise InvalidParams(arguments.at(name[:100]), f"is no argument: send {', '.join(ARGUMENTS)}")
    text = arguments.text("message")
    data = arguments.mapping("data")
    task_id, context_id = _id(arguments, "task_id"), _id(arguments, "context_id")
    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=data))
    parts += [_file(file) for file in arguments.objects("files")]
    if not parts:
        if task_id is None:
            raise InvalidParams(arguments.at("message"), "is required: say what the agent should do")
        return CallArguments(None, task_id)
    message = Message(message_id=message_id, role=Role.USER, parts=tuple(parts), context_id=context_id, task_id=task_id)
    return CallArguments(message, task_id or "")


def decode_own_arguments(arguments: Fields, schema: Mapping[str, Any], message_id: str) -> CallArguments:
    """Decode the arguments of a tool with a schema of its own: they are one data part. Raises InvalidParams.

    `task_id` and `context_id` mean what they mean for every tool, unless the schema has an argument of that name. With
    `task_id` the call is one about that task, and takes what every tool takes.
    """
    own = schema.get("properties")
    own = own if isinstance(own, dict) else {}
    if "task_id" not in own and arguments.has("task_id"):
        return decode_arguments(arguments, message_id)
    context_id = None if "context_id" in own else _id(arguments, "context_id")
    given = {name: value for name, value in arguments.members.items() if name != "context_id" or name in own}
    violation = find_violation(given, schema, arguments.path)
    if violation is not None:
        raise InvalidParams(*violation)
    message = Message(message_id=message_id, role=Role.USER, parts=(Part(data=given),), context_id=context_id)
    return CallArguments(message)


def _id(arguments: Fields, name: str) -> str | None:
    value = arguments.text(name)
    if value is not None and len(value) > MAX_ID:
        raise InvalidParams(arguments.at(name), f"must have at most {MAX_ID} characters")
    return value or None


def _file(fields: Fields) -> Part:
    url = fields.required_text("url")
    name, media_type = fields.text("name") or None, fields.text("media_type") or None
    if url[:5].lower() != "data:":
        return Part(url=url, filename=name, media_type=media_type)
    found = DATA_URI.match(url)
    raw = None if found is None else raw_bytes(url[found.end() :])
    if found is None or raw is None:
        raise InvalidParams(fields.at("url"), "must be an address, or a data: URI with base64")
    return Part(raw=raw, filename=name, media_type=media_type or found["type"] or "application/octet-stream")


# -- sessions ----------------------------------------------------------------------------------------------------------

ASKS, ASKS_NOT = "ask", "tell"

_ID = re.compile(r"(?P<key>[0-9a-f-]{36})\.(?P<version>[0-9-]{10})\.(?P<manner>ask|tell)", re.ASCII)


class SessionTerms(Struct, frozen=True):
    """The agreed terms of a session. `key` is empty without a session: such calls cannot be told apart."""

    key: str = ""
    version: str = ""
    elicits: bool = False


def encode_session(key: str, greeting: Greeting) -> str:
    """Build the id of a new session; `key` is a fresh UUID."""
    return f"{key}.{greeting.version}.{ASKS if greeting.elicits else ASKS_NOT}"


def decode_session(session_id: str | None) -> SessionTerms:
    """Return the session of a request, if it names one. Raises NotFound for an id that no server issues."""
    if session_id is None:
        return SessionTerms()
    found = _ID.fullmatch(session_id)
    try:
        if found is not None and found["version"] in names.VERSIONS and str(UUID(found["key"])) == found["key"]:
            return SessionTerms(found["key"], found["version"], found["manner"] == ASKS)
    except ValueError:
        pass  # digits and hyphens, but not a UUID
    raise NotFound(f"{names.SESSION_HEADER} is not of this server: begin a new session with initialize, without one")
