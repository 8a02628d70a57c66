"""AutoRuns: the runs of this process that have not decided yet whether they answer with a Message or become a task.

Invariant: such a run has no task, no lease and no row. Its observation ends with its outcome, unless the run of a task
has taken it over.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from dragoman.engine.api import Runner
from dragoman.engine.errands import Errands
from dragoman.engine.observer import Execution, Observer
from dragoman.engine.runs.auto_run import AutoRun, Decided
from dragoman.engine.runs.services import RunServices
from dragoman.model.errors import A2AError
from dragoman.model.task import TaskHead


class AutoRuns:
    """Starts these runs, as work of `errands`, so that a drain waits for them."""

    def __init__(self, services: RunServices, errands: Errands, observer: Observer | None) -> None:
        self._services = services
        self._errands = errands
        self._observer = observer
        self._runners: dict[AutoRun, Runner] = {}
        self._executions: dict[AutoRun, Execution] = {}
        """The observation of the runs that have neither answered nor become a task."""

    def start(self, runner: Runner, head: TaskHead, make: Callable[[RunServices, str | None], AutoRun]) -> AutoRun:
        """Start the run that `make` makes with its trace, which is to become a task or to answer with a Message."""
        execution: Execution | None = None
        if self._observer is not None:
            execution = self._observer.executing(head, runner)
        traced = None if execution is None else execution.traceparent
        run = make(self._services, traced or head.traceparent)
        context = None if execution is None else execution.context
        asyncio_task = self._services.loop.create_task(run.run_to_end(), context=context)
        self._errands.active.add(asyncio_task)
        self._runners[run] = runner
        if execution is not None:
            self._executions[run] = execution
            run.outcome.add_done_callback(partial(self._decided, run))
        wait_s = runner.traits.direct_wait_s
        run.begin(asyncio_task, min(wait_s, runner.traits.deadline_s or wait_s))
        asyncio_task.add_done_callback(partial(self._done, run))
        return run

    def stop(self, agent: str, error: A2AError) -> None:
        """Stop the runs of an agent that are undecided. Their callers get the error."""
        for run in tuple(self._runners):
            if run.open and run.head.agent == agent:
                run.drop(error)

    def take_execution(self, run: AutoRun) -> Execution | None:
        """Hand the observation of a run, if there is one, to the run of its task."""
        return self._executions.pop(run, None)

    def of(self, runners: Iterable[Runner]) -> "list[asyncio.Task[None]]":
        """The asyncio tasks of the runs of these agents."""
        return [run.task for run, runner in self._runners.items() if runner in runners and run.task is not None]

    def _decided(self, run: AutoRun, outcome: "asyncio.Future[Decided]") -> None:
        execution = self._executions.pop(run, None)
        if execution is not None:
            failed = outcome.cancelled() or outcome.exception() is not None
            execution.finished("failed" if failed else "completed")

    def _done(self, run: AutoRun, done: "asyncio.Task[None]") -> None:
        self._errands.active.discard(done)
        del self._runners[run]
        if not done.cancelled():
            done.exception()  # the run of the task reports it
