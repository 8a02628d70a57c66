"""TaskEnds: ends that no run writes, in place of a run that does not, or of none.

Invariant: a task ends once, by the first end to be committed. The run in whose place it has ended is left behind, and
its later writes are refused (invariant 5).
"""

import logging
from collections.abc import Callable

from dragoman.admin.switches import Switch
from dragoman.engine.leases import TaskLeases
from dragoman.engine.log import Log
from dragoman.engine.rules import Decision, EndTask, SwitchOff
from dragoman.engine.runs.endings import closing, failed
from dragoman.engine.runs.registry import Runs
from dragoman.model.events import Intervened
from dragoman.model.ids import Clock, timestamp
from dragoman.model.task import TaskState, Usage
from dragoman.store.api import Fenced, StoreError
from dragoman.store.worker_leases import WORKER, WorkerLeases

log = logging.getLogger("dragoman.runs")

INTERRUPTED_TEXT = "The run was interrupted by a restart of the server."
"""The text for the caller of a task whose run died with its process and cannot be repeated."""

AGENT_DISABLED = "agent_disabled"
"""The reason for programs of a task that was at work when an operator disabled its agent."""

DISABLED_TEXT = "The agent was taken out of service."
"""The text for the caller of such a task. The operator's own reason is for operators."""

GONE_TEXT = "The run was interrupted, and its agent is not served any more."
"""The text for a task that was to be run again, but whose agent is gone."""


class TaskEnds:
    """Ends tasks. `runs` are those of this process, and `leases` says which tasks are its own.

    `workers` are the leases of workers: a worker has used more tokens than the log says, if it has told of them alone.
    """

    def __init__(self, leases: TaskLeases, runs: Runs, clock: Clock, workers: WorkerLeases) -> None:
        self._leases = leases
        self._runs = runs
        self._clock = clock
        self._workers = workers

    async def end(
        self,
        task: Log,
        state: TaskState,
        text: str = "",
        reason: str = "",
        *,
        epoch: int | None = None,
        in_doubt: Callable[[StoreError], None] | None = None,
    ) -> None:
        """Write the end of a task in place of its run, unless it has ended. Raises StoreError, or Unknown.

        With `epoch` it ends only while that is the epoch of its lease: not once it has been released, or another engine
        has leased it. `in_doubt` is as in `WriteQueue.append`.
        """

        def decide(log: Log) -> Decision | None:
            run = self._runs.of(log)
            if run is not None:
                run.abandon()
            end = closing(log.head, state, self._clock.now_ms(), text, reason, used or log.fold.usage)
            return self._leases.decide(EndTask(end, epoch), log)

        run = self._runs.of(task)
        if run is not None:
            run.abandon()
        used = await self._used_by_worker(task) if task.row.holder == WORKER else None
        try:
            await task.writes.append(task, decide, in_doubt=in_doubt)
        except Fenced:
            return
        run = self._runs.of(task)
        if run is not None:  # it does not stop; the task has ended without it
            self._runs.leave_behind(run)

    async def switch_off(self, task: Log, switch: Switch) -> None:
        """Cancel a task at work because its agent was disabled, and leave its run behind, which was cut off before.

        A task on which nobody works stays as it is. Raises StoreError, or Refused.
        """

        def decide(log: Log) -> Decision | None:
            now_ms, run = self._clock.now_ms(), self._runs.of(log)
            spent = used or (None if run is None else run.sink.used) or log.fold.usage
            end = closing(log.head, TaskState.CANCELED, now_ms, DISABLED_TEXT, AGENT_DISABLED, spent)
            reason = f"agent {log.head.agent} was disabled" + (f": {switch.reason}" if switch.reason else "")
            return self._leases.decide(SwitchOff(Intervened(switch.by, "cancel", timestamp(now_ms), reason), end), log)

        used = await self._used_by_worker(task) if task.row.holder == WORKER else None
        had_run = self._runs.of(task) is not None
        if await task.writes.append(task, decide) is None:
            return
        if (run := self._runs.of(task)) is not None:
            self._runs.leave_behind(run)
        if not had_run:
            self.tell_runner(task)

    async def _used_by_worker(self, task: Log) -> Usage | None:
        """The tokens of a task, as its worker has told them; None if its lease has run out."""
        held = await self._workers.get(task.head.id)
        return held.lease.used if held is not None and held.runs else None

    def tell_runner(self, task: Log) -> None:
        """Tell the runner of a canceled task that no run ended here, because the task may live on elsewhere."""
        agent, runners = task.head.agent, self._leases.served.runners
        if agent in runners and task.state is TaskState.CANCELED:
            runners[agent].stopped(task.record())

    def fault(self, task: Log, error: BaseException) -> tuple[str, int | None]:
        """Log an error of the server. Returns the text for the caller, and the epoch under which the task may be ended:
        others may lease it at any moment."""
        reference = failed(task.head, "met an error of the server", error)
        own = task.row.holder == self._leases.holder
        return f"The server failed (reference {reference}).", task.row.epoch if own else None

    def others_work_on(self, task: Log, error: BaseException) -> bool:
        """Whether another engine has the task, so that an error here, which is logged then, does not end it."""
        if not self._leases.is_elsewhere(task):
            return False
        log.error("task %s: another server works on it, but an error happened here", task.head.id, exc_info=error)
        return True
