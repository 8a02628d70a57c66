"""Cancellations: tasks that are to end while they are at work, because somebody cancels them or their time is over.

Invariant: the agent is asked to stop first. A run that has not stopped within `cancel_grace_s` is left behind, and the
task ends without it. A cancel that has begun is carried out, even if its caller leaves.
"""

import asyncio
from contextlib import suppress

from dragoman.engine.effects import CancelChildren, Effects
from dragoman.engine.hints import Hints
from dragoman.engine.log import Log
from dragoman.engine.observer import Observer
from dragoman.engine.policy import EngineSettings
from dragoman.engine.runs.endings import OVERDUE, overdue_text
from dragoman.engine.runs.run import TaskRun
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import TaskNotFound
from dragoman.model.task import TaskState
from dragoman.store.api import Refused, Store, StoreError


class Cancellations:
    """Cancels tasks, wherever they run, and ends those of runs that are past their deadline.

    `hints` are there if other engines write to the store, and may run the task.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        effects: Effects,
        settings: EngineSettings,
        *,
        observer: Observer | None,
        hints: Hints | None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._leases = supervisor.leases
        self._runs = supervisor.runs
        self._ends = supervisor.ends
        self._errands = supervisor.errands
        self._loop = supervisor.loop
        self._effects = effects
        self._settings = settings
        self._observer = observer
        self._hints = hints

    async def cancel(self, task: Log) -> None:
        """Stop the task's run and cancel the task. Returns when the task is terminal, in whatever state.

        An agent that has not stopped within `cancel_grace_s` is left behind, and its later writes are refused. A cancel
        that has begun is carried out, even if its caller leaves. Raises StoreError if it cannot be written now.

        At the end of a drain this does nothing.
        """
        if self._errands.closed:
            return
        if self._observer is not None:
            self._observer.cancel_requested(task.head.agent)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._errands.do_late(task, lambda: self._cancel(task, waiter))
        await waiter

    async def _cancel(self, task: Log, waiter: "asyncio.Future[None]") -> None:
        """Cancel the task. `waiter` finishes when the task is terminal, or with the error that prevents the cancel."""

        def refuse(error: StoreError) -> None:
            if not waiter.done():
                waiter.set_exception(error)

        stopped = False
        run = self._runs.of(task)
        idle = run is None or run.suspended
        try:
            while not task.terminal:
                try:
                    if not stopped:
                        await self._stop_run(task)
                        stopped = True
                    await self._ends.end(task, TaskState.CANCELED, in_doubt=refuse)
                except StoreError as error:
                    refuse(error)
                    if not stopped:
                        return
                    await asyncio.sleep(self._settings.retry_s)
                except Refused:
                    break
        except Exception as error:  # the waiter gets it, too
            if not waiter.done():
                waiter.set_exception(error)
            raise
        finally:
            if not waiter.done():
                waiter.set_result(None)
        if idle:
            self._ends.tell_runner(task)

    async def _stop_run(self, task: Log) -> None:
        """Mark the task, ask its run to stop, and wait for that up to `cancel_grace_s`; not for a suspended run."""
        run = self._runs.of(task)
        if (run is None and not self._leases.is_elsewhere(task)) or (run is not None and run.suspended):
            return
        await self._store.request_cancel(task.head.id)
        if run is not None:
            self._ask_to_stop(run)
        elif self._hints is not None and task.row.holder is not None:
            self._hints.tell(task.row.holder)
        deadline = self._loop.time() + self._settings.cancel_grace_s
        while not (task.terminal or task.gone) and (self._runs.of(task) is not None or self._leases.is_elsewhere(task)):
            if not await task.followers.wait(task, self._loop, deadline):
                return
            if task.fold.steps and self._leases.is_elsewhere(task):
                # It may sleep by now, which events alone do not say: then nobody heeds the mark until it wakes.
                with suppress(StoreError, TaskNotFound):
                    await self._tasks.catch_up(task)

    def _ask_to_stop(self, run: TaskRun) -> None:
        """Ask a run to stop, and have the tasks ended that it delegated."""
        run.cancel()
        self._effects.put(CancelChildren(run.log))

    async def stop_marked(self) -> None:
        """Stop the runs for which another engine has requested a cancel. Raises StoreError."""
        for task_id in await self._store.cancels(self._leases.holder):
            run = self._runs.of_id(task_id)
            if run is not None and not run.suspended:
                self._ask_to_stop(run)

    # -- past their deadline -----------------------------------------------------------------------------------------

    def stop_overdue(self, task: Log) -> None:
        """End the tasks that a task past its deadline delegated, and its own run, if the agent does not stop."""
        run = self._runs.of(task)
        if run is not None and run.canceled:
            self._effects.put(CancelChildren(task))
            self._errands.do(task, lambda: self._end_overdue(run))

    async def _end_overdue(self, run: TaskRun) -> None:
        """Let the agent clean up for `cancel_grace_s`. Then its task fails without it."""
        task, deadline = run.log, self._loop.time() + self._settings.cancel_grace_s
        while not task.terminal and self._runs.of(task) is run:
            if not await task.followers.wait(task, self._loop, deadline):
                break
        while not task.terminal and self._runs.of(task) is run:
            assert run.deadline is not None
            text = overdue_text(run.deadline.limit_s)
            try:
                await self._ends.end(task, TaskState.FAILED, text, OVERDUE, epoch=run.lease)
            except StoreError:
                await asyncio.sleep(self._settings.retry_s)
            except Refused:
                return
