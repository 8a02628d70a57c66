"""Runs: the runs of this process, by task.

Invariant: a task has at most one run here. Its log is in memory as long as that run is.
"""

from collections.abc import Iterator

from dragoman.engine.followers import RunKeeper
from dragoman.engine.log import Log
from dragoman.engine.runs.run import TaskRun


class Runs:
    """The runs that work on tasks in this process, or wait for answers."""

    def __init__(self) -> None:
        self._by_task: dict[str, TaskRun] = {}

    def __len__(self) -> int:
        return len(self._by_task)

    def __iter__(self) -> Iterator[TaskRun]:
        """Iterate over the runs of this moment: some may begin and end meanwhile."""
        return iter(tuple(self._by_task.values()))

    def of(self, task: Log) -> TaskRun | None:
        """The run of a task; None if it has none here."""
        return self._by_task.get(task.head.id)

    def of_id(self, task_id: str) -> TaskRun | None:
        """As `of`, for a task that may not be in memory."""
        return self._by_task.get(task_id)

    def idle(self) -> tuple[TaskRun, ...]:
        """The runs whose tasks were at work before, and wait to be taken on again: see `TaskRun.idle`."""
        return tuple(run for run in self._by_task.values() if run.idle)

    def add(self, run: TaskRun, keeper: RunKeeper[Log]) -> None:
        """Take a run that begins. Its log tells the keeper what others write."""
        self._by_task[run.head.id] = run
        run.log.pin()
        run.log.followers.attach(keeper)

    def remove(self, run: TaskRun) -> None:
        """Let go of a run that is over, unless its task had another one, or none, by then."""
        if self._by_task.get(run.head.id) is run:
            del self._by_task[run.head.id]
            run.log.followers.detach()
            run.log.unpin()

    def leave_behind(self, run: TaskRun) -> None:
        """Abandon a run and let go of it, even if it does not stop. Its task goes on without it."""
        run.abandon()
        self.remove(run)
