"""Decodes the messages of an MCP server: answers, requests and notifications.

Invariant: any bytes give a value or InvalidAgentResponse; never an exception of a parser.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from dragoman.dialects import json_bounds
from dragoman.dialects.mcp import names
from dragoman.model.errors import A2AError, InvalidAgentResponse

T = TypeVar("T")

MAX_ID_BYTES = 1024
"""Longest id of a server's request that is answered: it is returned unchanged."""

SHOWN_CHARS = 200

_NOTHING = Raw(b"")


class Fault(Struct, frozen=True):
    """The error in the answer to a request."""

    code: int = 0
    message: str = ""


class Answered(Struct, frozen=True):
    """The answer to our request `id`: a result as JSON, or an error. `id` is 0 if the answer names none."""

    id: int
    result: bytes = b""
    fault: Fault | None = None


class Asked(Struct, frozen=True):
    """A request of the server. Its answer needs its id, which is the raw JSON that came."""

    id: bytes
    method: str


class Told(Struct, frozen=True):
    """A notification, with its params as JSON."""

    method: str
    params: bytes


Heard = Answered | Asked | Told


class Progress(Struct, frozen=True):
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


class Opened(Struct, frozen=True):
    """The answer to `initialize`. `changes`: the server announces changes of its tools."""

    version: str
    server: str
    changes: bool
    tools: bool


class Offer(Struct, frozen=True):
    """A tool of a server. `schema` is the JSON Schema of its arguments.

    `repeatable`: the server says that calling it twice has the same effect as calling it once.
    """

    name: str
    description: str
    schema: dict[str, Any]
    repeatable: bool = False


class Page(Struct, frozen=True):
    """A page of tools; `cursor` points to the next page, None if this is the last."""

    tools: tuple[Offer, ...]
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
    def offer(self) -> Offer:
        hints = self.annotations or _Annotations()
        return Offer(
            self.name,
            self.description or self.title or "",
            self.input_schema,
            bool(hints.read_only_hint or hints.idempotent_hint),
        )


class _Tools(Struct, rename="camel"):
    tools: list[_Tool]
    next_cursor: str | None = None


def heard(body: bytes) -> tuple[Heard, ...]:
    """Decode the messages in a body, an event or a line: one, or a batch from servers of 2025-03-26.

    Raises InvalidAgentResponse.
    """
    batch = body.lstrip()[:1] == b"["
    messages = read(body, list[_Message]) if batch else [read(body, _Message)]
    return tuple(_meant(message, body) for message in messages)


def progress(params: bytes) -> Progress | None:
    """Decode a progress notification; None if it is not about one of our requests. Raises InvalidAgentResponse."""
    said = read(params, _Progress)
    if type(said.progress_token) is not int:
        return None
    return Progress(said.progress_token, said.progress, said.total, said.message or "")


def opened(result: bytes) -> Opened:
    """Decode the answer to `initialize`. Raises InvalidAgentResponse, also for an unsupported version."""
    said = read(result, _Initialized)
    if said.protocol_version not in names.VERSIONS:
        raise InvalidAgentResponse(
            f"the server speaks MCP {said.protocol_version[:SHOWN_CHARS]}, here it is {', '.join(names.VERSIONS)}"
        )
    tools = said.capabilities.tools
    server = f"{said.server_info.name} {said.server_info.version}".strip()
    return Opened(said.protocol_version, server, tools is not None and bool(tools.list_changed), tools is not None)


def page(result: bytes) -> Page:
    """Decode the answer to `tools/list`. Raises InvalidAgentResponse."""
    said = read(result, _Tools)
    return Page(tuple(tool.offer for tool in said.tools), said.next_cursor or None)


def read(body: bytes, into: type[T]) -> T:
    """Decode `body` as `into`. Raises InvalidAgentResponse."""
    try:
        json_bounds.check(body)
        return msgspec.json.decode(body, type=into)
    except (A2AError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        shown = body[:SHOWN_CHARS].decode(errors="replace")
        raise InvalidAgentResponse(f"expected a message of MCP, got {shown!r}") from None


def _meant(message: _Message, body: bytes) -> Heard:
    request_id = bytes(message.id)
    if message.method is not None:
        if not request_id or request_id == b"null":
            return Told(message.method, bytes(message.params) or b"{}")
        if len(request_id) > MAX_ID_BYTES or request_id[:1] in (b"{", b"["):
            raise InvalidAgentResponse("a request of the server has an id that is neither a number nor a short text")
        return Asked(request_id, message.method)
    if message.error is not None:
        return Answered(_ours(request_id), fault=Fault(int(message.error.code), message.error.message))
    if result := bytes(message.result):
        return Answered(_ours(request_id), result)
    raise InvalidAgentResponse("expected a message of MCP")


def _ours(request_id: bytes) -> int:
    """Decode the id of one of our requests, which some servers return as text. 0 for any other id."""
    digits = request_id.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) <= 15 else 0
