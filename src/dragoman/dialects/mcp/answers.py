"""The server's side of MCP, what is sent: results and errors, and before them progress, log messages and questions.

A task is the result of a tool call: content for models and people, and structured content for programs.

Invariant: each message is one JSON-RPC message; the reported progress of a call only ever grows. A result holds
everything that another call needs to continue the task: its id, its context, its state.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct

from dragoman.dialects import jsonrpc
from dragoman.dialects.extensions import UNREADABLE
from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.questions import forms_of, merge_forms
from dragoman.dialects.mcp.refusals import HeaderMismatch, MissingCapability, UnsupportedVersion
from dragoman.dialects.mcp.requests import WORK_LEVEL, Greeting
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, Progress, Record, TaskState

# -- tasks as results --------------------------------------------------------------------------------------------------

FAILURES = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED})

BYTES_MEDIA_TYPE = "application/octet-stream"

FOR_THE_MODEL = {"audience": ["assistant"], "priority": 0.1}
"""Annotations of content that a person need not see (2025-06-18, Annotations)."""

ADDRESS = re.compile(
    r"https?://(?:(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)|\[(?P<ipv6>[0-9a-f:.]+)\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?#][!-\[\]-~]*)?",
    re.ASCII | re.IGNORECASE,
)
"""A URL that every parser reads the same way."""

_ENCODER = msgspec.json.Encoder()


def encode_task(record: Record, version: str) -> bytes:
    """Encode the result of a call from its task. `version` is that of the protocol."""
    return _ENCODER.encode(build_result(record, version))


def build_result(record: Record, version: str) -> dict[str, Any]:
    """Build the result of a call from its task. `version` is that of the protocol."""
    links = version > names.UNSAID  # that version has no links to resources
    content = [block for artifact in record.artifacts for block in _blocks(record, artifact, links)]
    question = _question(record)
    if question is not None:
        content += list(_encode_message(record, question, links))
    content.append(_text(_how_to_go_on(record), FOR_THE_MODEL))
    return {
        "content": content,
        "structuredContent": _structured(record, question),
        "isError": record.state in FAILURES,
        **({"_meta": {UNREADABLE: True}} if record.unreadable else {}),
    }


def encode_refusal(error: A2AError) -> bytes:
    """Encode the result of a call that made no task: the model may know how to correct it (2025-11-25, Tools)."""
    return _ENCODER.encode(build_refusal(error))


def build_refusal(error: A2AError) -> dict[str, Any]:
    """Build the result of a call that made no task."""
    return {"content": [_text(clean(error.message))], "isError": True}


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the parts as text, including URLs and structured values."""
    return "\n".join(text for part in parts if (text := _render_text(part)) is not None)


def state_of(record: Record) -> str:
    """Return the state of the task: `completed`, `input-required` …"""
    return record.state.value.removeprefix("TASK_STATE_").lower().replace("_", "-")


def _question(record: Record) -> Message | None:
    """Return the status message if it is more than a report: a question, a reason, or the agent's only output."""
    message = record.status.message
    if record.state is TaskState.COMPLETED and record.artifacts:
        return None
    return message if record.terminal or record.state in INTERRUPTED else None


def _how_to_go_on(record: Record) -> str:
    task, context = f"task_id {record.head.id}", f"context_id {record.head.context_id}"
    if record.unreadable:
        return f"The server's record of the task is damaged: it is {state_of(record)} ({task}), and no more is known."
    match record.state:
        case TaskState.INPUT_REQUIRED:
            return f"The agent waits for an answer: call this tool again with it as message, and with {task}."
        case TaskState.AUTH_REQUIRED:
            return f"The agent waits until its caller is authenticated: then call this tool again with {task}."
        case TaskState.SUBMITTED | TaskState.WORKING:
            return f"The agent is still working: call this tool again with an empty message and {task} to wait for it."
        case TaskState.COMPLETED:
            return f"Completed. To go on in this conversation, call this tool again with {context}."
        case _:
            return f"The task is {state_of(record)} ({task}, {context})."


