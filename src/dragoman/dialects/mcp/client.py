"""The client's side of MCP: the messages of a client, and those of a server with the results of its tools.

Invariant: each message written is one line of JSON, as required over standard input and output. Any bytes give a value
or InvalidAgentResponse, never an exception of a parser. No content of a tool is lost: unreadable content is described
in words.
"""

import binascii
from base64 import b64decode
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects import json_bounds
from dragoman.dialects.mcp import names
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Part

# -- messages to a server ----------------------------------------------------------------------------------------------

_ENCODER = msgspec.json.Encoder()


def request(request_id: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a request. Its answer has the same id."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a notification, which gets no answer."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def initialize(request_id: int, *, version: str) -> bytes:
    """Encode the first request of a session. It declares no capability: servers may not ask for samples, forms or
    roots.

    `version` is that of this program.
    """
    return request(
        request_id,
        names.INITIALIZE,
        {
            "protocolVersion": names.LATEST,
            "capabilities": {},
            "clientInfo": {"name": "dragoman", "title": "Dragoman", "version": version},
        },
    )


def tools_list(request_id: int, cursor: str | None) -> bytes:
    """Encode a request for a page of the tools: the first one, or the one at `cursor`."""
    return request(request_id, names.TOOLS_LIST, {} if cursor is None else {"cursor": cursor})


def tools_call(request_id: int, name: str, arguments: dict[str, Any], traceparent: str | None = None) -> bytes:
    """Encode a tool call. The server may report its progress: the token is the id of the request.

    `traceparent` goes where OpenTelemetry's conventions for MCP put it.
    """
    meta: dict[str, Any] = {"progressToken": request_id}
    if traceparent is not None:
        meta["traceparent"] = traceparent
    return request(request_id, names.TOOLS_CALL, {"name": name, "arguments": arguments, "_meta": meta})


def cancelled(request_id: int, reason: str) -> bytes:
    """Encode the notification that a request's answer is no longer awaited."""
    return notification(names.CANCELLED, {"requestId": request_id, "reason": reason})


def pong(request_id: bytes) -> bytes:
    """Encode the answer to a ping; the id is the raw JSON that came."""
    return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request_id


def declined(request_id: bytes, method: str) -> bytes:
    """Encode the refusal of any other request; the id is the raw JSON that came."""
    error = {"code": names.METHOD_NOT_FOUND, "message": f"Method not found: {method[:100]}"}
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, _ENCODER.encode(error))


# -- messages of a server ----------------------------------------------------------------------------------------------

T = TypeVar("T")

MAX_ID_BYTES = 1024
"""Longest id of a server's request that is answered: it is returned unchanged."""

SHOWN_CHARS = 200

_NOTHING = Raw(b"")


class Fault(Struct, frozen=True):
    """The error in the answer to a request."""

    code: int = 0
    message: str = ""


class ServerResponse(Struct, frozen=True):
    """The answer to our request `id`: a result as JSON, or an error. `id` is 0 if the answer names none."""

    id: int
    result: bytes = b""
    fault: Fault | None = None


class ServerRequest(Struct, frozen=True):
    """A request of the server. Its answer needs its id, which is the raw JSON that came."""

    id: bytes
    method: str


class ServerNotification(Struct, frozen=True):
    """A notification, with its params as JSON."""

    method: str
    params: bytes


ServerMessage = ServerResponse | ServerRequest | ServerNotification


class ToolProgress(Struct, frozen=True):
    """The progress of one of our requests. `total` is None if the server does not know it."""

    id: int
    progress: float
    total: float | None = None
    message: str = ""

    @property
    def steps(self) -> tuple[int, int] | None:
        """The progress in whole steps, or in hundredths if the server's numbers are not whole; None without a total."""
        if self.total is None or not 0 < self.total < 1e9 or not self.progress >= 0:
            return None
        done = min(self.progress, self.total)
        if self.total % 1 == done % 1 == 0:
            return int(done), int(self.total)
        return round(100 * done / self.total), 100


