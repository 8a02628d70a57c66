"""The wire: the log of a task as clients of each dialect read it, for an operator.

Invariant: it only reads. A frame is made by the very functions that make the streams of callers, for a caller who
follows the task from its first event on and reads each event as soon as it is written.
"""

from collections.abc import Mapping, Sequence

from dragoman.admin.logs import Wire, WireFrames
from dragoman.dialects.api import Dialect
from dragoman.dialects.resolve import SYSTEMS
from dragoman.engine.admin.folded_places import LOG_BYTES, FoldedPlaces
from dragoman.engine.admin.playback import READ_BYTES, find_head
from dragoman.model.errors import InvalidParams
from dragoman.model.events import Logged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TERMINAL, TaskHead

DIALECTS: Mapping[str, Dialect] = {system.dialect.name: system.dialect for system in SYSTEMS}


FRAME_CHARACTERS = 200_000
"""Most characters of one frame; longer ones are cut, and then are no JSON."""


async def read_wire(places: FoldedPlaces, task_id: str, dialects: Sequence[str], after: int, limit: int) -> Wire:
    """At most `limit` events after seq `after`, in these dialects; fewer once the frames have `LOG_BYTES`.

    The frames of some dialects show the whole task. So the events before them are read as well, but only those
    since the last page that ended before. Raises InvalidParams for an unknown dialect, TaskNotFound, or StoreError.
    """
    chosen = [_dialect(name) for name in dict.fromkeys(dialects)]
    head, seq, state = await find_head(places.store, task_id)
    fold = await places.reach(head, after)
    found: dict[str, list[WireFrames]] = {dialect.name: [] for dialect in chosen}
    last, left, size = after, limit, 0
    while left and (page := await places.store.read(task_id, last, READ_BYTES)):
        for stored in page:
            logged = Logged(stored.seq, places.linked(stored.event))
            last = logged.seq
            replaces = fold.replaces(logged.event)
            if fold.seq or isinstance(logged.event, Submitted):  # a pruned log has nothing to fold onto
                fold.add(logged.seq, logged.event)
            for dialect in chosen:
                frames = _frames(dialect, head, fold, logged, replaces=replaces)
                found[dialect.name].append(WireFrames(seq=logged.seq, frames=frames))
                size += sum(map(len, frames))
            left = left - 1 if size < LOG_BYTES else 0
            if not left:
                break
    places.keep(fold)
    return Wire(
        dialects={name: tuple(frames) for name, frames in found.items()},
        seq=seq,
        ended=state in TERMINAL,
        next_after=last if last < seq else None,
    )


def _dialect(name: str) -> Dialect:
    found = DIALECTS.get(name)
    if found is None:
        raise InvalidParams("dialects", f"{name[:50]!r} is none: choose from {', '.join(DIALECTS)}, with commas")
    return found


def _frames(dialect: Dialect, head: TaskHead, fold: Fold, logged: Logged, *, replaces: bool) -> tuple[str, ...]:
    event = logged.event
    if isinstance(event, Submitted):  # every stream begins with the task, in the dialect's own way
        snapshot = dialect.encode_snapshot(fold.record(), None)
        return (_enveloped(dialect, snapshot),) if snapshot else ()
    record = fold.record() if fold.seq and (replaces or dialect.wants_record(event)) else None
    return tuple([_enveloped(dialect, frame) for frame in dialect.encode_event(head, event, record)])


def _enveloped(dialect: Dialect, frame: bytes) -> str:
    before, after = dialect.around_frame(b'"1"')
    text = (before + frame + after).decode("utf-8", "replace")
    if len(text) <= FRAME_CHARACTERS:
        return text
    return f"{text[:FRAME_CHARACTERS]}… ({len(text):,} characters)"
