"""Reads the objects of other agents as leniently as possible: parts, messages, artifacts, tasks, updates.

Pure functions over decoded JSON, for every dialect. All spellings mean the same: names in camelCase and snake_case,
states and roles in any spelling, parts tagged `kind`, `type` or not at all, `contextId` and `sessionId`, a status whose
message is a string.

Invariant: a reader returns a value or raises Unfit. An object without an id gets one that depends only on its content.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects.client.scalars import (
    Json,
    Unfit,
    context_of,
    flag_in,
    items_in,
    members,
    metadata_in,
    state,
    text_in,
    texts_in,
    timestamp,
)
from dragoman.dialects.extensions import PROGRESS, UNREADABLE_PART, USAGE
from dragoman.dialects.json_fields import raw_bytes
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TOKENS_MAX, Progress, Task, TaskStatus, Usage
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

ReadBytes = Callable[[str], bytes | None]
"""Decodes the text of a file to bytes; None if it is not base64."""

WRAPPED = "data_part_compat"
"""Metadata key that marks `data` as `{"value": …}` around a value that is not an object; the official SDKs 1.x write
it.
"""

_USERS = frozenset({"user", "ROLE_USER", 1})

FILE_BYTES = ("bytes", "fileWithBytes", "file_with_bytes", "raw")
FILE_URLS = ("uri", "fileWithUri", "file_with_uri", "url")
"""The names of a file's bytes and of its URL, in 0.3, its protobuf JSON and 1.0."""


def part(value: object, read_bytes: ReadBytes = raw_bytes, file_bytes: ReadBytes = raw_bytes) -> Part:
    """Read a part by what it holds. A string is text. A text part without text is kept as it came, and marked.

    `read_bytes` decodes `bytes` and `raw`, `file_bytes` the file bytes of 0.3's protobuf JSON.
    """
    if isinstance(value, str):
        return Part(text=value)
    given = members(value, "a part with text, raw, url, data or file")
    metadata = metadata_in(given)
    tag = given.get("kind") or given.get("type")
    text, file = given.get("text"), given.get("file")
    if isinstance(text, str) and tag in (None, "text"):
        return Part(
            text=text,
            filename=text_in(given, "filename"),
            media_type=text_in(given, "mediaType", "media_type"),
            metadata=metadata,
        )
    if tag == "text":
        return Part(data=given, metadata={UNREADABLE_PART: True})
    if isinstance(file, dict):
        return _file(file, metadata, read_bytes, file_bytes)
    if given.get("raw") is not None or given.get("url") is not None or tag == "file":
        return _file(given, metadata, read_bytes, file_bytes)
    if "data" in given:
        return _data(given, metadata)
    if isinstance(tag, str):
        return Part(data=given)  # an unknown kind is kept whole
    raise Unfit("a part with text, raw, url, data or file")


def _file(given: Json, metadata: Json | None, read_bytes: ReadBytes, file_bytes: ReadBytes) -> Part:
    raw = url = None
    name = next((name for name in FILE_BYTES if isinstance(given.get(name), str)), None)
    if name is not None and (given[name] or not text_in(given, *FILE_URLS)):
        raw = (file_bytes if name.startswith("file") else read_bytes)(given[name])
        if raw is None:
            raise Unfit("base64 as the bytes of a file")
    else:
        url = text_in(given, *FILE_URLS)
        if url is None:
            raise Unfit("a file with bytes or uri")
    return Part(
        raw=raw,
        url=url,
        filename=text_in(given, "name", "filename"),
        media_type=text_in(given, "mimeType", "mime_type", "mediaType", "media_type"),
        metadata=metadata,
    )


def unwrap_data(data: Any, metadata: Json | None) -> tuple[Any, Json | None]:
    """Return the data and metadata of a data part whose value may be wrapped, because 0.3 knows only objects."""
    if metadata and metadata.get(WRAPPED) is True and isinstance(data, dict) and data.keys() == {"value"}:
        return data["value"], {name: value for name, value in metadata.items() if name != WRAPPED} or None
    return data, metadata


def _data(given: Json, metadata: Json | None) -> Part:
    data, metadata = unwrap_data(given["data"], metadata)
    return Part(
        data=data,
        filename=text_in(given, "filename"),
        media_type=text_in(given, "mediaType", "media_type"),
        metadata=metadata,
    )


ReadPart = Callable[[object], Part]


