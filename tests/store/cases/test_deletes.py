"""Deleting tasks that an operator names.

Invariant: a case uses nothing but the Store protocol.
"""

from msgspec.structs import replace

from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import Dedupe, ListQuery, OverQuota, Owners, Quota, Repeat
from dragoman.store.outbox import Settled
from tests.store.cases.bench import (
    START_MS,
    Bench,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    refused,
)
from tests.store.cases.deliveries import claimed, pushed_task, telling

MADE = Dedupe(b"made", b"m", START_MS + 600_000)
CONTINUED = Dedupe(b"continued", b"c", START_MS + 600_000)
OTHER = Dedupe(b"other", b"o", START_MS + 600_000)


async def test_nothing_remains_of_a_deleted_task(bench: Bench) -> None:
    """Row, log, snapshot, file, webhook, deliveries (one in flight, one dead), calls and counters go."""
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        await store.append(replace(by_run("t1", chunk("a")), dedupe=CONTINUED))
        (due, *_) = await claimed(bench, store)
        await store.outbox.settle(Settled(number=due.number, outcome="dead"))
        await claimed(bench, store)
        await store.append(replace(ending("t1", 2), deliveries=(telling(3, kept=True),)))
        await store.create(new_task("t2", dedupe=MADE, said=message("f", Part(raw=b"x" * 5000))))
        await store.append(ending("t2", 1))
        await store.create(new_task("t3", dedupe=OTHER))
        await store.append(ending("t3", 1))
        assert sorted(await store.delete(["t2", "t1", "t1"])) == ["t1", "t2"]
        for task_id in ("t1", "t2"):
            assert await store.load(task_id) is None
            assert await store.head(task_id) is None
            assert await store.size(task_id) == 0
            assert await store.read(task_id, 0, 1 << 20) == ()
            assert await store.outbox.configs(task_id) == ()
        assert await store.outbox.owed_count() == (0, 0)
        assert await store.outbox.owed() == ()
        assert [await store.recall(each.key) for each in (MADE, CONTINUED)] == [None, None]
        assert await store.recall(OTHER.key) == Repeat("t3", b"o", 1)
        listed = await store.list(ListQuery(owner=Owners.ALL, agent=None))
        assert ([stored.head.id for stored in listed.tasks], listed.total) == (["t3"], 1)
        await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        assert await store.delete(["t1", "t2"]) == ()
        await store.create(new_task("t1", dedupe=MADE))
        assert (await loaded(store, "t1")).seq == 1, "its id and its calls are free again"


async def test_a_task_that_has_not_ended_is_not_deleted(bench: Bench) -> None:
    """Neither is one that does not exist, and those that have ended go nevertheless."""
    async with bench.store() as store:
        await store.create(new_task("works", dedupe=MADE))
        await store.create(new_task("waits", holder=None, state=TaskState.INPUT_REQUIRED))
        await store.create(new_task("ended"))
        await loaded(store, "works")
        await store.append(ending("ended", 1))
        assert await store.delete(["works", "waits", "ended", "none"]) == ("ended",)
        assert (await loaded(store, "works")).seq == 1
        assert await store.recall(MADE.key) == Repeat("works", b"m", 1)
        await store.append(by_run("works", chunk("a")))
        await store.append(ending("works", 2))
        assert (await loaded(store, "waits")).state is TaskState.INPUT_REQUIRED


async def test_a_deleted_task_makes_no_room_in_the_quota_of_its_day(bench: Bench) -> None:
    """The day's quota counts what was made."""
    async with bench.store() as store:
        quota = Quota(max_open_tasks=0, max_daily_tasks=1, day=1)
        await store.create(replace(new_task("t1"), quota=quota))
        await store.append(ending("t1", 1))
        assert await store.delete(["t1"]) == ("t1",)
        await refused(store.create(replace(new_task("t2"), quota=quota)), OverQuota)
