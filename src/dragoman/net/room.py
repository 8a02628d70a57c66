"""Limits how many requests may run at once, in total and per place; the others wait.

Invariant: every request that enters leaves once; nobody waits while a place is free for them.
"""

import asyncio
import sys

from dragoman.net.connection import Place


class Room:
    """Waiters for one place enter in order of arrival; the places take turns. A limit of 0 means no limit."""

    __slots__ = ("_inside", "_max", "_per_place_max", "_places", "_waiting")

    def __init__(self, *, in_all_max: int, per_place_max: int) -> None:
        self._max = in_all_max or sys.maxsize
        self._per_place_max = per_place_max or sys.maxsize
        self._inside = 0
        self._places: dict[Place, int] = {}
        self._waiting: dict[Place, dict[asyncio.Future[None], None]] = {}

    @property
    def free(self) -> int:
        """How many more may enter."""
        return self._max - self._inside

    async def enter(self, place: Place, until_s: float) -> None:
        """Wait for room. Raises TimeoutError at `until_s`, a time of the loop."""
        if place not in self._waiting and self._fits(place):
            self._count(place, 1)
            return
        free = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, {})[free] = None
        try:
            async with asyncio.timeout_at(until_s):
                await free
        except BaseException:
            if free.done() and not free.cancelled():
                self.leave(place)
            elif (waiting := self._waiting.get(place)) is not None:
                waiting.pop(free, None)
                if not waiting:
                    del self._waiting[place]
            raise

    def leave(self, place: Place) -> None:
        """Leave, and let the next waiter in."""
        self._count(place, -1)
        while self.free > 0 and (turn := next(filter(self._fits, self._waiting), None)) is not None:
            waiting = self._waiting.pop(turn)
            free = next(iter(waiting))
            del waiting[free]
            if waiting:
                self._waiting[turn] = waiting
            if not free.done():
                self._count(turn, 1)
                free.set_result(None)

    def _fits(self, place: Place) -> bool:
        return self._inside < self._max and self._places.get(place, 0) < self._per_place_max

    def _count(self, place: Place, change: int) -> None:
        self._inside += change
        self._places[place] = self._places.get(place, 0) + change
        if not self._places[place]:
            del self._places[place]
