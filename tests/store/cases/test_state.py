"""The state of agents: what is written stays, in order, until its conversation or its owner ends, and is fenced.

Invariant: a case uses nothing but the Store protocol. Those that need no task also run on the state without a store.
"""

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import Append, Fenced, StateChanged, StateFull, Store
from dragoman.store.state import (
    KEY_BYTES_MAX,
    StateEntry,
    StateGuard,
    StatePut,
    StateScope,
    StateWrite,
    end_of_prefix,
)
from dragoman.store.worker_leases import WorkerLease, WorkerLeaseChange
from tests.store.cases.bench import DAY_MS, START_MS, Bench, ending, new_task, refused, status
from tests.store.cases.states import OTHERS, SHARED, TALK, WIDE, KeptState, StateBench, begin_conversations, read_entry

ONE = StatePut("one", b"1")


def by_task(task_id: str = "t1", epoch: int = 1, token: str | None = None, scope: StateScope = TALK) -> StateWrite:
    """A write of a task."""
    return StateWrite(scope=scope, puts=(ONE,), guard=StateGuard(task_id, epoch, token))


async def values_of(store: Store, scope: StateScope = TALK) -> dict[str, bytes]:
    """The entries of a scope."""
    return {entry.key: entry.value for entry in await store.state.list_entries(scope)}


# -- entries -----------------------------------------------------------------------------------------------------------


