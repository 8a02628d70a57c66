"""The connections of a store to its file, as apsw reports them, and the one that writes."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def noted() -> Iterator[list[apsw.Connection]]:
    """The connections that are opened in the block."""
    found: list[apsw.Connection] = []
    apsw.connection_hooks.append(found.append)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(found.append)


def writing(connections: list[apsw.Connection]) -> apsw.Connection:
    """The connection that may write. Use it only while nothing is being written."""
    (found,) = [each for each in connections if not each.pragma("query_only")]
    return found
