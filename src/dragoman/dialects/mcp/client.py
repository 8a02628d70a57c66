"""The client's side of MCP: the messages of a client, and those of a server.

Invariant: each message written is one line of JSON, as required over standard input and output. A request of 2026-07-28
states the terms of its client in its `_meta`, and its headers say what its body says. Any bytes give a value or
InvalidAgentResponse, never an exception of a parser.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects import json_bounds
from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.headers import encode_value
from dragoman.dialects.mcp.param_headers import ParamHeader, UnusableSchema, find_param_headers
from dragoman.model.errors import A2AError, InvalidAgentResponse

# -- messages to a server ----------------------------------------------------------------------------------------------

_ENCODER = msgspec.json.Encoder()


CLIENT = {"name": "dragoman", "title": "Dragoman"}


class OutgoingRequest(Struct, frozen=True):
    """A request as it is sent. `headers` are those that repeat fields of its body over HTTP.

    A request of a version with sessions has no headers of its own.
    """

    id: int
    body: bytes
    headers: Mapping[str, str] = {}

    @property
    def stateless(self) -> bool:
        """Whether the request is of 2026-07-28: it needs no session, and the end of its stream is its end."""
        return bool(self.headers)


class RequestTerms(Struct, frozen=True):
    """The terms that every request of 2026-07-28 states. `program` is the version of this program.

    A server may answer with a task, and may ask the caller of our task if we declare that it `elicits`. It may not ask
    for samples or roots.
    """

    program: str
    elicits: bool

    @property
    def meta(self) -> dict[str, Any]:
        """The members of `_meta`."""
        capabilities: dict[str, Any] = {"extensions": {names.TASKS: {}}}
        if self.elicits:
            capabilities["elicitation"] = {"form": {}, "url": {}}
        return {
            names.META_VERSION: names.STATELESS,
            names.META_CLIENT: {**CLIENT, "version": self.program},
            names.META_CAPABILITIES: capabilities,
        }


def request(
    request_id: int,
    method: str,
    params: dict[str, Any] | None = None,
    terms: RequestTerms | None = None,
    *,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> OutgoingRequest:
    """Encode a request. Its answer has the same id. Without `terms` it is one of a version with sessions.

    `name` is the tool or the task that it is about. `headers` repeat arguments of a tool.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    said: dict[str, str] = {}
    if terms is not None:
        params = {} if params is None else params
        params = {**params, "_meta": {**terms.meta, **params.get("_meta", {})}}
        said = {names.VERSION_HEADER: names.STATELESS, names.METHOD_HEADER: method, **(headers or {})}
        if name is not None:
            said[names.NAME_HEADER] = encode_value(name)
    if params is not None:
        message["params"] = params
    return OutgoingRequest(request_id, _ENCODER.encode(message), said)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a notification, which gets no answer."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _ENCODER.encode(message)


def initialize(request_id: int, *, program: str) -> OutgoingRequest:
    """Encode the first request of a session. It declares no capability: servers may not ask for samples, forms or
    roots.

    `program` is the version of this program.
    """
    return request(
        request_id,
        names.INITIALIZE,
        {
            "protocolVersion": names.LATEST,
            "capabilities": {},
            "clientInfo": {**CLIENT, "version": program},
        },
    )


def discover(request_id: int, terms: RequestTerms) -> OutgoingRequest:
    """Encode the question which versions a server speaks, and what it can do."""
    return request(request_id, names.DISCOVER, None, terms)


def listen(request_id: int, terms: RequestTerms) -> OutgoingRequest:
    """Encode the request to be told when the tools change, as long as it is open."""
    return request(request_id, names.LISTEN, {"notifications": {"toolsListChanged": True}}, terms)


def tools_list(request_id: int, cursor: str | None, terms: RequestTerms | None = None) -> OutgoingRequest:
    """Encode a request for a page of the tools: the first one, or the one at `cursor`."""
    return request(request_id, names.TOOLS_LIST, {} if cursor is None else {"cursor": cursor}, terms)


STEP_KEY = "dragoman/step-key"
"""The key of `_meta` with the key of the step that a call is: a call that is made again has the same one. MCP has no
field for that; the name has the form of MCP 2025-06-18, General fields: _meta."""


class CallInput(Struct, frozen=True):
    """The answer to a server's questions within a call: its own `state`, and the answers by their keys."""

    state: str | None = None
    answers: Mapping[str, Any] = {}


def tools_call(
    request_id: int,
    name: str,
    arguments: dict[str, Any],
    key: str,
    traceparent: str | None = None,
    terms: RequestTerms | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    given: CallInput | None = None,
) -> OutgoingRequest:
    """Encode a tool call. The server may report its progress: the token is the id of the request.

    `key` tells the server a repetition. `traceparent` goes where OpenTelemetry's conventions for MCP put it. `headers`
    repeat arguments; `given` is what the server asked for in its answer to the same call.
    """
    meta: dict[str, Any] = {"progressToken": request_id, STEP_KEY: key}
    if traceparent is not None:
        meta["traceparent"] = traceparent
    params: dict[str, Any] = {"name": name, "arguments": arguments, "_meta": meta}
    if given is not None:
        if given.answers:
            params["inputResponses"] = given.answers
        if given.state is not None:
            params["requestState"] = given.state
    return request(request_id, names.TOOLS_CALL, params, terms, name=name, headers=headers)


def tasks_get(request_id: int, task_id: str, terms: RequestTerms) -> OutgoingRequest:
    """Encode the question how far a task of the server is (SEP-2663)."""
    return request(request_id, names.TASKS_GET, {"taskId": task_id}, terms, name=task_id)


