"""The client's side of protoAgent's dialect: 0.3's names and parts, with the context beside the message.

Invariant: a plain call is that of protoAgent's text. A task's cost is read where that text puts it (`data`) and where
its servers put it (a part of the last artifact), and is returned where our own tasks have it.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from dragoman.dialects import vendors
from dragoman.dialects.client import answers, objects, refusals
from dragoman.dialects.client.encode import no_earlier
from dragoman.dialects.client.scalars import Json, decode_answer
from dragoman.dialects.extensions import USAGE, usage_metadata
from dragoman.dialects.protoagent.extensions import COST_TYPE, MIME_TYPE, marked, media_type
from dragoman.dialects.tongue import Answer, RpcCall, Tongue
from dragoman.dialects.vendors import call, lacks, message, webhook
from dragoman.model.errors import A2AError
from dragoman.model.message import Artifact, Part
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, Update

SYSTEM = "protoAgent"

TAG = "kind"
"""The member that names a part's type."""


def rpc(operation: Operation) -> RpcCall:
    """Encode a call. Raises UnsupportedOperation if protoAgent does not have the operation."""
    match operation:
        case StreamMessage():
            return call("message/stream", _send(operation))
        case SendMessage():
            return call("message/send", _send(operation))
        case GetTask():
            return call("tasks/get", {"id": operation.id, "historyLength": operation.history_length})
        case CancelTask():
            return call("tasks/cancel", {"id": operation.id, "metadata": operation.metadata})
        case Subscribe():
            return call("tasks/resubscribe", {"id": operation.id})
        case CreatePushConfig():
            config = operation.config
            return call(
                "tasks/pushNotificationConfig/set",
                {"taskId": config.task_id, "pushNotificationConfig": webhook(config)},
            )
        case GetPushConfig():
            return call("tasks/pushNotificationConfig/get", _webhook_id(operation))
        case ListPushConfigs():
            return call("tasks/pushNotificationConfig/list", {"taskId": operation.task_id})
        case DeletePushConfig():
            return call("tasks/pushNotificationConfig/delete", _webhook_id(operation))
        case GetExtendedCard():
            return call("agent/getAuthenticatedExtendedCard", {})
        case ListTasks():
            raise lacks(SYSTEM, "list of tasks", "keep the ids that a send is answered with")
        case CompleteTask() | UpdateStatus():
            raise lacks(SYSTEM, "workers", "its tasks end by themselves")
        case _:
            assert_never(operation)


def read_answer(operation: Operation, body: bytes) -> Answer:
    """Decode a `result`. Raises InvalidAgentResponse."""
    return decode_answer(body, lambda value: _answer(operation, value))


def read_update(frame: bytes) -> tuple[Update, ...]:
    """Decode the `result` of a frame. Raises InvalidAgentResponse."""
    return (decode_answer(frame, _update),)


def read_error(body: bytes, status: int) -> A2AError:
    """Decode an error by its code, which is A2A's, or by the HTTP status."""
    return refusals.read(body, status)


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


TONGUE = Tongue(
    name="protoagent",
    rpc=rpc,
    rest=None,
    read_answer=read_answer,
    read_update=read_update,
    read_error=read_error,
    lists=False,
)
