"""The objects of 0.3's proto: the forms of parts, messages, artifacts, statuses, tasks and updates.

Both sides of a connection use these. Messages are filled in place, since assigning one to another copies it.

Invariant: an object of the model that is written and read again is equal, except for what 0.3's proto has no field for:
`referenceTaskIds`, and the name and media type of a part that is no file. A reader raises InvalidParams with the path
of the field in the proto's names, a writer UnsupportedOperation for data that is nested too deeply for protobuf.
"""

import base64
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.dialects.client.objects import derive_id, unwrap_data
from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.protobuf.fields import EnumForm, Form, map_fields
from dragoman.dialects.protobuf.values import fill_struct, struct_dict
from dragoman.dialects.v03.encode import plain_data
from dragoman.dialects.v03.protobuf.messages import pb
from dragoman.dialects.v03.rest import STATES as STATE_NAMES
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate

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


ROLES = EnumForm({role: pb.Role.Value(role) for role in Role}, Role.AGENT)
STATES = EnumForm({state: pb.TaskState.Value(STATE_NAMES[state]) for state in TaskState}, TaskState.UNSPECIFIED)

CONFIG = map_fields(PushConfig, pb.PushNotificationConfig)
"""A webhook without its authentication."""


class ObjectForms(Struct, frozen=True, kw_only=True):
    """The forms of objects, for one way of writing the bytes of files."""

    message: Form[Message]
    task: Form[Task]
    status_update: Form[StatusUpdate]
    artifact_update: Form[ArtifactUpdate]


def _object_forms(write_bytes: FileBytes, read_bytes: FileBytes) -> ObjectForms:
    def write_part(into: pb.Part, part: Part) -> None:
        metadata = part.metadata
        if part.text is not None:
            into.text = part.text
        elif part.raw is not None or part.url is not None:
            if part.raw is not None:
                into.file.file_with_bytes = write_bytes(part.raw)
            elif part.url is not None:
                into.file.file_with_uri = part.url
            if part.media_type:
                into.file.mime_type = part.media_type
            if part.filename:
                into.file.name = part.filename
        else:
            data, metadata = plain_data(part)
            fill_struct(into.data.data, data)
        if metadata:
            fill_struct(into.metadata, metadata)

    def read_part(given: pb.Part) -> Part:
        metadata = struct_dict(given.metadata) or None
        match given.WhichOneof("part"):
            case "text":
                return Part(text=given.text, metadata=metadata)
            case "file":
                file, raw, url = given.file, None, None
                match file.WhichOneof("file"):
                    case "file_with_bytes":
                        raw = read_bytes(file.file_with_bytes)
                    case "file_with_uri":
                        url = file.file_with_uri
                    case _:
                        raise InvalidParams("file", "must have either file_with_bytes or file_with_uri")
                name, media_type = file.name or None, file.mime_type or None
                return Part(raw=raw, url=url, filename=name, media_type=media_type, metadata=metadata)
            case "data":
                data, metadata = unwrap_data(struct_dict(given.data.data), metadata)
                return Part(data=data, metadata=metadata)
            case _:
                raise InvalidParams("", "must have one of text, file, data")

    parts: dict[str, Form[Any]] = {"parts": Form(write_part, read_part, refuses=True)}
    message = map_fields(
        Message,
        pb.Message,
        names={"content": "parts"},
        forms=parts,
        enums={"role": ROLES},
        fallbacks={"message_id": _message_id},
        omits_empty=True,
    )
    status = map_fields(
        TaskStatus,
        pb.TaskStatus,
        names={"update": "message"},
        forms={"message": message},
        enums={"state": STATES},
    )
    artifact = map_fields(Artifact, pb.Artifact, forms=parts, omits_empty=True)
    held: dict[str, Form[Any]] = {"status": status, "artifacts": artifact, "artifact": artifact, "history": message}
    return ObjectForms(
        message=message,
        task=map_fields(Task, pb.Task, forms=held, omits_empty=True),
        status_update=map_fields(StatusUpdate, pb.TaskStatusUpdateEvent, forms=held, omits_empty=True),
        artifact_update=map_fields(ArtifactUpdate, pb.TaskArtifactUpdateEvent, forms=held, omits_empty=True),
    )


def _message_id(given: pb.Message) -> str:
    return derive_id("msg", given.SerializeToString(deterministic=True))


RAW = _object_forms(once, once)
"""As the proto has it."""

BASE64 = _object_forms(write_base64, read_base64)
"""As the official Python SDKs have it, with base64 in the bytes of a file."""
