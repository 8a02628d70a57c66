"""Fills a store with tasks that ended two days ago, run by Dragoman's own Python while no server has the store.

`python expired.py STORE_URL TASKS`: so many tasks of the judge, each with two pages of its log and a snapshot.
"""

from __future__ import annotations

import asyncio
import sys

from dragoman.model.events import StatusChanged, Submitted
from dragoman.model.ids import SystemClock, new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.store.api import Append, NewTask
from dragoman.store.open import open_store

AT_ONCE = 500
AGE_MS = 2 * 86_400_000


def written(ms: int) -> tuple[NewTask, Append]:
    """A task that was made at `ms`, and completed at once."""
    task_id, context_id, at = new_id(), new_id(), timestamp(ms)
    part = Part(text="What is the weather in Lyon tomorrow?")
    said = Message(message_id=new_id(), role=Role.USER, parts=(part,), task_id=task_id, context_id=context_id)
    head = TaskHead(
        id=task_id,
        context_id=context_id,
        agent="judge",
        owner="anonymous",
        dialect="1.0",
        mount="/agents/judge",
        created_at=at,
    )
    new = NewTask(head=head, events=(Submitted(said, at),), state=TaskState.SUBMITTED, status_ms=ms, holder="bench")
    ended = TaskStatus(state=TaskState.COMPLETED, timestamp=at)
    record = Record(head=head, seq=3, status=ended, history=(said,))
    events = StatusChanged(TaskState.WORKING, at), StatusChanged(TaskState.COMPLETED, at)
    return new, Append(
        task_id=task_id, events=events, state=ended.state, status_ms=ms, epoch=1, release=True, snapshot=record
    )


async def fill(url: str, count: int) -> None:
    clock = SystemClock()
    store = open_store(url, clock)
    await store.open("bench")
    began_ms = clock.now_ms() - AGE_MS
    try:
        for start in range(0, count, AT_ONCE):
            writes = [written(began_ms + start + place) for place in range(min(AT_ONCE, count - start))]
            await asyncio.gather(*(store.create(new) for new, _ in writes))
            await asyncio.gather(*(store.append(end) for _, end in writes))
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1], int(sys.argv[2])))
