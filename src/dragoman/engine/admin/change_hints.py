"""Change hints: wake the reader of changes when something was committed, here or on another replica.

Invariant: a commit costs nothing more while nobody on any replica follows the changes. Hints may be lost: the reader
polls, too.
"""

import asyncio

from dragoman.bus.api import Bus
from dragoman.store.api import Store

FOLLOWED, CHANGED = "changes.followed", "changes"
"""The signals between replicas: somebody follows the changes here; something was committed here."""

ATTENDED_S = 10.0
"""A replica tells of its commits for so long after another one said that it follows the changes."""

REPEATED_S = 4.0
"""So often a replica says that it still follows the changes."""

APART_S = 0.05
"""The least time between two signals of commits."""


class ChangeHints:
    """The hints of one replica. Its `bus` must not be open yet."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._heard: set[asyncio.Event] = set()
        self._asking: asyncio.TimerHandle | None = None
        self._attending: asyncio.TimerHandle | None = None
        """The end of telling other replicas; None while none of them follows the changes."""
        self._committed = asyncio.Event()
        self._followed: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._changed: asyncio.Queue[bytes] = asyncio.Queue(1)
        bus.on_signal(FOLLOWED, self._followed)
        bus.on_signal(CHANGED, self._changed)

    def watch(self, heard: asyncio.Event) -> None:
        """Set `heard` after commits, here and on other replicas, until `rest` is called with it."""
        self._heard.add(heard)
        self._store.writing.watch(self._committed)
        if self._asking is None:
            self._ask()

    def rest(self, heard: asyncio.Event) -> None:
        """Set `heard` no more."""
        self._heard.discard(heard)
        if self._asking is not None and not self._heard:
            self._asking.cancel()
            self._asking = None
        self._unwatch()

    async def run(self) -> None:
        """Pass on for ever what is committed here, and what other replicas say."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_commits())
            group.create_task(self._hear_followers())
            group.create_task(self._hear_changes())

    async def _tell_commits(self) -> None:
        while True:
            await self._committed.wait()
            self._committed.clear()
            self._wake()
            if self._attending is not None:
                self._bus.signal(CHANGED)
                await asyncio.sleep(APART_S)

    async def _hear_followers(self) -> None:
        """Tell other replicas of commits for a while after each word that they follow the changes."""
        while True:
            await self._followed.get()
            if self._attending is not None:
                self._attending.cancel()
            self._attending = asyncio.get_running_loop().call_later(ATTENDED_S, self._leave)
            self._store.writing.watch(self._committed)

    async def _hear_changes(self) -> None:
        while True:
            await self._changed.get()
            self._wake()

    def _ask(self) -> None:
        self._bus.signal(FOLLOWED)
        self._asking = asyncio.get_running_loop().call_later(REPEATED_S, self._ask)

    def _leave(self) -> None:
        self._attending = None
        self._unwatch()

    def _unwatch(self) -> None:
        if not self._heard and self._attending is None:
            self._store.writing.watch(None)

    def _wake(self) -> None:
        for heard in self._heard:
            heard.set()
