"""Decodes KAOS parameters to operations.

Invariant: parts may be tagged `type`, `kind` or not at all, and a message may be bare `text`. A missing or wrong value
is InvalidParams with its path.
"""

from collections.abc import Callable
from typing import Any

from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import decode_call, send, task_id
from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.v03.webhooks import INLINE
from dragoman.dialects.vendors import fill_message
from dragoman.model.errors import InvalidParams, PushNotificationNotSupported
from dragoman.model.operations import CancelTask, ListTasks, Operation, SendMessage

LIST_MAX = 100
"""How many tasks ListTasks returns; KAOS has no pages."""

_CONFIGURATION = ("blocking", "returnImmediately", "historyLength", "acceptedOutputModes", "skills")
"""The members of `configuration` that count, beside `mode`; `budgets` are ignored, a webhook is refused."""


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if KAOS has no such method, InvalidParams if a parameter is missing or wrong,
    PushNotificationNotSupported for a send with a webhook.
    """
    return decode_call(method, params, METHODS, SENDS, fills=True)


def _send(fields: Fields) -> SendMessage:
    """Decode a send. The session is beside the message; the message's metadata is the task's."""
    message = fields.object("message")
    if not message or not message.members:
        raise InvalidParams(fields.at("message"), "is required")
    configuration = fields.object("configuration")
    if _has_webhook(fields) or (configuration is not None and _has_webhook(configuration)):
        raise PushNotificationNotSupported
    said = fill_message(message, "user")
    if not message.find("parts", "content") and (text := message.text("text")):
        said["parts"] = [{"type": "text", "text": text}]
    params = {
        "message": said,
        "contextId": fields.text("contextId", "context_id") or fields.text("sessionId", "session_id"),
        "metadata": {**(fields.mapping("metadata") or {}), **(message.mapping("metadata") or {})} or None,
        "configuration": _configuration(configuration),
    }
    return send(Fields(params), SendMessage)


def _has_webhook(fields: Fields) -> bool:
    return fields.has(*INLINE)


def _configuration(fields: Fields | None) -> dict[str, Any] | None:
    """Read the configuration. `mode: autonomous` answers at once, as `blocking: false` did in an earlier KAOS."""
    if fields is None:
        return None
    fields.mapping("budgets")  # unused, but a caller with a wrong value should know
    heeded = {name: fields.members[name] for name in _CONFIGURATION if name in fields.members}
    if fields.text("mode") == "autonomous":
        heeded["returnImmediately"] = True
    return heeded


SENDS: dict[str, type[SendMessage]] = {"SendMessage": SendMessage, "tasks/send": SendMessage}

METHODS: dict[str, Callable[[Fields], Operation]] = {
    name: operation
    for names, operation in (
        (("SendMessage", "tasks/send"), _send),
        (("GetTask", "tasks/get"), METHODS_03["tasks/get"]),
        (("CancelTask", "tasks/cancel"), lambda fields: CancelTask(id=task_id(fields))),
        (("ListTasks", "tasks/list"), lambda fields: ListTasks(page_size=LIST_MAX, include_artifacts=True)),
    )
    for name in names
}
"""The methods of KAOS with their aliases."""
