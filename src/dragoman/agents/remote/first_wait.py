"""FirstWait: the wait for the first words of an upstream, which may go on when the run that waits is canceled.

Invariant: what is waited for never notices who drives it. A task of its own behind `asyncio.shield` would do the same
for 5 us a message (`upstream` in bench/rows.py), and is needed in few of a thousand.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FirstWait(Generic[T]):
    """Awaits `work`. If that is canceled while `leaves` says so, the work is not: `rest` awaits the rest of it.

    Else the work is canceled, as everywhere.
    """

    __slots__ = ("_begun", "_leaves", "_pending", "_resumed", "_work", "left")

    def __init__(self, work: Coroutine[Any, Any, T], leaves: Callable[[], bool]) -> None:
        self.left = False
        """Whether the work is not over, and nobody drives it."""
        self._work = work
        self._leaves = leaves
        self._begun = self._resumed = False
        self._pending: asyncio.Future[Any] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        work, pending = self._work, self._pending
        try:
            if not self._begun:
                self._begun = True
                pending = work.send(None)
            while True:
                try:
                    if pending is None:  # the loop gets a turn
                        yield
                    else:
                        # The loop's task would take the future itself, and cancel that: it is given another one.
                        pending._asyncio_future_blocking = False
                        turn = pending.get_loop().create_future()
                        pending.add_done_callback(_Wake(turn))
                        yield from turn
                except asyncio.CancelledError as canceled:
                    if self._resumed:
                        if pending is not None and pending.cancel():
                            yield  # the loop lets go of a socket before the work closes it
                        work.throw(canceled)
                        # A timeout of the work has taken it for its own: it ran out when the first task was over.
                        work.close()
                        raise
                    if self._leaves():
                        self.left, self._pending = True, pending
                        raise
                    if pending is None or not pending.cancel():  # else it wakes the work, as it does that of a task
                        pending = work.throw(canceled)
                else:
                    pending = work.send(None)
        except StopIteration as over:
            result: T = over.value
            return result

    def close(self) -> None:
        """Drop the work."""
        if self._pending is not None:
            self._pending.cancel()
        self._work.close()

    async def rest(self) -> T:
        """Await the rest of the work that was left. It is canceled with this."""
        self.left, self._resumed = False, True
        return await self


class _Wake:
    """Ends a turn, if it has not been canceled."""

    __slots__ = ("_turn",)

    def __init__(self, turn: "asyncio.Future[None]") -> None:
        self._turn = turn

    def __call__(self, _: object) -> None:
        if not self._turn.done():
            self._turn.set_result(None)
