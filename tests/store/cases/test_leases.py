"""Leases: holders that are alive or dead, and tasks that live ones claim from dead ones.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from dragoman.model.task import TaskState
from dragoman.store.api import ASIDE, ASLEEP, Append, Fenced, StoreError
from dragoman.store.worker_leases import WORKER
from tests.store.cases.bench import (
    AGENTS,
    Bench,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    new_task,
    refused,
    status,
)


async def test_what_nobody_alive_holds_is_claimed_oldest_first(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t3", holder="dead"))
        await store.create(new_task("t2", holder=None, state=TaskState.SUBMITTED))
        await store.create(new_task("t1", holder="dead"))
        await store.create(new_task("waits", holder=None, state=TaskState.INPUT_REQUIRED))
        await store.create(new_task("mine", holder="h1"))
        await store.append(ending("t3", 1))
        await store.create(new_task("t0", holder="dead"))
        claimed = await store.claim("h1", 2, AGENTS)
        assert [(one.head.id, one.holder, one.epoch, one.seq) for one in claimed] == [
            ("t2", "h1", 1, 1),
            ("t1", "h1", 2, 1),
        ]
        assert [one.head.id for one in await store.claim("h1", 2, AGENTS)] == ["t0"]
        assert await store.claim("h1", 2, AGENTS) == ()
        assert [(await loaded(store, task_id)).epoch for task_id in ("t1", "mine")] == [2, 1]


async def test_the_writes_of_a_holder_that_lost_its_task_are_refused(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1", holder="dead"))
        await store.append(by_run("t1", chunk("before")))
        before = await loaded(store, "t1")
        await store.claim("h1", 10, AGENTS)
        await refused(store.append(by_run("t1", chunk("after"))), Fenced)
        found = await loaded(store, "t1")
        assert (before.holder, before.epoch) == ("dead", 1)
        assert (found.holder, found.epoch, found.seq) == ("h1", 2, 2)
        both = (store.append(by_run("t1", chunk("old"))), store.append(by_run("t1", chunk("new"), epoch=2)))
        _, new = await asyncio.gather(*both, return_exceptions=True)
        assert not isinstance(new, BaseException)


async def test_two_holders_of_one_store_do_not_claim_from_each_other(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=AGENTS)
        for number in range(20):
            await store.create(new_task(f"t{number:02}", holder=("h1", "h2", "dead")[number % 3]))
        both = await asyncio.gather(*(store.claim(holder, 2, AGENTS) for holder in ("h1", "h2", "h1", "h2")))
        ids = [one.head.id for claimed in both for one in claimed]
        assert sorted(ids) == ["t02", "t05", "t08", "t11", "t14", "t17"], "each once"
        assert await store.replicas.alive("h1")
        assert await store.replicas.alive("h2")
        assert not await store.replicas.alive("dead")
        await store.replicas.leave("h2")
        assert not await store.replicas.alive("h2")
        try:
            await store.claim("h2", 1, AGENTS)
        except StoreError:
            pass
        else:
            raise AssertionError("a dead holder claimed")
        left = {one.head.id for one in await store.claim("h1", 100, AGENTS)}
        assert left >= {"t01", "t04", "t07", "t10", "t13", "t16", "t19"}, "what h2 had made, and what it had claimed"
        holders = {(await loaded(store, f"t{number:02}")).holder for number in range(20)}
        assert holders == {"h1"}
        await store.append(ending("t01", 1, epoch=(await loaded(store, "t01")).epoch))
        assert set(await store.leased("h1")) == {f"t{number:02}" for number in range(20) if number != 1}
        assert await store.leased("h2") == ()


async def test_leases_of_an_earlier_process_are_void_and_those_it_waits_on_are_not_claimed(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=AGENTS)
        await store.create(new_task("t1", holder="h1"))
        await store.create(new_task("t2", holder="h2"))
        await store.create(new_task("t3", holder="h1"))
        asks = (status(TaskState.INPUT_REQUIRED),)
        await store.append(
            Append(task_id="t3", events=asks, state=TaskState.INPUT_REQUIRED, status_ms=1, epoch=1, release=True)
        )
        await store.request_cancel("t2")
    async with bench.store("h3") as store:
        assert not await store.replicas.alive("h1")
        claimed = await store.claim("h3", 100, AGENTS)
        assert [(one.head.id, one.epoch, one.cancel_requested) for one in claimed] == [
            ("t1", 2, False),
            ("t2", 2, True),
        ]
        assert (await loaded(store, "t3")).holder is None


async def test_a_claimed_task_can_be_leased_anew(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1", holder="dead"))
        await store.claim("h1", 1, AGENTS)
        await store.append(
            Append(task_id="t1", events=(status(W),), state=W, status_ms=1, expected_seq=1, holder="h1", read_seq=1)
        )
        found = await loaded(store, "t1")
        assert (found.holder, found.epoch) == ("h1", 3)


async def test_what_replicas_and_workers_have_of_some_agents_is_found_whoever_is_alive(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("mine", holder="h1"))
        await store.create(new_task("theirs", holder="dead", owner="bob"))
        await store.create(new_task("workers", holder=WORKER))
        await store.create(new_task("begun", holder="h1", state=TaskState.SUBMITTED))
        await store.create(new_task("queued", holder=None, state=TaskState.SUBMITTED))
        await store.create(new_task("asleep", holder=ASLEEP))
        await store.create(new_task("aside", holder=ASIDE))
        await store.create(new_task("asks", holder=None, state=TaskState.INPUT_REQUIRED))
        await store.create(new_task("ended", holder="h1"))
        await store.append(ending("ended", 1))
        await store.create(new_task("another's", holder="h1", agent="other"))
        found = await store.leased_of(["echo", "none"], 10)
        assert [(task.id, task.agent, task.holder) for task in found] == [
            ("mine", "echo", "h1"),
            ("theirs", "echo", "dead"),
            ("workers", "echo", WORKER),
            ("begun", "echo", "h1"),
        ]
        assert [task.id for task in await store.leased_of(["echo"], 2)] == ["mine", "theirs"]
        assert await store.leased_of(["none"], 10) == ()