class InitializeResult(Struct, frozen=True):
    """The answer to `initialize`. `changes`: the server announces changes of its tools."""

    version: str
    server: str
    changes: bool
    tools: bool


class ToolOffer(Struct, frozen=True):
    """A tool of a server. `schema` is the JSON Schema of its arguments.

    `repeatable`: the server says that calling it twice has the same effect as calling it once.
    """

    name: str
    description: str
    schema: dict[str, Any]
    repeatable: bool = False


class ToolPage(Struct, frozen=True):
    """A page of tools; `cursor` points to the next page, None if this is the last."""

    tools: tuple[ToolOffer, ...]
    cursor: str | None


class _Error(Struct):
    code: int | float = 0
    message: str = ""


class _Message(Struct):
    jsonrpc: object = None
    id: Raw = _NOTHING
    method: str | None = None
    params: Raw = _NOTHING
    result: Raw = _NOTHING
    error: _Error | None = None


class _Progress(Struct, rename="camel"):
    progress: float
    progress_token: object = None
    total: float | None = None
    message: str | None = None


class _ToolsCapability(Struct, rename="camel"):
    list_changed: bool | None = None


class _Capabilities(Struct):
    tools: _ToolsCapability | None = None


class _Server(Struct):
    name: str = ""
    version: str = ""


class _Initialized(Struct, rename="camel"):
    protocol_version: str
    capabilities: _Capabilities = field(default_factory=_Capabilities)
    server_info: _Server = field(default_factory=_Server)


class _Annotations(Struct, rename="camel"):
    read_only_hint: bool | None = None
    idempotent_hint: bool | None = None


class _Tool(Struct, rename="camel"):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = field(default_factory=dict)
    annotations: _Annotations | None = None

    @property
    def offer(self) -> ToolOffer:
        hints = self.annotations or _Annotations()
        return ToolOffer(
            self.name,
            self.description or self.title or "",
            self.input_schema,
            bool(hints.read_only_hint or hints.idempotent_hint),
        )


class _Tools(Struct, rename="camel"):
    tools: list[_Tool]
    next_cursor: str | None = None


def decode_messages(body: bytes) -> tuple[ServerMessage, ...]:
    """Decode the messages in a body, an event or a line: one, or a batch from servers of 2025-03-26.

    Raises InvalidAgentResponse.
    """
    batch = body.lstrip()[:1] == b"["
    messages = read(body, list[_Message]) if batch else [read(body, _Message)]
    return tuple(_classify(message, body) for message in messages)


def decode_progress(params: bytes) -> ToolProgress | None:
    """Decode a progress notification; None if it is not about one of our requests. Raises InvalidAgentResponse."""
    decoded = read(params, _Progress)
    if type(decoded.progress_token) is not int:
        return None
    return ToolProgress(decoded.progress_token, decoded.progress, decoded.total, decoded.message or "")


def decode_initialize_result(result: bytes) -> InitializeResult:
    """Decode the answer to `initialize`. Raises InvalidAgentResponse, also for an unsupported version."""
    decoded = read(result, _Initialized)
    if decoded.protocol_version not in names.VERSIONS:
        raise InvalidAgentResponse(
            f"the server speaks MCP {decoded.protocol_version[:SHOWN_CHARS]}, here it is {', '.join(names.VERSIONS)}"
        )
    tools = decoded.capabilities.tools
    server = f"{decoded.server_info.name} {decoded.server_info.version}".strip()
    return InitializeResult(
        decoded.protocol_version, server, tools is not None and bool(tools.list_changed), tools is not None
    )


def decode_page(result: bytes) -> ToolPage:
    """Decode the answer to `tools/list`. Raises InvalidAgentResponse."""
    decoded = read(result, _Tools)
    return ToolPage(tuple(tool.offer for tool in decoded.tools), decoded.next_cursor or None)


