"""When a replica polls: often without a healthy bus, seldom with one, and however often it is told of work."""

import asyncio
from typing import Any, cast

from dragoman.bus.api import UNREAD_MAX
from dragoman.engine.hints import Hints
from dragoman.store.replicas import Replica
from tests.buses import Hub
from tests.virtual_time import in_virtual_time

NO_STORE: Any = None


class Living:
    """A store of which only the replicas matter, all of them alive."""

    def __init__(self, *ids: str) -> None:
        self.replicas = self
        self._all = tuple(Replica(id=one, address="", agents=(), started_ms=0, beats_until_ms=None) for one in ids)

    async def all(self) -> tuple[Replica, ...]:
        return self._all


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _next_poll(hints: Hints) -> float:
    while not await hints.due():
        pass
    return _now()


@in_virtual_time
async def test_a_healthy_bus_makes_polls_rare_and_a_broken_one_frequent_within_a_second() -> None:
    hub = Hub()
    bus = hub.bus()
    hints = Hints(NO_STORE, bus, poll_s=1, healthy_poll_s=5)
    await bus.open()
    first = await _next_poll(hints)
    assert [await _next_poll(hints) - first for _ in range(2)] == [5, 10]
    asyncio.get_running_loop().call_later(2.5, setattr, hub, "down", True)
    assert 12 < await _next_poll(hints) - first <= 13.5
    start = _now()
    assert [await _next_poll(hints) - start for _ in range(3)] == [1, 2, 3]


@in_virtual_time
async def test_polls_are_frequent_while_a_living_replica_is_not_heard() -> None:
    hub, store = Hub(), cast("Any", Living("me", "other"))
    bus, other = hub.bus(), hub.bus()
    hints = Hints(store, bus, poll_s=1, healthy_poll_s=5)
    hints.serve("me", ["echo"])
    await bus.open()
    start = await _next_poll(hints)
    await hints.refresh()
    assert [await _next_poll(hints) - start for _ in range(2)] == [1, 2]
    await other.open()
    assert await _next_poll(hints) - start == 7


@in_virtual_time
async def test_word_of_work_is_heard_at_once_and_keeps_no_poll_from_coming() -> None:
    hub = Hub()
    bus, other = hub.bus(), hub.bus()
    hints = Hints(NO_STORE, bus, poll_s=1, healthy_poll_s=5)
    hints.serve("me", ["echo"])
    for each in (bus, other):
        await each.open()
    start = await _next_poll(hints)
    polls: list[float] = []
    told = 0
    for number in range(1, 240):
        asyncio.get_running_loop().call_at(start + number / 20, other.tell if number % 2 else other.queued, "me")
    hints.serve("me", ["me"])
    while _now() - start < 11:
        if await hints.due():
            polls.append(_now() - start)
        else:
            told += 1
    assert [round(poll) for poll in polls] == [5, 10]
    assert told >= 200


@in_virtual_time
async def test_hints_that_were_dropped_unread_are_made_good_by_a_poll_at_once() -> None:
    hub = Hub()
    bus, other = hub.bus(), hub.bus()
    hints = Hints(NO_STORE, bus, poll_s=1, healthy_poll_s=5)
    hints.serve("me", ["echo"])
    for each in (bus, other):
        await each.open()
    start = await _next_poll(hints)
    for number in range(UNREAD_MAX):
        other.publish(f"t{number}", 1, to="me")
    await asyncio.sleep(0.5)
    other.publish("one more", 1, to="me")
    assert await _next_poll(hints) - start < 1
    assert await _next_poll(hints) - start > 5
