"""The database behind the back of a store: connections to it, and the plans of its statements."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test's own."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
