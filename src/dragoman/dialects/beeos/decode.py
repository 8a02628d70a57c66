"""Decodes BeeOS parameters to operations.

Invariant: every name of BeeOS's table and its alias mean the same; parts may be tagged `kind`, `type` or not at all. A
missing or wrong value is InvalidParams with its path.
"""

from collections.abc import Callable

from dragoman.dialects.api import RestRequest
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import STATES, decode_call, part, send, task_id
from dragoman.dialects.v03.fields import MAX_ID, Fields
from dragoman.dialects.vendors import fill_message
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.task import Progress, TaskState

LIMIT_DEFAULT = 20
"""How many tasks ListTasks returns by default (BeeOS, ListTasks)."""

LIMIT_MAX = 100
"""How many it returns at most; the answer names the limit that was used."""


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if BeeOS has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return decode_call(method, params, METHODS, SENDS, fills=True)


def decode_rest(request: RestRequest) -> Operation:
    """Decode `GET /{id}/stream?task_id=…`. Raises InvalidParams without `task_id`."""
    task_id = request.query.get("task_id")
    if not task_id:
        raise InvalidParams("task_id", "is required: the id of the task to follow")
    return Subscribe(id=task_id)


def _send(fields: Fields, kind: type[SendMessage]) -> SendMessage:
    """Decode a send. The context may be in the message or beside it, under either of its names."""
    message = fields.object("message")
    if message is None:
        raise InvalidParams(fields.at("message"), "is required")
    context = fields.text("contextId", "context_id") or fields.text("sessionId")
    return send(Fields({**fields.members, "message": fill_message(message), "contextId": context}), kind)


def _list(fields: Fields) -> ListTasks:
    """Decode ListTasks. It returns whole tasks, as GetTask does, but no history, which BeeOS's tasks do not show."""
    limit = fields.count("limit", least=1)
    return ListTasks(
        context_id=fields.text("contextId", "context_id") or None,
        page_size=LIMIT_DEFAULT if limit is None else min(limit, LIMIT_MAX),
        offset=fields.count("offset") or 0,
        history_length=0,
        include_artifacts=True,
    )


def _complete(fields: Fields) -> CompleteTask:
    return CompleteTask(id=task_id(fields), artifacts=_artifacts(fields), lease=fields.text("lease") or None)


def _artifacts(fields: Fields) -> tuple[Artifact, ...]:
    """Decode artifacts. One without an id gets an id from its place, so that a repeated call is the same operation."""
    given = list(fields.objects("artifacts"))
    named = [_artifact_id(each) for each in given]
    taken = {name for name in named if name}
    if len(taken) < sum(name is not None for name in named):
        raise InvalidParams(fields.at("artifacts"), "must each have an artifactId of its own")
    return tuple(_artifact(each, name or _free(taken)) for each, name in zip(given, named, strict=True))


def _artifact_id(fields: Fields) -> str | None:
    chosen = fields.text("artifactId", "artifact_id") or None
    if chosen and (len(chosen) > MAX_ID or "\0" in chosen):
        raise InvalidParams(fields.at("artifactId"), f"must have at most {MAX_ID} characters and no null character")
    return chosen


def _free(taken: set[str]) -> str:
    number = 1
    while (name := "result" if number == 1 else f"result-{number}") in taken:
        number += 1
    taken.add(name)
    return name


def _artifact(fields: Fields, artifact_id: str) -> Artifact:
    parts = tuple([part(each) for each in fields.objects("parts")])
    if not parts:
        raise InvalidParams(fields.at("parts"), "must hold at least one part")
    return Artifact(
        artifact_id=artifact_id,
        parts=parts,
        name=fields.text("name") or None,
        description=fields.text("description") or None,
        metadata=fields.mapping("metadata"),
        extensions=fields.texts("extensions"),
    )


def _update(fields: Fields) -> UpdateStatus:
    asked = task_id(fields)
    status = fields.object("status")
    if status is None:
        raise InvalidParams(fields.at("status"), "is required")
    return UpdateStatus(
        id=asked,
        state=_state(status),
        parts=_decode_status_parts(status),
        progress=_progress(status.object("progress")),
        lease=fields.text("lease") or None,
    )


def _state(status: Fields) -> TaskState:
    state = STATES.get(status.required_text("state"))
    if state is None:
        raise InvalidParams(status.at("state"), "must be a task state, such as working or input-required")
    return state


def _decode_status_parts(status: Fields) -> tuple[Part, ...]:
    """Decode the worker's message: a string, or a message with parts."""
    said = status.find("message")
    if said is None or isinstance(said, str):
        return (Part(text=said),) if said else ()
    message = Fields(said if isinstance(said, dict) else {}, status.at("message"))
    parts = tuple([part(each) for each in message.objects("parts", "content")])
    if not parts:
        raise InvalidParams(message.path, 'must be a string, or a message with parts: {"parts": [...]}')
    return parts


def _progress(fields: Fields | None) -> Progress | None:
    if fields is None:
        return None
    if not fields.has("current", "total", "message"):
        raise InvalidParams(fields.path, 'must say how far the task is: {"current": 2, "total": 5}')
    return Progress(fields.count("current") or 0, fields.count("total") or 0, fields.text("message") or "")


SENDS: dict[str, type[SendMessage]] = {
    "SendMessage": SendMessage,
    "message/send": SendMessage,
    "SendStreamingMessage": StreamMessage,
    "message/stream": StreamMessage,
}

_OWN: dict[str, tuple[Callable[[Fields], Operation], tuple[str, ...]]] = {
    "SendMessage": (lambda fields: _send(fields, SendMessage), ("message/send",)),
    "SendStreamingMessage": (lambda fields: _send(fields, StreamMessage), ("message/stream",)),
    "GetTask": (lambda fields: GetTask(id=task_id(fields)), ("tasks/get",)),
    "CancelTask": (
        lambda fields: CancelTask(id=task_id(fields), metadata=fields.mapping("metadata")),
        ("tasks/cancel",),
    ),
    "ListTasks": (_list, ("tasks/list",)),
    "SubscribeToTask": (lambda fields: Subscribe(id=task_id(fields)), ("tasks/resubscribe",)),
    "CompleteTask": (_complete, ("tasks/complete",)),
    "UpdateStatus": (_update, ("tasks/updateStatus",)),
    "agent/getAuthenticatedExtendedCard": (lambda fields: GetExtendedCard(), ("agent/authenticatedExtendedCard",)),
    "SetPushNotificationConfig": (
        METHODS_03["tasks/pushNotificationConfig/set"],
        ("tasks/pushNotificationConfig/set", "tasks/pushNotification/set"),
    ),
    "GetPushNotificationConfig": (
        METHODS_03["tasks/pushNotificationConfig/get"],
        ("tasks/pushNotificationConfig/get", "tasks/pushNotification/get"),
    ),
    "ListPushNotificationConfigs": (
        METHODS_03["tasks/pushNotificationConfig/list"],
        ("tasks/pushNotificationConfig/list", "tasks/pushNotification/list"),
    ),
    "DeletePushNotificationConfig": (
        METHODS_03["tasks/pushNotificationConfig/delete"],
        ("tasks/pushNotificationConfig/delete", "tasks/pushNotification/delete"),
    ),
}

METHODS: dict[str, Callable[[Fields], Operation]] = {
    name: operation for canonical, (operation, aliases) in _OWN.items() for name in (canonical, *aliases)
}
"""The methods of BeeOS with their aliases; push methods have 0.3's parameters."""
