"""How tests wait for what nobody tells them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

DEADLINE_S = 60.0
"""Nothing in a test takes so long, unless it hangs."""

HANG_S = 300.0
"""A whole test does not take so long on the slowest machine, unless it hangs."""


def no_hang() -> asyncio.Timeout:
    """A deadline for a whole test, around the `yield` of a fixture. Single waits have `DEADLINE_S`."""
    return asyncio.timeout(HANG_S)


async def until(holds: Callable[[], object | Awaitable[object]], pause_s: float = 0.002) -> None:
    """Wait until something is so. Raises TimeoutError after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = holds()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(pause_s)
