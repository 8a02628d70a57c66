"""Answers of MCP servers to `tools/call` and `tasks/get`: outcomes as parts, questions to the caller, tasks.

Invariant: no content of a tool is lost: unreadable content is described in words. An answer of a type that is not known
here is InvalidAgentResponse, never taken for an outcome (2026-07-28, ResultType).
"""

import binascii
from base64 import b64decode
from typing import Any, Literal

from msgspec import Raw, Struct, field

from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.client import Fault, read
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.message import Part

BYTES_MEDIA_TYPE = "application/octet-stream"
"""The media type of a blob that names none (RFC 2046 §4.5.1)."""


TASK_ID_CHARS_MAX = 4096
"""The longest id of a task: it goes into a header of every request about it."""


class ToolOutcome(Struct, frozen=True):
    """The outcome of a call. `failed`: the tool itself reports a failure, and `parts` say why."""

    parts: tuple[Part, ...]
    failed: bool = False

    @property
    def text(self) -> str:
        """The text of the parts."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class InputRequest(Struct, frozen=True):
    """Something that a server asks for before it goes on: a request of `method`, whose answer is given by its `key`.

    `params` are those of an elicitation; of any other request they are empty.
    """

    key: str
    method: str
    params: "ElicitParams"


class ElicitParams(Struct, frozen=True, rename={"schema": "requestedSchema"}):
    """A question to a person: a form of that JSON Schema, or an address that is to be opened."""

    message: str = ""
    mode: Literal["form", "url"] = "form"
    schema: dict[str, Any] = {}
    url: str = ""


class InputNeeded(Struct, frozen=True):
    """An answer that says what is needed before the call can be made again, with `state` as it is."""

    requests: tuple[InputRequest, ...]
    state: str | None


TaskWord = Literal["working", "input_required", "completed", "failed", "cancelled"]


class ServerTask(Struct, frozen=True):
    """A task of the server, as far as it is (SEP-2663, Tasks). `poll_s` is how long to wait until it is asked again.

    `outcome` is there once it is completed, `fault` once it has failed, and `requests` while it asks.
    """

    id: str
    status: TaskWord
    message: str = ""
    poll_s: float | None = None
    requests: tuple[InputRequest, ...] = ()
    outcome: ToolOutcome | None = None
    fault: Fault | None = None


class _Typed(Struct, rename="camel"):
    result_type: str | None = None


class _Request(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Struct, rename="camel"):
    input_requests: dict[str, _Request] | None = None
    request_state: str | None = None


class _TaskError(Struct):
    code: int | float = 0
    message: str = ""


class _Task(Struct, rename="camel"):
    task_id: str
    status: TaskWord
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, _Request] | None = None
    result: Raw = Raw(b"{}")
    error: _TaskError | None = None


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


def decode_call(result: bytes) -> ToolOutcome | InputNeeded | ServerTask:
    """Decode the answer to a `tools/call` of 2026-07-28. Raises InvalidAgentResponse."""
    match read(result, _Typed).result_type:
        case names.COMPLETE | None:  # a server of an earlier version says none
            return decode_outcome(result)
        case names.INPUT_REQUIRED:
            needed = read(result, _InputRequired)
            if not needed.input_requests and needed.request_state is None:
                raise InvalidAgentResponse("the server asks for input, and neither says for which nor gives a state")
            return InputNeeded(_requests(needed.input_requests), needed.request_state)
        case names.TASK:
            return decode_task(result)
        case other:
            raise InvalidAgentResponse(f"the server answers with a result of the unknown type {other[:40]!r}")


def decode_task(result: bytes) -> ServerTask:
    """Decode a task, as `tools/call` and `tasks/get` answer with it. Raises InvalidAgentResponse."""
    task = read(result, _Task)
    if not 0 < len(task.task_id) <= TASK_ID_CHARS_MAX:
        raise InvalidAgentResponse(f"the id of the server's task has not 1 to {TASK_ID_CHARS_MAX} characters")
    fault = None
    if task.status == "failed":
        error = task.error or _TaskError()
        fault = Fault(int(error.code), error.message or task.status_message or "")
    return ServerTask(
        task.task_id,
        task.status,
        task.status_message or "",
        None if task.poll_interval_ms is None else max(task.poll_interval_ms, 0.0) / 1000,
        _requests(task.input_requests) if task.status == "input_required" else (),
        decode_outcome(bytes(task.result)) if task.status == "completed" else None,
        fault,
    )


def _requests(requests: dict[str, _Request] | None) -> tuple[InputRequest, ...]:
    return tuple(
        InputRequest(
            key,
            asked.method,
            read(bytes(asked.params), ElicitParams) if asked.method == names.ELICIT else ElicitParams(),
        )
        for key, asked in (requests or {}).items()
    )


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
