"""From a store url to its driver.

Invariant: the only place that knows which drivers there are.
"""

from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.store.sqlite import SqliteStore

ALLOWED = "use sqlite:///path (sqlite:////path from the root), or memory: (gone when the server stops)"


def open_store(url: str, clock: Clock) -> Store:
    """The store of `url`, yet to be opened. Raises StoreError, saying which urls there are, if it is none of them."""
    if url == "memory:" or url.startswith("sqlite:"):
        return SqliteStore(url, clock)
    raise StoreError(f"store url {url!r}: {ALLOWED}")
