"""What every test shares: async tests run on asyncio; the tests of some directories are slow by what they do."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent

SLOW = frozenset({"bindings", "client", "net", "push", "spec", "systems", "testing"})
"""Directories whose tests start a whole server each, or wait for clocks: `make test-fast` leaves them out."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The one event loop that Dragoman runs on."""
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the slow directories."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).parts[0] in SLOW:
            item.add_marker(pytest.mark.slow)
