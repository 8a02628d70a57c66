"""Encodes results, events, errors and webhook bodies for FastA2A: the model's own JSON, with lowercase enums.

Invariant: parts and artifacts are those of 1.0; only roles and states are spelled as in 0.3.
"""

from typing import Any

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, no_frames
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03 import errors as errors_03
from dragoman.dialects.v03.encode import (
    ROLES,
    STATES,
    chunk_members,
    event_metadata,
    history_limit,
    newest,
    present,
    record_metadata,
    submitted,
)
from dragoman.dialects.v1.encode import push_frames
from dragoman.model.errors import A2AError, TaskNotCancelable
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Message
from dragoman.model.operations import Operation, Result, SendMessage
from dragoman.model.task import Record, TaskHead, TaskStatus

Json = dict[str, Any]

NOT_CANCELABLE = "Task not cancelable"
"""The only text that its client reads in such an error. That of TaskNotFound is the same everywhere."""


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer: `{"task": …}` for a send, else the task; any other result is as in 0.3."""
    match result:
        case Record() if isinstance(operation, SendMessage):
            return encode_snapshot(result, operation.history_length)
        case Record():
            return msgspec.json.encode(task(result, history_limit(operation)))
        case Message():
            return encode_message(result)
        case _:
            return v03.encode_result(operation, result)


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode `{"task": …}`."""
    return msgspec.json.encode({"task": task(record, history_length)})


def encode_message(answer: Message) -> bytes:
    """Encode `{"message": …}`, the answer of an agent that makes no task."""
    return msgspec.json.encode({"message": message(answer)})


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frame of an event; none for the caller's own messages."""
    match event:
        case Submitted():
            return (encode_snapshot(submitted(head, event), None),)
        case StatusChanged():
            said = TaskStatus(state=event.state, message=event.message, timestamp=event.timestamp)
            members = {"taskId": head.id, "contextId": head.context_id, "status": _status(said)}
            update = members | {"metadata": event_metadata(event)}
            return (msgspec.json.encode({"statusUpdate": present(update)}),)
        case ArtifactChunk():
            chunk = chunk_members(head, event, msgspec.to_builtins(event.artifact))
            return (msgspec.json.encode({"artifactUpdate": chunk}),)
        case _:
            return no_frames(event)


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer: that of 0.3, with the text that the client reads."""
    if not isinstance(error, TaskNotCancelable):
        return errors_03.encode_error(error)
    members: Json = msgspec.json.decode(errors_03.encode_error(error))
    return msgspec.json.encode(members | {"message": NOT_CANCELABLE})


FORM = PushForm(
    content_type="application/json",
    encode=push_frames(encode_event, encode_snapshot),
    authorization=push.official,
    signature=push.standard_signature,
)
"""Its webhooks are those of 1.0, whose configurations its client sends."""


def task(record: Record, history_length: int | None) -> Json:
    """Build a task; `history_length` None sets no limit."""
    members = {
        "id": record.head.id,
        "contextId": record.head.context_id,
        "status": _status(record.status),
        "history": [message(each) for each in newest(record.history, history_length)],
        "artifacts": msgspec.to_builtins(record.artifacts),
        "metadata": record_metadata(record),
    }
    return present(members)


def message(said: Message) -> Json:
    """Build a message."""
    members: Json = msgspec.to_builtins(said)
    return members | {"role": ROLES[said.role]}


def _status(status: TaskStatus) -> Json:
    members: Json = {"state": STATES[status.state]}
    if status.message is not None:
        members["message"] = message(status.message)
    return members | {"timestamp": status.timestamp}
