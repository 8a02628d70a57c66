"""Encodes the frames of BeeOS's streams: bare objects whose `type` is `status`, `artifact_delta` or `artifact`.

Invariant: the deltas of an artifact, joined, are the artifact. An artifact is sent as `artifact` when it came whole, or
else before the terminal status, which is the last frame. It is sent once, unless the agent replaces or extends it.
"""

from typing import assert_never

import msgspec

from dragoman.dialects.beeos.encode import TAG, Json, message, status_text
from dragoman.dialects.v03.encode import STATES
from dragoman.dialects.vendors import encode_artifact, encode_part
from dragoman.model.events import ArtifactChunk, Delegated, Event, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState


def encode_snapshot(record: Record, history_length: int | None) -> bytes:
    """Encode the task's status, as a stream's first frame; BeeOS's tasks have no history."""
    return _where(record)


def encode_subscription(record: Record) -> tuple[bytes, ...]:
    """Encode the task for a caller who has seen nothing of it: an artifact that comes in chunks is one delta so far."""
    head = record.head
    if record.terminal:
        return (*(_whole(head, artifact) for artifact in record.artifacts), _where(record))
    chunked = record.chunked_artifacts
    artifacts = [
        _delta(head, artifact) if artifact.artifact_id in chunked else _whole(head, artifact)
        for artifact in record.artifacts
    ]
    return (_where(record), *artifacts)


def encode_message(answer: Message) -> bytes:
    """Encode a message without a task; BeeOS's manners never produce one."""
    return msgspec.json.encode({"type": "message", "message": message(answer)})


def encode_event(head: TaskHead, event: Event, record: Record | None) -> tuple[bytes, ...]:
    """Encode the frames of an event; none for the caller's own messages. `record` is the task folded up to a status
    event, or up to a chunk that restarts an artifact: its deltas would be joined to the earlier ones.
    """
    match event:
        case Submitted():
            return (_status(head, TaskState.SUBMITTED, ""),)
        case MessageReceived() | Delegated() | Noted():
            return ()
        case StatusChanged():
            status = _status(head, event.state, status_text(event.state, event.message, event.progress))
            if record is None or event.state not in TERMINAL:
                return (status,)
            chunked = [each for each in record.artifacts if each.artifact_id in record.chunked_artifacts]
            return (*(_whole(head, artifact) for artifact in chunked), status)
        case ArtifactChunk(artifact, append, last_chunk):
            whole = not append and (last_chunk or record is not None)
            return (_whole(head, artifact) if whole else _delta(head, artifact),)
        case _:
            assert_never(event)


def _where(record: Record) -> bytes:
    status = record.status
    return _status(record.head, status.state, status_text(status.state, status.message, record.progress))


def _status(head: TaskHead, state: TaskState, text: str) -> bytes:
    status: Json = {"state": STATES[state]}
    if text:
        status["message"] = text
    return msgspec.json.encode({"type": "status", "task_id": head.id, "status": status, "context_id": head.context_id})


def _delta(head: TaskHead, artifact: Artifact) -> bytes:
    delta = {"parts": [encode_part(part, TAG) for part in artifact.parts], "artifactId": artifact.artifact_id}
    return msgspec.json.encode({"type": "artifact_delta", "task_id": head.id, "delta": delta})


def _whole(head: TaskHead, artifact: Artifact) -> bytes:
    return msgspec.json.encode({"type": "artifact", "task_id": head.id, "artifact": encode_artifact(artifact, TAG)})