def parts(given: Json, read_part: ReadPart = part) -> tuple[Part, ...]:
    """Read the parts of a message or an artifact; in protobuf JSON they are `content`, which may be a mere string."""
    found = given.get("parts")
    if found is None:
        found = given.get("content")
    if found is None:
        return ()
    if isinstance(found, str):
        return (Part(text=found),)
    if not isinstance(found, list):
        raise Unfit("a list of parts")
    return tuple([read_part(each) for each in found])


def role(value: object) -> Role:
    """Return the user if the value says so, else the agent, which answers."""
    return Role.USER if isinstance(value, str | int) and value in _USERS else Role.AGENT


def message(value: object, read_part: ReadPart = part) -> Message:
    """Read a message; a string is a message of the agent."""
    if isinstance(value, str):
        value = {"parts": [value]}
    given = members(value, "a message with role and parts")
    held = parts(given, read_part)
    return Message(
        message_id=text_in(given, "messageId", "message_id") or derive_id("msg", given),
        role=role(given.get("role")),
        parts=held,
        context_id=context_of(given),
        task_id=text_in(given, "taskId", "task_id"),
        metadata=metadata_in(given),
        extensions=texts_in(given, "extensions"),
        reference_task_ids=texts_in(given, "referenceTaskIds", "reference_task_ids"),
    )


def status(value: object, read_part: ReadPart = part) -> TaskStatus:
    """Read a status; a string is a state. Its time stamp is empty if it has none."""
    if isinstance(value, str):
        return TaskStatus(state=state(value), timestamp="")
    given = members(value, "a status with a state")
    said = given.get("message") or given.get("update")  # the second in 0.3's protobuf JSON
    return TaskStatus(
        state=state(given.get("state")),
        message=message(said, read_part) if said else None,
        timestamp=timestamp(given.get("timestamp")),
    )


def artifact(value: object, task_id: str = "", nth: int = 0, read_part: ReadPart = part) -> Artifact:
    """Read an artifact. One without an id gets an id from its place: it is the `nth` of its task."""
    given = members(value, "an artifact with parts")
    return Artifact(
        artifact_id=text_in(given, "artifactId", "artifact_id") or artifact_id(task_id, nth),
        parts=parts(given, read_part),
        name=text_in(given, "name"),
        description=text_in(given, "description"),
        metadata=metadata_in(given),
        extensions=texts_in(given, "extensions"),
    )


def artifact_id(task_id: str, nth: int = 0) -> str:
    """Return the id for an artifact that has none: the same in a task and in the chunks of its stream."""
    return f"{task_id or 'artifact'}-{nth}"


def task(value: object, read_part: ReadPart = part) -> Task:
    """Read a task. Fields that a dialect adds to 1.0 are ignored, except metadata."""
    given = members(value, "a task with id and status")
    task_id = text_in(given, "id", "taskId", "task_id")
    if task_id is None:
        raise Unfit("a task with an id")
    found = given.get("status", given.get("state"))
    return Task(
        id=task_id,
        context_id=context_of(given) or "",
        status=status(found, read_part),
        artifacts=tuple(
            [artifact(each, task_id, nth, read_part) for nth, each in enumerate(items_in(given, "artifacts"))]
        ),
        history=tuple([message(each, read_part) for each in items_in(given, "history")]),
        metadata=metadata_in(given),
    )


def status_update(value: object, read_part: ReadPart = part) -> StatusUpdate:
    """Read a status update; in 0.1 `id` is the task's. Progress and usage come from our extensions' metadata."""
    given = members(value, "a status update")
    metadata, told, used = beyond(metadata_in(given))
    return StatusUpdate(
        task_id=text_in(given, "taskId", "task_id", "id") or "",
        context_id=context_of(given) or "",
        status=status(given.get("status"), read_part),
        metadata=metadata,
        progress=told,
        usage=used,
    )


def artifact_update(value: object, read_part: ReadPart = part) -> ArtifactUpdate:
    """Read an artifact update; in 0.1 `append`, `lastChunk` and `index` belong to the artifact."""
    given = members(value, "an artifact update")
    inner = members(given.get("artifact"), "an artifact update with an artifact")
    task_id = text_in(given, "taskId", "task_id", "id") or ""
    index = inner.get("index")
    return ArtifactUpdate(
        task_id=task_id,
        context_id=context_of(given) or "",
        artifact=artifact(inner, task_id, index if isinstance(index, int) else 0, read_part),
        append=flag_in(given, "append") or flag_in(inner, "append"),
        last_chunk=flag_in(given, "lastChunk", "last_chunk") or flag_in(inner, "lastChunk", "last_chunk"),
        metadata=metadata_in(given),
    )


_EXPECTED = "a task, a message, a status update or an artifact update"

