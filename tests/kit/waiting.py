"""How tests wait for what nobody tells them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

DEADLINE_S = 60.0
"""Nothing in a test takes so long, unless it hangs."""


async def until(holds: Callable[[], object | Awaitable[object]], pause_s: float = 0.002) -> None:
    """Wait until something is so. Raises TimeoutError after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = holds()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(pause_s)
