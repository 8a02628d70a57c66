"""How many calls may be under way, by how their hosts have done."""

import pytest

from dragoman.push.lanes import HOSTS_MAX, LARGE_BYTES_MAX, LINGERING, SLOTS, SPARE, Hosts, Lanes
from dragoman.push.outcome import WINDOW_START, Window
from dragoman.store.outbox import SMALL_BYTES_MAX, Lane

ROOM = SLOTS | {Lane.UNKNOWN: SLOTS[Lane.UNKNOWN] + SLOTS[Lane.HEALTHY] - SPARE}
"""How many calls a lane may have under way while the others have none."""


@pytest.mark.parametrize("lane", Lane)
def test_a_lane_has_so_many_slots_and_others_do_not_feel_it(lane: Lane) -> None:
    lanes = Lanes()
    slots = [lanes.take(lane) for _ in range(ROOM[lane])]
    assert lanes.room(lane) == 0
    assert all(lanes.room(other) >= SLOTS[other] for other in Lane if other is not lane)
    for slot in slots:
        lanes.release(slot)
    assert lanes.room(lane) == ROOM[lane]


def test_unknown_hosts_have_what_healthy_ones_can_spare() -> None:
    lanes, free = Lanes(), ROOM[Lane.UNKNOWN]
    for taken in range(1, SLOTS[Lane.HEALTHY] + 1):
        lanes.take(Lane.HEALTHY)
        assert lanes.room(Lane.UNKNOWN) == max(SLOTS[Lane.UNKNOWN], free - taken)


def test_what_is_held_of_large_bodies_is_bounded_for_each_lane() -> None:
    lanes, large = Lanes(), bytes(SMALL_BYTES_MAX + 1)
    lanes.take_bytes(Lane.UNKNOWN, bytes(SMALL_BYTES_MAX))
    assert lanes.room_bytes(Lane.UNKNOWN) is None
    lanes.take_bytes(Lane.UNKNOWN, large)
    assert lanes.room_bytes(Lane.UNKNOWN) == LARGE_BYTES_MAX[Lane.UNKNOWN] - len(large)
    assert lanes.room_bytes(Lane.HEALTHY) is None
    lanes.take_bytes(Lane.UNKNOWN, bytes(LARGE_BYTES_MAX[Lane.UNKNOWN]))
    assert lanes.room_bytes(Lane.UNKNOWN) == 0
    lanes.release_bytes(Lane.UNKNOWN, large)
    lanes.release_bytes(Lane.UNKNOWN, bytes(LARGE_BYTES_MAX[Lane.UNKNOWN]))
    assert lanes.room_bytes(Lane.UNKNOWN) is None


def test_a_lane_is_crowded_by_calls_that_take_long_or_by_memory() -> None:
    lanes = Lanes()
    for number in range(LINGERING[Lane.UNKNOWN] // 2):
        assert not lanes.crowded(Lane.UNKNOWN), number
        lanes.linger(lanes.take(Lane.UNKNOWN))
    assert lanes.crowded(Lane.UNKNOWN)
    assert not lanes.crowded(Lane.FAILING)
    lanes.take_bytes(Lane.FAILING, bytes(LARGE_BYTES_MAX[Lane.FAILING] // 2))
    assert lanes.crowded(Lane.FAILING)


@pytest.mark.parametrize("lane", LINGERING)
def test_a_call_that_takes_long_leaves_its_slot_as_long_as_there_is_room(lane: Lane) -> None:
    lanes = Lanes()
    long = [lanes.take(lane) for _ in range(LINGERING[lane] + 1)]
    assert [lanes.linger(slot) for slot in long] == [True] * LINGERING[lane] + [False]
    assert lanes.room(lane) == ROOM[lane] - 1
    for slot in long:
        lanes.release(slot)
    assert lanes.room(lane) == ROOM[lane]
    assert lanes.linger(lanes.take(lane))


def test_a_slot_is_left_once() -> None:
    lanes = Lanes()
    slot = lanes.take(Lane.UNKNOWN)
    assert [lanes.linger(slot), lanes.linger(slot)] == [True, False]
    assert lanes.room(Lane.UNKNOWN) == ROOM[Lane.UNKNOWN]


def test_hosts_without_room_are_found_among_those_with_something_under_way() -> None:
    hosts = Hosts()
    for name, in_flight in (("a", 0), ("b", 1), ("c", 4)):
        host = hosts.engage(name)
        for _ in range(in_flight):
            host.begin()
    assert hosts.without_room(WINDOW_START) == ["b", "c"]
    assert hosts.without_room() == ["a", "b", "c"]


def test_what_is_known_of_a_host_outlasts_its_deliveries() -> None:
    hosts = Hosts()
    host = hosts.engage("a")
    host.window = Window(1)
    hosts.release(host)
    assert hosts.without_room() == []
    assert hosts.engage("a").window == Window(1)


def test_so_many_hosts_are_remembered_and_no_more() -> None:
    hosts = Hosts()
    for number in range(HOSTS_MAX + 100):
        hosts.release(hosts.engage(str(number)))
    assert len(hosts) == HOSTS_MAX
    assert hosts.engage("late").window == Window()