async def test_an_entry_is_read_as_it_was_written(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        assert await read_entry(kept.port, TALK, "k") is None
        version = await kept.put(StatePut("k", b"\x00one"), StatePut("other", b""))
        assert await read_entry(kept.port, TALK, "k") == StateEntry("k", b"\x00one", version)
        assert [each.key for each in await kept.port.get_entries(TALK, ("other", "none", "k"))] == ["k", "other"]


async def test_a_scope_sees_no_entry_of_another(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        for number, scope in enumerate((TALK, *OTHERS)):
            await kept.put(StatePut("k", bytes([number])), scope=scope)
        for number, scope in enumerate((TALK, *OTHERS)):
            assert await kept.values(scope=scope) == {"k": bytes([number])}
        await kept.port.write_entries(StateWrite(scope=TALK, prefixes=("",)))
        assert await kept.values() == {}
        assert [len(await kept.values(scope=scope)) for scope in OTHERS] == [1] * len(OTHERS)


async def test_a_large_value_is_read_as_it_was_written(state_bench: StateBench) -> None:
    value = Random(1).randbytes(3 << 20)
    async with state_bench.opened() as kept:
        await kept.put(StatePut("large", value), ONE)
        await kept.put(StatePut("large", value[::-1]))
        found = await read_entry(kept.port, TALK, "large")
        assert found is not None
        assert found.value == value[::-1]
        assert await kept.port.count_bytes(TALK) == len(value) + len("large") + len("one") + 1


async def test_versions_grow_and_are_not_used_again(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        first = await kept.put(ONE)
        second = await kept.put(ONE, StatePut("two", b"2"))
        assert [each.version for each in await kept.port.list_entries(TALK)] == [second, second]
        await kept.port.write_entries(StateWrite(scope=TALK, prefixes=("",)))
        assert 0 < first < second < await kept.put(ONE)


async def test_entries_are_listed_in_the_order_of_code_points(state_bench: StateBench) -> None:
    keys = [
        "b/2",
        "a/1",
        "b/1",
        "b",
        "c/1",
        "B/1",
        "b%1",
        "b/é",
        "b/\uffee",
        "b/\U0001f600",
        "b0",
        "b\\1",
        "b\\\\",
        "b]",
    ]
    async with state_bench.opened() as kept:
        for key in keys:
            await kept.put(StatePut(key, key.encode()))
        for prefix in ("", "b", "b/", "b\\", "b[", "d"):
            expected = sorted(key for key in keys if key.startswith(prefix))
            listed = await kept.port.list_entries(TALK, prefix)
            assert [each.key for each in listed] == expected
            assert [each.value.decode() for each in listed] == expected
            back = await kept.port.list_entries(TALK, prefix, descending=True)
            assert [each.key for each in back] == expected[::-1]


async def test_pages_of_a_list_follow_each_other(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        await kept.put(
            *(StatePut(f"p/{number:02}", b"x") for number in range(25)), StatePut("o", b""), StatePut("q", b"")
        )
        for descending in (False, True):
            seen: list[str] = []
            after: str | None = None
            while page := await kept.port.list_entries(TALK, "p/", 10, after, descending=descending):
                assert len(page) == min(10, 25 - len(seen))
                seen += [each.key for each in page]
                after = page[-1].key
            assert seen == sorted((f"p/{number:02}" for number in range(25)), reverse=descending)
        assert [each.key for each in await kept.port.list_entries(TALK, "p/", 1, "o")] == ["p/00"]
        assert await kept.port.list_entries(TALK, "p/", 1, "q") == ()
        assert [each.key for each in await kept.port.list_entries(TALK, "p/", 1, "q", descending=True)] == ["p/24"]


async def test_deletes_come_before_puts(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        await kept.put(*(StatePut(key, b"old") for key in ("a/1", "a/2", "b", "c")))
        puts = StatePut("a/2", b"new"), StatePut("b", b"new")
        await kept.port.write_entries(StateWrite(scope=TALK, puts=puts, deletes=("b", "none"), prefixes=("a/",)))
        assert await kept.values() == {"a/2": b"new", "b": b"new", "c": b"old"}
        assert await kept.port.count_bytes(TALK) == 3 + 3 + 1 + 3 + 1 + 3


async def test_a_write_with_an_old_version_changes_nothing(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        await refused(
            kept.port.write_entries(StateWrite(scope=TALK, puts=(ONE,), if_versions={"one": 1})), StateChanged
        )
        first = await kept.port.write_entries(StateWrite(scope=TALK, puts=(ONE,), if_versions={"one": 0}))
        for version in (0, first + 1):
            write = StateWrite(
                scope=TALK, puts=(StatePut("two", b""),), deletes=("one",), if_versions={"two": 0, "one": version}
            )
            with pytest.raises(StateChanged) as caught:
                await kept.port.write_entries(write)
            assert (caught.value.key, caught.value.version) == ("one", first)
        assert await kept.values() == {"one": b"1"}
        await kept.port.write_entries(StateWrite(scope=TALK, deletes=("one",), if_versions={"one": first}))
        assert await kept.values() == {}


async def test_only_one_of_those_who_saw_a_version_replaces_it(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        for version in (0, await kept.put(ONE)):
            key = "one" if version else "fresh"
            writes = [
                StateWrite(scope=TALK, puts=(StatePut(key, str(number).encode()),), if_versions={key: version})
                for number in range(8)
            ]
            outcomes = await asyncio.gather(*map(kept.port.write_entries, writes), return_exceptions=True)
            (won,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, int)]
            assert sum(isinstance(outcome, StateChanged) for outcome in outcomes) == 7
            assert (await kept.values())[key] == str(won).encode()


async def test_a_scope_takes_no_more_than_its_bytes(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        fits = StateWrite(scope=TALK, puts=(StatePut("a", b"x" * 9),), max_bytes=10)
        await kept.port.write_entries(fits)
        await kept.port.write_entries(fits)
        for puts in ((StatePut("b", b""),), (StatePut("a", b"x" * 10),)):
            with pytest.raises(StateFull) as caught:
                await kept.port.write_entries(StateWrite(scope=TALK, puts=puts, max_bytes=10))
            assert (caught.value.max_bytes, caught.value.needed) == (10, 11)
        assert await kept.values() == {"a": b"x" * 9}
        await kept.port.write_entries(
            StateWrite(scope=TALK, puts=(StatePut("b", b"y" * 9),), deletes=("a",), max_bytes=10)
        )
        # who is over the limit, because there was none before, may still make room
        await kept.port.write_entries(StateWrite(scope=TALK, puts=(StatePut("b", b"y" * 8),), max_bytes=5))
        assert await kept.port.count_bytes(TALK) == 9


async def test_writers_at_once_share_the_bytes_of_a_scope(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        writes = [StateWrite(scope=TALK, puts=(StatePut(f"{number}", b"x" * 9),), max_bytes=50) for number in range(10)]
        outcomes = await asyncio.gather(*map(kept.port.write_entries, writes), return_exceptions=True)
        assert sum(isinstance(outcome, StateFull) for outcome in outcomes) == 5
        assert await kept.port.count_bytes(TALK) == 50


async def test_an_expired_entry_is_gone(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        now_ms = kept.clock.now_ms()
        old = await kept.put(StatePut("gone", b"x", now_ms + 10), StatePut("kept", b"y", now_ms + DAY_MS), ONE)
        assert await read_entry(kept.port, TALK, "gone") == StateEntry("gone", b"x", old, now_ms + 10)
        kept.clock.ms += 10
        assert await read_entry(kept.port, TALK, "gone") is None
        assert list(await kept.values()) == ["kept", "one"]
        await refused(
            kept.port.write_entries(StateWrite(scope=TALK, puts=(ONE,), if_versions={"gone": old})), StateChanged
        )
        await kept.port.write_entries(StateWrite(scope=TALK, puts=(StatePut("gone", b"z"),), if_versions={"gone": 0}))
        assert (await kept.values())["gone"] == b"z"


async def test_expired_entries_make_room_and_are_swept(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        until_ms = kept.clock.now_ms() + 10
        await kept.put(*(StatePut(f"{number}", b"x" * 9, until_ms) for number in range(4)))
        assert await kept.sweep() == 0
        kept.clock.ms = until_ms
        await kept.port.write_entries(StateWrite(scope=TALK, puts=(StatePut("a", b"y" * 39),), max_bytes=40))
        assert await kept.port.count_bytes(TALK) == 40
        await kept.put(StatePut("b", b"y", until_ms), StatePut("c", b"y", until_ms))
        assert await kept.sweep() == 2
        assert await kept.port.count_bytes(TALK) == 40
        assert list(await kept.values()) == ["a"]


@pytest.mark.parametrize("key", ["", "a\0", "\ud800", "x" * (KEY_BYTES_MAX + 1), "\U0010ffff"])
async def test_a_key_that_no_store_takes_is_refused(state_bench: StateBench, key: str) -> None:
    async with state_bench.opened() as kept:
        for write in (StateWrite(scope=TALK, puts=(StatePut(key, b""),)), StateWrite(scope=TALK, deletes=(key,))):
            with pytest.raises(ValueError, match="state key"):
                await kept.port.write_entries(write)
        with pytest.raises(ValueError, match="state key"):
            await read_entry(kept.port, TALK, key)
        await kept.put(StatePut("ü" * (KEY_BYTES_MAX // 2), b""))


def test_the_end_of_a_prefix_is_the_least_text_behind_it() -> None:
    assert [end_of_prefix(prefix) for prefix in ("a", "a/", "", "a\U0010fffe", "\ud7ff")] == [
        "b",
        "a0",
        "\U0010ffff",
        "b",
        "\ue000",
    ]


async def test_random_writes_answer_as_a_dictionary_does(state_bench: StateBench) -> None:
    random = Random(28)
    names = [a + b for a in "ab/" for b in "01é\\"]
    async with state_bench.opened() as kept:
        known: dict[str, bytes] = {}
        for _ in range(120):
            puts = tuple(StatePut(random.choice(names), random.randbytes(3)) for _ in range(random.randrange(3)))
            deletes = tuple(random.sample(names, random.randrange(3)))
            prefixes = tuple(random.sample(["a", "b", "/"], random.randrange(2)))
            await kept.port.write_entries(StateWrite(scope=TALK, puts=puts, deletes=deletes, prefixes=prefixes))
            known = {k: v for k, v in known.items() if k not in deletes and not k.startswith(prefixes)}
            known |= {put.key: put.value for put in puts}
            assert await kept.values() == known
            assert await kept.port.count_bytes(TALK) == sum(len(k.encode()) + len(v) for k, v in known.items())


# -- whose and how much ------------------------------------------------------------------------------------------------


async def test_scopes_of_an_owner_end_together(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        for scope in (TALK, *OTHERS):
            await kept.put(ONE, StatePut("two", b"2"), scope=scope)
        mine = {scope for scope in (TALK, *OTHERS) if scope.owner == "ann"}
        assert set(await kept.port.list_scopes("ann")) == mine
        assert await kept.port.end_scopes("ann") == len(mine)
        assert await kept.port.list_scopes("ann") == ()
        left = {scope for scope in (TALK, *OTHERS) if await kept.values(scope=scope)}
        assert left == {SHARED, OTHERS[1]}
        await kept.put(StatePut("anew", b""))
        await kept.sweep()
        assert await kept.values() == {"anew": b""}
        assert await kept.values(scope=SHARED) == {"one": b"1", "two": b"2"}


async def test_the_figures_of_each_kind(state_bench: StateBench) -> None:
    async with state_bench.opened() as kept:
        assert await kept.port.count_kinds() == ()
        await kept.put(ONE, StatePut("é", b"22"))
        await kept.put(ONE, scope=WIDE)
        await kept.put(ONE, scope=OTHERS[3])
        found = {each.kind: (each.scopes, each.entries, each.bytes) for each in await kept.port.count_kinds()}
        assert found == {"memory": (2, 3, 12), "checkpoint": (1, 1, 4)}


# -- fences ------------------------------------------------------------------------------------------------------------


async def test_a_run_writes_until_another_has_its_task(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.state.write_entries(by_task())
        await store.replicas.leave("h1")
        await store.replicas.join("h2", address="", agents=("echo",))
        (claimed,) = await store.claim("h2", 10, ("echo",))
        assert claimed.epoch == 2
        changed = replace(by_task(), puts=(StatePut("one", b"old"), StatePut("more", b"")))
        await refused(store.state.write_entries(changed), Fenced)
        await refused(store.state.write_entries(by_task("none")), Fenced)
        assert await values_of(store) == {"one": b"1"}
        await store.state.write_entries(replace(changed, guard=StateGuard("t1", 2)))
        await store.append(ending("t1", 1, epoch=2))
        await refused(store.state.write_entries(replace(by_task(), guard=StateGuard("t1", 2))), Fenced)
        assert await values_of(store) == {"one": b"old", "more": b""}


async def test_a_run_that_asks_may_write_and_one_that_gave_up_may_not(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id, state in (("t1", TaskState.INPUT_REQUIRED), ("t2", TaskState.WORKING)):
            await store.create(new_task(task_id))
            append = Append(
                task_id=task_id, events=(status(state),), state=state, status_ms=START_MS, epoch=1, release=True
            )
            await store.append(append)
        await store.state.write_entries(by_task("t1"))
        await refused(store.state.write_entries(by_task("t2")), Fenced)


@pytest.mark.parametrize("scope", [OTHERS[0], OTHERS[1], OTHERS[2], StateScope("echo", "bob", "", "memory")])
async def test_a_task_writes_to_no_scope_of_others(bench: Bench, scope: StateScope) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        with pytest.raises(ValueError, match="is not the task's"):
            await store.state.write_entries(by_task(scope=scope))
        assert await values_of(store, scope) == {}
        for own in (TALK, WIDE, SHARED, OTHERS[3]):
            await store.state.write_entries(by_task(scope=own))
            assert await values_of(store, own) == {"one": b"1"}


async def test_a_worker_writes_while_its_lease_runs(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", holder=None))
        lease = WorkerLease(
            task_id="t1", agent="echo", token="k1", worker="w", replays=True, delivery=1, since=1, version=1
        )
        granted = Append(
            task_id="t1",
            events=(),
            state=TaskState.WORKING,
            status_ms=START_MS,
            expected_epoch=0,
            holder="worker",
            lease=WorkerLeaseChange(lease, granted_ms=3_600_000),
            write=1,
        )
        await store.append(granted)
        await store.state.write_entries(by_task(token="k1"))
        await refused(store.state.write_entries(by_task(token="k2")), Fenced)
        over = WorkerLeaseChange(replace(lease, version=2), over=True)
        await store.append(replace(granted, expected_epoch=1, holder=None, release=True, lease=over, write=2))
        await refused(store.state.write_entries(by_task(token="k1")), Fenced)


async def test_an_act_is_made_once(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        first = await store.state.write_entries(replace(by_task(), act="0.1"))
        between = await store.state.write_entries(replace(by_task(), puts=(StatePut("one", b"2"),)))
        again = replace(by_task(), puts=(StatePut("one", b"3"),), if_versions={"one": first}, act="0.1")
        assert await store.state.write_entries(again) == first
        assert await values_of(store) == {"one": b"2"}
        await store.create(new_task("t2"))
        other = await store.state.write_entries(replace(again, guard=StateGuard("t2", 1), if_versions={}))
        assert other > between
        assert await values_of(store) == {"one": b"3"}
        await refused(store.state.write_entries(replace(again, guard=StateGuard("t1", 5))), Fenced)


async def test_a_refused_write_does_no_harm_to_writes_of_the_same_moment(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        bad = replace(by_task(), if_versions={"one": 7})
        good = [replace(by_task(), puts=(StatePut(f"k{number}", b""),)) for number in range(4)]
        mixed = [*good[:2], bad, by_task("none"), *good[2:]]
        creating = store.create(new_task("t2"))
        outcomes = await asyncio.gather(*map(store.state.write_entries, mixed), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [int, int, StateChanged, Fenced, int, int]
        await creating
        assert list(await values_of(store)) == ["k0", "k1", "k2", "k3"]


# -- ends --------------------------------------------------------------------------------------------------------------


async def written(store: Store) -> None:
    """Two ended tasks of a conversation, with state there and elsewhere."""
    for task_id in ("t1", "t2"):
        await store.create(new_task(task_id))
        await store.state.write_entries(replace(by_task(task_id), act="0"))
        await store.append(ending(task_id, 1))
    await begin_conversations(store, *OTHERS[:3])
    for scope in OTHERS:
        await store.state.write_entries(StateWrite(scope=scope, puts=(ONE,)))


async def test_state_ends_with_the_last_task_that_is_deleted(bench: Bench) -> None:
    async with bench.store() as store:
        await written(store)
        assert await store.delete(("t1",)) == ("t1",)
        assert await values_of(store) == {"one": b"1"}
        assert await store.delete(("t2",)) == ("t2",)
        left = [scope for scope in (TALK, *OTHERS) if await values_of(store, scope)]
        assert left == [scope for scope in OTHERS if scope != OTHERS[3]]
        await KeptState(store.state, bench.clock).sweep()
        assert left == [scope for scope in (TALK, *OTHERS) if await values_of(store, scope)]


async def test_state_ends_with_the_last_task_that_is_swept(bench: Bench) -> None:
    async with bench.store() as store:
        await written(store)
        await store.create(new_task("t3"))
        while await store.sweep(START_MS + DAY_MS, 1, -1, -1):
            pass
        assert await values_of(store) == {"one": b"1"}
        await store.append(ending("t3", 1))
        while await store.sweep(START_MS + DAY_MS, 1, -1, -1):
            pass
        left = [scope for scope in (TALK, *OTHERS) if await values_of(store, scope)]
        assert left == [scope for scope in OTHERS if scope != OTHERS[3]]


async def test_a_conversation_that_begins_again_begins_empty(bench: Bench) -> None:
    async with bench.store() as store:
        await written(store)
        await store.delete(("t1", "t2"))
        await store.create(new_task("t3"))
        assert await values_of(store) == {}
        await store.state.write_entries(replace(by_task("t3"), puts=(StatePut("new", b""),)))
        await KeptState(store.state, bench.clock).sweep()
        assert await values_of(store) == {"new": b""}


async def test_a_large_scope_is_swept_in_batches(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        for number in range(3):
            puts = tuple(StatePut(f"{number}/{place}", b"x" * 2_000_000) for place in range(3))
            await store.state.write_entries(replace(by_task(), puts=puts))
        await store.append(ending("t1", 1))
        await store.delete(("t1",))
        batches = []
        while deleted := await store.state.sweep():
            batches.append(deleted)
        assert batches == [4, 4, 2]
        assert await store.state.sweep() == 0


async def test_two_that_delete_the_last_tasks_at_once_end_the_state(shared_bench: Bench) -> None:
    async with shared_bench.store() as store, shared_bench.store("h2") as other:
        for number in range(20):
            context = f"c{number}"
            for task_id in (f"a{number}", f"b{number}"):
                await store.create(new_task(task_id, context_id=context))
                await store.append(ending(task_id, 1))
            await store.state.write_entries(StateWrite(scope=replace(TALK, context=context), puts=(ONE,)))
            await asyncio.gather(store.delete((f"a{number}",)), other.delete((f"b{number}",)))
            assert await values_of(store, replace(TALK, context=context)) == {}


async def test_state_outlives_its_process(bench: Bench) -> None:
    if not bench.durable:
        pytest.skip("nothing outlives this process")
    async with bench.store() as store:
        await store.create(new_task("t1"))
        version = await store.state.write_entries(by_task())
    async with bench.store("h2") as store:
        assert await read_entry(store.state, TALK, "one") == StateEntry("one", b"1", version)
