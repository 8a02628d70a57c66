"""Encodes tasks, frames, webhook bodies and bare errors for protoAgent, which are those of 0.3 with additions.

A task has `data`, and its last artifact its cost. Webhooks get a bare `status-update` once the task has ended; that of
a completed task includes its result: one `artifact`, whole. Errors outside JSON-RPC are `{"detail": …}`, one sentence
for the caller to read; inside it they are those of 0.3.

Invariant: a task that completes sends its artifacts again, whole, before its last status. So a reader that missed or
ignored chunks gets them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.dialects import cards, push
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.protoagent.extensions import COST_TYPE, TOOL_CALL, cost, data_part, marked, media_type, tool_call
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.encode import artifact_of, artifact_update
from dragoman.dialects.v03.errors import rest_error_status as status_03
from dragoman.model.card import AgentCard
from dragoman.model.errors import A2AError, Forbidden, InvalidParams, Unauthorized
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import CreatePushConfig, Operation, PushConfig, Result
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState

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
    last = msgspec.json.encode(status_update(record.head, current_status(record)))
    return (encode_snapshot(record, None), *whole, last)


def current_status(record: Record) -> StatusChanged:
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
    if record.unreadable:  # its cost is not known either
        return v03.task(record, history_length)
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
    """Build a webhook as in 0.3, with its URL first, and without its token, which is its credential."""
    shown = v03.push_config(config, token=False)
    return {"taskId": config.task_id, "pushNotificationConfig": {"url": shown.pop("url"), **shown}}


def _mark_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple([marked(part) for part in parts])


# -- webhooks ----------------------------------------------------------------------------------------------------------


def encode_push(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode a status update; without an event, one with the current status. A chosen artifact is an update too."""
    if isinstance(told, Artifact):
        whole = ArtifactChunk(marked_artifact(told), append=False, last_chunk=True)
        return msgspec.json.encode(artifact_update(head, whole))
    event = told if isinstance(told, StatusChanged) else current_status(stands())
    body = status_update(head, event)
    if event.state is TaskState.COMPLETED:
        body["artifact"] = _result(stands())
    return msgspec.json.encode(body)


def _result(record: Record) -> Json:
    """Return the task's whole result in one artifact: its only one, or one with the id of the task."""
    all_of_it = artifacts(record)
    if len(all_of_it) == 1:
        written = artifact_of(all_of_it[0])
    else:
        parts = tuple([part for artifact in all_of_it for part in artifact.parts])
        written = artifact_of(Artifact(artifact_id=record.head.id, parts=parts))
    return written | {"append": False, "lastChunk": True}


def told(told: Told, stands: Stands) -> bool:
    """Report only the end, unless a configuration asks for more."""
    if isinstance(told, StatusChanged):
        return told.state in TERMINAL
    return told is None and stands().terminal


FORM = PushForm(
    content_type="application/json",
    encode=encode_push,
    authorization=push.top_level_wins,
    signature=push.standard_signature,
    told=told,
)


# -- errors outside JSON-RPC -------------------------------------------------------------------------------------------

MISSING = "Unauthorized: expected 'Authorization: Bearer <token>'"
WRONG = "Unauthorized"


def encode_rest_error(error: A2AError) -> bytes:
    """Encode the body of an error outside an envelope."""
    return msgspec.json.encode({"detail": _detail(error).encode("utf-8", "replace").decode()})


def rest_error_status(error: A2AError) -> int:
    """Return the HTTP status of such an error: 404 for a missing task, 400 for a wrong field."""
    return 400 if isinstance(error, InvalidParams) else status_03(error)


def http_error(error: A2AError) -> bytes | None:
    """Encode the whole HTTP body of an error that is answered outside JSON-RPC; None for any other."""
    return encode_rest_error(error) if isinstance(error, Unauthorized | Forbidden) else None


def _detail(error: A2AError) -> str:
    match error:
        case Unauthorized():
            return MISSING if error.missing else WRONG
        case Forbidden() if not error.message.startswith("Forbidden"):
            return f"Forbidden: {error.message}"
        case _:
            return error.message
