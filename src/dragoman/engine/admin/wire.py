"""The wire: the log of a task as clients of each dialect read it, for an operator.

Invariant: it only reads. A frame is made by the very functions that make the streams of callers, for a caller who
follows the task from its first event on and reads each event as soon as it is written.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dragoman.admin.logs import Wire, WireFact, WireFrames
from dragoman.dialects.api import Around
from dragoman.dialects.resolve import SYSTEMS
from dragoman.dialects.system import System
from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.engine.admin.playback import READ_BYTES, find_head
from dragoman.engine.admin.wire_facts import read_facts, truths_of
from dragoman.model.errors import InvalidParams
from dragoman.model.events import ArtifactChunk, Logged, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.operations import GetTask
from dragoman.model.task import TERMINAL, TaskHead

BY_NAME: Mapping[str, System] = {system.name: system for system in SYSTEMS}

FRAME_CHARACTERS = 200_000
"""Most characters of one frame; longer ones are cut, and then are no JSON."""

ALIKE_EVENTS = 50_000
"""Most events that are read for one page, if those that are told alike are one."""

LONG_CHARACTERS = 2000
"""A longer text is another kind of event, since some dialects send the end of it alone."""

REQUEST_ID = b'"1"'
"""The id of the JSON-RPC request that a stream answers."""


async def read_wire(
    places: FoldedPlaces, task_id: str, dialects: Sequence[str], after: int, limit: int, *, each: bool = True
) -> Wire:
    """At most `limit` events after seq `after`, in these dialects; fewer once the frames have `LOG_BYTES`.

    Unless `each` is wanted, events that follow each other and are told alike are one.

    The frames of some dialects show the whole task. So the events before them are read as well, but only those
    since the last page that ended before. Raises InvalidParams for an unknown dialect, TaskNotFound, or StoreError.
    """
    chosen = choose_systems(dialects)
    head, seq, state = await find_head(places.store, task_id)
    fold = await places.reach(head, after)
    found: dict[str, list[WireFrames]] = {system.name: [] for system in chosen}
    last, left, size = after, limit, 0
    ends: list[int] = []
    before: Kind | None = None
    while left and last - after < ALIKE_EVENTS and (page := await places.store.read(task_id, last, READ_BYTES)):
        for stored in page:
            logged = Logged(stored.seq, places.linked(stored.event))
            last = logged.seq
            replaces = add_to(fold, logged)
            kind = None if each else kind_of(logged)
            if kind is not None and kind == before:
                ends[-1] = last
                continue
            before = kind
            ends.append(last)
            for system in chosen:
                frames = encode_frames(system, head, fold, logged, replaces=replaces)
                found[system.name].append(_shown(logged, frames, facts_of(system, head, fold, logged, frames)))
                size += sum(map(len, frames))
            left = left - 1 if size < LOG_BYTES else 0
            if not left:
                break
    places.keep(fold)
    return Wire(
        dialects={
            name: tuple([replace(told, last=end) for told, end in zip(frames, ends, strict=True)])
            for name, frames in found.items()
        },
        seq=seq,
        ended=state in TERMINAL,
        next_after=last if last < seq else None,
    )


def choose_systems(names: Sequence[str]) -> list[System]:
    """The systems of these names, each once. Raises InvalidParams for an unknown one."""
    for name in names:
        if name not in BY_NAME:
            raise InvalidParams("dialects", f"{name[:50]!r} is none: choose from {', '.join(BY_NAME)}, with commas")
    return [BY_NAME[name] for name in dict.fromkeys(names)]


def add_to(fold: Fold, logged: Logged) -> bool:
    """Fold an event. Returns whether it replaces what was said before."""
    replaces = fold.replaces(logged.event)
    if fold.seq or isinstance(logged.event, Submitted):  # a pruned log has nothing to fold onto
        fold.add(logged.seq, logged.event)
    return replaces


Kind = tuple[object, ...]


def kind_of(logged: Logged) -> Kind | None:
    """A kind of event of which one tells how all are told that follow each other: texts of one artifact, and events
    that no caller sees. None for any other, such as a status.
    """
    match event := logged.event:
        case ArtifactChunk(artifact=artifact) if all(part.text is not None for part in artifact.parts):
            long = any(len(part.text or "") > LONG_CHARACTERS for part in artifact.parts)
            return artifact.artifact_id, len(artifact.parts), event.append, event.last_chunk, long
        case Submitted() | StatusChanged() | ArtifactChunk():
            return None
        case _:
            return ("unseen",)


def streams(system: System) -> bool:
    """Whether the dialect has streams. Clients of others ask for the task again."""
    return system.tongue is None or system.tongue.streams


def encode_frames(system: System, head: TaskHead, fold: Fold, logged: Logged, *, replaces: bool) -> tuple[bytes, ...]:
    """What a client is sent of an event, in its envelope. `fold` is the task with the event."""
    dialect, event = system.dialect, logged.event
    if not streams(system):  # a client that has asked before learns something new if the status has changed
        if not fold.seq or not isinstance(event, Submitted | StatusChanged):
            return ()
        return (_within(dialect.around_answer, dialect.encode_result(GetTask(id=head.id), fold.record())),)
    if isinstance(event, Submitted):  # every stream begins with the task, in the dialect's own way
        snapshot = dialect.encode_snapshot(fold.record(), None)
        return (_within(dialect.around_frame, snapshot),) if snapshot else ()
    record = fold.record() if fold.seq and (replaces or dialect.wants_record(event)) else None
    return tuple([_within(dialect.around_frame, frame) for frame in dialect.encode_event(head, event, record)])


def facts_of(
    system: System, head: TaskHead, fold: Fold, logged: Logged, frames: Sequence[bytes]
) -> tuple[WireFact, ...]:
    """What a client learns from the frames of an event; nothing if it is too early for it to ask."""
    if streams(system):
        return read_facts(truths_of(head, logged.event), frames)
    return read_facts(truths_of(head, logged.event, fold.record()), frames) if frames else ()


def _within(around: Around, frame: bytes) -> bytes:
    before, after = around(REQUEST_ID)
    return before + frame + after


def _shown(logged: Logged, frames: Sequence[bytes], facts: tuple[WireFact, ...]) -> WireFrames:
    """The frames with their ids, which are those of `bindings.streams.EventEncoder`."""
    ids = [
        str(logged.seq) if number == len(frames) else f"{logged.seq}.{number}" for number in range(1, len(frames) + 1)
    ]
    return WireFrames(seq=logged.seq, frames=tuple(map(_cut, frames)), ids=tuple(ids), facts=facts)


def _cut(frame: bytes) -> str:
    text = frame.decode("utf-8", "replace")
    if len(text) <= FRAME_CHARACTERS:
        return text
    return f"{text[:FRAME_CHARACTERS]}… ({len(text):,} characters)"
