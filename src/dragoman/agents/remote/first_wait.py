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

    __slots__ = ("_leaves", "_pending", "_work", "left")

    def __init__(self, work: Coroutine[Any, Any, T], leaves: Callable[[], bool]) -> None:
        self.left = False
        """Whether the work is not over, and nobody drives it."""
        self._work = work
        self._leaves = leaves
        self._pending: asyncio.Future[Any] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        work = self._work
        try:
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
                    if self._leaves():
                        self.left, self._pending = True, pending
                        raise
                    if pending is not None:
                        pending.cancel()
                    pending = work.throw(canceled)
                else:
                    pending = work.send(None)
        except StopIteration as over:
            result: T = over.value
            return result

    def close(self) -> None:
        """Drop the work."""
        self._work.close()

    async def rest(self) -> T:
        """Await the rest of the work that was left. It is canceled with this."""
        self.left = False
        if self._pending is not None:
            try:
                await asyncio.wait((self._pending,))
            except asyncio.CancelledError:
                self._work.close()
                raise
        return await FirstWait(self._work, lambda: False)


class _Wake:
    """Ends a turn, if it has not been canceled."""

    __slots__ = ("_turn",)

    def __init__(self, turn: "asyncio.Future[None]") -> None:
        self._turn = turn

    def __call__(self, _: object) -> None:
        if not self._turn.done():
            self._turn.set_result(None)
