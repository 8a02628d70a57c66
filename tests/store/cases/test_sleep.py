"""Sleep: tasks that nobody works on until they wake, by the clock of the store.

Invariant: a case uses nothing but the Store protocol.
"""

from dragoman.model.task import TaskState
from dragoman.store.api import ASIDE, ASLEEP, BEGIN_MS, Append, Fenced, Moved, Store
from tests.store.cases.bench import AGENTS, START_MS, Bench, W, by_run, chunk, ending, loaded, new_task, refused, status

HOUR_MS = 3_600_000

WAKES_MS = START_MS + HOUR_MS


def _sleep(task_id: str, wakes_ms: int = WAKES_MS, *, epoch: int = 1, holder: str = ASLEEP) -> Append:
    """The word of a run that its task sleeps."""
    return Append(
        task_id=task_id,
        events=(status(W),),
        state=W,
        status_ms=START_MS,
        epoch=epoch,
        holder=holder,
        wakes_ms=wakes_ms,
    )


async def _asleep(store: Store, *ids: str, agent: str = "echo") -> None:
    for task_id in ids:
        await store.create(new_task(task_id, agent=agent))
        await store.append(_sleep(task_id))


async def test_a_task_that_sleeps_is_nobodys_until_it_wakes(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await _asleep(store, "t1")
        found = await loaded(store, "t1")
        assert (found.holder, found.epoch, found.offered_until_ms) == (ASLEEP, 2, WAKES_MS)
        await refused(store.append(by_run("t1", chunk("late"))), Fenced)
        bench.clock.ms = WAKES_MS - 1
        for claimed in (await store.claim("h1", 10, AGENTS), await store.claim_woken("h1", 10, AGENTS)):
            assert claimed == ()
        assert await store.queued("echo", 10) == ()
        assert await store.leased("h1") == ()
        bench.clock.ms = WAKES_MS
        (woken,) = await store.claim_woken("h1", 10, AGENTS)
        assert (woken.head.id, woken.holder, woken.epoch) == ("t1", "h1", 3)
        assert woken.offered_until_ms == WAKES_MS + BEGIN_MS, "nobody has worked on it since"
        assert await store.claim_woken("h1", 10, AGENTS) == ()


async def test_a_task_that_wakes_is_claimed_with_the_others(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await _asleep(store, "t1")
        await store.create(new_task("t2", holder=None, state=TaskState.SUBMITTED))
        bench.clock.ms = WAKES_MS
        assert [one.head.id for one in await store.claim_woken("h1", 10, AGENTS)] == ["t1"], "and nothing else"
        await _asleep(store, "t3")
        claimed = await store.claim("h1", 10, AGENTS, queued=False)
        assert [one.head.id for one in claimed] == ["t3"]
        assert [one.head.id for one in await store.claim("h1", 10, AGENTS)] == ["t2"]


async def test_a_task_that_is_put_aside_is_nobodys_until_then(bench: Bench) -> None:
    async with bench.store("h1") as store:
        for task_id in ("t1", "t2"):
            await store.create(new_task(task_id))
            await store.append(_sleep(task_id, holder=ASIDE))
        assert await store.claim("h1", 10, AGENTS) == await store.claim_woken("h1", 10, AGENTS) == ()
        bench.clock.ms = WAKES_MS
        (woken,) = await store.claim_woken("h1", 1, AGENTS)
        assert (woken.head.id, woken.holder, woken.epoch) == ("t1", "h1", 3)
        assert [one.head.id for one in await store.claim("h1", 10, AGENTS)] == ["t2"]


async def test_tasks_wake_in_the_order_of_their_times_and_by_agent(bench: Bench) -> None:
    async with bench.store("h1") as store:
        for task_id, wakes_ms, agent in (("t1", 30, "echo"), ("t2", 10, "other"), ("t3", 20, "echo"), ("t4", 40, "x")):
            await store.create(new_task(task_id, agent=agent))
            await store.append(_sleep(task_id, START_MS + wakes_ms, holder=ASIDE if agent == "echo" else ASLEEP))
        assert await store.next_wake(START_MS) == START_MS + 10
        assert await store.next_wake(START_MS + 10) == START_MS + 20
        assert await store.next_wake(START_MS + 40) is None
        bench.clock.ms = START_MS + 40
        assert [one.head.id for one in await store.claim_woken("h1", 1, ("echo",))] == ["t3"]
        assert [one.head.id for one in await store.claim_woken("h1", 9, ("echo",))] == ["t1"]
        assert [one.head.id for one in await store.claim_woken("h1", 9, None, 0)] == ["t4"], "that nobody serves"
        assert [one.head.id for one in await store.claim_woken("h1", 9, AGENTS)] == ["t2"]


async def test_a_message_leaves_a_task_asleep_and_a_release_wakes_it(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await _asleep(store, "t1")
        said = Append(task_id="t1", events=(chunk("x"),), state=W, status_ms=START_MS, expected_epoch=1, read_seq=1)
        await refused(store.append(said), Moved)  # it was written for the time before
        said = Append(task_id="t1", events=(chunk("x"),), state=W, status_ms=START_MS, expected_epoch=2, read_seq=2)
        await store.append(said)
        found = await loaded(store, "t1")
        assert (found.holder, found.offered_until_ms, found.seq) == (ASLEEP, WAKES_MS, 3)
        woken = Append(
            task_id="t1",
            events=(status(W),),
            state=W,
            status_ms=START_MS,
            expected_seq=3,
            read_seq=3,
            release=True,
        )
        await store.append(woken)
        found = await loaded(store, "t1")
        assert (found.holder, found.offered_until_ms) == (None, None)
        assert await store.next_wake(0) is None
        assert await store.queued("echo", 10) == ("t1",)


async def test_a_task_that_ends_in_its_sleep_never_wakes(bench: Bench) -> None:
    async with bench.store("h1") as store:
        await _asleep(store, "t1")
        await store.append(ending("t1", 2, epoch=None))
        bench.clock.ms = WAKES_MS
        assert await store.next_wake(0) is None
        assert await store.claim_woken("h1", 10, AGENTS) == ()


async def test_a_task_sleeps_on_when_the_store_is_opened_again(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store("h1") as store:
        await _asleep(store, "t1", "t2")
    async with bench.store("h2") as store:
        assert await store.claim("h2", 10, AGENTS) == ()
        assert await store.claim("h2", 10, None, 0) == ()
        assert await store.next_wake(0) == WAKES_MS
        bench.clock.ms = WAKES_MS
        assert {one.head.id for one in await store.claim_woken("h2", 10, AGENTS)} == {"t1", "t2"}
