"""Shared reads: the same question of several operators is asked of the store once.

Invariant: an answer shows at least what had been committed when its reader asked. The same is never read twice at the
same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

GATHER_S = 0.005
"""How long a read waits for others to ask the same: a change makes all open consoles ask at once."""

APART_S = 0.25
"""The least time between the beginnings of two such reads. Those who ask in between share the second one."""

REMEMBERED = 200
"""Most reads whose beginning is remembered. The others may begin sooner."""

T = TypeVar("T")


class Abandoned(Exception):
    """The reader that was about to make the read for all others has left."""


class SharedReads:
    """Makes reads for those who wait for them together: the first of them makes the read."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[Any]] = {}
        """The reads that have not begun."""
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        """The reads that have begun and have not ended."""
        self._begun_s: dict[Hashable, float] = {}

    async def read(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work`, called after now, returns or raises. It is the same for all that have the same `key`."""
        while (waiting := self._waiting.get(key)) is not None:
            try:
                shared: T = await asyncio.shield(waiting)
            except Abandoned:
                continue
            return shared
        return await self._make(key, work)

    async def _make(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        outcome = self._waiting[key] = loop.create_future()
        try:
            await asyncio.sleep(max(GATHER_S, self._begun_s.get(key, 0.0) + APART_S - loop.time()))
            while (other := self._under_way.get(key)) is not None:
                await asyncio.wait((other,))
            self._note(key, loop.time())
            del self._waiting[key]
            self._under_way[key] = outcome
            found = await work()
        except asyncio.CancelledError:
            if self._waiting.get(key) is outcome:
                del self._waiting[key]
            _fail(outcome, Abandoned())
            raise
        except Exception as error:  # all who wait get it as it is; nothing is swallowed
            _fail(outcome, error)
            raise
        finally:
            if self._under_way.get(key) is outcome:
                del self._under_way[key]
        outcome.set_result(found)
        return found

    def _note(self, key: Hashable, now_s: float) -> None:
        if len(self._begun_s) >= REMEMBERED:
            self._begun_s = {each: at_s for each, at_s in self._begun_s.items() if now_s - at_s < APART_S}
            if len(self._begun_s) >= REMEMBERED:
                self._begun_s.clear()
        self._begun_s[key] = now_s


def _fail(outcome: "asyncio.Future[Any]", error: Exception) -> None:
    outcome.set_exception(error)
    outcome.exception()  # perhaps nobody else waits
