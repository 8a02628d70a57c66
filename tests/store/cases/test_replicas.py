"""Replicas: who is alive and serves what, leases that are offered, and writes that must not meet others.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import BEGIN_MS, Append, Appended, Fenced, Moved, Store, StoreError, Unknown
from tests.store.cases.bench import (
    AGENTS,
    START_MS,
    Bench,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    new_task,
    refused,
    seqs,
    status,
)
from tests.store.cases.deliveries import webhook

ASKED = TaskState.INPUT_REQUIRED

OFFERED_MS = 2_000


async def _ids(store: Store) -> list[str]:
    return [replica.id for replica in await store.replicas.all()]


async def _claimed(store: Store, holder: str, agents: tuple[str, ...] | None) -> list[str]:
    return [stored.head.id for stored in await store.claim(holder, 100, agents, absent_s=0)]


async def _ask(store: Store, task_id: str, keeper: str | None = None) -> None:
    """The run of a task that was just made asks its caller."""
    events = (status(ASKED),)
    await store.append(
        Append(task_id=task_id, events=events, state=ASKED, status_ms=1, epoch=1, release=True, keeper=keeper)
    )


def _offer(task_id: str, seq: int, holder: str) -> Append:
    """The answer of a caller, which offers the lease to `holder`."""
    return Append(
        task_id=task_id,
        events=(status(W),),
        state=W,
        status_ms=START_MS,
        expected_seq=seq,
        holder=holder,
        offered_ms=OFFERED_MS,
    )


async def test_replicas_are_listed_as_long_as_they_live(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="http://two", agents=("b", "a"))
        one, two = await store.replicas.all()
        assert (one.id, one.agents) == ("h1", tuple(sorted(AGENTS)))
        assert (two.id, two.address, two.agents) == ("h2", "http://two", ("a", "b"))
        assert two.started_ms >= one.started_ms > 0
        await store.replicas.serve("h2", ("c",))
        assert (await store.replicas.all())[1].agents == ("c",)
        await store.replicas.leave("h2")
        await store.replicas.serve("h2", ("d",))
        assert await _ids(store) == ["h1"]
        assert [await store.replicas.alive(name) for name in ("h1", "h2", "never")] == [True, False, False]


async def test_an_agent_counts_as_served_of_late_from_when_nobody_serves_it(bench: Bench) -> None:
    """One that is served counts, too: else a replica that joins between this read and `all` would be in neither."""
    if not bench.shared:
        return
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=("a", "b", *AGENTS))
        served = {"a", "b", *AGENTS}
        assert await store.replicas.served_of_late(60) == served
        await store.replicas.serve("h2", ("a", "c"))
        assert await store.replicas.served_of_late(60) == served | {"c"}
        await store.replicas.leave("h2")
        assert await store.replicas.served_of_late(60) == served | {"c"}
        assert await store.replicas.served_of_late(-60) == frozenset(), "nobody served them in a minute from now"


async def test_only_tasks_of_agents_that_somebody_asks_for_are_claimed(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=("theirs",))
        for agent in ("echo", "other", "theirs", "nobodys"):
            await store.create(new_task(f"{agent}-queued", agent=agent, holder=None, state=TaskState.SUBMITTED))
            await store.create(new_task(f"{agent}-left", agent=agent, holder="dead"))
        assert await _claimed(store, "h1", ()) == []
        assert await _claimed(store, "h1", ("echo",)) == ["echo-queued", "echo-left"]
        assert await _claimed(store, "h1", None) == ["nobodys-queued", "nobodys-left"]
        assert await _claimed(store, "h1", AGENTS) == ["other-queued", "other-left"]
        assert await _claimed(store, "h2", ("theirs",)) == ["theirs-queued", "theirs-left"]


async def test_an_offer_counts_until_it_is_accepted(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=AGENTS)
        for task_id in ("accepted", "ignored"):
            await store.create(new_task(task_id))
            await _ask(store, task_id, "h1")
            assert (await loaded(store, task_id)).keeper == "h1"
            await store.append(_offer(task_id, 2, "h1"))
            found = await loaded(store, task_id)
            assert (found.holder, found.epoch, found.offered_until_ms) == ("h1", 2, bench.clock.ms + OFFERED_MS)
            assert task_id in await store.leased("h1", offered=True)
        assert await _claimed(store, "h2", AGENTS) == [], "the offer stands"
        await store.append(by_run("accepted", chunk("here"), epoch=2))
        assert (await loaded(store, "accepted")).offered_until_ms is None
        assert "accepted" in await store.leased("h1")
        assert "accepted" not in await store.leased("h1", offered=True)
        bench.clock.ms += OFFERED_MS
        (claimed,) = await store.claim("h2", 100, AGENTS)
        assert (claimed.head.id, claimed.holder, claimed.epoch) == ("ignored", "h2", 3)
        assert claimed.offered_until_ms is not None, "it has not been begun"
        await refused(store.append(by_run("ignored", chunk("late"), epoch=2)), Fenced)


async def test_an_offer_to_somebody_dead_is_claimed_at_once(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1"))
        await _ask(store, "t1", "h0")
        await store.append(_offer("t1", 2, "h0"))
        (claimed,) = await store.claim("h1", 1, AGENTS)
        assert (claimed.epoch, claimed.offered_until_ms) == (3, bench.clock.ms + BEGIN_MS)


async def test_a_claimed_task_shows_whether_anybody_has_begun_it(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.replicas.join("h2", address="", agents=AGENTS)
        await store.create(new_task("queued", holder=None, state=TaskState.SUBMITTED))
        await store.create(new_task("begun", holder="dead"))
        begun = {one.head.id: one.offered_until_ms for one in await store.claim("h1", 10, AGENTS)}
        assert begun == {"queued": bench.clock.ms + BEGIN_MS, "begun": None}
        await store.replicas.leave("h1")
        begun = {one.head.id: one.offered_until_ms for one in await store.claim("h2", 10, AGENTS)}
        assert begun == {"queued": bench.clock.ms + BEGIN_MS, "begun": None}
        await store.append(by_run("queued", chunk("x"), epoch=2))
        assert (await loaded(store, "queued")).offered_until_ms is None


async def test_a_keeper_is_kept_until_the_lease_ends_anew(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1"))
        assert (await loaded(store, "t1")).keeper is None
        await _ask(store, "t1", "h1")
        await store.append(replace(_offer("t1", 2, "h2"), offered_ms=None))
        found = await loaded(store, "t1")
        assert (found.keeper, found.holder, found.offered_until_ms) == ("h1", "h2", None)
        asks = Append(task_id="t1", events=(status(ASKED),), state=ASKED, status_ms=1, epoch=2, release=True)
        await store.append(asks)
        assert (await loaded(store, "t1")).keeper is None


async def test_an_event_for_other_webhooks_than_the_task_has_is_refused(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1"))
        said = replace(by_run("t1", chunk("x")), webhooks_version=0)
        await store.append(said)
        await store.outbox.register("t1", webhook("w1"), ())
        await refused(store.append(said), Moved)
        await store.append(replace(said, webhooks_version=None))
        version = (await loaded(store, "t1")).webhooks_version
        assert version > 0
        await store.append(replace(said, webhooks_version=version))
        joins = Append(task_id="t1", events=(), state=W, status_ms=START_MS, expected_seq=4, push=webhook("w2"))
        await store.append(replace(joins, webhooks_version=version))
        await refused(store.append(replace(said, webhooks_version=version)), Moved)
        version = (await loaded(store, "t1")).webhooks_version
        await store.outbox.remove("t1", "w1")
        assert (await loaded(store, "t1")).webhooks_version > version
        assert (await loaded(store, "t1")).seq == 4


async def test_nobody_writes_to_a_task_that_is_held(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await store.create(new_task("t1"))
        await store.create(new_task("t2"))
        before = [store.append(by_run("t1", chunk(str(number)))) for number in range(3)]
        async with store.hold("t1") as held:
            assert held.stored.seq == 4, "what was under way is committed"
            await asyncio.gather(*before)
            waiting = [store.append(by_run("t1", chunk(str(number)))) for number in range(3)]
            assert isinstance(await store.append(by_run("t2", chunk("x"))), Appended)
            await store.probe()
            answered = Append(task_id="t1", events=(status(W),), state=W, status_ms=START_MS, expected_seq=4)
            appended = await held.append(answered)
            assert isinstance(appended, Appended)
            assert appended.last_seq == 5
            assert not any(future.done() for future in waiting)
        outcomes = await asyncio.gather(*waiting)
        assert [outcome.last_seq for outcome in outcomes if isinstance(outcome, Appended)] == [6, 7, 8]
        assert seqs(await store.read("t1", 0, 1 << 20)) == list(range(1, 9))


async def test_those_who_hold_a_task_come_one_after_the_other(bench: Bench) -> None:
    async def count(store: Store) -> None:
        async with store.hold("t1") as held:
            events = (chunk(str(held.stored.seq)),)
            append = Append(task_id="t1", events=events, state=W, status_ms=1, expected_seq=held.stored.seq)
            await held.append(append)

    async with bench.store("h1") as store:
        await store.create(new_task("t1"))
        await asyncio.gather(*(count(store) for _ in range(10)))
        assert (await loaded(store, "t1")).seq == 11
        try:
            async with store.hold("none"):
                raise AssertionError("there is no such task")
        except Unknown:
            pass
        try:
            async with store.hold("t1"):
                raise StoreError("something went wrong")
        except StoreError:
            pass
        assert isinstance(await store.append(by_run("t1", chunk("x"))), Appended), "it is free again"


async def _orphans(store: Store, after: str, limit: int) -> tuple[list[str], str]:
    heads, last = await store.orphans(after, limit)
    return [head.id for head in heads], last


async def test_children_of_tasks_that_have_ended_are_found(bench: Bench) -> None:
    async with bench.store("h1") as store:
        for parent in ("ends", "works"):
            await store.create(new_task(parent))
        for child, parent in (("c3", "ends"), ("c1", "ends"), ("c2", "works"), ("c0", "swept away")):
            new = new_task(child)
            await store.create(replace(new, head=replace(new.head, parent=parent)))
        alone = new_task("alone")
        await store.create(replace(alone, head=replace(alone.head, parent="ends", detached=True)))
        assert await _orphans(store, "", 10) == (["c0"], "")
        await store.append(ending("ends", 1))
        assert await _orphans(store, "", 10) == (["c3", "c1", "c0"], "")
        assert await _orphans(store, "", 2) == (["c3", "c1", "c0"], "swept away")
        assert await _orphans(store, "swept away", 2) == ([], "")
        assert await _orphans(store, "", 1) == (["c3", "c1"], "ends")
        assert await _orphans(store, "ends", 1) == (["c0"], "swept away")
        assert [head.id for head in await store.children("ends")] == ["c3", "c1"], "a detached one ends on its own"
        await store.append(ending("c3", 1))
        assert await _orphans(store, "", 10) == (["c1", "c0"], "")


async def test_delegated_tasks_past_their_deadline_are_found(bench: Bench) -> None:
    async with bench.store("h1") as store:
        for child, deadline_ms in (("late", 10), ("later", 20), ("never", None), ("ended", 10)):
            new = new_task(child)
            await store.create(replace(new, head=replace(new.head, parent="p", deadline_ms=deadline_ms)))
        await store.append(ending("ended", 1))
        assert await store.overdue(9, 10) == ()
        assert [head.id for head in await store.overdue(10, 10)] == ["late"]
        assert [head.id for head in await store.overdue(20, 10)] == ["late", "later"]
        assert [head.id for head in await store.overdue(20, 1)] == ["late"]
