"""`/health` and `/ready`."""

import asyncio
import time

import msgspec

from dragoman.bindings.monitoring import FRESH_MS, Health
from dragoman.store.api import StoreError
from dragoman.store.outage import Outage
from tests.bindings.conftest import ScriptedStore, Site


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


async def test_alive_says_nothing_of_the_store(served: Site) -> None:
    served.store.fault = StoreError("gone")
    served.unready.append("stopping")
    async with served.http.get("/health") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        assert answer.headers["Cache-Control"] == "no-store"


async def test_not_ready_is_503_with_the_reason(served: Site) -> None:
    served.unready.append("the server is stopping")
    async with served.http.get("/ready") as answer:
        assert answer.status == 503
        assert (await answer.json())["reason"] == "the server is stopping"
        assert "Retry-After" in answer.headers


async def test_a_recent_write_is_proof_enough() -> None:
    store, clock = ScriptedStore(), Clock()
    store.written_ms = clock.ms - FRESH_MS
    assert (await Health(store, clock, lambda: None).ready()).status == 200
    assert store.probes == 0


async def test_an_idle_store_is_probed_at_most_once_in_five_seconds() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    answers = await asyncio.gather(*(health.ready() for _ in range(10)))
    assert [answer.status for answer in answers] == [200] * 10
    assert store.probes == 1
    clock.ms += FRESH_MS
    await health.ready()
    assert store.probes == 1
    clock.ms += 1
    await health.ready()
    assert store.probes == 2


async def test_a_store_that_cannot_write_is_not_ready_until_it_can() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.fault = StoreError("disk full: /secret/path")
    answer = await health.ready()
    assert answer.status == 503
    assert b"secret" not in answer.body
    store.fault = None
    clock.ms += FRESH_MS + 1
    assert (await health.ready()).status == 200
    store.fault = StoreError("again")
    clock.ms += FRESH_MS + 1
    store.written_ms = clock.ms
    assert (await health.ready()).status == 200


async def test_an_outage_is_told_in_words_although_small_writes_go_through() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.written_ms = clock.ms
    store.outage = Outage("its disk is full", clock.ms - 1_000, 12)
    answer = await health.ready()
    assert answer.status == 503
    assert msgspec.json.decode(answer.body)["reason"] == (
        "the store cannot be written: its disk is full; 12 writes failed since 1970-01-01T00:16:39.000Z"
    )
    store.outage = None
    assert (await health.ready()).status == 200


async def test_a_clock_that_was_set_back_proves_nothing() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.written_ms = clock.ms
    await health.ready()
    clock.ms -= 3_600_000
    store.fault = StoreError("gone")
    assert (await health.ready()).status == 503
    assert store.probes == 1
    store.fault = None
    clock.ms -= 3_600_000
    assert (await health.ready()).status == 200
    assert store.probes == 2


async def test_both_are_cheap() -> None:
    store, clock = ScriptedStore(), Clock()
    store.written_ms = clock.ms
    health = Health(store, clock, lambda: None)
    start = time.process_time()  # of this process: how busy the machine is does not matter
    for _ in range(100):
        await health.alive()
        await health.ready()
    assert (time.process_time() - start) / 200 < 0.001
