"""Folding: folds logs into records, the long ones on a thread, so that they hold up nobody else.

Invariant: what a thread folds is in no other hands until the thread is done, also if whoever waits for it leaves.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from dragoman.model.lifecycle import fold
from dragoman.model.task import Record
from dragoman.store.api import Stored

EVENTS_MAX = 1_000
"""How many events are folded on the loop. That takes 0.8 ms; a thread costs 0.1 ms, and more while the loop is busy.
A megabyte of a model's words has 20,000 events."""

T = TypeVar("T")


async def fold_stored(tasks: Sequence[Stored]) -> tuple[Record, ...]:
    """The records of tasks as the store has them."""
    return await fold_aside(sum(len(stored.events) for stored in tasks), lambda: _fold_all(tasks))


async def fold_aside(events: int, work: Callable[[], T]) -> T:
    """Do `work`, which folds so many events: on a thread if they are many."""
    if events <= EVENTS_MAX:
        return work()
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise


def _fold_all(tasks: Sequence[Stored]) -> tuple[Record, ...]:
    return tuple([fold(stored.head, stored.snapshot, stored.events) for stored in tasks])
