"""HeldTasks: the tasks that workers have taken here, under observation.

Invariant: an observation that has begun is finished once.
"""

from itertools import islice

from dragoman.engine.observer import Execution
from dragoman.engine.words import Step
from dragoman.model.events import Stepped
from dragoman.model.ids import timestamp_ms


class HeldTasks:
    """The tasks that workers took here and are not known to have lost, each with the token of its lease."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._executions: dict[str, Execution] = {}
        """Only of tasks that somebody observes: a worker may have a hundred thousand tasks."""

    def __len__(self) -> int:
        return len(self._tokens)

    def begin(self, task_id: str, token: str, execution: Execution | None) -> None:
        """A worker has taken a task. `execution` is its observation; None if nobody observes it."""
        self.finish(task_id, "working")
        self._tokens[task_id] = token
        if execution is not None:
            self._executions[task_id] = execution

    def note_step(self, task_id: str, stepped: Stepped) -> None:
        """A worker has executed a step, whose outcome is committed. A step that its caller decided was not executed."""
        execution = self._executions.get(task_id)
        if execution is None or not stepped.attempts or Step(stepped.name).drawn:
            return
        failure = None if stepped.failure is None else stepped.failure.type
        times = timestamp_ms(stepped.began), timestamp_ms(stepped.timestamp)
        execution.step_told(stepped.name, stepped.key, *times, stepped.attempts, failure)

    def note_replay(self, task_id: str, step: Step) -> None:
        """A worker was told the recorded outcome of a step."""
        execution = self._executions.get(task_id)
        if execution is not None and not step.drawn:
            execution.step_replayed()

    def finish(self, task_id: str, state: str) -> None:
        """A worker has a task no more, which is in `state` now."""
        self._tokens.pop(task_id, None)
        execution = self._executions.pop(task_id, None)
        if execution is not None:
            execution.finished(state)

    def lose(self, task_id: str, token: str, state: str) -> None:
        """As `finish`, unless a worker has taken the task again since."""
        if self._tokens.get(task_id) == token:
            self.finish(task_id, state)

    def next(self, limit: int) -> tuple[tuple[str, str], ...]:
        """So many of the tasks with the tokens of their leases, those that were looked at longest ago."""
        found = tuple(islice(self._tokens.items(), limit))
        for task_id, token in found:
            del self._tokens[task_id]
            self._tokens[task_id] = token
        return found
