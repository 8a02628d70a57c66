"""The log of a task as clients of the dialects read it."""

import pytest

from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.wire import read_wire
from dragoman.model.events import ArtifactChunk, Event, Logged
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Part
from dragoman.store.api import Store
from tests.store.cases.bench import by_run, ending, new_task

CHUNKS = 3_000
PAGE = 100


def chunk(number: int) -> Event:
    artifact = Artifact(artifact_id="a", parts=(Part(text=f"word {number} "),))
    return ArtifactChunk(artifact, append=number > 0, last_chunk=number == CHUNKS - 1)


async def make_long_task(store: Store) -> int:
    """A task with many chunks; returns its last seq."""
    await store.create(new_task("long"))
    await store.append(by_run("long", *(chunk(number) for number in range(CHUNKS))))
    await store.append(ending("long", CHUNKS + 1))
    return CHUNKS + 2


async def test_each_page_of_the_wire_goes_on_from_the_one_before(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    last = await make_long_task(store)
    folded = decoded = 0
    add, read = Fold.add, store.read

    def counted(fold: Fold, seq: int, event: Event) -> None:
        nonlocal folded
        folded += 1
        add(fold, seq, event)

    async def counted_read(task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        nonlocal decoded
        found = await read(task_id, after, limit_bytes)
        decoded += len(found)
        return found

    monkeypatch.setattr(Fold, "add", counted)
    monkeypatch.setattr(store, "read", counted_read)
    places = FoldedPlaces(store)
    after: int | None = 0
    seqs: list[int] = []
    while after is not None:
        page = await read_wire(places, "long", ["1.0", "protoagent"], after, PAGE)
        again = await read_wire(places, "long", ["1.0", "protoagent"], after, PAGE)
        assert again == page, "a page that is read again is the same"
        seqs += [frames.seq for frames in page.dialects["1.0"]]
        after = page.next_after
    assert seqs == list(range(1, last + 1))
    assert folded == 2 * last, "each page was read twice, and no event was folded for another page"
    assert decoded < 20 * last


async def test_a_page_shows_the_whole_task_although_it_begins_in_the_middle(store: Store) -> None:
    last = await make_long_task(store)
    whole = await read_wire(FoldedPlaces(store), "long", ["protoagent"], 0, last)
    places = FoldedPlaces(store)
    for after in (last - 1, last - 200, 10):
        page = await read_wire(places, "long", ["protoagent"], after, PAGE)
        assert page.dialects["protoagent"] == whole.dialects["protoagent"][after : after + PAGE]


async def test_events_that_are_told_alike_are_one(store: Store) -> None:
    last = await make_long_task(store)
    names = ["1.0", "kaos", "evoai"]
    page = await read_wire(FoldedPlaces(store), "long", names, 0, PAGE, each=False)
    assert page.next_after is None
    for name in names:
        told = page.dialects[name]
        assert [(frames.seq, frames.last) for frames in told] == [
            (1, 1),
            (2, 2),
            (3, last - 2),
            (last - 1, last - 1),
            (last, last),
        ]
    whole = await read_wire(FoldedPlaces(store), "long", names[:2], 0, last)
    for name in names[:2]:
        assert [frames.frames for frames in page.dialects[name]] == [
            whole.dialects[name][frames.seq - 1].frames for frames in page.dialects[name]
        ]
        facts = {tuple(fact.learned for fact in frames.facts) for frames in whole.dialects[name][2 : last - 2]}
        assert len(facts) == 1, "told alike"
