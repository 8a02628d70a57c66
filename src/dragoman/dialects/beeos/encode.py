"""Encodes results, frames and webhook bodies for BeeOS: flat tasks, states in lowercase, time stamps in whole seconds.

Frames are bare objects whose `type` is `status`, `artifact_delta` or `artifact`. The deltas of an artifact, joined, are
the artifact. An artifact is sent as `artifact` when it came whole, or else before the terminal status, which is the
last frame. It is sent once, unless the agent replaces or extends it.

Invariant: `id`, `status`, `artifacts` come first, as in BeeOS's text; `contextId`, `kind` and each artifact's
`artifactId` come after, for clients of 0.3. A webhook's body has the keys of BeeOS (`type`, `task_id`, `status` …) and
beside them those of the updates that A2A 0.3 streams (`kind`, `taskId` …).
"""

import hashlib
import hmac
from typing import Any

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Signing, Stands, Told, no_frames
from dragoman.dialects.extensions import unreadable_metadata
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.encode import ROLES, STATES
from dragoman.dialects.vendors import encode_artifact, encode_part, text_of
from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message
from dragoman.model.operations import ListTasks, Operation, PushConfig, Result, TaskPage
from dragoman.model.task import TERMINAL, Progress, Record, TaskHead, TaskState, TaskStatus

Json = dict[str, Any]

TAG = "kind"
"""The member that names a part's type."""


def encode_result(operation: Operation, result: Result) -> bytes:
    """Encode the `result` of an answer; a result other than a task, list or webhook is as in 0.3."""
    match result:
        case Record():
            return msgspec.json.encode(task(result))
        case TaskPage():
            return msgspec.json.encode(_page(operation, result))
        case PushConfig():
            return msgspec.json.encode(_webhook(result))
        case tuple():
            return msgspec.json.encode([_webhook(config) for config in result])
        case _:
            return v03.encode_result(operation, result)


def task(record: Record) -> Json:
    """Build a task."""
    return {
        "id": record.head.id,
        "status": status_of(record.status, record.progress),
        "artifacts": [encode_artifact(artifact, TAG) for artifact in record.artifacts],
        "contextId": record.head.context_id,
        "kind": "task",
        **unreadable_metadata(record),
    }


def status_of(status: TaskStatus, progress: Progress | None) -> Json:
    """Build a task's status."""
    written: Json = {"state": STATES[status.state], "timestamp": _to_the_second(status.timestamp)}
    if text := status_text(status.state, status.message, progress):
        written["message"] = text
    return written


def message(said: Message) -> Json:
    """Build a message."""
    written = {"role": ROLES[said.role], "parts": [encode_part(part, TAG) for part in said.parts]}
    return written | {"messageId": said.message_id, "contextId": said.context_id, "kind": "message"}


def status_text(state: TaskState, said: Message | None, progress: Progress | None) -> str:
    """Return `status.message`, a plain string; for a working task without a message, its progress."""
    text = text_of(said)
    if text or progress is None or state is not TaskState.WORKING:
        return text
    return progress.message or f"Step {progress.current} of {progress.total}"


def _to_the_second(timestamp: str) -> str:
    """Convert `2026-11-20T07:00:00.123Z` to `2026-11-20T07:00:00Z`."""
    return timestamp.partition(".")[0].removesuffix("Z") + "Z"


def _webhook(config: PushConfig) -> Json:
    """Build a webhook without token and secret; `has_secret` says whether it has one."""
    shown = v03.push_config(config, token=False) | {"has_secret": config.secret is not None}
    if config.events:
        shown["events"] = config.events
    return {"taskId": config.task_id, "pushNotificationConfig": shown}


def _page(operation: Operation, page: TaskPage) -> Json:
    """Build a page. The `limit` of a cut page is its length, so the next one begins at `offset` plus `limit`."""
    return {
        "tasks": [task(record) for record in page.records],
        "total": page.total_size,
        "limit": len(page.records) if page.cut else page.page_size,
        "offset": operation.offset if isinstance(operation, ListTasks) else 0,
    }


# -- frames ------------------------------------------------------------------------------------------------------------


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
            return no_frames(event)


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


# -- webhooks ----------------------------------------------------------------------------------------------------------

FORMAT = ("X-BeeOS-Webhook-Format", "a2a")
"""The header that names the format of the bodies."""

_ARTIFACT = b'{"type":"task_artifact",'
"""The beginning of a body with an artifact; a signed call also names it in a header."""


def encode_push(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode a status update, or a complete artifact; for the current task, an update with its current status."""
    body: Json
    match told:
        case Artifact():
            body = {"type": "task_artifact", "task_id": head.id, "context_id": head.context_id}
            body |= {"artifact": encode_artifact(told, TAG), **_as_03("artifact-update", head)}
            body |= {"append": False, "lastChunk": True}
        case StatusChanged():
            said = TaskStatus(state=told.state, message=told.message, timestamp=told.timestamp)
            status = status_of(said, told.progress)
            body = _update(head, status, ended=told.state in TERMINAL)
        case _:
            record = stands()
            body = _update(head, status_of(record.status, record.progress), ended=record.terminal)
    return msgspec.json.encode(body)


def signature(secret: str, signing: Signing) -> push.Headers:
    """Build the headers with BeeOS's signature over `timestamp.body`, and with what the call is about."""
    signed = f"{signing.timestamp_s}.".encode() + signing.body
    digest = hmac.digest(secret.encode(), signed, hashlib.sha256).hex()
    event = "task.artifact" if signing.body.startswith(_ARTIFACT) else "task.state"
    return [
        ("X-BeeOS-Event", event),
        ("X-BeeOS-Task-Id", signing.task_id),
        ("X-BeeOS-Signature", f"t={signing.timestamp_s},v1={digest}"),
    ]


def _update(head: TaskHead, status: Json, *, ended: bool) -> Json:
    body: Json = {"type": "task_status", "task_id": head.id, "context_id": head.context_id, "status": status}
    return body | {"final": ended, "timestamp": status["timestamp"], **_as_03("status-update", head)}


def _as_03(kind: str, head: TaskHead) -> Json:
    return {"kind": kind, "taskId": head.id, "contextId": head.context_id}


FORM = PushForm(
    content_type="application/json",
    encode=encode_push,
    authorization=push.top_level_wins,
    signature=signature,
    headers=(FORMAT,),
)
