"""A feed of an exchange with an agent elsewhere, for one reader.

Invariant: the exchange ends with its reader: when the feed is closed, its task is canceled and its connection given
up. At most `HELD_MAX` items wait for a slow reader; then `put` waits, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from dragoman.engine.admin.feeds import FeedItem

HELD_MAX = 64


class RemoteFeed:
    """The items that `run` puts into it, as `bindings.streams.Batches`. `ended` is called once, when `run` is over.

    A feed cannot be resumed, so no item has a position.
    """

    def __init__(
        self,
        run: Callable[["RemoteFeed"], Awaitable[None]],
        keepalive_s: float,
        ended: Callable[["RemoteFeed"], None],
    ) -> None:
        self.retry = False
        self._keepalive_s = keepalive_s
        self._items: list[FeedItem] = []
        self._moved = asyncio.Event()
        self._taken = asyncio.Event()
        self._exchange = asyncio.create_task(self._run(run), name="an exchange with an agent elsewhere")
        self._exchange.add_done_callback(lambda done: self._over(ended))

    async def put(self, name: str, data: Struct) -> None:
        """Add an item, once there is room for it."""
        while len(self._items) >= HELD_MAX:
            self._taken.clear()
            await self._taken.wait()
        self._add(name, data)

    def replace(self, name: str, data: Struct) -> None:
        """Add an item at once. One of the same name that is the newest and has not been read makes room for it."""
        if self._items and self._items[-1].name == name:
            self._items.pop()
        self._add(name, data)

    async def next(self, wait_s: float | None = None) -> Sequence[FeedItem] | None:
        """As `bindings.streams.Batches` says."""
        try:
            async with asyncio.timeout(self._keepalive_s if wait_s is None else wait_s):
                await self._moved.wait()
        except TimeoutError:
            return ()
        items, self._items = self._items, []
        self._taken.set()
        if not self._exchange.done():
            self._moved.clear()
        elif not items:
            if not self._exchange.cancelled():
                self._exchange.result()  # an error that nobody foresaw is the request's own
            return None
        return items

    def close(self) -> None:
        """As `bindings.streams.Batches` says."""
        self._exchange.cancel()

    def stop(self) -> None:
        """End the feed because the server stops. Its reader need not come back: the exchange is not resumed."""
        self._exchange.cancel()

    def _add(self, name: str, data: Struct) -> None:
        self._items.append(FeedItem(name, data))
        self._moved.set()

    async def _run(self, run: Callable[["RemoteFeed"], Awaitable[None]]) -> None:
        await run(self)

    def _over(self, ended: Callable[["RemoteFeed"], None]) -> None:
        self._moved.set()
        ended(self)
