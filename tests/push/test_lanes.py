"""How many calls may be under way, by how their hosts have done."""

import pytest

from dragoman.push.lanes import CONNECTIONS_MAX, LINGERING, SLOTS, Lanes
from dragoman.store.outbox import Lane


@pytest.mark.parametrize("lane", Lane)
def test_a_lane_has_so_many_slots_and_others_do_not_feel_it(lane: Lane) -> None:
    lanes = Lanes()
    slots = [lanes.take(lane) for _ in range(SLOTS[lane])]
    assert lanes.room(lane) == 0
    assert all(lanes.room(other) == SLOTS[other] for other in Lane if other is not lane)
    for slot in slots:
        lanes.end(slot)
    assert lanes.room(lane) == SLOTS[lane]


@pytest.mark.parametrize("lane", LINGERING)
def test_a_call_that_takes_long_leaves_its_slot_as_long_as_there_is_room(lane: Lane) -> None:
    lanes = Lanes()
    long = [lanes.take(lane) for _ in range(LINGERING[lane] + 1)]
    assert [lanes.linger(slot) for slot in long] == [True] * LINGERING[lane] + [False]
    assert lanes.room(lane) == SLOTS[lane] - 1
    for slot in long:
        lanes.end(slot)
    assert lanes.room(lane) == SLOTS[lane]
    assert lanes.linger(lanes.take(lane))


def test_a_slot_is_left_once() -> None:
    lanes = Lanes()
    slot = lanes.take(Lane.UNKNOWN)
    assert [lanes.linger(slot), lanes.linger(slot)] == [True, False]
    assert lanes.room(Lane.UNKNOWN) == SLOTS[Lane.UNKNOWN]


def test_there_is_a_connection_for_every_call() -> None:
    assert sum(SLOTS.values()) + sum(LINGERING.values()) == CONNECTIONS_MAX
