"""What a store has while it is open, for the parts of it that keep tables of their own.

Invariant: there is none of it before `open` and after `close`; the door raises StoreError then.
"""

from collections.abc import Callable

from msgspec import Struct

from dragoman.store.sqlite.connection import Location
from dragoman.store.sqlite.readers import Readers
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.writer import Writer


class Opened(Struct, frozen=True):
    """The writer, the loop's own connection, and those of the reader threads.

    `beside`: another process may be the store's own. Then nothing is written that it remembers: no task, no log.
    """

    location: Location
    writer: Writer
    reads: Reads
    readers: Readers
    beside: bool = False


Door = Callable[[], Opened]
"""What is open now. Raises StoreError if nothing is."""
