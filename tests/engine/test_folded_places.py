"""How operators read tasks whose logs are long: piece by piece, and each piece as seldom as possible."""

import asyncio
import threading
from functools import partial
from secrets import token_bytes
from typing import cast

import pytest
from msgspec.structs import replace

from dragoman.admin.logs import READ_MOMENT, MomentQuery
from dragoman.admin.overview import UpstreamLine
from dragoman.admin.tasks import SHOW_TASK
from dragoman.auth.keys import make_key
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.folded_places import LOG_BYTES, PLACES_BYTES_MAX, FoldedPlaces
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.moments import read_moment
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.admin.upstream_questions import ask_upstream
from dragoman.engine.api import Run
from dragoman.engine.handlers.audit import Keeping, Trail
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import ArtifactChunk, Event, Logged, Noted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Part
from dragoman.model.task import Record, TaskState, TaskStatus
from dragoman.store.api import Store, Stored
from tests.engine.house import Scripted, house, read, say, streaming
from tests.store.cases.bench import by_run, ending, head, new_task

DEADLINE_S = 60.0
OPERATOR = Operator("key:ops")
NAME_BYTES = 100_000
"""Chunks repeat the name of their artifact, so that a log may be much larger than its task."""


class Counted:
    """Counts what is read of a store's logs. From the page `stops_at` on a read waits until `gate` is open."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: list[int] = []
        """The stored bytes of each page."""
        self.stops_at = 1_000_000
        self.stopped = asyncio.Event()
        self.gate = asyncio.Event()
        self._read = store.read
        monkeypatch.setattr(store, "read", self.read)
        monkeypatch.setattr(store, "load", self.load)

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        raise AssertionError("the whole task is read at once")

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        if len(self.pages) >= self.stops_at:
            self.stopped.set()
            await self.gate.wait()
        page = await self._read(task_id, after, limit_bytes)
        self.pages.append(sum(logged.size for logged in page))
        return page


def named_chunk(number: int) -> Event:
    artifact = Artifact(artifact_id="a", name="n" * NAME_BYTES, parts=(Part(text=f"{number} "),))
    return ArtifactChunk(artifact, append=number > 0, last_chunk=False)


async def make_task(store: Store, megabytes: int, *, snapshot_after: int | None = None) -> Record:
    """A task `t` that runs, with a log of so many megabytes and perhaps a snapshot. Returns how it stands."""
    await store.create(new_task("t"))
    whole = Fold(head("t"))
    whole.add(1, new_task("t").events[0])
    for megabyte in range(megabytes):
        events = [named_chunk(10 * megabyte + number) for number in range(10)]
        whole = whole.ahead(events)
        kept = whole.record() if megabyte + 1 == snapshot_after else None
        await store.append(replace(by_run("t", *events), snapshot=kept))
    return whole.record()


async def test_a_log_that_is_larger_than_its_task_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    megabytes = (PLACES_BYTES_MAX >> 20) + 2
    record = await make_task(store, megabytes)
    counted, places = Counted(store, monkeypatch), FoldedPlaces(store)
    assert (await places.reach(record.head, record.seq)).record() == record
    assert sum(counted.pages) > PLACES_BYTES_MAX
    assert max(counted.pages) <= LOG_BYTES + 2 * NAME_BYTES
    counted.pages.clear()
    await store.append(by_run("t", named_chunk(10 * megabytes)))
    assert (await places.reach(record.head, record.seq + 1)).seq == record.seq + 1
    assert sum(counted.pages) < 2 * NAME_BYTES


async def test_a_task_stands_as_its_snapshot_and_the_events_after_it_say(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await make_task(store, 7, snapshot_after=4)
    counted = Counted(store, monkeypatch)
    assert await FoldedPlaces(store).stand(await snapshot_of(store)) == record
    assert 3 * LOG_BYTES * 0.9 < sum(counted.pages) < 4 * LOG_BYTES, "nothing before the snapshot is read"
    counted.pages.clear()
    assert (await FoldedPlaces(store).reach(record.head, record.seq - 1)).seq == record.seq - 1
    assert sum(counted.pages) < 5 * LOG_BYTES, "one page was read before the snapshot was looked for"


async def test_a_task_in_memory_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await make_task(store, 2)
    counted = Counted(store, monkeypatch)
    assert await FoldedPlaces(store, known={"t": record}.get).stand(await snapshot_of(store)) == record
    assert counted.pages == []
    await store.append(by_run("t", named_chunk(20)))
    behind = await FoldedPlaces(store, known={"t": record}.get).stand(await snapshot_of(store))
    assert behind.seq == record.seq + 1
    assert sum(counted.pages) < 2 * NAME_BYTES, "only what is missing in memory is read"


async def test_readers_of_one_task_share_what_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await make_task(store, 8)
    counted, places = Counted(store, monkeypatch), FoldedPlaces(store)
    inspector = Inspector(store, places)
    found = await asyncio.gather(
        *[read_moment(places, "t", None) for _ in range(4)],
        *[inspector.show("t") for _ in range(4)],
        places.reach(record.head, record.seq),
    )
    assert {each.seq for each in found} == {record.seq}
    assert sum(counted.pages) < (8 + 9 + 1) * LOG_BYTES, "each has read its first page, and one of them the others"


async def test_a_reader_who_leaves_reads_no_further(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await make_task(store, 8)
    counted, places = Counted(store, monkeypatch), FoldedPlaces(store)
    counted.stops_at = 4
    leaves = asyncio.create_task(places.reach(record.head, record.seq))
    async with asyncio.timeout(DEADLINE_S):
        await counted.stopped.wait()
        stays = asyncio.create_task(places.reach(record.head, record.seq))
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        counted.gate.set()
        assert (await stays).record() == record
    assert sum(counted.pages) < 10 * LOG_BYTES, "the one who stays goes on from where the other was"


async def test_a_task_that_runs_here_is_shown_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def script(run: Run) -> None:
        await say(run, "one ")
        await say(run, "two")
        await gate.wait()

    async with house(Scripted(script)) as h:
        trail = Trail(h.store.audit, Keeping.OFF)
        administration = Administration(
            h.engine.operations, h.engine.operated, h.store, trail, partial(make_key, token_bytes)
        )
        stream = await h.open(streaming())
        await read(stream, until=lambda items: "two" in str(items))
        assert stream.head is not None
        task_id = stream.head.id
        counted = Counted(h.store, monkeypatch)
        report = await administration.answer(SHOW_TASK, Asked(OPERATOR, None, task_id))
        moment = await administration.answer(READ_MOMENT, Asked(OPERATOR, MomentQuery(), task_id))
        assert [each.artifact.parts for each in moment.artifacts] == [(Part(text="one two"),)]
        assert (report.seq, report.task.text, len(report.artifacts)) == (moment.seq, "hi", 1)
        assert counted.pages == []
        monkeypatch.undo()
        gate.set()
        await read(stream)
        stream.close()


async def test_places_are_bounded_by_what_they_take_in_memory(store: Store) -> None:
    places, third = FoldedPlaces(store), "x" * (PLACES_BYTES_MAX // 3)

    def keep(seq: int, text: str) -> None:
        fold = Fold(head("t"))
        fold.add(1, new_task("t").events[0])
        fold.add(seq, ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text=text),))))
        places.keep(fold)

    for seq in (2, 3, 4):
        keep(seq, third)
    assert places.find(head("t"), 9).seq == 4
    assert places.find(head("t"), 2).seq == 0, "the first one has been forgotten"
    keep(5, 3 * third)
    assert places.find(head("t"), 9).seq == 4, "a task that is too large is not remembered"


async def test_a_task_that_is_gone_is_not_found(store: Store) -> None:
    with pytest.raises(TaskNotFound):
        await Inspector(store).show("t")
    await make_task(store, 1)
    stored = await snapshot_of(store)
    await store.append(replace(ending("t", stored.seq), snapshot=None))
    await store.delete(["t"])
    with pytest.raises(TaskNotFound):
        await FoldedPlaces(store).stand(stored)


async def snapshot_of(store: Store) -> Stored:
    """The task `t`, which is there."""
    stored = await store.load_snapshot("t")
    assert stored is not None
    return stored


@pytest.mark.parametrize(("events", "beside"), [(100, False), (5_000, True)])
async def test_only_a_page_of_many_events_is_folded_beside_the_loop(store: Store, events: int, beside: bool) -> None:
    await store.create(new_task("t"))
    await store.append(by_run("t", *[ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="x"),)), True)] * events))
    threads = set[int]()

    def linked(event: Event) -> Event:
        threads.add(threading.get_ident())
        return event

    fold = await FoldedPlaces(store, linked).reach(head("t"), events + 1)
    assert fold.record().artifacts[0].parts == (Part(text="x" * events),)
    assert (threading.get_ident() not in threads) is beside


async def test_a_reader_that_leaves_takes_no_fold_from_under_its_thread(store: Store) -> None:
    await store.create(new_task("t"))
    await store.append(by_run("t", *[ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text="x"),)), True)] * 2_000))
    began, goes_on = threading.Event(), threading.Event()

    def linked(event: Event) -> Event:
        began.set()
        goes_on.wait(DEADLINE_S)
        return event

    places = FoldedPlaces(store, linked)
    reading = asyncio.ensure_future(places.reach(head("t"), 2_001))
    assert await asyncio.to_thread(began.wait, DEADLINE_S)
    reading.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert places.find(head("t"), 2_001).seq == 2_001, "what it came to is kept"


class NearServer:
    """What a server knows of the agent of another one, which answers that each of its tasks is done."""

    def upstreams(self) -> tuple[UpstreamLine, ...]:
        return (UpstreamLine(agent="echo", breaker="closed", succeeded=1, refused=0, failed=0),)

    async def ask_upstream(self, agent: str, notes: UpstreamNotes) -> TaskStatus | str:
        return TaskStatus(state=TaskState.COMPLETED, timestamp="2026-11-20T07:00:00.000Z")


async def test_a_question_to_an_upstream_reads_a_long_task_piece_by_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_task(store, 7)
    await store.append(by_run("t", Noted({"task": "theirs"})))
    counted = Counted(store, monkeypatch)
    places = FoldedPlaces(store)
    for read_bytes in (8 * LOG_BYTES, 0):
        answer = await ask_upstream(places, cast("ServerFacts", NearServer()), "t")
        assert (answer.id, answer.state, answer.differs) == ("theirs", "completed", True)
        assert max([0, *counted.pages]) <= LOG_BYTES + 2 * NAME_BYTES
        assert sum(counted.pages) <= read_bytes
        counted.pages.clear()
