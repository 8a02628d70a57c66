"""Calls webhooks registered in 1.0 with a StreamResponse (A2A 1.0 §4.3.3).

Invariant: a body is a valid stream frame, so it has nothing that is not in the 1.0 proto.
"""

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.v1.encode import encode_event, encode_snapshot
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.message import Artifact
from dragoman.model.task import TaskHead


def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode `task` for the current task and its beginning, `statusUpdate`, or `artifactUpdate` with the whole
    artifact.
    """
    match told:
        case StatusChanged():
            (body,) = encode_event(head, told, None)
        case Artifact():
            (body,) = encode_event(head, ArtifactChunk(told, append=False, last_chunk=True), None)
        case _:
            body = encode_snapshot(stands(), None)
    return body


FORM = PushForm(
    content_type="application/a2a+json",
    encode=encode,
    authorization=push.official,
    signature=push.standard_signature,
)
