"""Chooses the driver for a store url.

Invariant: no other module knows which drivers there are.
"""

from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.store.path import store_path
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import note_server as _note
from dragoman.store.sqlite.connection import noted_server as _noted

ALLOWED = "use sqlite:///path (sqlite:////path from the root), or memory: (gone when the server stops)"


def open_store(url: str, clock: Clock) -> Store:
    """The store at `url`, not yet opened. Raises StoreError, naming the valid urls, if no driver knows `url`."""
    if url == "memory:" or url.startswith("sqlite:"):
        return SqliteStore(url, clock)
    raise StoreError(f"store url {url!r}: {ALLOWED}")


def note_server(url: str, base_url: str) -> None:
    """Write down, beside the store at `url`, the address of the server that has it open."""
    if (path := store_path(url)) is not None:
        _note(path, base_url)


def noted_server(url: str) -> str | None:
    """The address of the server that has the store at `url` open, or had it last; None if it was never noted."""
    path = store_path(url)
    return None if path is None else _noted(path)
