"""How much a host takes at a time."""

import pytest

from dragoman.push.hosts import KNOWN_MAX, WINDOW_MAX, WINDOW_START, Host, Hosts


def test_the_window_of_a_quick_host_opens_up_to_64() -> None:
    host = Host("h")
    seen = [host.window]
    for _ in range(500):
        host.took(0.01)
        seen.append(host.window)
    assert sorted(set(seen)) == [4, 8, 16, 32, WINDOW_MAX]


def test_the_window_of_a_slow_host_closes_to_one_and_opens_again() -> None:
    host = Host("h")
    for _ in range(5):
        host.took(2.0)
    assert host.window == 1
    host.took(0.5)
    assert host.window == 1
    for _ in range(3):
        host.took(0.01)
    assert host.window == WINDOW_START


def test_a_host_that_does_not_answer_has_one_in_flight() -> None:
    host = Host("h")
    for _ in range(100):
        host.took(0.01)
    host.failed()
    assert host.window == 1


@pytest.mark.parametrize(("status", "took_s"), [(429, 0.01), (500, 0.01), (503, 0.01), (404, 2.0)])
def test_a_host_that_cannot_keep_up_has_half_as_many_in_flight(status: int, took_s: float) -> None:
    host = Host("h")
    host.refused(status, took_s)
    assert host.window == WINDOW_START // 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
def test_a_webhook_that_is_wrong_takes_nothing_from_others_of_its_host(status: int) -> None:
    host = Host("h")
    host.refused(status, 0.01)
    assert host.window == WINDOW_START


def test_hosts_without_room_are_found_among_those_with_something_under_way() -> None:
    hosts = Hosts()
    for name, in_flight in (("a", 0), ("b", 1), ("c", 4)):
        hosts.busied(name).in_flight = in_flight
    assert hosts.under_way(WINDOW_START) == ["b", "c"]
    assert hosts.under_way() == ["a", "b", "c"]


def test_what_is_known_of_a_host_outlasts_its_deliveries() -> None:
    hosts = Hosts()
    host = hosts.busied("a")
    host.failed()
    hosts.settled(host)
    assert hosts.under_way() == []
    assert hosts.busied("a").window == 1


def test_so_many_hosts_are_remembered_and_no_more() -> None:
    hosts = Hosts()
    for number in range(KNOWN_MAX + 100):
        hosts.settled(hosts.busied(str(number)))
    assert len(hosts) == KNOWN_MAX
    assert hosts.busied("late").window == WINDOW_START