def _text(text: str, annotations: dict[str, Any] | None = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    if annotations is not None:
        block["annotations"] = annotations
    return block


def _render_text(part: Part) -> str | None:
    if part.text is not None:
        return part.text
    if part.url is not None:
        return part.url
    return None if part.data is UNSET else msgspec.json.encode(part.data).decode()


def _encode_message(record: Record, message: Message, links: bool) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(message.parts):
        yield _block(part, _uri(record, message.message_id, number, part), links)


def _blocks(record: Record, artifact: Artifact, links: bool) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(artifact.parts):
        yield _block(part, _uri(record, artifact.artifact_id, number, part), links)


def _uri(record: Record, owner: str, number: int, part: Part) -> str:
    """Return a URI for a file that has none: it only names the file, and cannot be opened."""
    name = part.filename or str(number)
    return f"dragoman://tasks/{record.head.id}/{quote(clean(owner), safe='')}/{number}/{quote(clean(name), safe='')}"


def _block(part: Part, uri: str, links: bool) -> dict[str, Any]:
    if part.raw is not None:
        return _file(part.raw, part.media_type or BYTES_MEDIA_TYPE, uri)
    if part.url is not None and links and _leads_somewhere(part.url):
        link: dict[str, Any] = {"type": "resource_link", "uri": part.url, "name": part.filename or part.url}
        if part.media_type is not None:
            link["mimeType"] = part.media_type
        return link
    return _text(_render_text(part) or "")


def _leads_somewhere(url: str) -> bool:
    """Whether the URL can be a link. Clients with strict parsers reject a whole result for one unreadable link."""
    found = ADDRESS.fullmatch(url)
    if found is None or int(found["port"] or 0) > 65535:
        return False
    name = found["name"]
    if name and name.rpartition(".")[2][0].isalpha():
        return "xn--" not in name.lower()  # punycode may encode anything
    try:
        ip_address(name or found["ipv6"])
    except ValueError:
        return False
    return True


def _file(raw: bytes, media_type: str, uri: str) -> dict[str, Any]:
    kind = media_type.partition("/")[0].lower()
    if kind in ("image", "audio"):
        return {"type": kind, "data": b64encode(raw).decode(), "mimeType": media_type}
    resource: dict[str, Any] = {"uri": uri, "mimeType": media_type}
    if kind == "text":
        try:
            resource["text"] = raw.decode()
        except UnicodeDecodeError:
            pass  # another charset: send the bytes
    if "text" not in resource:
        resource["blob"] = b64encode(raw).decode()
    return {"type": "resource", "resource": resource}


def _structured(record: Record, question: Message | None) -> dict[str, Any]:
    artifacts = record.artifacts
    parts = tuple(part for artifact in artifacts for part in artifact.parts)
    if record.state is TaskState.COMPLETED and question is not None:
        parts, question = question.parts, None  # the agent's only output
    told: dict[str, Any] = {
        "task_id": record.head.id,
        "context_id": record.head.context_id,
        "state": state_of(record),
        "text": "\n\n".join(text for artifact in artifacts if (text := _plain(artifact.parts))) or _plain(parts),
    }
    if question is not None:
        told["question"] = text_of(question.parts)
    if data := [part.data for part in parts if part.data is not UNSET]:
        told["data"] = data
    if artifacts:
        several = len(artifacts) > 1
        told["artifacts"] = [_artifact(record, artifact, told_text=several) for artifact in artifacts]
    if record.progress is not None and not record.terminal:
        told["progress"] = {"current": record.progress.current, "total": record.progress.total}
    if record.usage is not None:
        usage = record.usage
        told["usage"] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
    return told


def _plain(parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in parts if part.text is not None)


def _artifact(record: Record, artifact: Artifact, *, told_text: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"artifact_id": artifact.artifact_id}
    if artifact.name is not None:
        told["name"] = artifact.name
    if artifact.description is not None:
        told["description"] = artifact.description
    if told_text and (text := _plain(artifact.parts)):
        told["text"] = text
    if files := list(_files(record, artifact)):
        told["files"] = files
    return told


def _files(record: Record, artifact: Artifact) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(artifact.parts):
        if part.raw is None and part.url is None:
            continue
        file: dict[str, Any] = {"uri": part.url or _uri(record, artifact.artifact_id, number, part)}
        if part.filename is not None:
            file["name"] = part.filename
        if part.media_type is not None:
            file["media_type"] = part.media_type
        if part.raw is not None:
            file["bytes"] = len(part.raw)
        yield file


# -- messages ----------------------------------------------------------------------------------------------------------

BEAT = 0.001
"""How much progress grows when only time has passed, or when the agent's own has decreased (2025-11-25, Progress)."""

CODES: Mapping[type[A2AError], int] = {
    errors.ParseError: names.PARSE_ERROR,
    errors.InvalidRequest: names.INVALID_REQUEST,
    errors.UnsupportedMediaType: names.INVALID_REQUEST,
    errors.PayloadTooLarge: names.INVALID_REQUEST,
    errors.RequestTimeout: names.INVALID_REQUEST,
    errors.MethodNotAllowed: names.INVALID_REQUEST,
    errors.NotFound: names.INVALID_REQUEST,
    errors.Unauthorized: names.INVALID_REQUEST,
    errors.Forbidden: names.INVALID_REQUEST,
    errors.MethodNotFound: names.METHOD_NOT_FOUND,
    errors.InvalidParams: names.INVALID_PARAMS,
    errors.TaskNotFound: names.INVALID_PARAMS,
    errors.TooManyRequests: -32000,
    HeaderMismatch: names.HEADER_MISMATCH,
    MissingCapability: names.MISSING_CAPABILITY,
    UnsupportedVersion: names.UNSUPPORTED_VERSION,
}
"""JSON-RPC codes by error; any other error is internal."""

INSTRUCTIONS = (
    "Each tool is a skill of an agent. An agent is told in words what to do, and may take its time. Its result names a "
    "task and a conversation: send context_id to continue the conversation. If its state is input-required, the agent "
    "has asked something: call the same tool again with the answer and task_id."
)


class ListenFrames(Struct, frozen=True):
    """The messages of a stream of notifications: the first, if it has one, one for each change of the tools, the last.

    `changed` None: no change is told.
    """

    first: bytes | None
    changed: bytes | None
    last: bytes | None


TOOLS_CHANGED = _ENCODER.encode({"jsonrpc": "2.0", "method": names.TOOLS_CHANGED})
"""The notification that the result of `tools/list` has changed."""

IN_SESSION = ListenFrames(None, TOOLS_CHANGED, None)
"""The messages of the stream of a session."""


def encode_subscription(request_id: bytes, *, changes: bool) -> ListenFrames:
    """Encode the messages of the stream that a `subscriptions/listen` opens: each names the request by its raw id."""
    meta = {names.META_SUBSCRIPTION: Raw(request_id)}
    granted = {"toolsListChanged": True} if changes else {}
    return ListenFrames(
        _notification(names.LISTENING, {"_meta": meta, "notifications": granted}),
        _notification(names.TOOLS_CHANGED, {"_meta": meta}) if changes else None,
        result(request_id, _ENCODER.encode({"resultType": names.COMPLETE, "_meta": meta})),
    )


def encode_greeting(greeting: Greeting, version: str) -> bytes:
    """Encode the result of `initialize`; `version` is that of this program."""
    return _ENCODER.encode(
        {
            "protocolVersion": greeting.version,
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "dragoman", "title": "Dragoman", "version": version},
            "instructions": INSTRUCTIONS,
        }
    )


