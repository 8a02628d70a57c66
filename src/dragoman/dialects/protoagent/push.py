"""How webhooks registered in protoAgent's dialect are told: with a bare `status-update`, once the task has ended.

Invariant: a task that completes brings its result along: one `artifact`, whole.
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
    """A status update; for how the task stands, one of where it stands. An artifact, if asked for, is an update too."""
    if isinstance(told, Artifact):
        whole = ArtifactChunk(marked_artifact(told), append=False, last_chunk=True)
        return msgspec.json.encode(artifact_update(head, whole))
    event = told if isinstance(told, StatusChanged) else at_rest(stands())
    body = status_update(head, event)
    if event.state is TaskState.COMPLETED:
        body["artifact"] = _result(stands())
    return msgspec.json.encode(body)


def _result(record: Record) -> Json:
    """All that the task gave, in one artifact: its only one, or one with the id of the task."""
    all_of_it = artifacts(record)
    if len(all_of_it) == 1:
        written = artifact_of(all_of_it[0])
    else:
        parts = tuple([part for artifact in all_of_it for part in artifact.parts])
        written = artifact_of(Artifact(artifact_id=record.head.id, parts=parts))
    return written | {"append": False, "lastChunk": True}


def told(told: Told, stands: Stands) -> bool:
    """The end, unless a configuration asks for more."""
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
