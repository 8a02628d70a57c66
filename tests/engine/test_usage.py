"""Limits that several replicas of one store keep together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dragoman.engine.handlers.usage import COUNTED_S, OpenStreams, Rates, UsageExchange
from dragoman.store.api import Store, StoreError
from dragoman.store.open import open_store
from dragoman.store.shared import Spending
from tests.store.cases.bench import SetClock


class OneReplica:
    """The limits of one replica, and how it lets callers through."""

    def __init__(self, store: Store, name: str, clock: SetClock, per_s: int, most: int) -> None:
        self.clock = clock
        self.rates = Rates(per_s, shared=True)
        self.streams = OpenStreams(most, shared=True)
        self.exchange = UsageExchange(store, name, clock, self.rates, [self.streams])

    async def call(self, who: str = "anna") -> bool:
        await self.exchange.let_call(who)
        return not self.rates.take(who, self.clock.now_ms())

    async def open(self, who: str = "anna") -> bool:
        await self.exchange.let_open(self.streams, who)
        return self.streams.take(who)


@asynccontextmanager
async def replicas(count: int, *, per_s: int = 10, most: int = 10) -> AsyncIterator[list[OneReplica]]:
    """Replicas on one store that know of each other."""
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("r0")
    names = [f"r{number}" for number in range(count)]
    for name in names:
        await store.replicas.join(name, address="", agents=())
    made = [OneReplica(store, name, clock, per_s, most) for name in names]
    for replica in made:
        await replica.exchange.exchange()
    try:
        yield made
    finally:
        await store.close()


async def test_callers_of_many_replicas_get_the_rate_of_their_key() -> None:
    async with replicas(3, per_s=0) as here:
        clock, passed, per_s = here[0].clock, 0, 4
        for _ in range(0, 10_000, 20):
            clock.ms += 20
            for replica in here:
                await replica.exchange.let_call("anna", per_s)
                passed += not replica.rates.take("anna", clock.now_ms(), per_s)
        assert 0.8 * 11 * per_s <= passed <= 13 * per_s


@pytest.mark.parametrize(("per_s", "count"), [(1, 3), (10, 3), (50, 3), (20, 8)])
async def test_callers_of_many_replicas_get_the_rate_of_one(per_s: int, count: int) -> None:
    async with replicas(count, per_s=per_s) as here:
        clock, passed = here[0].clock, 0
        for ms in range(0, 10_000, 20):
            clock.ms += 20
            for replica in here:
                while await replica.call():
                    passed += 1
                if ms % 500 == 0:
                    await replica.exchange.exchange()
        alone = 11 * per_s  # a full bucket, and ten seconds
        assert 0.8 * alone <= passed <= alone + max(2 * per_s, count)


async def test_a_caller_of_one_replica_gets_the_whole_rate() -> None:
    async with replicas(3, per_s=30) as here:
        passed = 0
        for _ in range(500):
            here[0].clock.ms += 20
            passed += await here[0].call()
        assert 0.95 * 11 * 30 - 30 <= passed <= 11 * 30


async def test_ordinary_calls_wait_for_no_exchange() -> None:
    async with replicas(3, per_s=30) as here:
        for _ in range(2 * 30 // 3):
            assert here[0].rates.room("anna", 3)
            assert await here[0].call()
        assert not here[0].rates.room("anna", 3)
        assert here[1].rates.room("anna", 3)


async def test_what_was_called_on_one_replica_is_refused_on_another_after_an_exchange() -> None:
    async with replicas(2, per_s=5) as here:
        for _ in range(5):
            assert await here[0].call()
        assert not await here[0].call()
        await here[0].exchange.exchange()
        assert await here[1].call()  # it has not asked yet, and this call makes it ask
        await here[1].exchange.exchange()
        assert not await here[1].call()
        assert await here[1].call("ben")


async def test_streams_of_all_replicas_count_together() -> None:
    async with replicas(3, most=10) as here:
        opened = 0
        for turn in range(30):
            opened += await here[turn % 3].open()
        assert 10 <= opened <= 10 + 3
        for replica in here:
            await replica.exchange.exchange()
        assert [await replica.open() for replica in here] == [False] * 3


async def test_a_closed_stream_makes_room_on_another_replica() -> None:
    async with replicas(2, most=5) as here:
        one, other = here
        while await one.open():
            pass
        await one.exchange.exchange()
        await other.open()
        await other.exchange.exchange()
        assert not await other.open()
        for _ in range(5):
            one.streams.release("anna")
        await one.exchange.exchange()
        other.streams.release("anna")
        await other.exchange.exchange()
        assert [await other.open() for _ in range(6)] == [True] * 5 + [False]


async def test_streams_of_a_replica_that_says_no_more_are_forgotten() -> None:
    async with replicas(2, most=3) as here:
        one, other = here
        while await one.open():
            pass
        await one.exchange.exchange()
        assert await other.open()
        await other.exchange.exchange()
        assert not await other.open()
        here[0].clock.ms += int(COUNTED_S * 1000)
        other.streams.release("anna")
        await other.exchange.exchange()
        assert [await other.open() for _ in range(4)] == [True] * 3 + [False]


async def test_while_the_store_does_not_answer_each_replica_limits_alone(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("r0")
    replica = OneReplica(store, "r0", clock, per_s=4, most=4)
    await replica.exchange.exchange()
    await store.close()
    assert [await replica.call() for _ in range(5)] == [True] * 4 + [False]
    assert [await replica.open() for _ in range(5)] == [True] * 4 + [False]
    with pytest.raises(StoreError):
        await store.shared.get("any")
    assert "limits hold on this replica alone" in caplog.text
    await store.open("r1")
    assert await replica.exchange.exchange()
    (full_in_us,) = await store.shared.spend([Spending("rate/anna", 0)])
    assert full_in_us == 4 * 250_000
    assert await store.shared.tally("other", {"streams/anna": 0}, 1) == {"streams/anna": 4}
    await store.close()


async def test_concurrent_calls_share_an_exchange() -> None:
    async with replicas(3, per_s=3) as here:
        calls = await asyncio.gather(*(here[0].call() for _ in range(20)))
        assert sum(calls) == 3
