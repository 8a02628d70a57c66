"""A feed of an exchange with an agent elsewhere, for one reader.

Invariant: the exchange ends with its reader: when the feed is closed, its task is canceled and its connection given
up. At most `HELD_MAX` items wait for a slow reader; then the exchange waits, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct, field

HELD_MAX = 64


class RemoteItem(Struct, frozen=True):
    """An item of a feed: the name of its event, and its data. A feed cannot be resumed, so it has no position.

    `encoded` is for the bytes of the item, once it has been encoded.
    """

    name: str
    data: Any
    position: str = ""
    encoded: list[bytes] = field(default_factory=list)


class RemoteFeed:
    """The items of `begin()`, as `bindings.streams.Batches`. `ended` is called once, when the exchange is over."""

    def __init__(
        self,
        begin: Callable[[], AsyncGenerator[RemoteItem, None]],
        keepalive_s: float,
        ended: Callable[["RemoteFeed"], None],
    ) -> None:
        self.retry = False
        self._keepalive_s = keepalive_s
        self._items: list[RemoteItem] = []
        self._moved = asyncio.Event()
        self._taken = asyncio.Event()
        self._exchange = asyncio.create_task(self._run(begin), name="an exchange with an agent elsewhere")
        self._exchange.add_done_callback(lambda done: self._over(ended))

    async def next(self, wait_s: float | None = None) -> Sequence[RemoteItem] | None:
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

    async def _run(self, begin: Callable[[], AsyncGenerator[RemoteItem, None]]) -> None:
        async with aclosing(begin()) as items:
            async for item in items:
                while len(self._items) >= HELD_MAX:
                    self._taken.clear()
                    await self._taken.wait()
                self._items.append(item)
                self._moved.set()

    def _over(self, ended: Callable[["RemoteFeed"], None]) -> None:
        self._moved.set()
        ended(self)
