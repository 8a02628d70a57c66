"""Wire structs of A2A 1.0 requests, decoded leniently: ProtoJSON with both spellings of every field.

Invariant: null means absent, except in `Part.data`; unknown fields are ignored. A field whose name ends in `_` is the
field before it under its original proto name (`context_id`), which ProtoJSON parsers must accept beside `contextId`.
"""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

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
    """Part (A2A 1.0 §4.1.6). `raw` stays raw JSON until its base64 is decoded; from protobuf it is bytes."""

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


class WireConfiguration(Struct, rename=_spelled):
    """SendMessageConfiguration (A2A 1.0 §3.2.2); `push_notification_config` is 0.3's name for the webhook."""

    accepted_output_modes: tuple[str, ...] | None = None
    task_push_notification_config: WirePushConfig | None = None
    history_length: Number = None
    return_immediately: bool | None = None
    push_notification_config: WirePushConfig | None = None
    accepted_output_modes_: tuple[str, ...] | None = None
    task_push_notification_config_: WirePushConfig | None = None
    history_length_: Number = None
    return_immediately_: bool | None = None
    push_notification_config_: WirePushConfig | None = None


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


class WireTaskQuery(Struct, rename=_spelled):
    """The fields of GetTask, CancelTask and SubscribeToTask; `from_seq` is our own."""

    tenant: str | None = None
    id: str | None = None
    history_length: Number = None
    metadata: dict[str, Any] | None = None
    from_seq: Any = None
    history_length_: Number = None
    from_seq_: Any = None


class WireListTasks(Struct, rename=_spelled):
    """ListTasksRequest (A2A 1.0 §3.1.4)."""

    tenant: str | None = None
    context_id: str | None = None
    status: str | int | None = None
    page_size: Number = None
    page_token: str | None = None
    history_length: Number = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None
    context_id_: str | None = None
    page_size_: Number = None
    page_token_: str | None = None
    history_length_: Number = None
    status_timestamp_after_: str | None = None
    include_artifacts_: bool | None = None


class WirePushQuery(Struct, rename=_spelled):
    """The fields of the get, list and delete operations of push configurations."""

    tenant: str | None = None
    task_id: str | None = None
    id: str | None = None
    page_size: Number = None
    page_token: str | None = None
    task_id_: str | None = None
    page_size_: Number = None
    page_token_: str | None = None


class WireExtendedCard(Struct):
    """GetExtendedAgentCardRequest (A2A 1.0 §3.1.11)."""

    tenant: str | None = None


SEND = Decoder(WireSend)
TASK_QUERY = Decoder(WireTaskQuery)
LIST_TASKS = Decoder(WireListTasks)
PUSH_CONFIG = Decoder(WirePushConfig)
PUSH_QUERY = Decoder(WirePushQuery)
EXTENDED_CARD = Decoder(WireExtendedCard)
