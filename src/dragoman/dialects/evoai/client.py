"""The client's side of Evo AI's dialect, as in its browser client: names with slashes, parts tagged `type`, `taskId`
for tasks.

Invariant: a plain call is that of Evo AI's page. Its own frames, `{"id", "status", "final"}`, are read: each has the
whole text so far and replaces the one before. Servers of 2025 give a different task id with every frame.
"""

import hashlib
from uuid import UUID

from msgspec.structs import replace

from dragoman.dialects import vendors
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.client import answers, objects, refusals
from dragoman.dialects.client.scalars import Json, Unfit, items_in, members, text_in, texts_in
from dragoman.dialects.vendors import (
    LACKS,
    Methods,
    VendorMethod,
    encode_calls,
    history_params,
    message,
    no_params,
    present,
    read_by,
    task_params,
)
from dragoman.model import errors
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
)
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, Update

SYSTEM = "Evo AI"

TAG = "type"
"""The member that names a part's type."""


def _send(sent: SendMessage) -> Json:
    """Encode a send. The context, the webhook and the conversation so far are beside the message."""
    return {
        "contextId": sent.message.context_id,
        "message": _message(sent.message),
        "pushNotificationConfig": None if sent.push_config is None else _webhook(sent.push_config),
        "configuration": vendors.configuration(sent),
        "metadata": vendors.metadata(sent),
        "history": [_message(each) for each in sent.earlier],
    }


def _message(said: Message) -> Json:
    return message(said, TAG, messageId=_uuid(said.message_id), contextId=None)


def _uuid(message_id: str) -> str:
    """Return the id if it is a UUID, which Evo AI requires; any other id always maps to the same UUID."""
    try:
        return str(UUID(message_id)) if message_id else ""
    except ValueError:
        return str(UUID(bytes=hashlib.sha256(message_id.encode("utf-8", "replace")).digest()[:16], version=4))


def _with_task_id(params: Json) -> Json:
    """Name a task as Evo AI does: by `taskId`."""
    return {"taskId": params.pop("id"), **params}


def _registration(operation: CreatePushConfig) -> Json:
    """A task has one webhook: a new one replaces it."""
    return {"taskId": operation.config.task_id, "pushNotificationConfig": _webhook(operation.config)}


def _removal(operation: DeletePushConfig) -> Json:
    """A task has one webhook: null removes it."""
    return {"taskId": operation.task_id, "pushNotificationConfig": None}


def _webhook(config: PushConfig) -> Json:
    """Encode a webhook in the words of Evo AI's browser client. Raises UnsupportedOperation if its URL is not https."""
    if not config.url.lower().startswith("https://"):
        raise UnsupportedOperation(f"{SYSTEM} calls only webhooks at https:// URLs")
    written = vendors.webhook(config)
    del written["url"]
    authentication = written.pop("authentication", {"type": "none"})
    events = [f"task.{each}" for each in written.pop("events", ())]
    return present({"webhookUrl": config.url, "webhookAuthenticationInfo": authentication, **written, "events": events})


def _answer(operation: Operation, value: object) -> Answer:
    match operation:
        case SendMessage() if isinstance(value, dict) and "final" in value:
            return objects.task(value)  # as the last frame of a stream
        case CancelTask() if isinstance(value, dict) and _acknowledges(value):
            return _read_cancellation(operation, value)
        case CreatePushConfig():
            return _read_registration(operation.config, members(value, "what was configured"))
        case GetPushConfig():
            return _read_stored(operation, value)
        case _:
            return answers.answer(operation, value)


def _acknowledges(given: Json) -> bool:
    """Whether it only acknowledges a call, and says nothing of a task."""
    return "success" in given and "status" not in given


def _read_cancellation(operation: CancelTask, given: Json) -> Task:
    """Read `{"success", "message"}`: the cancellation was requested, and the task's state is not known."""
    if given["success"] is False:
        raise Unfit("a task that was canceled")
    said = text_in(given, "message")
    status = TaskStatus(state=TaskState.WORKING, message=objects.message(said) if said else None, timestamp="")
    return Task(id=operation.id, context_id="", status=status)


