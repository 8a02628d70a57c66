"""The order in which the members of a pool are asked."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from dragoman.agents.member_order import MemberOrder
from dragoman.config.pools import Strategy

STRATEGIES: tuple[Strategy, ...] = ("failover", "round_robin", "least_busy", "weighted")


class Member(Struct, frozen=True):
    order: int = 0
    weight: int = 1


def choose(pool: MemberOrder, calls: int, *away: int, busy: Sequence[int] = (0,) * 9) -> list[list[int]]:
    """The orders of so many calls, while the members at `away` are not ready, and those at `busy` have open calls."""
    ready = set(range(len(busy))) - set(away)
    return [pool.choose_order(ready, busy.__getitem__) for _ in range(calls)]


def test_failover_asks_in_the_order_of_the_file_and_leaves_out_who_is_away() -> None:
    pool = MemberOrder("failover", [Member(0), Member(1), Member(2)])
    assert choose(pool, 2) == [[0, 1, 2], [0, 1, 2]]
    assert choose(pool, 1, 0) == [[1, 2]]
    assert choose(pool, 1, 0, 1, 2) == [[]]


def test_members_take_turns() -> None:
    pool = MemberOrder("round_robin", [Member(), Member(), Member()])
    assert choose(pool, 4) == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize(("weights", "first"), [((5, 1, 1), "0010200"), ((1, 1), "0101010"), ((1, 3), "1011101")])
def test_shares_are_by_weight_and_spread_out(weights: Sequence[int], first: str) -> None:
    pool = MemberOrder("weighted", [Member(weight=weight) for weight in weights])
    assert "".join(str(order[0]) for order in choose(pool, 7)) == first
    count = Counter(order[0] for order in choose(pool, 7 * sum(weights) - 7))
    assert all(abs(count[place] / 7 - weight) <= 1.2 for place, weight in enumerate(weights))


def test_a_member_that_was_away_does_not_make_up_for_it() -> None:
    pool = MemberOrder("weighted", [Member(weight=1), Member(weight=1)])
    assert {order[0] for order in choose(pool, 100, 1)} == {0}
    assert Counter(order[0] for order in choose(pool, 10)) == {0: 5, 1: 5}


def test_the_member_with_the_fewest_open_calls_comes_first_and_equals_take_turns() -> None:
    pool = MemberOrder("least_busy", [Member(), Member(), Member()])
    assert [order[0] for order in choose(pool, 3)] == [0, 1, 2]
    assert choose(pool, 2, busy=(2, 0, 1)) == [[1, 2, 0], [1, 2, 0]]
    assert Counter(order[0] for order in choose(pool, 6, busy=(0, 0, 1))) == {0: 3, 1: 3}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_higher_order_is_asked_only_after_all_of_the_lower_ones(strategy: Strategy) -> None:
    pool = MemberOrder(strategy, [Member(1), Member(0), Member(1), Member(0)])
    for order in choose(pool, 20):
        assert set(order[:2]) == {1, 3}
    assert {order[0] for order in choose(pool, 20, 1, 3)} <= {0, 2}


@given(st.sampled_from(STRATEGIES), st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_each_member_that_is_ready_is_in_the_order_once(
    strategy: Strategy, orders: list[int], data: st.DataObject
) -> None:
    pool = MemberOrder(strategy, [Member(order, data.draw(st.integers(1, 9))) for order in orders])
    for _ in range(4):
        away = data.draw(st.sets(st.integers(0, len(orders) - 1)))
        (order,) = choose(pool, 1, *away)
        assert sorted(order) == sorted(set(range(len(orders))) - away)
        assert [orders[place] for place in order] == sorted(orders[place] for place in order)
