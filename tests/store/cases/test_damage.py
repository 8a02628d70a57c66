"""Rows whose bytes cannot be decoded: each costs itself alone.

Invariant: a case uses nothing but the Store protocol, and the bench to spoil rows behind its back.
"""

from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from dragoman.model.ids import timestamp
from dragoman.model.message import Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState, TaskStatus
from dragoman.store.api import Append, ListQuery, Store, Stored, TaskSearch
from tests.store.cases.bench import (
    AGENTS,
    START_MS,
    Bench,
    D,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    seqs,
    status,
)
from tests.store.cases.spoiling import WAYS, Way

PLACES = (("tasks", "head"), ("pages", "events"), ("snapshots", "record"))
"""The bytes of a task: without any of them it cannot be read."""

GROUND = ListQuery(owner="ann", agent="echo", artifacts=True)


def _each(bench: Bench) -> Iterator[tuple[str, str, Way, str, str]]:
    """Each place with each way, and the names of two replicas: one that is dead when the other comes."""
    if bench.spoil is not None:
        for (table, column), way in product(PLACES, WAYS):
            yield table, column, way, f"{table}-{way.__name__}-1", f"{table}-{way.__name__}-2"


async def _make(store: Store, table: str, state: TaskState, holder: str) -> None:
    """Make t1, t2 and t3, of which t2 is about to be spoiled: what it has decides by which rows it is read."""
    for number in (1, 2, 3):
        await store.create(new_task(f"t{number}", at=START_MS + number, holder=holder))
        if state in TERMINAL and (number != 2 or table == "snapshots"):
            await store.append(ending(f"t{number}", 1, at=START_MS + number))


def _bare(found: Stored, state: TaskState) -> None:
    """Check that a task shows its id, context, state and time, and nothing else."""
    at = found.status_ms
    assert found.unreadable
    assert found.state is state
    assert not found.events
    assert found.snapshot == Record(
        head=found.head, seq=found.seq, status=TaskStatus(state=state, timestamp=timestamp(at)), unreadable=True
    )
    shown = found.head
    assert (shown.id, shown.context_id, shown.owner, shown.agent) == ("t2", "c1", "ann", "echo")


async def test_a_task_that_cannot_be_read_shows_what_its_row_says(bench: Bench) -> None:
    for table, column, way, first, second in _each(bench):
        state = D if table == "snapshots" else W
        async with bench.store(first) as store:
            await _make(store, table, state, first)
        await bench.spoil_task(table, column, "t2", way)
        async with bench.store(second) as store:
            _bare(await loaded(store, "t2"), state)
            mine = await store.find("t2", "ann", "echo")
            assert isinstance(mine, Stored)
            _bare(mine, state)
            assert await store.find("t2", "eve", "echo") is None, "it stays its owner's"
            assert await store.find("t2", "ann", "other") is None
            known = await store.head("t2")
            assert known is not None
            assert (known[0].id, known[0].owner, known[1], known[2]) == ("t2", "ann", mine.seq, state)
            for task_id in ("t1", "t3"):
                assert not (await loaded(store, task_id)).unreadable, "its neighbours are as they were"
            for task_id in ("t1", "t2", "t3"):
                if state in TERMINAL:
                    assert await store.delete((task_id,)) == (task_id,)
                    assert await store.load(task_id) is None
                else:
                    await store.claim(second, 10, AGENTS)
                    await store.append(_end(await loaded(store, task_id)))
                    assert await store.delete((task_id,)) == (task_id,)


def _end(found: Stored) -> Append:
    """The end of a task that cannot be read, as its engine writes it."""
    kept = Record(
        head=found.head,
        seq=found.seq + 1,
        status=TaskStatus(state=TaskState.FAILED, timestamp=timestamp(found.status_ms)),
        unreadable=found.unreadable,
    )
    return Append(
        task_id=found.head.id,
        events=(status(TaskState.FAILED, found.status_ms),),
        state=TaskState.FAILED,
        status_ms=found.status_ms,
        epoch=found.epoch,
        snapshot=kept,
    )


async def test_a_task_that_cannot_be_read_hides_no_other_in_a_list(bench: Bench) -> None:
    for table, column, way, first, second in _each(bench):
        state = D if table == "snapshots" else W
        async with bench.store(first) as store:
            await _make(store, table, state, first)
        await bench.spoil_task(table, column, "t2", way)
        async with bench.store(second) as store:
            listed = await store.list(GROUND)
            assert [stored.head.id for stored in listed.tasks] == ["t3", "t2", "t1"]
            assert [stored.unreadable for stored in listed.tasks] == [False, True, False]
            assert listed.total == 3
            _bare(listed.tasks[1], state)
            before, ids = None, []
            while True:
                page = await store.list(ListQuery(owner="ann", agent="echo", limit=1, before=before))
                (one,) = page.tasks
                ids.append(one.head.id)
                before = one.status_ms, one.head.id
                if not page.more:
                    break
            assert ids == ["t3", "t2", "t1"], "each page can be reached"
            rows = (await store.list_rows(GROUND)).rows
            found = (await store.search(TaskSearch(owner="ann", agent="echo"))).rows
            for shown in (rows, found):
                assert [row.head.id for row in shown] == ["t3", "t2", "t1"]
                assert [row.unreadable for row in shown] == [False, table == "tasks", False]
            assert [stored.head.id for stored in await store.messages("ann", "echo", "c1", 10)] == ["t1", "t2", "t3"]
            await _delete_all(store, second)


