"""Tasks and frames as protoAgent writes them: those of 0.3, with `data` on the task and its cost in the last artifact.

Invariant: a task that completes sends its artifacts again, whole, before its last status, so that whoever missed a
chunk, or reads none, has them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects.protoagent.extensions import COST_TYPE, TOOL_CALL, cost, data_part, marked, media_type, tool_call
from dragoman.dialects.v03 import encode as v03
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import Operation, Result
from dragoman.model.task import Record, TaskHead, TaskState

Json = dict[str, Any]


def encode_result(operation: Operation, result: Result) -> bytes:
    """The `result` of an answer; what is no task is as 0.3 has it."""
    if isinstance(result, Record):
        return encode_snapshot(result, v03.history_limit(operation))
    return v03.encode_result(operation, result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """The task, as a stream's first frame."""
    return msgspec.json.encode(_task(record, history_length))


def encode_message(answer: Message) -> bytes:
    """A Message, as 0.3 has it."""
    return v03.encode_message(answer)


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """The frames of an event; `record` is the task up to it, which completion needs for the artifacts."""
    match event:
        case Submitted():
            return (encode_snapshot(v03.submitted(head, event), None),)
        case StatusChanged(state=TaskState.COMPLETED) if record is not None:
            return (*_whole_artifacts(record), *_status_update(head, event))
        case StatusChanged():
            return _status_update(head, event)
        case ArtifactChunk():
            return v03.encode_event(head, replace(event, artifact=_marked_artifact(event.artifact)), None)
        case _:
            return v03.encode_event(head, event, None)


def encode_subscription(record: Record) -> tuple[bytes, ...]:
    """What a caller gets who takes a task up again: the task, its artifacts if it has completed, its status."""
    status = StatusChanged(
        state=record.state,
        timestamp=record.status.timestamp,
        message=record.status.message,
        progress=record.progress if record.state is TaskState.WORKING else None,
        usage=record.usage if record.terminal else None,
        duration_ms=record.duration_ms,
    )
    artifacts = _whole_artifacts(record) if record.state is TaskState.COMPLETED else ()
    return (encode_snapshot(record, None), *artifacts, *_status_update(record.head, status))


def _task(record: Record, history_length: int | None) -> Json:
    spent = cost(record)
    return {
        "kind": "task",
        "id": record.head.id,
        "contextId": record.head.context_id,
        "status": v03.status_of(record.status),
        "artifacts": [v03.artifact_of(each) for each in _artifacts(record, spent)],
        "data": spent,
        **v03.past(record, history_length),
    }


def _artifacts(record: Record, spent: Json) -> tuple[Artifact, ...]:
    """The artifacts; of a completed task the last one tells what it has `spent`, unless its agent did."""
    artifacts = tuple([_marked_artifact(each) for each in record.artifacts])
    if record.state is not TaskState.COMPLETED:
        return artifacts
    if any(media_type(part) == COST_TYPE for artifact in artifacts for part in artifact.parts):
        return artifacts
    part = data_part(spent, COST_TYPE)
    if not artifacts:
        return (Artifact(artifact_id=record.head.id, parts=(part,)),)
    *before, last = artifacts
    return (*before, replace(last, parts=(*last.parts, part)))


def _whole_artifacts(record: Record) -> tuple[bytes, ...]:
    chunks = [ArtifactChunk(artifact, append=False, last_chunk=True) for artifact in _artifacts(record, cost(record))]
    return tuple([frame for chunk in chunks for frame in v03.encode_event(record.head, chunk, None)])


def _status_update(head: TaskHead, event: StatusChanged) -> tuple[bytes, ...]:
    """The frame of a status, with the tool call that it tells of as a data part of its message."""
    said, call = event.message, tool_call(event.metadata)
    if said is None and call is not None:
        said = Message(message_id=head.id, role=Role.AGENT, parts=(), context_id=head.context_id, task_id=head.id)
    if said is not None:
        said = replace(said, parts=(*_marked(said.parts), *([call] if call is not None else ())))
    metadata = {name: value for name, value in (event.metadata or {}).items() if name != TOOL_CALL} or None
    return v03.encode_event(head, replace(event, message=said, metadata=metadata), None)


def _marked_artifact(artifact: Artifact) -> Artifact:
    if all(media_type(part) is None for part in artifact.parts):
        return artifact
    return replace(artifact, parts=_marked(artifact.parts))


def _marked(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple([marked(part) for part in parts])
