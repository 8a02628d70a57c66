"""A task as it stood after its events, as operators read it."""

import pytest

from dragoman.engine.admin.folded_places import FoldedPlaces
from dragoman.engine.admin.moments import PARTS_MAX, read_moment
from dragoman.engine.admin.playback import CHARACTERS_MAX, read_content
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import ArtifactChunk, Event
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.store.api import Store
from tests.store.cases.bench import by_run, ending, new_task

CHUNKS = 40


async def make_task(store: Store, *parts: Part) -> None:
    """A task `t` whose artifact came with a chunk for each part."""
    chunks: list[Event] = [
        ArtifactChunk(Artifact(artifact_id="a", parts=(part,)), append=number > 0, last_chunk=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    await store.create(new_task("t"))
    await store.append(by_run("t", *chunks))
    await store.append(ending("t", len(chunks) + 1))


async def test_each_moment_has_what_was_said_until_then(store: Store) -> None:
    words = [f"word {number} " for number in range(CHUNKS)]
    await make_task(store, *[Part(text=word) for word in words])
    places = FoldedPlaces(store)
    for seq in (CHUNKS + 1, 3, 20):
        moment = await read_moment(places, "t", seq)
        (shown,) = moment.artifacts
        assert (moment.seq, moment.last_seq) == (seq, CHUNKS + 2)
        assert shown.artifact.parts == (Part(text="".join(words[: seq - 1])),)
        assert shown.open == (seq < CHUNKS + 1)
    assert (await read_moment(places, "t", 1)).state == "submitted"
    now = await read_moment(places, "t", None)
    assert now == await read_moment(places, "t", CHUNKS + 2)
    assert now.state == "completed"
    with pytest.raises(TaskNotFound):
        await read_moment(places, "nothing", None)


async def test_a_moment_and_an_event_have_the_end_of_a_long_text_and_how_it_begins(store: Store) -> None:
    await make_task(store, Part(text="begins" + "a" * (CHARACTERS_MAX - 6) + "the end"))
    (shown,) = (await read_moment(FoldedPlaces(store), "t", 2)).artifacts
    event = (await read_content(FoldedPlaces(store), "t", 1, 1)).events[0]
    for artifact, dropped, begins in (
        (shown.artifact, shown.dropped, shown.beginning),
        (event.artifact, event.dropped, event.beginning),
    ):
        assert begins.startswith("beginsaaa")
        assert artifact is not None
        assert len(artifact.parts[0].text or "") == CHARACTERS_MAX
        assert (artifact.parts[0].text or "").endswith("the end")
        assert dropped == len("the end")


async def test_a_long_message_has_its_beginning(store: Store) -> None:
    said = Message(message_id="m", role=Role.USER, parts=(Part(text="begins" + "a" * CHARACTERS_MAX),))
    await store.create(new_task("t", said=said))
    event = (await read_content(FoldedPlaces(store), "t", 0, 1)).events[0]
    assert event.message is not None
    assert (event.message.parts[0].text or "").startswith("begins")
    assert event.dropped == len("begins")


async def test_a_moment_has_the_last_ones_of_many_parts(store: Store) -> None:
    await make_task(store, *[Part(data=number) for number in range(PARTS_MAX + 3)])
    (shown,) = (await read_moment(FoldedPlaces(store), "t", PARTS_MAX + 4)).artifacts
    assert shown.dropped_parts == 3
    assert [part.data for part in shown.artifact.parts] == list(range(3, PARTS_MAX + 3))
