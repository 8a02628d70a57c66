"""The objects of 0.3's proto: parts, messages, artifacts and statuses, written from the model and read into it.

Both sides of a connection use these. Messages are filled in place, since assigning one to another copies it.

Invariant: an object of the model that is written and read again is equal, except for what 0.3's proto has no field for:
`referenceTaskIds`, and the name and media type of a part that is no file. A reader raises InvalidParams with the path
of the field in the proto's names, a writer UnsupportedOperation for data that is nested too deeply for protobuf.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from google.protobuf.struct_pb2 import Struct

from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.protobuf.values import fill_struct, fill_timestamp, struct_dict
from dragoman.dialects.v03.decode import unwrap_data
from dragoman.dialects.v03.encode import plain_data
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TaskState, TaskStatus

Json = dict[str, Any]

FileBytes = Callable[[bytes], bytes]
"""Converts the bytes of a file between the model and the wire."""


def once(raw: bytes) -> bytes:
    """Return the bytes themselves, as the proto says."""
    return raw


def write_base64(raw: bytes) -> bytes:
    """Return the bytes in base64, which the official Python SDKs put into the field (a2a-sdk 0.3.26, 1.3.0)."""
    return base64.b64encode(raw)


def read_base64(raw: bytes) -> bytes:
    """Decode the base64 of an official Python SDK; bytes that are not base64 stay as they are."""
    decoded = raw_bytes(raw.decode("ascii")) if raw.isascii() else None
    return raw if decoded is None else decoded


ROLES = {Role.USER: pb.ROLE_USER, Role.AGENT: pb.ROLE_AGENT}
ROLES_READ = {number: role for role, number in ROLES.items()}

STATES = {
    TaskState.SUBMITTED: pb.TASK_STATE_SUBMITTED,
    TaskState.WORKING: pb.TASK_STATE_WORKING,
    TaskState.INPUT_REQUIRED: pb.TASK_STATE_INPUT_REQUIRED,
    TaskState.AUTH_REQUIRED: pb.TASK_STATE_AUTH_REQUIRED,
    TaskState.COMPLETED: pb.TASK_STATE_COMPLETED,
    TaskState.FAILED: pb.TASK_STATE_FAILED,
    TaskState.CANCELED: pb.TASK_STATE_CANCELLED,
    TaskState.REJECTED: pb.TASK_STATE_REJECTED,
}

STATES_READ = {number: state for state, number in STATES.items()}


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> Struct: ...


# -- from the model ----------------------------------------------------------------------------------------------------


def write_parts(into: Callable[[], pb.Part], parts: Iterable[Part], file_bytes: FileBytes) -> None:
    """Add the parts; `into` adds an empty one."""
    for part in parts:
        _write_part(into(), part, file_bytes)


def _write_part(into: pb.Part, part: Part, file_bytes: FileBytes) -> None:
    metadata = part.metadata
    if part.text is not None:
        into.text = part.text
    elif part.raw is not None or part.url is not None:
        file = into.file
        if part.raw is not None:
            file.file_with_bytes = file_bytes(part.raw)
        elif part.url is not None:
            file.file_with_uri = part.url
        if part.media_type:
            file.mime_type = part.media_type
        if part.filename:
            file.name = part.filename
    else:
        data, metadata = plain_data(part)
        fill_struct(into.data.data, data)
    write_metadata(into, metadata)


def write_metadata(into: _HasMetadata, metadata: Json | None) -> None:
    """Write the metadata, if there is any."""
    if metadata:
        fill_struct(into.metadata, metadata)


def write_message(into: pb.Message, said: Message, file_bytes: FileBytes) -> None:
    """Write a Message, with its parts as `content`."""
    into.message_id = said.message_id
    into.role = ROLES[said.role]
    if said.context_id is not None:
        into.context_id = said.context_id
    if said.task_id is not None:
        into.task_id = said.task_id
    write_parts(into.content.add, said.parts, file_bytes)
    write_metadata(into, said.metadata)
    if said.extensions:
        into.extensions.extend(said.extensions)


def write_artifact(into: pb.Artifact, artifact: Artifact, file_bytes: FileBytes) -> None:
    """Write an Artifact."""
    into.artifact_id = artifact.artifact_id
    if artifact.name is not None:
        into.name = artifact.name
    if artifact.description is not None:
        into.description = artifact.description
    write_parts(into.parts.add, artifact.parts, file_bytes)
    write_metadata(into, artifact.metadata)
    if artifact.extensions:
        into.extensions.extend(artifact.extensions)


def write_status(into: pb.TaskStatus, status: TaskStatus, file_bytes: FileBytes) -> None:
    """Write a TaskStatus, whose message is called `update`."""
    into.state = STATES[status.state]
    if status.message is not None:
        write_message(into.update, status.message, file_bytes)
    fill_timestamp(into.timestamp, status.timestamp)


# -- to the model ------------------------------------------------------------------------------------------------------


def read_parts(given: Sequence[pb.Part], path: str, file_bytes: FileBytes) -> tuple[Part, ...]:
    """Read the parts of a message or an artifact."""
    parts: list[Part] = []
    for part in given:
        metadata = read_metadata(part)
        match part.WhichOneof("part"):
            case "text":
                parts.append(Part(text=part.text, metadata=metadata))
            case "file":
                parts.append(_read_file(part.file, metadata, f"{path}[{len(parts)}].file", file_bytes))
            case "data":
                data, metadata = unwrap_data(struct_dict(part.data.data), metadata)
                parts.append(Part(data=data, metadata=metadata))
            case _:
                raise InvalidParams(f"{path}[{len(parts)}]", "must have one of text, file, data")
    return tuple(parts)


def _read_file(given: pb.FilePart, metadata: Json | None, path: str, file_bytes: FileBytes) -> Part:
    raw = url = None
    match given.WhichOneof("file"):
        case "file_with_bytes":
            raw = file_bytes(given.file_with_bytes)
        case "file_with_uri":
            url = given.file_with_uri
        case _:
            raise InvalidParams(path, "must have either file_with_bytes or file_with_uri")
    return Part(raw=raw, url=url, filename=given.name or None, media_type=given.mime_type or None, metadata=metadata)


def read_metadata(given: _HasMetadata) -> Json | None:
    """Read the metadata; None if it is absent or empty."""
    return struct_dict(given.metadata) if given.metadata.fields else None
