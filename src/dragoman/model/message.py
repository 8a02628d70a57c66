"""Part, Message and Artifact, as in A2A 1.0 §4.1.4 to §4.1.9.

Invariant: encoding one of these with msgspec gives its A2A 1.0 JSON, with only the fields of the 1.0 proto.
"""

from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType

FORM_MEDIA_TYPE = "application/schema+json"
"""The media type of a data part that is a form: a JSON Schema of what the caller is asked for."""


class Role(StrEnum):
    """The sender of a message (A2A 1.0 §4.1.5)."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """One piece of content: exactly one of `text`, `raw`, `url`, `data` is set (A2A 1.0 §4.1.6).

    `raw` holds the bytes themselves; they are base64 only on the wire. `data` is any JSON value, null included, hence
    `UNSET` for "no data". `blob` belongs to the store (a reference to bytes in a row of their own) and is None outside.
    `file` belongs to engine and log: it is the place in the blob store of the bytes that `raw` would hold. Callers get
    a `url` instead, agents the bytes; no dialect reads or writes it.
    """

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] | None = None
    blob: int | None = None
    file: str | None = None


class Message(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """One unit of communication between client and agent (A2A 1.0 §4.1.4)."""

    message_id: str
    role: Role
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined by newlines; empty when there are none."""
        texts = []
        for part in self.parts:
            if part.text is not None:
                texts.append(part.text)
        return "\n".join(texts)


class Artifact(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, gc=False):
    """One output of a task (A2A 1.0 §4.1.9); `artifact_id` is unique within the task."""

    artifact_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