def result(request_id: bytes, encoded: bytes) -> bytes:
    """Encode the answer to a request; the id is the raw JSON that came."""
    before, after = jsonrpc.result_envelope(request_id)
    return before + encoded + after


def error(request_id: bytes, refused: A2AError) -> bytes:
    """Encode an error answer."""
    told: dict[str, Any] = {"code": code(refused), "message": jsonrpc.clean(refused.message)}
    match refused:
        case InvalidParams():
            told["data"] = [{"field": jsonrpc.clean(at), "description": fix} for at, fix in refused.violations]
        case MissingCapability():
            told["data"] = {"requiredCapabilities": refused.required}
        case UnsupportedVersion():
            told["data"] = {"supported": names.SPOKEN, "requested": jsonrpc.clean(refused.requested)}
        case _:
            pass
    return encode_error(request_id, told)


def encode_error(request_id: bytes, told: dict[str, Any]) -> bytes:
    """Encode an error answer with that code, message and data."""
    before, after = jsonrpc.error_envelope(request_id)
    return before + _ENCODER.encode(told) + after


def code(refused: A2AError) -> int:
    """Return the error's code."""
    return next((CODES[kind] for kind in type(refused).__mro__ if kind in CODES), names.INTERNAL_ERROR)


def status(refused: A2AError) -> int:
    """Return the HTTP status of an error answer; 404 means that the session no longer exists."""
    if isinstance(refused, errors.ParseError | errors.InvalidRequest):
        return 400
    return jsonrpc.error_status(refused)


class ProgressEncoder:
    """The reported progress of one call: each number is larger than the last."""

    __slots__ = ("_last", "_token", "_total")

    def __init__(self, token: bytes) -> None:
        """`token` is the raw JSON that came."""
        self._token = Raw(token)
        self._last = -BEAT
        self._total = 0

    def encode(self, progress: Progress | None, text: str = "") -> bytes:
        """Encode a notification with the agent's progress and message; None: it only says that the agent is at work."""
        params: dict[str, Any] = {"progressToken": self._token}
        if progress is not None:
            self._total = progress.total
        if progress is not None and progress.current > self._last:
            self._last = progress.current
        else:
            self._last = round(self._last + BEAT, 3)
        params["progress"] = self._last
        if self._total >= self._last > 0:
            params["total"] = self._total
        if text:
            params["message"] = jsonrpc.clean(text)
        return _notification(names.PROGRESS, params)


def log(agent: str, text: str) -> bytes:
    """Encode a log message with an agent's message about its work."""
    return _notification(names.LOGGED, {"level": WORK_LEVEL, "logger": agent, "data": jsonrpc.clean(text)})


def question_id(task_id: str, seq: int) -> str:
    """Build the id of the request that asks the question in the task's event `seq`; it says where the answer goes."""
    return f"{task_id}/{seq}"


def task_of(request_id: str) -> str:
    """Return the task whose question had that id; empty if there is none."""
    task_id, slash, seq = request_id.rpartition("/")
    return task_id if slash and seq.isdigit() and len(request_id) <= jsonrpc.MAX_ID_BYTES else ""


def question(request_id: str, asked: Message | None) -> bytes:
    """Encode `elicitation/create` for an agent's question: one form with everything that it asks."""
    params = merge_forms(forms_of(asked)).params
    return _ENCODER.encode({"jsonrpc": "2.0", "id": request_id, "method": names.ELICIT, "params": params})


def _notification(method: str, params: dict[str, Any]) -> bytes:
    return _ENCODER.encode({"jsonrpc": "2.0", "method": method, "params": params})
