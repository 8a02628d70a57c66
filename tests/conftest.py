"""What every test shares: async tests run on asyncio."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The one event loop that Dragoman runs on."""
    return "asyncio"
