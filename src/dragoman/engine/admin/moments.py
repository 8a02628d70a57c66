"""Moments: a task as it stood after one of its events, for an operator who looks at a long one.

Invariant: it only reads, and a moment has a bound: of large texts of artifacts, and of many parts, artifacts and
messages, it has the last ones, and says how many others there are.
"""

from msgspec.structs import replace

from dragoman.admin.logs import Moment, MomentArtifact
from dragoman.admin.tasks import state_word
from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.playback import cut_message, cut_parts, find_head, find_snapshot
from dragoman.model.message import Artifact
from dragoman.model.task import Record

PARTS_MAX = 500
ARTIFACTS_MAX = 100
MESSAGES_MAX = 200
"""Most parts of an artifact, and most artifacts and messages of a moment."""


async def read_moment(places: FoldedPlaces, task_id: str, seq: int | None) -> Moment:
    """The task after its event `seq`; None: as it stands. Raises TaskNotFound, or StoreError."""
    if seq is not None:
        head, last_seq, _ = await find_head(places.store, task_id)
        if seq < last_seq:
            folded = await places.reach(head, seq)
            if not folded.seq:
                return Moment(seq=seq, last_seq=last_seq, state=None)
            return _moment(folded.record(), last_seq)
    stored = await find_snapshot(places.store, task_id)
    return _moment(await places.stand(stored), stored.seq)


def _moment(record: Record, last_seq: int) -> Moment:
    said = record.status.message
    return Moment(
        seq=record.seq,
        last_seq=max(last_seq, record.seq),
        state=state_word(record.state),
        at=record.status.timestamp,
        status_message=None if said is None else cut_message(said)[0],
        history=tuple([cut_message(each)[0] for each in record.history[-MESSAGES_MAX:]]),
        artifacts=tuple(
            [
                _artifact(each, open=each.artifact_id in record.open_artifacts)
                for each in record.artifacts[-ARTIFACTS_MAX:]
            ]
        ),
        progress=record.progress,
        usage=record.usage,
        duration_ms=record.duration_ms,
        dropped_artifacts=max(0, len(record.artifacts) - ARTIFACTS_MAX),
        dropped_messages=max(0, len(record.history) - MESSAGES_MAX),
    )


def _artifact(artifact: Artifact, *, open: bool) -> MomentArtifact:  # noqa: A002  # the field's name
    parts, dropped, begins = cut_parts(artifact.parts[-PARTS_MAX:])
    return MomentArtifact(
        artifact=replace(artifact, parts=parts),
        open=open,
        dropped=dropped,
        beginning=begins,
        dropped_parts=max(0, len(artifact.parts) - PARTS_MAX),
    )
