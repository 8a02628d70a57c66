"""Hints that nobody follows are kept back, and no new follower misses one.

Time is virtual: a sleep is exact, and takes no time.
"""

import asyncio

from dragoman.bus.cluster import ClusterBus
from dragoman.bus.interest import ALL, FORGET_S, KEPT_MAX, KEPT_S, Interest
from tests.bus.test_cluster import Air, Hint, a_bus
from tests.virtual_time import in_virtual_time

KNOWN_S = FORGET_S + 1
"""After so long, each bus knows the others."""


def publishes(bus: ClusterBus, task_id: str = "t", seq: int = 1) -> bool:
    before = bus.figures.published
    bus.publish(task_id, seq, b"page")
    return bus.figures.published > before


@in_virtual_time
async def test_a_hint_goes_out_only_while_another_replica_receives_its_subject() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air) as bus, a_bus(air, hints) as other:
        assert bus.wants("t")
        assert publishes(bus)  # nobody knows yet
        await asyncio.sleep(KNOWN_S)
        assert not bus.wants("t")
        assert not publishes(bus)
        other.follow("t")
        await asyncio.sleep(0.01)
        assert bus.wants("t")
        assert publishes(bus, seq=2)
        other.unfollow("t")
        await asyncio.sleep(KNOWN_S + 2)
        assert not publishes(bus)


@in_virtual_time
async def test_a_hint_that_was_kept_back_reaches_one_who_begins_to_follow() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air) as bus, a_bus(air, hints) as other:
        await asyncio.sleep(KNOWN_S)
        assert not publishes(bus, seq=4)
        other.follow("t")
        await asyncio.sleep(0.01)
        assert hints == [("t", None, None), ("t", 4, None)]
        assert publishes(bus, seq=5)
        await asyncio.sleep(0.01)
        assert hints[2:] == [("t", 5, b"page")]


@in_virtual_time
async def test_a_follower_whose_word_is_lost_gets_its_hint_with_the_next_one() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air) as bus, a_bus(air, hints) as other:
        await asyncio.sleep(KNOWN_S)
        air.mute = True
        other.follow("t")
        await asyncio.sleep(0.01)
        air.mute = False
        assert not publishes(bus, seq=4)
        await asyncio.sleep(1.1)
        assert hints == [("t", None, None), ("t", 4, None)]


@in_virtual_time
async def test_a_replica_that_does_not_hear_itself_keeps_nothing_back() -> None:
    air = Air()
    async with a_bus(air) as bus, a_bus(air):
        await asyncio.sleep(KNOWN_S)
        assert not publishes(bus)
        air.mute = True
        await asyncio.sleep(4)
        assert not bus.healthy
        assert publishes(bus)


@in_virtual_time
async def test_the_replica_that_a_hint_is_for_gets_it_though_it_follows_nothing() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air) as bus, a_bus(air, hints) as other:
        other.serve("r2", [])
        await asyncio.sleep(KNOWN_S)
        bus.publish("t", 7, b"page", to="r2")
        await asyncio.sleep(0.01)
        assert hints == [("t", 7, b"page")]


def test_a_replica_that_does_not_say_what_it_receives_is_sent_everything() -> None:
    interest = Interest()
    interest.begin(0)
    interest.hear("new", b"", FORGET_S)
    assert not any(map(interest.is_wanted, ALL))
    interest.withhold(3, "t", 5)
    assert interest.hear("old", None, FORGET_S) == [("t", 5)]
    assert all(map(interest.is_wanted, ALL))


def test_a_replica_that_is_not_heard_any_more_is_forgotten() -> None:
    interest = Interest()
    interest.begin(0)
    interest.hear("r1", bytes([3]), FORGET_S)
    interest.hear("r2", bytes([4]), FORGET_S + 5)
    interest.age(2 * FORGET_S + 1)
    assert (interest.is_wanted(3), interest.is_wanted(4)) == (False, True)


def test_hints_are_kept_for_a_while_and_not_for_ever() -> None:
    interest = Interest()
    interest.begin(0)
    interest.age(FORGET_S)
    interest.withhold(3, "t", 5)
    interest.age(FORGET_S + KEPT_S)
    interest.withhold(3, "t", 6)
    interest.age(FORGET_S + 2 * KEPT_S)
    assert interest.hear("r1", bytes([3]), FORGET_S + 2 * KEPT_S) == [("t", 6)]
    for number in range(3 * KEPT_MAX):
        interest.withhold(4, f"t{number}", 1)
    assert len(interest.hear("r1", bytes([4]), FORGET_S + 2 * KEPT_S)) == 2 * KEPT_MAX
