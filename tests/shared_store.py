"""One store in memory that several servers of this process share, as they would share a database."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.api import Store
from dragoman.store.open import open_store


class SharedView:
    """The store as one server has it: opening and closing it concerns that server alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self, holder: str | None) -> None:
        """It is open."""

    async def close(self) -> None:
        """Others still use it."""


@asynccontextmanager
async def shared_store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """Let every server that starts in the block use one store."""
    store = open_store("memory:", SystemClock())
    await store.open("first")
    store.replicas.shared = True
    module = sys.modules["dragoman.server.running"]  # the package has a function of that name
    monkeypatch.setattr(module, "open_store", lambda *_: SharedView(store))
    try:
        yield store
    finally:
        await store.close()
