"""One event loop for the tests of a module: C-core goes on to tell of calls that were canceled, and asyncio's side of
gRPC fails if their loop is closed by then.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

QUIET_S = 0.1
"""How long C-core may have something to tell of calls that have ended; it takes milliseconds."""


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """The loop of all tests of the module."""
    yield
    await asyncio.sleep(QUIET_S)
