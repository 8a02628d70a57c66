"""A store on SQLite that can be made full while a server runs on it, for its appends alone: reads and calls go on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.store.api import StoreFull
from dragoman.store.sqlite.store import SqliteStore


class FullStore:
    """All stores on SQLite of this process: while `full`, no event of a task can be appended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        whole: Callable[..., Any] = SqliteStore.append

        def append(store: SqliteStore, append: Any) -> Any:
            if self.full:
                failed = asyncio.get_running_loop().create_future()
                failed.set_exception(StoreFull("no space left on the device"))
                return failed
            return whole(store, append)

        monkeypatch.setattr(SqliteStore, "append", append)
