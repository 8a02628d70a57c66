"""Shared entries, buckets and counts: what is written counts for everybody until it expires.

Invariant: a case uses nothing but the Store protocol, and knows no more of its clock than that it does not go back.
"""

import asyncio

from dragoman.store.shared import Spending
from tests.store.cases.bench import Bench

LONG_MS = 3_600_000
SECOND_US = 1_000_000


async def test_an_entry_is_read_as_it_was_written(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.shared.get("a/1") is None
        version = await store.shared.put("a/1", b"\x00one", LONG_MS)
        found = await store.shared.get("a/1")
        assert found is not None
        assert (found.key, found.value, found.version) == ("a/1", b"\x00one", version)
        assert LONG_MS - 60_000 < found.left_ms <= LONG_MS


async def test_a_version_grows_with_each_change(bench: Bench) -> None:
    async with bench.store() as store:
        first, second, third = [await store.shared.put("a", b"x", LONG_MS) or 0 for _ in range(3)]
        assert 0 < first < second < third


async def test_only_one_of_those_who_saw_a_version_replaces_it(bench: Bench) -> None:
    async with bench.store() as store:
        first = await store.shared.put("a", b"1", LONG_MS, version=0)
        assert first is not None
        assert await store.shared.put("a", b"2", LONG_MS, version=0) is None
        assert await store.shared.put("a", b"2", LONG_MS, version=first + 1) is None
        put = [store.shared.put("a", value, LONG_MS, version=first) for value in (b"x", b"y")]
        won = [version for version in await asyncio.gather(*put) if version is not None]
        assert len(won) == 1
        found = await store.shared.get("a")
        assert found is not None
        assert found.version == won[0] > first


async def test_only_one_of_many_makes_an_entry(bench: Bench) -> None:
    async with bench.store() as store:
        puts = [store.shared.put("a", str(number).encode(), LONG_MS, version=0) for number in range(8)]
        made = [number for number, version in enumerate(await asyncio.gather(*puts)) if version is not None]
        assert len(made) == 1
        found = await store.shared.get("a")
        assert found is not None
        assert found.value == str(made[0]).encode()


async def test_an_expired_entry_is_gone(bench: Bench) -> None:
    async with bench.store() as store:
        kept = await store.shared.put("a/kept", b"", LONG_MS)
        gone = await store.shared.put("a/gone", b"", 0)
        assert await store.shared.get("a/gone") is None
        assert [entry.key for entry in await store.shared.scan("a/")] == ["a/kept"]
        assert await store.shared.renew(["a/gone"], LONG_MS) == frozenset()
        assert not await store.shared.delete("a/gone")
        assert await store.shared.put("a/gone", b"", LONG_MS, version=gone) is None
        again = await store.shared.put("a/gone", b"new", LONG_MS, version=0)
        assert again is not None
        assert gone is not None
        assert again > gone
        assert kept is not None


async def test_entries_are_found_by_the_beginning_of_their_key(bench: Bench) -> None:
    async with bench.store() as store:
        for key in ("b/2", "a/1", "b/1", "b", "c/1", "B/1", "b%1", "b/é"):
            await store.shared.put(key, key.encode(), LONG_MS)
        assert [entry.key for entry in await store.shared.scan("b/")] == ["b/1", "b/2", "b/é"]
        assert [entry.value for entry in await store.shared.scan("a")] == [b"a/1"]
        assert await store.shared.scan("d") == ()


async def test_a_renewal_never_shortens(bench: Bench) -> None:
    async with bench.store() as store:
        first = await store.shared.put("a", b"x", 60_000)
        await store.shared.put("b", b"y", LONG_MS)
        assert await store.shared.renew(["a", "b", "c"], 600_000) == {"a", "b"}
        a, b = await store.shared.get("a"), await store.shared.get("b")
        assert a is not None
        assert b is not None
        assert (a.value, a.version) == (b"x", first)
        assert 540_000 < a.left_ms <= 600_000
        assert b.left_ms > 600_000
        assert await store.shared.renew([], LONG_MS) == frozenset()


async def test_an_entry_is_deleted_once_and_only_in_its_version(bench: Bench) -> None:
    async with bench.store() as store:
        first = await store.shared.put("a", b"x", LONG_MS)
        second = await store.shared.put("a", b"y", LONG_MS)
        assert not await store.shared.delete("a", version=first)
        assert await store.shared.delete("a", version=second)
        assert not await store.shared.delete("a")
        assert await store.shared.get("a") is None


async def test_a_bucket_remembers_what_was_spent(bench: Bench) -> None:
    async with bench.store() as store:
        left = await store.shared.spend([Spending("r/1", 30 * SECOND_US), Spending("r/2", SECOND_US)])
        assert left == (30 * SECOND_US, SECOND_US)
        (debt,) = await store.shared.spend([Spending("r/1", 60 * SECOND_US)])
        assert 80 * SECOND_US < debt <= 90 * SECOND_US
        (same,) = await store.shared.spend([Spending("r/1", 0)])
        assert debt - 10 * SECOND_US < same <= debt
        assert await store.shared.spend([]) == ()


async def test_nothing_spent_at_once_is_lost(bench: Bench) -> None:
    async with bench.store() as store:
        left = await asyncio.gather(*(store.shared.spend([Spending("r", 100 * SECOND_US)]) for _ in range(10)))
        assert 990 * SECOND_US < max(left)[0] <= 1000 * SECOND_US


async def test_a_counter_learns_the_counts_of_the_others(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.shared.tally("A", {"s/1": 2, "s/2": 1}, LONG_MS) == {"s/1": 0, "s/2": 0}
        assert await store.shared.tally("B", {"s/1": 5}, LONG_MS) == {"s/1": 2}
        assert await store.shared.tally("C", {"s/1": 0, "s/2": 0}, LONG_MS) == {"s/1": 7, "s/2": 1}
        assert await store.shared.tally("A", {"s/1": 3}, LONG_MS) == {"s/1": 5}
        assert await store.shared.tally("B", {"s/1": 0}, LONG_MS) == {"s/1": 3}
        assert await store.shared.tally("A", {"s/1": 3}, 0) == {"s/1": 0}
        assert await store.shared.tally("C", {"s/1": 0}, LONG_MS) == {"s/1": 0}


async def test_what_has_expired_is_swept_and_the_rest_stays(bench: Bench) -> None:
    async with bench.store() as store:
        await store.shared.put("a", b"", 0)
        await store.shared.put("b", b"", LONG_MS)
        await store.shared.tally("A", {"s": 1}, 0)
        await store.shared.spend([Spending("r", 3600 * SECOND_US)])
        assert await store.shared.sweep() == 2
        assert await store.shared.sweep() == 0
        assert await store.shared.get("b") is not None


async def test_shared_entries_survive_a_restart(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store() as store:
        version = await store.shared.put("a", b"x", LONG_MS)
    async with bench.store("h2") as store:
        found = await store.shared.get("a")
        assert found is not None
        assert (found.value, found.version) == (b"x", version)
