"""Requests to end what a leaked key began: which replica works on one, and when it is done."""

import pytest

from dragoman.engine.key_stops import SETTLED_MS, KeyStops
from dragoman.store.open import open_store
from tests.engine.house import StandingClock


async def alive(replica: str) -> bool:
    return True


@pytest.mark.parametrize(("after_ms", "found"), [(0, False), (SETTLED_MS, True)], ids=["too early", "found something"])
async def test_an_attempt_that_may_have_missed_something_is_followed_by_another_at_once(
    after_ms: int, *, found: bool
) -> None:
    clock = StandingClock()
    store = open_store("memory:", clock)
    await store.open("h1")
    stops = KeyStops(store.shared, clock)
    await stops.request("k1", "ann", "operator:root", tasks=True)
    clock.ms += after_ms
    first = await stops.claim("k1", "h1", alive)
    assert first is not None
    assert await stops.claim("k1", "h2", alive) is None, "one replica at a time works on it"
    await stops.settle(*first, found=found, left=0)
    second = await stops.claim("k1", "h2", alive)
    assert second is not None
    clock.ms += SETTLED_MS
    await stops.settle(*second, found=False, left=0)
    assert await stops.claim("k1", "h1", alive) is None
    (request,) = await stops.refresh()
    assert request.done_ms == clock.ms
    await store.close()
