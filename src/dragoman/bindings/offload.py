"""Decoding and encoding of large JSON, on a thread beside the loop.

Invariant: one job runs at a time, and the loop still gets its turns meanwhile: each single call of the decoder or
encoder is bounded by `max_body_bytes` and `max_values`, and between two calls the interpreter lock is released.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE_BYTES = 64 * 1024
"""JSON of at least this size is handled on the thread: that takes a millisecond, the switch there and back 0.1 ms."""


class Offload:
    """The thread. It starts with the first job and ends with this object."""

    __slots__ = ("_pool",)

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="json")

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` on the thread and return its result. The job goes on even if the caller is canceled."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)
