"""Change hints: wake the reader of changes when something was committed, here or on another replica.

Invariant: a commit costs nothing more while nobody on any replica follows the changes. Hints may be lost: the reader
polls, too.
"""

import asyncio
from collections.abc import Callable

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
        self._heard: Callable[[], None] | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._attending: asyncio.TimerHandle | None = None
        """The end of telling other replicas; None while none of them follows the changes."""
        self._pausing: asyncio.TimerHandle | None = None
        self._untold = False
        bus.on_signal(FOLLOWED, lambda _: self._attend())
        bus.on_signal(CHANGED, lambda _: self._wake())

    def watch(self, heard: Callable[[], None]) -> None:
        """Call `heard` after commits, here and on other replicas, until `rest` is called."""
        self._heard = heard
        self._store.watch(self._committed)
        self._ask()

    def rest(self) -> None:
        """Call nobody any more."""
        self._heard = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._unwatch()

    def _ask(self) -> None:
        self._bus.signal(FOLLOWED)
        self._asking = asyncio.get_running_loop().call_later(REPEATED_S, self._ask)

    def _attend(self) -> None:
        """Another replica follows the changes: tell it of commits for a while."""
        if self._attending is not None:
            self._attending.cancel()
        self._attending = asyncio.get_running_loop().call_later(ATTENDED_S, self._leave)
        self._store.watch(self._committed)

    def _leave(self) -> None:
        self._attending = None
        self._unwatch()

    def _unwatch(self) -> None:
        if self._heard is None and self._attending is None:
            self._store.watch(None)

    def _wake(self) -> None:
        if self._heard is not None:
            self._heard()

    def _committed(self) -> None:
        self._wake()
        if self._attending is None:
            return
        if self._pausing is not None:
            self._untold = True
            return
        self._bus.signal(CHANGED)
        self._pausing = asyncio.get_running_loop().call_later(APART_S, self._paused)

    def _paused(self) -> None:
        self._pausing = None
        if self._untold:
            self._untold = False
            self._committed()