async def _delete_all(store: Store, holder: str) -> None:
    await store.claim(holder, 10, AGENTS)
    for number in (1, 2, 3):
        found = await loaded(store, f"t{number}")
        if found.state not in TERMINAL:
            await store.append(_end(found))
    await store.delete(("t1", "t2", "t3"))


async def test_a_task_that_cannot_be_read_is_claimed_and_ended(bench: Bench) -> None:
    for table, column, way, first, second in _each(bench):
        if table == "snapshots":
            continue  # a task that has ended is not claimed
        async with bench.store(first) as store:
            await _make(store, table, W, first)
        await bench.spoil_task(table, column, "t2", way)
        async with bench.store(second) as store:
            claimed = sorted(await store.claim(second, 10, AGENTS), key=lambda stored: stored.head.id)
            assert [stored.head.id for stored in claimed] == ["t1", "t2", "t3"]
            assert [stored.unreadable for stored in claimed] == [False, True, False]
            await store.append(_end(await loaded(store, "t2")))
            ended = await loaded(store, "t2")
            assert ended.unreadable
            assert ended.state is TaskState.FAILED
            assert ended.state not in INTERRUPTED
            await _delete_all(store, second)


async def test_a_log_that_cannot_be_read_as_a_whole_has_a_gap(bench: Bench) -> None:
    if bench.spoil is None:
        return
    async with bench.store() as store:
        await store.create(new_task("t1"))
        for text in ("2", "3", "4"):
            await store.append(by_run("t1", chunk(text)))
    await bench.spoil("pages", "events", "task = (SELECT task FROM tasks WHERE id = 't1') AND first_seq = 3", WAYS[0])
    async with bench.store("h2") as store:
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1, 2], "it ends before the gap"
        assert seqs(await store.read("t1", 2, 1 << 20)) == [4], "or begins behind it"
        assert seqs(await store.read("t1", 2, 1)) == [4]
        assert seqs(await store.read("t1", 3, 1 << 20)) == [4]
        grown = await store.read_since([("t1", 2)], 1 << 20)
        assert seqs(grown["t1"]) == [4]


async def test_a_log_with_a_missing_page_cannot_be_read(bench: Bench) -> None:
    if bench.spoil is None:
        return
    for gone in (1, 2, 3):
        task_id = f"t{gone}"
        async with bench.store(f"h1-{gone}") as store:
            await store.create(new_task(task_id, holder=f"h1-{gone}"))
            await store.append(by_run(task_id, chunk("2")))
            await store.append(by_run(task_id, chunk("3")))
        where = f"task = (SELECT task FROM tasks WHERE id = '{task_id}') AND first_seq = {gone}"
        await bench.spoil("pages", "", where, WAYS[0])
        async with bench.store(f"h2-{gone}") as store:
            assert (await loaded(store, task_id)).unreadable
            await store.claim(f"h2-{gone}", 10, AGENTS)
            await store.append(_end(await loaded(store, task_id)))
            await store.delete((task_id,))


async def test_a_task_of_which_a_file_is_missing_costs_itself_alone(bench: Bench) -> None:
    if bench.spoil is None:
        return
    picture = message("look", Part(raw=b"picture" * 5000, media_type="image/png"))
    async with bench.store() as store:
        for number in (1, 2, 3):
            new = new_task(f"t{number}", at=START_MS + number)
            await store.create(replace(new, events=(replace(new.events[0], message=picture),)))
    await bench.spoil("files", "", "task = (SELECT task FROM tasks WHERE id = 't2')", WAYS[0])
    async with bench.store("h2") as store:
        _bare(await loaded(store, "t2"), W)
        assert [(await loaded(store, task_id)).unreadable for task_id in ("t1", "t3")] == [False, False]
        listed = await store.list(GROUND)
        assert [(stored.head.id, stored.unreadable) for stored in listed.tasks] == [
            ("t3", False),
            ("t2", True),
            ("t1", False),
        ]
        await _delete_all(store, "h2")


async def test_a_delegated_task_that_cannot_be_read_keeps_its_parent(bench: Bench) -> None:
    for way in WAYS if bench.spoil is not None else ():
        async with bench.store(f"{way.__name__}-1") as store:
            await store.create(new_task("p1", holder=f"{way.__name__}-1"))
            child = new_task("t2", holder=f"{way.__name__}-1")
            delegated = replace(child.head, parent="p1", lineage=("echo",), deadline_ms=START_MS + 5)
            await store.create(replace(child, head=delegated))
        await bench.spoil_task("tasks", "head", "t2", way)
        async with bench.store(f"{way.__name__}-2") as store:
            (found,) = await store.children("p1")
            assert (found.id, found.parent, found.deadline_ms) == ("t2", "p1", START_MS + 5)
            assert [late.id for late in await store.overdue(START_MS + 6, 10)] == ["t2"]
            await store.claim(f"{way.__name__}-2", 10, AGENTS)
            await store.append(_end(await loaded(store, "p1")))
            orphans, _ = await store.orphans("", 10)
            assert [orphan.id for orphan in orphans] == ["t2"]
            await store.append(_end(await loaded(store, "t2")))
            await store.delete(("p1", "t2"))
