"""Decodes protoAgent's parameters to operations with the decoders of 0.3.

Invariant: parameters of 0.3 mean the same here; in addition a message needs no id, and a skill may be a hint.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dragoman.dialects.api import RestRequest
from dragoman.dialects.v03 import webhooks
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import decode_call, send
from dragoman.dialects.v03.fields import Fields, read
from dragoman.dialects.vendors import fill_message
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.operations import (
    CreatePushConfig,
    GetTask,
    ListPushConfigs,
    Operation,
    SendMessage,
    StreamMessage,
)


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if protoAgent has no such method, InvalidParams if a parameter is missing or wrong.
    """
    operation = decode_call(method, params, _METHODS, SENDS, fills=True)
    return _apply_hint(operation) if isinstance(operation, SendMessage) else operation


def decode_rest(request: RestRequest) -> Operation:
    """Decode a request to one of the aliases below `/a2a/tasks`. Raises MethodNotFound, ParseError or InvalidParams."""
    match request.route:
        case "GetTask":
            return GetTask(id=_task_id(request))
        case "CreateTaskPushNotificationConfig":
            given = webhooks.unwrapped(read(request.body))
            return CreatePushConfig(config=webhooks.push_config(given, _task_id(request)))
        case "ListTaskPushNotificationConfigs":
            return ListPushConfigs(task_id=_task_id(request))
        case _:
            raise MethodNotFound(request.route)


def _send(fields: Fields, kind: type[SendMessage]) -> SendMessage:
    said = fields.object("message")
    filled_in = {} if said is None else {"message": fill_message(said)}
    return send(Fields(fields.members | filled_in, fields.path), kind)


def _apply_hint(sent: SendMessage) -> SendMessage:
    if sent.skill is not None or (sent.metadata is None and sent.message.metadata is None):
        return sent
    return replace(sent, skill=_hint(sent.metadata) or _hint(sent.message.metadata))


def _hint(metadata: dict[str, Any] | None) -> str | None:
    skill = (metadata or {}).get("skillHint")
    return skill if isinstance(skill, str) and skill else None


def _task_id(request: RestRequest) -> str:
    """Return the task id of the path: the variable `id`, or `task_id` below a task."""
    task = request.path.get("task_id") or request.path.get("id")
    if not task:
        raise InvalidParams("id", "is required: send a string that is not empty")
    try:
        task.encode()
    except UnicodeEncodeError:
        raise InvalidParams("id", "must be valid UTF-8") from None
    return task


SENDS: dict[str, type[SendMessage]] = {
    "message/send": SendMessage,
    "message/stream": StreamMessage,
    "message/sendStream": StreamMessage,
}

_METHODS: dict[str, Callable[[Fields], Operation]] = {
    **{method: operation for method, operation in METHODS_03.items() if method != "tasks/list"},
    "message/send": lambda fields: _send(fields, SendMessage),
    "message/stream": lambda fields: _send(fields, StreamMessage),
    "message/sendStream": lambda fields: _send(fields, StreamMessage),
    "tasks/pushNotificationConfig/delete": webhooks.delete_any,
}

METHODS = frozenset(_METHODS)
"""protoAgent's methods: those of 0.3 without a list, and an older name of `message/stream`."""
