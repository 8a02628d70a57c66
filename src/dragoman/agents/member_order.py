"""MemberOrder: in which order the members of a pool are asked, by the pool's strategy; of agents and of models.

Invariant: an order has each member that is ready once, so that a caller who goes down the list asks each. Members of a
lower `order` stand before all of a higher one. There is no chance in it: with equal calls the shares are exact.
"""

from collections.abc import Callable, Container, Sequence
from itertools import groupby
from typing import Protocol, assert_never

from dragoman.config.pools import Strategy


class Ranked(Protocol):
    """A member, as the configuration ranks it."""

    @property
    def order(self) -> int:
        """Its tier: a member is asked while no member of a lower one is ready."""
        ...

    @property
    def weight(self) -> int:
        """Its share of the calls, of the weights of all."""
        ...


class MemberOrder:
    """The order for one pool. It counts what it has handed out, and belongs to one event loop."""

    __slots__ = ("_members", "_shares", "_strategy", "_tiers", "_turn")

    def __init__(self, strategy: Strategy, members: Sequence[Ranked]) -> None:
        self._strategy = strategy
        self._members = tuple(members)
        self._shares = [0.0] * len(members)
        self._turn = 0
        ranked = sorted(range(len(members)), key=lambda place: members[place].order)
        self._tiers = [tuple(tier) for _, tier in groupby(ranked, key=lambda place: members[place].order)]

    def choose_order(self, ready: Container[int], busy: Callable[[int], int]) -> list[int]:
        """The places of the members that are `ready`, in the order in which the next call asks them.

        `busy` counts the calls of the member at a place that are under way.
        """
        order: list[int] = []
        for tier in self._tiers:
            places = [place for place in tier if place in ready]
            order += self._arrange(places, busy, first=not order) if len(places) > 1 else places
        return order

    def _arrange(self, places: list[int], busy: Callable[[int], int], *, first: bool) -> list[int]:
        """The members of one tier. Only the `first` one uses up turns and shares: the call goes to it."""
        match self._strategy:
            case "failover":
                return places
            case "round_robin":
                at = self._turn % len(places)
                self._turn += first
                return places[at:] + places[:at]
            case "weighted":
                return self._arrange_by_weight(places, first=first)
            case "least_busy":
                least = min(map(busy, places))
                idle = [place for place in places if busy(place) == least]
                at = self._turn % len(idle)
                self._turn += first
                rest = sorted((place for place in places if place not in idle), key=busy)
                return [*idle[at:], *idle[:at], *rest]
            case _:
                assert_never(self._strategy)

    def _arrange_by_weight(self, places: list[int], *, first: bool) -> list[int]:
        """Smooth weighted round robin, as nginx does it: shares are exact, and no member gets its calls in a row."""
        shares, total = self._shares, sum(self._members[place].weight for place in places)
        ahead = {place: shares[place] + self._members[place].weight for place in places}
        order = sorted(places, key=lambda place: -ahead[place])
        if first:
            for place in places:
                shares[place] = ahead[place]
            shares[order[0]] -= total
        return order
