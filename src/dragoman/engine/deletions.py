"""Deletions: tasks that have ended are deleted, with all that is kept of them.

Invariant: a task that has not ended stays as it is. An agent that delegated a deleted task does not delegate it again.
"""

from collections.abc import Collection

from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.files import Files
from dragoman.engine.tasks import Tasks
from dragoman.store.api import Store


class Deletions:
    """Deletes tasks, whoever owns them."""

    def __init__(self, store: Store, tasks: Tasks, delegated: DelegatedTasks, files: Files) -> None:
        self._store = store
        self._tasks = tasks
        self._delegated = delegated
        self._files = files

    async def delete_ended(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended, with their files. Returns their ids. Raises StoreError.

        What a task delegated that has not ended is not made again by it.
        """
        noted = [task_id for task_id in task_ids if await self._delegated.note_deletion(task_id)]
        deleted = await self._store.delete(task_ids)
        for task_id in noted:
            if task_id not in deleted:
                await self._delegated.forget_deletion(task_id)
        for task_id in deleted:
            self._tasks.forget(task_id)
            await self._files.forget(task_id)
        return deleted
