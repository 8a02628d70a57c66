"""Hints that nobody follows are kept back, and no new follower misses one.

Time is virtual: a sleep is exact, and takes no time.
"""

import asyncio

import pytest

from dragoman.bus.cluster import ClusterBus
from dragoman.bus.interest import FORGET_S, KEPT_MAX, KEPT_S, SLOTS, Interest, spell_all, spell_some
from tests.bus.test_cluster import Air, Hint, a_bus
from tests.virtual_time import in_virtual_time

KNOWN_S = FORGET_S + 1
"""After so long, each bus knows the others."""


def publishes(bus: ClusterBus, task_id: str = "t", seq: int = 1) -> bool:
    before = bus.figures.published
    bus.publish(task_id, seq, b"page")
    return bus.figures.published > before


@in_virtual_time
async def test_a_hint_goes_out_only_while_another_replica_follows_its_task() -> None:
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


def known(*said: tuple[str, int]) -> Interest:
    """The interest of a replica that has heard the others: each with the slot that it follows."""
    interest = Interest()
    interest.forget_all(0)
    for sender, slot in said:
        interest.hear(sender, spell_all([slot]), FORGET_S)
    return interest


def test_a_hint_is_for_those_who_follow_its_slot() -> None:
    interest = known(("r1", 3), ("r2", 3), ("r3", 4))
    assert [interest.followers(slot) for slot in (3, 4, 5)] == [("r1", "r2"), ("r3",), ()]
    interest.hear_more("r3", spell_some([3, SLOTS - 1]), FORGET_S)
    assert interest.followers(3) is None, "everybody"
    assert interest.followers(SLOTS - 1) == ("r3",)


@pytest.mark.parametrize("said", [None, b"", b"odd", b"x" * 64, spell_all(range(SLOTS))])
def test_a_replica_that_does_not_say_what_it_follows_is_sent_everything(said: bytes | None) -> None:
    interest = known(("new", 3))
    interest.keep(9, "t", 5)
    assert interest.hear("old", said, FORGET_S) == [("t", 5)]
    assert all(interest.followers(slot) == ("old",) for slot in range(4, SLOTS))


def test_a_new_follower_gets_what_others_have_heard_already() -> None:
    interest = known(("r1", 3))
    interest.keep(3, "t", 5)
    assert interest.hear("r1", spell_all([3]), FORGET_S) == []
    assert interest.hear_more("r2", spell_some([3]), FORGET_S) == [("t", 5)]
    assert interest.hear_more("r2", spell_some([3]) + b"x", FORGET_S) == []


def test_a_replica_that_is_not_heard_any_more_is_forgotten() -> None:
    interest = known(("r1", 3))
    interest.hear("r2", spell_all([4]), FORGET_S + 5)
    interest.age(2 * FORGET_S + 1)
    assert (interest.followers(3), interest.followers(4)) == ((), ("r2",))


def test_hints_are_kept_for_a_while_and_not_for_ever() -> None:
    interest = known()
    interest.age(FORGET_S)
    interest.keep(3, "t", 5)
    interest.age(FORGET_S + KEPT_S)
    interest.keep(3, "t", 6)
    interest.age(FORGET_S + 2 * KEPT_S)
    assert interest.hear("r1", spell_all([3]), FORGET_S + 2 * KEPT_S) == [("t", 6)]
    for number in range(3 * KEPT_MAX):
        interest.keep(4, f"t{number}", 1)
    assert len(interest.hear("r1", spell_all([4]), FORGET_S + 2 * KEPT_S)) == 2 * KEPT_MAX
