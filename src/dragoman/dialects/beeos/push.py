"""Calls webhooks registered in BeeOS's dialect, in its `a2a` format and with its own signature.

Invariant: BeeOS's receivers can read a body (`type`, `task_id`, `status` …), and so can readers of the updates that A2A
0.3 streams (`kind`, `taskId` …): the keys of both are side by side.
"""

import hashlib
import hmac

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Signing, Stands, Told
from dragoman.dialects.beeos.encode import TAG, Json, status_of
from dragoman.dialects.vendors import encode_artifact
from dragoman.model.events import StatusChanged
from dragoman.model.message import Artifact
from dragoman.model.task import TERMINAL, TaskHead, TaskStatus

FORMAT = ("X-BeeOS-Webhook-Format", "a2a")
"""The header that names the format of the bodies."""

_ARTIFACT = b'{"type":"task_artifact",'
"""The beginning of a body with an artifact; a signed call also names it in a header."""


def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
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
    encode=encode,
    authorization=push.top_level_wins,
    signature=signature,
    headers=(FORMAT,),
)