def read(body: bytes, into: type[T]) -> T:
    """Decode `body` as `into`. Raises InvalidAgentResponse."""
    try:
        json_bounds.check(body)
        return msgspec.json.decode(body, type=into)
    except (A2AError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        shown = body[:SHOWN_CHARS].decode(errors="replace")
        raise InvalidAgentResponse(f"expected a message of MCP, got {shown!r}") from None


def _classify(message: _Message, body: bytes) -> ServerMessage:
    request_id = bytes(message.id)
    if message.method is not None:
        if not request_id or request_id == b"null":
            return ServerNotification(message.method, bytes(message.params) or b"{}")
        if len(request_id) > MAX_ID_BYTES or request_id[:1] in (b"{", b"["):
            raise InvalidAgentResponse("a request of the server has an id that is neither a number nor a short text")
        return ServerRequest(request_id, message.method)
    if message.error is not None:
        return ServerResponse(_ours(request_id), fault=Fault(int(message.error.code), message.error.message))
    if result := bytes(message.result):
        return ServerResponse(_ours(request_id), result)
    raise InvalidAgentResponse("expected a message of MCP")


def _ours(request_id: bytes) -> int:
    """Decode the id of one of our requests, which some servers return as text. 0 for any other id."""
    digits = request_id.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) <= 15 else 0


# -- results of tools, as parts ----------------------------------------------------------------------------------------

BYTES_MEDIA_TYPE = "application/octet-stream"
"""The media type of a blob that names none (RFC 2046 §4.5.1)."""


class ToolOutcome(Struct, frozen=True):
    """The outcome of a call. `failed`: the tool itself reports a failure, and `parts` say why."""

    parts: tuple[Part, ...]
    failed: bool = False

    @property
    def text(self) -> str:
        """The text of the parts."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class _Result(Struct, rename="camel"):
    content: list[dict[str, Any]] = field(default_factory=list)
    structured_content: Any = None
    is_error: bool | None = None


def decode_outcome(result: bytes) -> ToolOutcome:
    """Decode the answer to `tools/call`. Raises InvalidAgentResponse."""
    decoded = read(result, _Result)
    parts = [_part(block) for block in decoded.content]
    if decoded.structured_content is not None and not _says(parts, decoded.structured_content):
        parts.append(Part(data=decoded.structured_content))
    return ToolOutcome(tuple(parts), bool(decoded.is_error))


def _part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Part(text=text)
        case {"type": "image" | "audio", "data": str(data)}:
            return _file(data, block.get("mimeType"), None)
        case {"type": "resource", "resource": {"text": str(text), **rest}}:
            return Part(text=text, media_type=_word(rest.get("mimeType")), filename=_word(rest.get("uri")))
        case {"type": "resource", "resource": {"blob": str(blob), **rest}}:
            return _file(blob, rest.get("mimeType"), _word(rest.get("uri")))
        case {"type": "resource_link", "uri": str(uri)}:
            return Part(url=uri, media_type=_word(block.get("mimeType")), filename=_word(block.get("name")))
        case _:
            return Part(data=block)


def _file(data: str, media_type: object, name: str | None) -> Part:
    """Decode a file from base64; some servers leave out the padding."""
    kind = _word(media_type) or BYTES_MEDIA_TYPE
    try:
        raw = b64decode(data + "=" * (-len(data) % 4), validate=True)
    except (binascii.Error, ValueError):
        return Part(text=f"[{kind} that cannot be read: its base64 is broken]")
    return Part(raw=raw, media_type=kind, filename=name)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _says(parts: list[Part], structured: Any) -> bool:
    """Whether the text only repeats the structured content, as servers write it for older clients.

    Some servers wrap a value that is not an object as `result`, with a text for each item of a list. Others wrap their
    text.
    """
    said = [value for part in parts if part.text is not None for value in (part.text, _json(part.text))]
    if structured in said:
        return True
    match list(structured.items()) if isinstance(structured, dict) else []:
        case [("result", [_, *_] as items)]:
            return items in said or all(item in said for item in items)
        case [("result", value)] | [(_, str(value))]:
            return value in said
        case _:
            return False


def _json(text: str) -> Any:
    try:
        return read(text.encode(), object)
    except (InvalidAgentResponse, UnicodeEncodeError):
        return text
