"""Encodes tasks and frames for protoAgent: those of 0.3, with `data` on the task and its cost in the last artifact.

Invariant: a task that completes sends its artifacts again, whole, before its last status. So a reader that missed or
ignored chunks gets them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects import cards
from dragoman.dialects.protoagent.extensions import COST_TYPE, TOOL_CALL, cost, data_part, marked, media_type, tool_call
from dragoman.dialects.v03 import encode as v03
from dragoman.model.card import AgentCard
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import CreatePushConfig, Operation, PushConfig, Result
from dragoman.model.task import Record, TaskHead, TaskState

Json = dict[str, Any]


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer; a result other than a task, webhook or card is as in 0.3."""
    match result:
        case Record():
            return encode_snapshot(result, v03.history_limit(operation))
        case PushConfig():
            return msgspec.json.encode(_webhook(result))
        case AgentCard():
            return msgspec.json.encode(cards.hybrid(result))
        case tuple():
            return msgspec.json.encode([_webhook(config) for config in result])
        case _:
            return v03.encode_result(operation, result)


def encode_rest_result(operation: Operation, result: Result) -> bytes:
    """Encode the body of an answer below `/a2a/tasks`: a registration is answered flat, and also as in JSON-RPC."""
    if isinstance(operation, CreatePushConfig) and isinstance(result, PushConfig):
        flat = {"id": result.id, "taskId": result.task_id, "url": result.url}
        return msgspec.json.encode(flat | _webhook(result))
    return encode_result(operation, result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the task, as a stream's first frame."""
    return msgspec.json.encode(_task(record, history_length))


def encode_message(answer: Message) -> bytes:
    """Encode a Message, as in 0.3."""
    return v03.encode_message(answer)


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frames of an event; `record` is the task up to it, which a completion needs for its artifacts."""
    match event:
        case Submitted():
            return (encode_snapshot(v03.submitted(head, event), None),)
        case StatusChanged(state=TaskState.COMPLETED) if record is not None:
            return (*_whole_artifacts(record), msgspec.json.encode(status_update(head, event)))
        case StatusChanged():
            return (msgspec.json.encode(status_update(head, event)),)
        case ArtifactChunk():
            return v03.encode_event(head, replace(event, artifact=marked_artifact(event.artifact)), None)
        case _:
            return v03.encode_event(head, event, None)


def encode_subscription(record: Record) -> tuple[bytes, ...]:
    """Encode the frames for a caller who resubscribes: the task, its artifacts if it has completed, its status."""
    whole = _whole_artifacts(record) if record.state is TaskState.COMPLETED else ()
    last = msgspec.json.encode(status_update(record.head, stands(record)))
    return (encode_snapshot(record, None), *whole, last)


def stands(record: Record) -> StatusChanged:
    """Return the task's current status as the event that would report it."""
    return StatusChanged(
        state=record.state,
        timestamp=record.status.timestamp,
        message=record.status.message,
        progress=record.progress if record.state is TaskState.WORKING else None,
        usage=record.usage if record.terminal else None,
        duration_ms=record.duration_ms,
    )


def _task(record: Record, history_length: int | None) -> Json:
    return {
        "kind": "task",
        "id": record.head.id,
        "contextId": record.head.context_id,
        "status": v03.status_of(record.status),
        "artifacts": [v03.artifact_of(each) for each in artifacts(record)],
        "data": cost(record),
        **v03.past(record, history_length),
    }


def artifacts(record: Record) -> tuple[Artifact, ...]:
    """Return the artifacts. The last one of a completed task has the cost, unless its agent reported it."""
    made = tuple([marked_artifact(each) for each in record.artifacts])
    if record.state is not TaskState.COMPLETED:
        return made
    if any(media_type(part) == COST_TYPE for artifact in made for part in artifact.parts):
        return made
    part = data_part(cost(record), COST_TYPE)
    if not made:
        return (Artifact(artifact_id=record.head.id, parts=(part,)),)
    *before, last = made
    return (*before, replace(last, parts=(*last.parts, part)))


def status_update(head: TaskHead, event: StatusChanged) -> Json:
    """Build a status update, with its tool call as a data part of its message."""
    said, call = event.message, tool_call(event.metadata)
    if said is None and call is not None:
        said = Message(message_id=head.id, role=Role.AGENT, parts=(), context_id=head.context_id, task_id=head.id)
    if said is not None:
        said = replace(said, parts=(*_mark_parts(said.parts), *([call] if call is not None else ())))
    metadata = {name: value for name, value in (event.metadata or {}).items() if name != TOOL_CALL} or None
    return v03.status_update(head, replace(event, message=said, metadata=metadata))


def marked_artifact(artifact: Artifact) -> Artifact:
    """Return the artifact with its data parts marked."""
    if all(media_type(part) is None for part in artifact.parts):
        return artifact
    return replace(artifact, parts=_mark_parts(artifact.parts))


def _whole_artifacts(record: Record) -> tuple[bytes, ...]:
    chunks = [ArtifactChunk(artifact, append=False, last_chunk=True) for artifact in artifacts(record)]
    return tuple([msgspec.json.encode(v03.artifact_update(record.head, chunk)) for chunk in chunks])


def _webhook(config: PushConfig) -> Json:
    """Build a webhook as in 0.3, with its URL first."""
    shown = v03.push_config(config)
    return {"taskId": config.task_id, "pushNotificationConfig": {"url": shown.pop("url"), **shown}}


def _mark_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple([marked(part) for part in parts])
