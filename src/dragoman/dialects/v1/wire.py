"""Wire structs of A2A 1.0 requests, decoded leniently: ProtoJSON with both spellings of every field.

Invariant: null means absent, except in `Part.data`; unknown fields are ignored. A field whose name ends in `_` is the
field before it under its original proto name (`context_id`), which ProtoJSON parsers must accept beside `contextId`.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, defstruct
from msgspec.json import Decoder

from dragoman.dialects.operations import FieldKind, FieldRow
from dragoman.dialects.v1.operations import CONFIGURATION

ABSENT = Raw()
"""The value of an absent `raw`: this very object, not just an equal one."""

NULL = Raw(b"null")
"""The value that `raw` equals if it came as null, which also means absent."""

Number = int | float | str | None
"""An int32 before validation."""


def _spelled(field: str) -> str:
    if field.endswith("_"):
        return field[:-1]
    first, *others = field.split("_")
    return first + "".join(other.title() for other in others)


class WirePart(Struct, rename=_spelled):
    """Part (A2A 1.0 §4.1.6). `raw` stays raw JSON until its base64 is decoded."""

    text: str | None = None
    raw: Raw = ABSENT
    url: str | None = None
    data: Any | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    filename: str | None = None
    media_type: str | None = None
    media_type_: str | None = None


class WireMessage(Struct, rename=_spelled):
    """Message (A2A 1.0 §4.1.4)."""

    message_id: str | None = None
    context_id: str | None = None
    task_id: str | None = None
    role: str | int | None = None
    parts: list[WirePart] | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None
    message_id_: str | None = None
    context_id_: str | None = None
    task_id_: str | None = None
    reference_task_ids_: tuple[str, ...] | None = None


class WireAuthentication(Struct):
    """AuthenticationInfo (A2A 1.0 §4.3.2); `schemes` is the spelling of 0.3."""

    scheme: str | None = None
    credentials: str | None = None
    schemes: tuple[str, ...] | None = None


class WirePushConfig(Struct, rename=_spelled):
    """TaskPushNotificationConfig (A2A 1.0 §4.3.1), as part of a send and as a request of its own.

    `secret` and `events` are our own.
    """

    tenant: str | None = None
    id: str | None = None
    task_id: str | None = None
    url: str | None = None
    token: str | None = None
    authentication: WireAuthentication | None = None
    secret: str | None = None
    events: tuple[str, ...] | None = None
    task_id_: str | None = None


_TYPES: dict[FieldKind, Any] = {
    FieldKind.TEXT: str | None,
    FieldKind.TEXTS: tuple[str, ...] | None,
    FieldKind.COUNT: Number,
    FieldKind.FLAG: bool | None,
    FieldKind.OBJECT: dict[str, Any] | None,
    FieldKind.STATE: str | int | None,
    FieldKind.TIME: str | None,
    FieldKind.SEQ: Any,
    FieldKind.WEBHOOK: WirePushConfig | None,
}


def wire_struct(name: str, rows: Iterable[FieldRow]) -> Any:
    """Return the struct of fields that a table states. Where an event's id may be, it may also be in the metadata."""
    members: dict[str, Any] = {}
    for row in rows:
        members |= _spelled_twice(row.proto_name, _TYPES[row.kind])
        if row.kind is FieldKind.WEBHOOK:
            members |= _spelled_twice("push_notification_config", _TYPES[row.kind])  # its name in 0.3
        elif row.kind is FieldKind.SEQ:
            members["metadata"] = _TYPES[FieldKind.OBJECT]
    return defstruct(name, [(field, kind, None) for field, kind in members.items()], rename=_spelled)


def _spelled_twice(field: str, kind: Any) -> dict[str, Any]:
    return {field: kind, f"{field}_": kind} if "_" in field else {field: kind}


class WireConfiguration(wire_struct("Configuration", CONFIGURATION)):  # type: ignore[misc]
    """SendMessageConfiguration (A2A 1.0 §3.2.2)."""


class WireSend(Struct, rename=_spelled):
    """SendMessageRequest (A2A 1.0 §3.2.1); a webhook beside the configuration is also accepted."""

    tenant: str | None = None
    message: WireMessage | None = None
    configuration: WireConfiguration | None = None
    metadata: dict[str, Any] | None = None
    task_push_notification_config: WirePushConfig | None = None
    push_notification_config: WirePushConfig | None = None
    task_push_notification_config_: WirePushConfig | None = None
    push_notification_config_: WirePushConfig | None = None


SEND = Decoder(WireSend)
PUSH_CONFIG = Decoder(WirePushConfig)