_KINDS: dict[str, Callable[[object, ReadPart], Update]] = {
    "task": task,
    "message": message,
    "status-update": status_update,
    "artifact-update": artifact_update,
}
_WRAPPERS: tuple[tuple[tuple[str, ...], Callable[[object, ReadPart], Update]], ...] = (
    (("task",), task),
    (("message", "msg"), message),
    (("statusUpdate", "status_update"), status_update),
    (("artifactUpdate", "artifact_update"), artifact_update),
)


def update(value: object, read_part: ReadPart = part) -> Update:
    """Read a stream frame or the answer to a send: in a wrapper (1.0), by `kind` (0.3), or by its shape.

    A flat object with `artifact` is an artifact update. One with a status is a task, or a status update if it has
    `final` or no `id` (0.1: `{"id", "status", "final"}`). One with parts is a message.
    """
    given = members(value, _EXPECTED)
    kind = given.get("kind")
    if isinstance(kind, str) and (read := _KINDS.get(kind)) is not None:
        return read(given, read_part)
    if "status" not in given and "parts" not in given:
        for names, read in _WRAPPERS:
            for name in names:
                if isinstance(given.get(name), dict):
                    return read(given[name], read_part)
    if "artifact" in given:
        return artifact_update(given, read_part)
    if given.get("status") is not None:
        if "final" in given or ("id" not in given and ("taskId" in given or "task_id" in given)):
            return status_update(given, read_part)
        return task(given, read_part)
    if "parts" in given or "content" in given:
        return message(given, read_part)
    raise Unfit(_EXPECTED)


def complete(update: Update) -> Update:
    """Return what came in protobuf with what its message has no field for: ids of artifacts, progress and usage."""
    match update:
        case ArtifactUpdate():
            artifact = _with_id(update.artifact, update.task_id)
            return update if artifact is update.artifact else replace(update, artifact=artifact)
        case Task() if not all(each.artifact_id for each in update.artifacts):
            named = [_with_id(each, update.id, nth) for nth, each in enumerate(update.artifacts)]
            return replace(update, artifacts=tuple(named))
        case StatusUpdate() if update.metadata is not None:
            metadata, told, used = beyond(update.metadata)
            return replace(update, metadata=metadata, progress=told, usage=used)
        case _:
            return update


def _with_id(given: Artifact, task_id: str, nth: int = 0) -> Artifact:
    return given if given.artifact_id else replace(given, artifact_id=artifact_id(task_id, nth))


def beyond(metadata: Json | None) -> tuple[Json | None, Progress | None, Usage | None]:
    """Split the metadata into the rest, and the progress and usage that our extensions put there."""
    if metadata is None or not (PROGRESS in metadata or USAGE in metadata):
        return metadata, None, None
    told, used = progress(metadata.get(PROGRESS)), usage(metadata.get(USAGE))
    rest = {name: value for name, value in metadata.items() if name not in (PROGRESS, USAGE)}
    return rest or None, told, used


def progress(value: object) -> Progress | None:
    """Read `{"current", "total", "message"?}`; None if it is not that."""
    if not isinstance(value, dict):
        return None
    current, total = value.get("current"), value.get("total")
    if not (isinstance(current, int) and isinstance(total, int)):
        return None
    return Progress(current, total, text_in(value, "message") or "")


def usage(value: object) -> Usage | None:
    """Read token counts under any of the names in use; None if none of them is present."""
    if not isinstance(value, dict):
        return None
    read, written, both, cached = (_tokens(value, *names) for names in _TOKENS)
    if read is None and written is None and both is None:
        return None
    total = (read or 0) + (written or 0) if both is None else both
    return Usage(read or 0, written or 0, total, cached_tokens=cached or 0)


_TOKENS = (
    ("inputTokens", "input_tokens", "prompt_tokens"),
    ("outputTokens", "output_tokens", "completion_tokens"),
    ("totalTokens", "total_tokens"),
    ("cachedTokens", "cached_tokens", "cached_input_tokens"),
)


def _tokens(given: Json, *names: str) -> int | None:
    """The first number under one of the names. One that counts no tokens becomes -1, or one more than the most."""
    for name in names:
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -1 if not value >= 0 else int(min(value, TOKENS_MAX + 1))
    return None


def derive_id(prefix: str, given: Any) -> str:
    """Derive an id from the content, so that the same content has the same id."""
    said = msgspec.json.encode(given, order="deterministic")
    return f"{prefix}-{hashlib.blake2b(said, digest_size=8).hexdigest()}"
