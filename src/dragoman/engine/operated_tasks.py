"""OperatedTasks: the tasks of all callers, as operators reach them.

Invariant: nothing here asks who owns a task. Only the administration calls it, which notes each access.
"""

from collections.abc import Collection
from copy import copy

from dragoman.engine import policy
from dragoman.engine.deletions import Deletions
from dragoman.engine.files import Files
from dragoman.engine.handler import OpenStream
from dragoman.engine.runs.registry import Runs
from dragoman.engine.stopping import Stopping
from dragoman.engine.subscriptions import Tails
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import Submitted
from dragoman.model.message import Message
from dragoman.model.task import Record, TaskHead
from dragoman.store.api import Store
from dragoman.store.figures import StoreFigures, count_idle


class OperatedTasks:
    """Reads and deletes any task. `runs` are those of this process."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        deletions: Deletions,
        runs: Runs,
        tails: Tails,
        files: Files,
        stopping: Stopping,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._deletions = deletions
        self._runs = runs
        self._tails = tails
        self._files = files
        self._stopping = stopping
        self._team = ""

    def of_team(self, store: Store, team: str) -> "OperatedTasks":
        """The tasks of one team, as its operators reach them. `store` is that of the team."""
        narrowed = copy(self)
        narrowed._store, narrowed._team = store, team
        return narrowed

    async def follow(self, task_id: str, after: str) -> OpenStream:
        """Open a stream of the events after the id `after` until the task ends. Raises A2AError or StoreError."""
        if self._stopping.begun:
            raise policy.stopping()
        if self._team and await self._store.head(task_id) is None:
            raise TaskNotFound(task_id)
        return await self._tails.of_log(task_id, after)

    async def request(self, task_id: str) -> tuple[TaskHead, Message]:
        """The head of a task and the message that made it, with the bytes of its files.

        Raises TaskNotFound, or StoreError, also if a file is gone.
        """
        stored = await self._store.load_snapshot(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        if stored.unreadable:
            raise policy.unreadable(task_id)
        if stored.snapshot is not None:
            return stored.head, await self._files.message(stored.snapshot.history[0])
        for logged in await self._store.read(task_id, 0, 1):
            if isinstance(logged.event, Submitted):
                return stored.head, await self._files.message(logged.event.message)
        if await self._store.head(task_id) is not None:
            raise policy.unreadable(task_id)  # its first event is damaged
        raise TaskNotFound(task_id)  # it has been deleted since

    def known_record(self, task_id: str) -> Record | None:
        """The task as far as this process has it in memory, which may lack the newest events; None if it has not."""
        task = self._tasks.known(task_id)
        return None if task is None or not task.seq or not self._covers(task.head) else task.record()

    async def figures(self) -> StoreFigures:
        """The figures of the store. Tasks whose runs here wait to be taken on are queued. Raises StoreError."""
        figures = await self._store.figures()
        idle = [run for run in self._runs.idle() if self._covers(run.head)]
        return count_idle(figures, ((run.head.agent, run.log.row.status_ms) for run in idle))

    def idle(self, task_id: str) -> bool:
        """Whether a run of the task is here and waits to be taken on, although the task was at work before."""
        run = self._runs.of_id(task_id)
        return run is not None and run.idle

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended: see `engine.deletions`. Raises StoreError."""
        if self._team:
            task_ids = [task_id for task_id in task_ids if await self._store.head(task_id) is not None]
        return await self._deletions.delete_ended(task_ids)

    def _covers(self, head: TaskHead) -> bool:
        return not self._team or head.team == self._team
