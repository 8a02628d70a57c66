"""The contents of a store after a drill, read through its driver: the other half of what the checker compares."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from dragoman.model.events import (
    ArtifactChunk,
    Event,
    Logged,
    MessageReceived,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.lifecycle import fold
from dragoman.model.task import TERMINAL, TaskHead
from dragoman.store.api import ListQuery, Owners, Store
from tests.drills.checker import Kept, Recorded, Slept
from tests.drills.record import Seen

WHOLE_BYTES = 1 << 30


async def read_all(store: Store, agents: Sequence[str]) -> dict[str, Kept]:
    """Every task of these agents, with its whole log."""
    found: dict[str, Kept] = {}
    for agent in agents:
        before: tuple[int, str] | None = None
        more = True
        while more:
            page = await store.list(ListQuery(owner=Owners.ALL, agent=agent, limit=100, before=before))
            for stored in page.tasks:
                log = await store.read(stored.head.id, 0, WHOLE_BYTES)
                events = [logged.event for logged in log]
                first = events[0]
                assert isinstance(first, Submitted)
                found[stored.head.id] = Kept(
                    task_id=stored.head.id,
                    agent=agent,
                    message_id=first.message.message_id,
                    text="".join(part.text or "" for part in first.message.parts),
                    state=stored.state.value,
                    holder=stored.holder,
                    events=tuple(seen for logged in log if (seen := _seen(logged)) is not None),
                    messages=tuple(
                        event.message.message_id for event in events if isinstance(event, Submitted | MessageReceived)
                    ),
                    tells=must_tell(log),
                    steps=tuple(recorded(events)),
                    sleeps=tuple(slept(events)),
                    artifacts=written(stored.head, log),
                    uncertain=uncertain(events),
                )
                before = (stored.status_ms, stored.head.id)
            more = page.more
    return found


def recorded(events: Sequence[Event]) -> Iterator[Recorded]:
    """The steps of a log that its agent gave a name."""
    for event in events:
        if isinstance(event, Stepped) and not event.name.startswith("$"):
            yield Recorded(event.name, event.placed.place, datetime.fromisoformat(event.timestamp).timestamp() * 1000)


def uncertain(events: Sequence[Event]) -> bool:
    """Whether the last step that was begun has no outcome."""
    begun = ""
    for event in events:
        if isinstance(event, StepBegun):
            begun = event.placed.place
        elif isinstance(event, Stepped) and event.placed.place == begun:
            begun = ""
    return bool(begun)


def slept(events: Sequence[Event]) -> Iterator[Slept]:
    """The sleeps of a log."""
    for event in events:
        if isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_ms is not None:
            yield Slept(event.placed.place, event.placed.wakes_ms)


def written(head: TaskHead, log: Sequence[Logged]) -> tuple[str, ...]:
    """The texts of the artifacts of a task, as its log has them."""
    artifacts = fold(head, None, log).artifacts
    return tuple("".join(part.text or "" for part in artifact.parts) for artifact in artifacts)


def must_tell(log: Sequence[Logged]) -> tuple[int, ...]:
    """The events that a webhook is told: states, and artifacts that are whole, at the latest when the task ends."""
    seqs: list[int] = []
    unfinished: set[str] = set()
    for logged in log:
        match logged.event:
            case ArtifactChunk(artifact=artifact, last_chunk=last):
                unfinished.add(artifact.artifact_id)
                if last:
                    unfinished.discard(artifact.artifact_id)
                    seqs.append(logged.seq)
            case StatusChanged(state=state):
                seqs += [logged.seq] * (len(unfinished) if state in TERMINAL else 0)
                seqs.append(logged.seq)
            case Submitted():
                seqs.append(logged.seq)
            case _:
                pass
    return tuple(seqs)


def _seen(logged: Logged) -> Seen | None:
    """The event as a client sees it; None if it is not shown."""
    event: Event = logged.event
    match event:
        case Submitted():
            return Seen(logged.seq, "task", "TASK_STATE_SUBMITTED")
        case StatusChanged(state=state):
            return Seen(logged.seq, "state", state.value)
        case ArtifactChunk(artifact=artifact):
            return Seen(logged.seq, "text", "".join(part.text or "" for part in artifact.parts))
        case _:
            return None
