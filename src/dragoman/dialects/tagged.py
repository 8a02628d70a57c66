"""Messages and parts in the vendors' spelling: that of 0.3, with fewer required members and a choice of tag.

Invariant: 0.3's decoder reads the messages, after missing members were filled in.
"""

from typing import Any

from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.v03.plain import fresh_id
from dragoman.model.message import Artifact, Message, Part

Json = dict[str, Any]


def filled(message: Fields, role: str | None = None) -> Json:
    """Return the members of a message, with a fresh id or `role` if they are missing."""
    members = {name: value for name, value in message.members.items() if value is not None}
    if not message.text("messageId", "message_id"):
        members["messageId"] = fresh_id()
    if role is not None:
        members.setdefault("role", role)
    return members


def encode_part(part: Part, tag: str) -> Json:
    """Encode a part whose type is in `tag`, which is `kind` or `type`."""
    body: Json
    if part.text is not None:
        body = {tag: "text", "text": part.text}
    elif part.raw is not None or part.url is not None:
        content: Json = {"uri": part.url} if part.raw is None else {"bytes": part.raw}
        if part.media_type:
            content["mimeType"] = part.media_type
        if part.filename:
            content["name"] = part.filename
        body = {tag: "file", "file": content}
    else:
        body = {tag: "data", "data": part.data}
    if part.metadata:
        body["metadata"] = part.metadata
    return body


def encode_artifact(artifact: Artifact, tag: str) -> Json:
    """Encode an artifact: its parts, then the members that A2A adds."""
    body: Json = {"parts": [encode_part(part, tag) for part in artifact.parts], "artifactId": artifact.artifact_id}
    if artifact.name:
        body["name"] = artifact.name
    if artifact.description:
        body["description"] = artifact.description
    if artifact.metadata:
        body["metadata"] = artifact.metadata
    return body


def text_of(message: Message | None) -> str:
    """Return the text of a message; empty if there is none."""
    return "" if message is None else message.text
