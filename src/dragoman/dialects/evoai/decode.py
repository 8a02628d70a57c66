"""Decodes Evo AI's parameters to operations.

Invariant: decoding is lenient. Parts and ids are as in 0.3, whose decoders do the work. Only this dialect has contexts
beside the message, its own spelling of webhooks, and the older method names of its agent-to-agent client.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.dialects.evoai import webhooks
from dragoman.dialects.v03 import plain
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import message, send
from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.v03.webhooks import INLINE, without
from dragoman.dialects.vendors import filled
from dragoman.model.operations import GetExtendedCard, Operation, SendMessage, StreamMessage, Subscribe


def decode(method: str, params: bytes) -> Operation:
    """Decode a call.

    Raises MethodNotFound if Evo AI has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return plain.decode(method, params, _METHODS, SENDS, fills=True)


def _send(fields: Fields, kind: type[SendMessage]) -> SendMessage:
    """Decode a send. A message needs no id; its context may be in `params`, a webhook there or in `configuration`."""
    members = without(fields, *INLINE).members
    said, configuration = fields.object("message"), fields.object("configuration")
    if said is not None:
        members["message"] = filled(said)
    if not fields.has("contextId", "context_id"):
        members["contextId"] = fields.text("sessionId", "session_id")
    if configuration is not None:
        members["configuration"] = without(configuration, *INLINE).members
    sent = send(Fields(members, fields.path), kind)
    earlier = tuple([message(Fields(filled(each), each.path)) for each in fields.objects("history")])
    return replace(sent, earlier=earlier, push_config=webhooks.inline(fields, configuration))


def _subscribe(fields: Fields) -> Operation:
    """Decode `tasks/subscribe`. With a message it makes a task and follows it, else it follows the named task."""
    return _send(fields, StreamMessage) if fields.has("message") else Subscribe(id=_task_id(fields))


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
    "tasks/pushNotificationConfig/set": webhooks.set_config,
    "tasks/pushNotificationConfig/get": METHODS_03["tasks/pushNotificationConfig/get"],
    "agent/authenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "agent/getAuthenticatedExtendedCard": lambda fields: GetExtendedCard(),
    "tasks/send": lambda fields: _send(fields, SendMessage),
    "tasks/sendSubscribe": lambda fields: _send(fields, StreamMessage),
    "tasks/subscribe": _subscribe,
    "tasks/pushNotification/set": webhooks.set_config,
    "tasks/pushNotification/get": METHODS_03["tasks/pushNotificationConfig/get"],
}

METHODS = frozenset(_METHODS)
"""Evo AI's methods, the official name of its card method, and the A2A 0.1 names of its agent-to-agent client."""
