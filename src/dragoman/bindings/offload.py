"""Reading and writing of large JSON, on a thread beside the loop.

Invariant: one such job is done at a time, and while it is the loop still gets its turns: each single call into the
decoder or encoder is bounded by `max_body_bytes` and `max_values`, and between two calls the interpreter is given away.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE_BYTES = 64 * 1024
"""JSON of that size is read and written on the thread: it takes a millisecond, the way there and back 0.1 ms."""


class Offload:
    """The thread. It starts with the first job and ends with this object."""

    __slots__ = ("_pool",)

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="json")

    async def run(self, job: Callable[[], T]) -> T:
        """What `job` returns. It goes on if nobody waits any more."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)
