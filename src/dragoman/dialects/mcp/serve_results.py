"""Encodes a task as the result of a tool call: content for models and people, and structured content for programs.

Invariant: a result holds everything that another call needs to continue the task: its id, its context, its state.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from dragoman.dialects.mcp import names
from dragoman.dialects.rpc_errors import clean
from dragoman.model.errors import A2AError
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, Record, TaskState

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
    links = version > names.UNSAID  # that version has no links to resources
    content = [block for artifact in record.artifacts for block in _blocks(record, artifact, links)]
    question = _question(record)
    if question is not None:
        content += list(_encode_message(record, question, links))
    content.append(_text(_how_to_go_on(record), FOR_THE_MODEL))
    return _ENCODER.encode(
        {
            "content": content,
            "structuredContent": _structured(record, question),
            "isError": record.state in FAILURES,
        }
    )


def encode_refusal(error: A2AError) -> bytes:
    """Encode the result of a call that made no task: the model may know how to correct it (2025-11-25, Tools)."""
    return _ENCODER.encode({"content": [_text(clean(error.message))], "isError": True})


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
