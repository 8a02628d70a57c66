"""Evo AI's parameters to operations.

Invariant: read widely: parts and ids as in 0.3, whose readers do the work; what is only here are contexts beside the
message, its spelling of webhooks, and the older method names of its agent-to-agent client.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects.tagged import filled
from dragoman.dialects.v03 import plain
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import message, send
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import InvalidParams
from dragoman.model.operations import (
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)

_WEBHOOK = "pushNotificationConfig"

_NO_SCHEME = "none"
"""The `type` of `webhookAuthenticationInfo` that its browser client sends for a webhook without authentication."""


def decode(method: str, params: bytes) -> Operation:
    """The operation of a call.

    Raises MethodNotFound if Evo AI has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return plain.decode(method, params, _METHODS, SENDS, fills=True)


def _send(fields: Fields, kind: type[SendMessage]) -> SendMessage:
    """A message needs no id; its context may be in `params`; a webhook may be in `params` or in `configuration`."""
    members = {name: value for name, value in fields.members.items() if name != _WEBHOOK}
    said, configuration = fields.object("message"), fields.object("configuration")
    if said is not None:
        members["message"] = filled(said)
    if not fields.has("contextId", "context_id"):
        members["contextId"] = fields.find("sessionId", "session_id")
    webhook = fields.object(_WEBHOOK)
    if configuration is not None:
        members["configuration"] = {name: value for name, value in configuration.members.items() if name != _WEBHOOK}
        webhook = webhook or configuration.object(_WEBHOOK)
    sent = send(Fields(members, fields.path), kind)
    earlier = tuple([message(Fields(filled(each), each.path)) for each in fields.objects("history")])
    named = webhook is not None and webhook.text("url", "webhookUrl")
    return replace(sent, earlier=earlier, push_config=_push_config(webhook, "") if webhook and named else None)


def _subscribe(fields: Fields) -> Operation:
    """`tasks/subscribe` with a message makes a task and follows it; without, it follows the one that it names."""
    return _send(fields, StreamMessage) if fields.has("message") else Subscribe(id=_task_id(fields))


def _set_push_config(fields: Fields) -> CreatePushConfig | DeletePushConfig:
    """A configuration that is there and null takes the webhook away: so its browser client clears it."""
    webhook = fields.object(_WEBHOOK, "config")
    if webhook is not None:
        return CreatePushConfig(config=_push_config(webhook, _task_id(fields)))
    if _WEBHOOK in fields.members:
        return DeletePushConfig(task_id=_task_id(fields))
    raise InvalidParams(fields.at(_WEBHOOK), "is required")


def _push_config(fields: Fields, task_id: str) -> PushConfig:
    """A webhook under any of its names: `url` or `webhookUrl`, a list of `schemes` or one `type`."""
    authentication = fields.object("authentication", "webhookAuthenticationInfo") or Fields({}, fields.path)
    schemes = authentication.texts("schemes")
    scheme = schemes[0] if schemes else authentication.text("scheme", "type")
    return PushConfig(
        url=fields.required_text("url", "webhookUrl"),
        id=fields.text("id", "configId") or "",
        task_id=task_id,
        token=fields.text("token") or None,
        scheme=None if scheme is None or scheme.lower() == _NO_SCHEME else scheme,
        credentials=authentication.text("credentials", "token", "apiKey", "key") or None,
    )


def _task_id(fields: Fields) -> str:
    return fields.required_text("taskId", "task_id", "id")


SENDS: dict[str, type[SendMessage]] = {
    "message/send": SendMessage,
    "message/stream": StreamMessage,
    "tasks/send": SendMessage,
    "tasks/sendSubscribe": StreamMessage,
    "tasks/subscribe": StreamMessage,
}

_METHODS: dict[str, Callable[[Fields], Operation]] = {
    "message/send": lambda fields: _send(fields, SendMessage),
    "message/stream": lambda fields: _send(fields, StreamMessage),
    "tasks/get": METHODS_03["tasks/get"],
    "tasks/cancel": METHODS_03["tasks/cancel"],
    "tasks/resubscribe": METHODS_03["tasks/resubscribe"],
    "tasks/pushNotificationConfig/set": _set_push_config,
    "tasks/pushNotificationConfig/get": METHODS_03["tasks/pushNotificationConfig/get"],
    "agent/authenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "agent/getAuthenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "tasks/send": lambda fields: _send(fields, SendMessage),
    "tasks/sendSubscribe": lambda fields: _send(fields, StreamMessage),
    "tasks/subscribe": _subscribe,
    "tasks/pushNotification/set": _set_push_config,
    "tasks/pushNotification/get": METHODS_03["tasks/pushNotificationConfig/get"],
}

METHODS = frozenset(_METHODS)
"""Evo AI's methods, the official name of its card's, and the A2A 0.1 names of its agent-to-agent client."""
