"""The connections of the store under test."""

from collections.abc import Iterator

import apsw
import pytest

from dragoman.store.sqlite import SqliteStore
from tests.store.sqlite.connections import noted, writing


@pytest.fixture
def connections() -> Iterator[list[apsw.Connection]]:
    """Those that are opened from now on."""
    with noted() as found:
        yield found


@pytest.fixture
def writer(store: SqliteStore, connections: list[apsw.Connection]) -> apsw.Connection:
    """The connection with which `store` writes. Use it only while nothing is being written."""
    return writing(connections)
