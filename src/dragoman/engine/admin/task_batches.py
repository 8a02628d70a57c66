"""Changes of many tasks, some of them at once.

Invariant: a task that cannot be changed keeps no other one from it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dragoman.admin.tasks import ChangeFailure
from dragoman.model.errors import A2AError

CHANGES_AT_ONCE = 16
"""How many tasks are changed at the same time; canceling one may take its agent's grace period."""


async def change_each(task_ids: Iterable[str], change: Callable[[str], Awaitable[object]]) -> tuple[ChangeFailure, ...]:
    """Change tasks, and wait for all. Returns those that could not be changed: for them `change` raised A2AError."""
    turn, failed = asyncio.Semaphore(CHANGES_AT_ONCE), list[ChangeFailure]()

    async def change_one(task_id: str) -> None:
        async with turn:
            try:
                await change(task_id)
            except A2AError as error:
                failed.append(ChangeFailure(id=task_id, reason=error.message))

    async with asyncio.TaskGroup() as group:
        for task_id in task_ids:
            group.create_task(change_one(task_id), name=f"change {task_id}")
    return tuple(failed)
