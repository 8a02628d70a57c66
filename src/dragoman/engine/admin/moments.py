"""Moments: a task as it stood after one of its events, for an operator who looks at a long one.

Invariant: it only reads, and a moment has a bound: of large texts, and of many parts, artifacts and messages, it has
the last ones, and says how many others there are.
"""

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.inspection import StateWord
from dragoman.engine.admin.playback import Linked, cut_message, cut_parts
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import ArtifactChunk, MessageReceived
from dragoman.model.lifecycle import SPELLED, fold
from dragoman.model.message import Artifact, Message
from dragoman.model.task import Progress, Record, TaskHead, Usage
from dragoman.store.api import Store

PARTS_MAX = 500
ARTIFACTS_MAX = 100
MESSAGES_MAX = 200
"""Most parts of an artifact, and most artifacts and messages of a moment."""


class MomentArtifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact of A2A 1.0 as it stood, without its first `dropped` characters and `dropped_parts`.

    It is `open` while it grows.
    """

    artifact: Artifact
    open: bool = False
    dropped: int = 0
    dropped_parts: int = 0


class Moment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task after its event `seq`; the task has `last_seq` events by now. Messages are those of A2A 1.0.

    `at` is when the status was reached. `dropped_artifacts` and `dropped_messages` came before those that are here.
    `state` is null where the first events of the log have been deleted, so that nobody knows how the task stood.
    """

    seq: int
    last_seq: int
    state: StateWord | None
    at: str | None = None
    status_message: Message | None = None
    history: tuple[Message, ...] = ()
    artifacts: tuple[MomentArtifact, ...] = ()
    progress: Progress | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    dropped_artifacts: int = 0
    dropped_messages: int = 0


class Moments:
    """Reads the tasks of everybody from a store, as they stood."""

    def __init__(self, store: Store, linked: Linked, places: FoldedPlaces) -> None:
        self._store = store
        self._linked = linked
        self._places = places

    async def read(self, task_id: str, seq: int | None) -> Moment:
        """The task after its event `seq`; None: as it stands. Raises TaskNotFound, or StoreError."""
        known = await self._store.head(task_id)
        if known is None:
            raise TaskNotFound(task_id)
        head, last_seq, _ = known
        record = await self._now(task_id) if seq is None or seq >= last_seq else await self._then(head, seq)
        return (
            Moment(seq=seq or last_seq, last_seq=last_seq, state=None)
            if record is None
            else self._moment(record, last_seq)
        )

    async def _now(self, task_id: str) -> Record:
        stored = await self._store.load(task_id)
        if stored is None:
            raise TaskNotFound(task_id)  # it has been deleted since
        return fold(stored.head, stored.snapshot, stored.events)

    async def _then(self, head: TaskHead, seq: int) -> Record | None:
        folded, _ = await self._places.reach(head, seq)
        return folded.record() if folded.seq else None

    def _moment(self, record: Record, last_seq: int) -> Moment:
        said = record.status.message
        return Moment(
            seq=record.seq,
            last_seq=max(last_seq, record.seq),
            state=SPELLED[record.state],  # type: ignore[arg-type]  # the words of StateWord
            at=record.status.timestamp,
            status_message=None if said is None else self._message(said),
            history=tuple([self._message(each) for each in record.history[-MESSAGES_MAX:]]),
            artifacts=tuple(
                [
                    self._artifact(each, open=each.artifact_id in record.open_artifacts)
                    for each in record.artifacts[-ARTIFACTS_MAX:]
                ]
            ),
            progress=record.progress,
            usage=record.usage,
            duration_ms=record.duration_ms,
            dropped_artifacts=max(0, len(record.artifacts) - ARTIFACTS_MAX),
            dropped_messages=max(0, len(record.history) - MESSAGES_MAX),
        )

    def _message(self, message: Message) -> Message:
        linked = self._linked(MessageReceived(message, ""))  # links are made for events
        return cut_message(linked.message if isinstance(linked, MessageReceived) else message)[0]

    def _artifact(self, artifact: Artifact, *, open: bool) -> MomentArtifact:  # noqa: A002  # the field's name
        linked = self._linked(ArtifactChunk(artifact))
        whole = linked.artifact if isinstance(linked, ArtifactChunk) else artifact
        parts, dropped = cut_parts(whole.parts[-PARTS_MAX:])
        return MomentArtifact(
            artifact=replace(whole, parts=parts),
            open=open,
            dropped=dropped,
            dropped_parts=max(0, len(whole.parts) - PARTS_MAX),
        )