def _read_registration(config: PushConfig, given: Json) -> PushConfig:
    """Read `{"configured", "configId", "url", "events"}` or `{"success", "taskId"}`: the webhook as it was sent,
    updated from the answer, without its secrets, as other systems return it.
    """
    if given.get("configured") is False or given.get("success") is False:
        raise Unfit("a webhook that was configured")
    return PushConfig(
        url=text_in(given, "url") or config.url,
        id=text_in(given, "configId") or config.id,
        task_id=text_in(given, "taskId") or config.task_id,
        scheme=config.scheme,
        events=tuple([each.removeprefix("task.") for each in texts_in(given, "events")]) or config.events,
    )


def _read_stored(operation: GetPushConfig, value: object) -> PushConfig | None:
    """Read a stored webhook, which Evo AI returns in the words of the client that sent it."""
    given = members(value, "a webhook with a url")
    inner = given.get("pushNotificationConfig", given)
    if inner is None:
        return None
    held = dict(members(inner, "a webhook with a url"))
    held["url"] = text_in(held, "url", "webhookUrl")
    held["events"] = [each.removeprefix("task.") for each in texts_in(held, "events")]
    if isinstance(found := held.get("webhookAuthenticationInfo"), dict):
        kind = text_in(found, "scheme", "type")
        held["authentication"] = {**found, "scheme": None if kind == "none" else kind}
    return answers.push_config(held, text_in(given, "taskId") or operation.task_id)


def _update(value: object) -> tuple[Update, ...]:
    """Read a frame: a status, which may come with artifacts or a chunk of one. An acknowledgement gives no update."""
    given = members(value, _EXPECTED)
    if _acknowledges(given):
        return ()
    if "status" not in given or ("kind" in given and "final" not in given) or given.get("kind") in _KINDS_OF_03:
        return (objects.update(given),)
    task_id = text_in(given, "id", "taskId") or ""
    status = given["status"]
    told = objects.status_update(given)
    if isinstance(status, dict) and (progress := objects.progress(status.get("progress"))) is not None:
        told = replace(told, progress=progress)
    whole = [
        ArtifactUpdate(
            task_id=task_id,
            context_id=told.context_id,
            artifact=objects.artifact(each, task_id, nth),
            last_chunk=True,
        )
        for nth, each in enumerate(items_in(given, "artifacts"))
    ]
    chunk = [objects.artifact_update(given)] if given.get("artifact") is not None else []
    return (*whole, *chunk, told)


_EXPECTED = "a frame with id and status"

_KINDS_OF_03 = ("status-update", "artifact-update", "message")

_CODES = {**refusals.CODES, -32000: errors.AgentFailed}

_WORDS = {
    "agent not found": errors.AgentNotFound,
    "agent execution failed": errors.AgentFailed,
    "streaming failed": errors.AgentFailed,
    "unauthorized": errors.Unauthorized,
}
"""Texts that say more than the code beside them: -32001 can also mean an unknown agent, and -32603 one that failed."""

_STATUSES = {**refusals.STATUSES, 404: errors.AgentNotFound}
"""Evo AI often sends only `{"detail": …}` beside the status."""

METHODS: Methods = {
    SendMessage: VendorMethod("message/send", _send),
    StreamMessage: VendorMethod("message/stream", _send),
    GetTask: VendorMethod("tasks/get", lambda operation: _with_task_id(history_params(operation))),
    CancelTask: VendorMethod("tasks/cancel", lambda operation: _with_task_id(task_params(operation))),
    Subscribe: VendorMethod("tasks/resubscribe", lambda operation: _with_task_id(task_params(operation))),
    CreatePushConfig: VendorMethod("tasks/pushNotificationConfig/set", _registration, whole=True),
    GetPushConfig: VendorMethod("tasks/pushNotificationConfig/get", lambda operation: {"taskId": operation.task_id}),
    DeletePushConfig: VendorMethod("tasks/pushNotificationConfig/set", _removal, whole=True),
    GetExtendedCard: VendorMethod("agent/authenticatedExtendedCard", no_params),
}

TONGUE = Tongue(
    name="evoai",
    rpc=encode_calls(
        SYSTEM, METHODS, {**LACKS, ListPushConfigs: ("list of webhooks", "a task has one, which get gives")}
    ),
    **read_by(_answer, _update, _CODES, _WORDS, _STATUSES),
    lists=False,
)
