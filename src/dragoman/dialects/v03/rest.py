"""Decodes 0.3 over HTTP+JSON: routes below `/v1`, bodies in 0.3's protobuf JSON or tagged with `kind`.

Invariant: both official 0.3 clients are understood as they mean it: a flag that their protobuf JSON leaves out is
false.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from dragoman.dialects.api import RestRequest
from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.v03 import decode, webhooks
from dragoman.dialects.v03.decode import ReadBytes
from dragoman.dialects.v03.fields import Fields, read
from dragoman.model.errors import InvalidParams, MethodNotFound
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
)

_CONFIG_NAME = re.compile(r"tasks/[^/]+/pushNotificationConfigs/([^/]+)")


def decode_rest(request: RestRequest) -> Operation:
    """Decode a request whose file bytes are base64 once. Raises MethodNotFound, ParseError or InvalidParams."""
    return _decode(request, raw_bytes)


def decode_rest_twice(request: RestRequest) -> Operation:
    """Decode a request of the official Python clients, which encode file bytes twice (a2a-sdk 0.3.26, 1.3.0)."""
    return _decode(request, _raw_bytes_twice)


def _decode(request: RestRequest, read_bytes: ReadBytes) -> Operation:
    _check_text(request.path)
    _check_text(request.query)
    route = _ROUTES.get(request.route)
    if route is None:
        raise MethodNotFound(request.route)
    return route(request, read_bytes)


def _raw_bytes_twice(text: str) -> bytes | None:
    once = raw_bytes(text)
    if once is None or not once.isascii():
        return once
    twice = raw_bytes(once.decode("ascii"))
    return once if twice is None else twice


def _send(kind: type[SendMessage], request: RestRequest, read_bytes: ReadBytes) -> SendMessage:
    fields = read(request.body)
    message = fields.object("message", "request")
    if message is None or not message.has("content"):
        read_bytes = raw_bytes  # clients that encode twice write 0.3's protobuf JSON, and this is not
    return decode.send(_spell_out(fields), kind, read_bytes)


def _spell_out(fields: Fields) -> Fields:
    """Add the `blocking: false` that protobuf JSON leaves out.

    The official clients always send a `configuration`, with `blocking` in it only if it is true. A body is protobuf
    JSON if its message has `content`; in any other body an absent `blocking` leaves the choice to the server.
    """
    message, configuration = fields.object("message", "request"), fields.mapping("configuration")
    if message is None or configuration is None or not message.has("content"):
        return fields
    return Fields({**fields.members, "configuration": {"blocking": False, **configuration}}, fields.path)


def _check_text(values: Mapping[str, str]) -> None:
    """Refuse text from percent-decoding that UTF-8 cannot encode."""
    for name, text in values.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidParams(name if name.isascii() else "", "must be valid UTF-8") from None


def _task_id(path: Mapping[str, str]) -> str:
    """Return the task id of the path: the variable `id`, or `task_id` below a task."""
    task = path.get("id") if "task_id" not in path else path["task_id"]
    if not task:
        raise InvalidParams("id", "is required: send a string that is not empty")
    return task


def _config_id(path: Mapping[str, str]) -> str:
    return path.get("config_id") or (path.get("id", "") if "task_id" in path else "")


def _query(request: RestRequest) -> Fields:
    members: dict[str, Any] = {name: value for name, value in request.query.items() if value != ""}
    return Fields(members)


def _get_task(request: RestRequest, read_bytes: ReadBytes) -> GetTask:
    limit = _query(request).count("historyLength", "history_length")
    return GetTask(id=_task_id(request.path), history_length=limit)


def _create_push_config(request: RestRequest, read_bytes: ReadBytes) -> CreatePushConfig:
    """Decode a registration.

    Python sends `{parent, configId, config: {name, pushNotificationConfig}}`, JavaScript only the value of `config`.
    """
    fields = read(request.body)
    outer = fields.object("config") or fields
    inner = webhooks.unwrapped(outer)
    named = _CONFIG_NAME.fullmatch(outer.text("name") or "")
    given = fields.text("configId", "config_id") or (unquote(named[1]) if named else "")
    if given and not inner.has("id"):
        inner = Fields({**inner.members, "id": given}, inner.path)
    return CreatePushConfig(config=webhooks.push_config(inner, _task_id(request.path)))


def _get_push_config(request: RestRequest, read_bytes: ReadBytes) -> GetPushConfig:
    return GetPushConfig(task_id=_task_id(request.path), id=_config_id(request.path))


def _delete_push_config(request: RestRequest, read_bytes: ReadBytes) -> DeletePushConfig:
    return DeletePushConfig(task_id=_task_id(request.path), id=_config_id(request.path))


_ROUTES: dict[str, Callable[[RestRequest, ReadBytes], Operation]] = {
    "SendMessage": lambda request, read_bytes: _send(SendMessage, request, read_bytes),
    "SendStreamingMessage": lambda request, read_bytes: _send(StreamMessage, request, read_bytes),
    "GetTask": _get_task,
    "ListTasks": lambda request, _: decode.list_tasks(_query(request)),
    "CancelTask": lambda request, _: CancelTask(id=_task_id(request.path)),
    "SubscribeToTask": lambda request, _: Subscribe(id=_task_id(request.path)),
    "CreateTaskPushNotificationConfig": _create_push_config,
    "GetTaskPushNotificationConfig": _get_push_config,
    "ListTaskPushNotificationConfigs": lambda request, _: ListPushConfigs(task_id=_task_id(request.path)),
    "DeleteTaskPushNotificationConfig": _delete_push_config,
    "GetExtendedAgentCard": lambda request, _: GetExtendedCard(),
}
