"""Fills a store with webhook calls that nobody will take, run by Dragoman's own Python while no server has the store.

`python owing.py STORE_URL DELIVERIES ORIGIN…`: so many finished tasks, each with a webhook at one of these hosts in
turn, to which it owes how it ended, due now. No host was called before.
"""

from __future__ import annotations

import asyncio
import json
import sys

from dragoman.model.events import StatusChanged, Submitted
from dragoman.model.ids import SystemClock, new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import NewTask
from dragoman.store.open import open_store
from dragoman.store.outbox import Delivery, Registration

AT_ONCE = 2_000


def owing(origin: str, now_ms: int) -> NewTask:
    task_id, context_id, config_id, at = new_id(), new_id(), new_id(), timestamp(now_ms)
    status = {"state": TaskState.COMPLETED, "timestamp": at}
    told = {"statusUpdate": {"taskId": task_id, "contextId": context_id, "status": status}}
    head = TaskHead(
        id=task_id,
        context_id=context_id,
        agent="echo",
        owner="anonymous",
        dialect="1.0",
        mount="/agents/echo",
        created_at=at,
    )
    config = PushConfig(url=f"{origin}/hook", id=config_id, task_id=task_id, dialect="1.0")
    said = Message(message_id=new_id(), role=Role.USER, parts=(Part(text="What is the weather in Lyon tomorrow?"),))
    return NewTask(
        head=head,
        events=(Submitted(said, at), StatusChanged(TaskState.COMPLETED, at)),
        state=TaskState.COMPLETED,
        status_ms=now_ms,
        holder=None,
        push=Registration(config=config, host=origin),
        deliveries=(
            Delivery(id=f"msg_{new_id()}", config_id=config_id, seq=2, kept=True, body=json.dumps(told).encode()),
        ),
    )


async def fill(url: str, count: int, origins: list[str]) -> None:
    store, clock = open_store(url, SystemClock()), SystemClock()
    await store.open("bench")
    try:
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(count, start + AT_ONCE))
            await asyncio.gather(
                *(store.create(owing(origins[number % len(origins)], clock.now_ms())) for number in numbers)
            )
        waiting, _ = await store.outbox.owed_count()
    finally:
        await store.close()
    print(waiting)


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
