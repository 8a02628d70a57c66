"""Calls webhooks registered in protoAgent's dialect with a bare `status-update`, once the task has ended.

Invariant: the call for a completed task includes its result: one `artifact`, whole.
"""

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.protoagent.encode import Json, artifacts, marked_artifact, status_update
from dragoman.dialects.protoagent.encode import stands as at_rest
from dragoman.dialects.v03.encode import artifact_of, artifact_update
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.message import Artifact
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState


def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode a status update; without an event, one with the current status. A chosen artifact is an update too."""
    if isinstance(told, Artifact):
        whole = ArtifactChunk(marked_artifact(told), append=False, last_chunk=True)
        return msgspec.json.encode(artifact_update(head, whole))
    event = told if isinstance(told, StatusChanged) else at_rest(stands())
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
    encode=encode,
    authorization=push.top_level_wins,
    signature=push.standard_signature,
    told=told,
)
