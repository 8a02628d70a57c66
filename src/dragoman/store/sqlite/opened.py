"""Opened: the connections of an open store, shared by the parts that have tables of their own.

Invariant: it exists only between `open` and `close`; at other times the door raises StoreError.
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman.store.sqlite.connection import Location
from dragoman.store.sqlite.readers import Readers
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.writer import Writer


class Opened(Struct, frozen=True):
    """The writer, the loop's own connection, and those of the reader threads.

    `beside`: another process may own the store. Nothing that the owner caches is written then: no task, no log.
    """

    location: Location
    writer: Writer
    reads: Reads
    readers: Readers
    beside: bool = False


Door = Callable[[], Opened]
"""What is open now. Raises StoreError if nothing is."""