def tasks_update(request_id: int, task_id: str, answers: Mapping[str, Any], terms: RequestTerms) -> OutgoingRequest:
    """Encode answers to what a task of the server asks for, by their keys."""
    return request(request_id, names.TASKS_UPDATE, {"taskId": task_id, "inputResponses": answers}, terms, name=task_id)


def tasks_cancel(request_id: int, task_id: str, terms: RequestTerms) -> OutgoingRequest:
    """Encode the wish that a task of the server stops."""
    return request(request_id, names.TASKS_CANCEL, {"taskId": task_id}, terms, name=task_id)


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
    """The error in the answer to a request. `supported` are the versions that the server names in it."""

    code: int = 0
    message: str = ""
    supported: tuple[str, ...] = ()


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


class DiscoverResult(Struct, frozen=True):
    """The answer to `server/discover`: the versions that are spoken; the rest as in InitializeResult."""

    versions: tuple[str, ...]
    server: str
    changes: bool
    tools: bool


class ToolOffer(Struct, frozen=True):
    """A tool of a server. `schema` is the JSON Schema of its arguments.

    `harmful_twice`: the server says that a call may destroy something, and not that a second one changes nothing more.
    `headers` repeat arguments in requests of 2026-07-28. `unusable` says why such requests cannot be made of the tool.
    """

    name: str
    description: str
    schema: dict[str, Any]
    harmful_twice: bool = False
    headers: tuple[ParamHeader, ...] = ()
    unusable: str = ""


class ToolPage(Struct, frozen=True):
    """A page of tools; `cursor` points to the next page, None if this is the last.

    `fresh_s` is how long the server says that the page stays as it is; None: it does not say.
    """

    tools: tuple[ToolOffer, ...]
    cursor: str | None
    fresh_s: float | None = None


class _Error(Struct):
    code: int | float = 0
    message: str = ""
    data: Raw = _NOTHING

    @property
    def fault(self) -> Fault:
        code = int(self.code)
        supported: tuple[str, ...] = ()
        if code == names.UNSUPPORTED_VERSION:
            try:
                supported = tuple(read(bytes(self.data), _Supported).supported)
            except InvalidAgentResponse:
                pass  # the error says enough
        return Fault(code, self.message, supported)


class _Supported(Struct):
    supported: list[str] = []


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

    @property
    def spelled(self) -> str:
        return f"{self.name} {self.version}".strip()


class _Initialized(Struct, rename="camel"):
    protocol_version: str
    capabilities: _Capabilities = field(default_factory=_Capabilities)
    server_info: _Server = field(default_factory=_Server)


class _DiscoverMeta(Struct, rename={"server": names.META_SERVER}):
    server: _Server = field(default_factory=_Server)


class _Discovered(Struct, rename={"supported": "supportedVersions", "meta": "_meta"}):
    supported: list[str]
    capabilities: _Capabilities = field(default_factory=_Capabilities)
    meta: _DiscoverMeta = field(default_factory=_DiscoverMeta)


class _Annotations(Struct, rename="camel"):
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None

    @property
    def harmful_twice(self) -> bool:
        """`destructiveHint` counts where the server says it: by default it is true of every tool, even of a search."""
        return bool(self.destructive_hint) and not (self.idempotent_hint or self.read_only_hint)


class _Tool(Struct, rename="camel"):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = field(default_factory=dict)
    annotations: _Annotations | None = None

    @property
    def offer(self) -> ToolOffer:
        hints = self.annotations or _Annotations()
        headers: tuple[ParamHeader, ...] = ()
        unusable = ""
        try:
            headers = find_param_headers(self.input_schema)
        except UnusableSchema as error:
            unusable = str(error)
        about = self.description or self.title or ""
        return ToolOffer(self.name, about, self.input_schema, hints.harmful_twice, headers, unusable)


class _Tools(Struct, rename="camel"):
    tools: list[_Tool]
    next_cursor: str | None = None
    ttl_ms: float | None = None


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
            f"the server speaks MCP {decoded.protocol_version[:SHOWN_CHARS]}, here it is {', '.join(names.SPOKEN)}"
        )
    tools = decoded.capabilities.tools
    return InitializeResult(
        decoded.protocol_version,
        decoded.server_info.spelled,
        tools is not None and bool(tools.list_changed),
        tools is not None,
    )


def decode_discover_result(result: bytes) -> DiscoverResult:
    """Decode the answer to `server/discover`. Raises InvalidAgentResponse."""
    decoded = read(result, _Discovered)
    tools = decoded.capabilities.tools
    return DiscoverResult(
        tuple(decoded.supported),
        decoded.meta.server.spelled,
        tools is not None and bool(tools.list_changed),
        tools is not None,
    )


def decode_page(result: bytes) -> ToolPage:
    """Decode the answer to `tools/list`. Raises InvalidAgentResponse."""
    decoded = read(result, _Tools)
    fresh_s = None if decoded.ttl_ms is None else max(decoded.ttl_ms, 0.0) / 1000
    return ToolPage(tuple(tool.offer for tool in decoded.tools), decoded.next_cursor or None, fresh_s)


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
        return ServerResponse(_ours(request_id), fault=message.error.fault)
    if result := bytes(message.result):
        return ServerResponse(_ours(request_id), result)
    raise InvalidAgentResponse("expected a message of MCP")


def _ours(request_id: bytes) -> int:
    """Decode the id of one of our requests, which some servers return as text. 0 for any other id."""
    digits = request_id.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) <= 15 else 0
