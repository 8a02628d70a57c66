"""The client's side of protoAgent's dialect: 0.3's names and parts, with the context beside the message.

Invariant: a plain call is that of protoAgent's text. A task's cost is read where that text puts it (`data`) and where
its servers put it (a part of the last artifact), and is returned where our own tasks have it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.dialects import vendors
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.client import answers, objects
from dragoman.dialects.client.encode import no_earlier
from dragoman.dialects.client.scalars import Json
from dragoman.dialects.extensions import USAGE, usage_metadata
from dragoman.dialects.protoagent.extensions import COST_TYPE, MIME_TYPE, marked, media_type
from dragoman.dialects.vendors import (
    Methods,
    VendorMethod,
    encode_calls,
    history_params,
    message,
    no_params,
    read_by,
    task_params,
    webhook,
    webhook_params,
)
from dragoman.model.message import Artifact, Part
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
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, Update

SYSTEM = "protoAgent"

TAG = "kind"
"""The member that names a part's type."""


def _send(sent: SendMessage) -> Json:
    no_earlier(sent, SYSTEM)
    configuration = vendors.configuration(sent)
    if sent.push_config is not None:
        configuration["pushNotificationConfig"] = webhook(sent.push_config)
    said = replace(sent.message, parts=tuple([marked(part) for part in sent.message.parts]))
    return {
        "contextId": said.context_id,
        "message": message(said, TAG, contextId=None),
        "configuration": configuration,
        "metadata": vendors.metadata(sent),
    }


def _webhook_id(asked: GetPushConfig | DeletePushConfig) -> Json:
    return {"taskId": asked.task_id, "pushNotificationConfigId": asked.id}


def _answer(operation: Operation, value: object) -> Answer:
    answer = answers.answer(operation, value, _part)
    return _add_cost(answer, value) if isinstance(answer, Task) else answer


def _update(value: object) -> Update:
    told = objects.update(value, _part)
    match told:
        case Task():
            return _add_cost(told, value)
        case ArtifactUpdate():
            cost = _find_cost([told.artifact])
            return told if cost is None else replace(told, usage=objects.usage(cost.get("usage")))
        case _:
            return told


def _part(value: object) -> Part:
    """Read a part; the type that its metadata names becomes its media type."""
    part = objects.part(value)
    kind = media_type(part)
    if kind is None or part.media_type == kind:
        return part
    rest = {name: each for name, each in (part.metadata or {}).items() if name != MIME_TYPE}
    return replace(part, media_type=kind, metadata=rest or None)


def _add_cost(task: Task, value: object) -> Task:
    """Return the task with its cost in its metadata, unless the cost is unknown: `data` is all zeros then."""
    told = value.get("data") if isinstance(value, dict) else None
    cost = told if isinstance(told, dict) else _find_cost(task.artifacts)
    if cost is None or USAGE in (task.metadata or {}):
        return task
    used, took = objects.usage(cost.get("usage")), cost.get("durationMs")
    if used is None or not (used.input_tokens or used.output_tokens or used.total_tokens):
        return task
    known = usage_metadata(used, took if isinstance(took, int) else None)
    return replace(task, metadata={**(task.metadata or {}), USAGE: known})


def _find_cost(artifacts: Sequence[Artifact]) -> Json | None:
    """Return the last part that holds the cost of the task."""
    parts = [part for artifact in artifacts for part in artifact.parts if media_type(part) == COST_TYPE]
    return next((part.data for part in reversed(parts) if isinstance(part.data, dict)), None)


METHODS: Methods = {
    SendMessage: VendorMethod("message/send", _send),
    StreamMessage: VendorMethod("message/stream", _send),
    GetTask: VendorMethod("tasks/get", history_params),
    CancelTask: VendorMethod("tasks/cancel", task_params),
    Subscribe: VendorMethod("tasks/resubscribe", task_params),
    CreatePushConfig: VendorMethod("tasks/pushNotificationConfig/set", webhook_params),
    GetPushConfig: VendorMethod("tasks/pushNotificationConfig/get", _webhook_id),
    ListPushConfigs: VendorMethod("tasks/pushNotificationConfig/list", lambda operation: {"taskId": operation.task_id}),
    DeletePushConfig: VendorMethod("tasks/pushNotificationConfig/delete", _webhook_id),
    GetExtendedCard: VendorMethod("agent/getAuthenticatedExtendedCard", no_params),
}

TONGUE = Tongue(
    name="protoagent",
    rpc=encode_calls(SYSTEM, METHODS),
    **read_by(_answer, lambda value: (_update(value),)),
    lists=False,
)
