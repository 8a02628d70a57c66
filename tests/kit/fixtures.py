"""Fixtures that many modules have. `tests/conftest.py` takes them in, so that a test has them by their names alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.net.egress import Egress
from dragoman.store.api import Store
from dragoman.store.open import open_store
from tests.kit.waiting import no_hang
from tests.net.peer import Peer, listening
from tests.spec.agents import Gates


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a store in a file that is not there yet."""
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Another server, which answers what the test says."""
    async with no_hang(), listening() as peer:
        yield peer


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """The way out, for addresses that an operator has named."""
    egress = Egress()
    yield egress
    await egress.close()


@pytest.fixture
def gates() -> Gates:
    """Gates at which the scripted agents of this test stand."""
    return Gates()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store in memory, open for the replica `h1`."""
    opened = open_store("memory:", SystemClock())
    await opened.open("h1")
    yield opened
    await opened.close()
