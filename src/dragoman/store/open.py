"""From a store url to its driver.

Invariant: the only place that knows which drivers there are.
"""

from dragoman.config import store_path
from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import note_server as _note
from dragoman.store.sqlite.connection import noted_server as _noted

ALLOWED = "use sqlite:///path (sqlite:////path from the root), or memory: (gone when the server stops)"


def open_store(url: str, clock: Clock) -> Store:
    """The store of `url`, yet to be opened. Raises StoreError, saying which urls there are, if it is none of them."""
    if url == "memory:" or url.startswith("sqlite:"):
        return SqliteStore(url, clock)
    raise StoreError(f"store url {url!r}: {ALLOWED}")


def note_server(url: str, base_url: str) -> None:
    """Note beside the store at `url` where the server is reached that has it open."""
    if (path := store_path(url)) is not None:
        _note(path, base_url)


def noted_server(url: str) -> str | None:
    """Where the server was reached that has the store at `url` open, or had it last; None if nobody noted it."""
    path = store_path(url)
    return None if path is None else _noted(path)
