"""Keys: made, found, revoked, and the one that the server signs with.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.principal import KeyLimits
from dragoman.store.api import StoreError
from dragoman.store.keyring import SigningKey
from tests.store.cases.bench import NARROW, START_MS, WIDE, Bench, new_task


async def test_a_key_is_found_as_it_was_made(bench: Bench) -> None:
    async with bench.store() as store:
        await store.keys.add(WIDE)
        await store.keys.add(NARROW)
        assert await store.keys.find(WIDE.id) == WIDE
        assert await store.keys.find(NARROW.id) == NARROW
        assert await store.keys.find("cccccccccccc") is None
        assert await store.keys.find("") is None


async def test_a_key_for_nothing_is_not_a_key_for_all(bench: Bench) -> None:
    async with bench.store() as store:
        nothing = replace(NARROW, agents=(), scopes=())
        await store.keys.add(nothing)
        assert await store.keys.find(nothing.id) == nothing


async def test_keys_are_listed_oldest_first(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.keys.all() == ()
        await store.keys.add(NARROW)
        await store.keys.add(WIDE)
        assert await store.keys.all() == (NARROW, WIDE)


async def test_the_limits_of_a_key_are_replaced_unless_it_is_revoked(bench: Bench) -> None:
    async with bench.store() as store:
        await store.keys.add(WIDE)
        await store.keys.add(NARROW)
        limits = KeyLimits(max_requests_per_s=1, max_open_tasks=2, max_daily_tasks=3, max_daily_tokens=4)
        assert await store.keys.limit(WIDE.id, limits)
        assert await store.keys.limit(NARROW.id, None)
        assert await store.keys.all() == (replace(WIDE, limits=limits), replace(NARROW, limits=None))
        assert not await store.keys.limit("cccccccccccc", limits)
        await store.keys.revoke(WIDE.id, START_MS)
        assert not await store.keys.limit(WIDE.id, None)
        assert await store.keys.find(WIDE.id) == replace(WIDE, limits=limits, revoked_ms=START_MS)


async def test_a_key_is_revoked_once_and_stays_known(bench: Bench) -> None:
    async with bench.store() as store:
        await store.keys.add(WIDE)
        await store.keys.add(NARROW)
        assert await store.keys.revoke(WIDE.id, START_MS + 7)
        assert not await store.keys.revoke(WIDE.id, START_MS + 8)
        assert not await store.keys.revoke("cccccccccccc", START_MS + 8)
        assert await store.keys.find(WIDE.id) == replace(WIDE, revoked_ms=START_MS + 7)
        assert await store.keys.find(NARROW.id) == NARROW


async def test_a_key_is_replaced_at_once_or_after_an_overlap_if_it_is_active(bench: Bench) -> None:
    fresh = replace(NARROW, id="dddddddddddd", digest=b"\1" * 32, made_ms=START_MS + 2, expires_ms=None)
    async with bench.store() as store:
        await store.keys.add(WIDE)
        await store.keys.add(NARROW)
        assert not await store.keys.replace("cccccccccccc", fresh, START_MS, START_MS)
        assert not await store.keys.replace(NARROW.id, fresh, START_MS + 5, START_MS + 9), "it has expired"
        assert await store.keys.all() == (WIDE, NARROW)
        assert await store.keys.replace(NARROW.id, fresh, START_MS + 2, START_MS + 9), "it ends earlier by itself"
        assert await store.keys.find(NARROW.id) == NARROW
        later = replace(WIDE, id="eeeeeeeeeeee")
        assert await store.keys.replace(WIDE.id, later, START_MS + 2, START_MS + 9)
        assert await store.keys.find(WIDE.id) == replace(WIDE, expires_ms=START_MS + 9)
        last = replace(WIDE, id="ffffffffffff")
        assert await store.keys.replace(later.id, last, START_MS + 7, START_MS + 7)
        assert await store.keys.find(later.id) == replace(later, revoked_ms=START_MS + 7)
        assert not await store.keys.replace(later.id, NARROW, START_MS + 8, START_MS + 9), "it is revoked"
        assert [key.id for key in await store.keys.all()] == [WIDE.id, NARROW.id, fresh.id, later.id, last.id]
        (again,) = await asyncio.gather(
            store.keys.replace(last.id, fresh, START_MS + 8, START_MS + 8), return_exceptions=True
        )
        assert isinstance(again, StoreError), again
        assert await store.keys.find(last.id) == last, "both or neither"


async def test_whether_a_key_was_ever_made_is_not_forgotten(bench: Bench) -> None:
    async with bench.store() as store:
        assert not await store.keys.any()
        await store.keys.add(WIDE)
        assert await store.keys.any()
        await store.keys.revoke(WIDE.id, START_MS)
        assert await store.keys.any()


async def test_an_id_is_given_once_and_the_neighbours_of_a_second_are_written(bench: Bench) -> None:
    async with bench.store() as store:
        await store.keys.add(WIDE)
        again, other, _ = await asyncio.gather(
            store.keys.add(replace(NARROW, id=WIDE.id)),
            store.keys.add(NARROW),
            store.create(new_task("t1")),
            return_exceptions=True,
        )
        assert isinstance(again, StoreError), again
        assert other is None
        assert await store.keys.all() == (WIDE, NARROW)
        assert await store.head("t1") is not None


async def test_the_first_signing_key_that_is_offered_wins(bench: Bench) -> None:
    first = SigningKey(kid="k1", jwk=b'{"kty":"OKP"}', made_ms=START_MS)
    second = SigningKey(kid="k2", jwk=b"{}", made_ms=START_MS)
    async with bench.store() as store:
        assert await store.keys.signing_key() is None
        both = await asyncio.gather(store.keys.signing_key(first), store.keys.signing_key(second))
        assert list(both) == [first, first]
        assert await store.keys.signing_key() == first
        assert await store.keys.signing_key(second) == first


async def test_keys_survive_a_restart(bench: Bench) -> None:
    if not bench.durable:
        return
    mine = SigningKey(kid="k1", jwk=b"{}", made_ms=START_MS)
    async with bench.store() as store:
        await store.keys.add(NARROW)
        await store.keys.signing_key(mine)
    async with bench.store("h2") as store:
        assert await store.keys.any()
        assert await store.keys.find(NARROW.id) == NARROW
        assert await store.keys.signing_key() == mine
