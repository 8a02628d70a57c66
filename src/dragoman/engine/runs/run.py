"""TaskRun: one execution of an agent on a task, from its lease to the commit of its end.

Invariant: everything a run writes carries its epoch. Once that is old, or the task has ended, the agent is canceled and
nothing more is written (invariant 5). A run never raises: whatever its agent does becomes a state of the task.

```
  WORKING ──── past its deadline ───► OVERDUE ──┐
     │ │                                 │      │ cancel
     │ └───────────── cancel ────────────┼──────┴──► CANCELED
     │                                   │               │         the agent's end is written, as its last
     ├───────────────────────────────────┴───────────────┤         event, in each of these three states
     │
     ├── its agent is disabled ────────────────────────────► CUT_OFF   the engine writes the end
     ├── another run, or nobody, goes on ──────────────────► LEFT
     ├── another server has leased the task ───────────────► FENCED
     └── no end can be written ────────────────────────────► UNWRITTEN
```

In the last four states, which are final, the run writes nothing more. `TaskSink` makes events of its words.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

from msgspec.structs import replace

from dragoman.engine.api import Ended, Reject, Run, Runner
from dragoman.engine.bounds import PART_BYTES
from dragoman.engine.effects import StopOverdue
from dragoman.engine.log import Log
from dragoman.engine.observer import Execution
from dragoman.engine.runs.deadline import Deadline
from dragoman.engine.runs.endings import MISMATCH, OVERDUE, agent_error, closing, failed, mismatched, overdue_text
from dragoman.engine.runs.places import begin_first_branch
from dragoman.engine.runs.replay import Replay, ReplayMismatch
from dragoman.engine.runs.services import RunServices
from dragoman.engine.runs.task_sink import TaskSink
from dragoman.engine.words import End
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, TaskState, Usage
from dragoman.store.api import Fenced, Refused, StoreError
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.runs")

COMPLETED = End(TaskState.COMPLETED)
CANCELED = End(TaskState.CANCELED)


class RunPhase(Enum):
    """The states of an execution: see the drawing."""

    WORKING = auto()
    OVERDUE = auto()
    CANCELED = auto()
    CUT_OFF = auto()
    LEFT = auto()
    FENCED = auto()
    UNWRITTEN = auto()


WRITES = frozenset((RunPhase.WORKING, RunPhase.OVERDUE, RunPhase.CANCELED))
"""The states in which the run may write."""

STOPS = frozenset((RunPhase.CANCELED, RunPhase.OVERDUE, RunPhase.CUT_OFF))
"""The states in which the agent was asked to stop for good."""


class TaskRun:
    """An execution of `runner` on a task.

    With `announce` the run begins by saying `working`; without, the lease has said so. `work` takes the place of
    `runner.run` for an agent that is at work already, with the handle `run`. `task` is the asyncio task of
    `run_to_end`. The agent has a `deadline` if its traits say so.
    """

    __slots__ = (
        "_announces",
        "_failure",
        "_services",
        "_work",
        "deadline",
        "head",
        "log",
        "phase",
        "run",
        "runner",
        "sink",
        "task",
    )

    def __init__(
        self,
        runner: Runner,
        log: Log,
        message: Message,
        replay: Replay,
        services: RunServices,
        announce: bool,
        traceparent: str | None,
        observed: Execution | None = None,
        work: "Work | None" = None,
        run: Run | None = None,
    ) -> None:
        self.head = head = log.head
        self.log = log
        self.runner = runner
        self.phase = RunPhase.WORKING
        self.task: asyncio.Task[None] | None = None
        self._services = services
        self._announces = announce
        self._work = work
        self._failure: End | None = None
        """The end that an earlier fault of the agent imposes on the run, whatever the agent does now."""
        traits, deadline = runner.traits, None
        if traits.later_run == "resumes":
            replay.keep()
        if traits.deadline_s is not None:
            began_ms = replay.began_ms if work is None else timestamp_ms(head.created_at)
            deadline = Deadline(self.stop_overdue, traits.deadline_s, began_ms, services)
        self.deadline = deadline
        self.sink = TaskSink(
            self,
            log,
            replay,
            services,
            deadline,
            message.message_id,
            traits,
            traceparent,
            observed,
        )  # not by name: CPython makes a dict of the named arguments of a class, and takes it apart again
        self.run = run or Run(head, message, self.sink, services.bounds, log.row.epoch, None, traceparent)

    @property
    def lease(self) -> int:
        """The epoch under which the run writes at present."""
        return self.sink.writer.epoch

    @property
    def canceled(self) -> bool:
        """Whether the task is to stop."""
        return self.phase in STOPS

    @property
    def idle(self) -> bool:
        """Whether nobody works on the task yet, although it was at work before: see `model.task.phase_of`."""
        return self.sink.silent and self.log.state is TaskState.WORKING

    def begin(self, task: "asyncio.Task[None]") -> None:
        """Take note of the asyncio task in which `run_to_end` runs."""
        self.task = task

    # -- stopping it ---------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the agent to stop. The task is canceled once it has."""
        if self.phase is RunPhase.WORKING or self.phase is RunPhase.OVERDUE:
            self.phase = RunPhase.CANCELED
            if self.task is not None:
                self.task.cancel()

    def cut_off(self) -> bool:
        """Ask the agent to stop, and write nothing that it says from now on: the task is canceled without it.

        Its cleanup is not disturbed. Returns False if the run writes nothing any more anyway.
        """
        asked = self.canceled
        if not self._silence(RunPhase.CUT_OFF):
            return False
        if self.task is not None and not asked:
            self.task.cancel()
        return True

    def abandon(self) -> None:
        """Stop the agent without writing anything: another run, or nobody, goes on with the task."""
        self._leave(RunPhase.LEFT)

    def lose(self, refused: Refused) -> None:
        """See `engine.runs.execution.TaskExecution`."""
        self._leave(RunPhase.FENCED if isinstance(refused, Fenced) else RunPhase.LEFT)

    def _leave(self, phase: RunPhase) -> None:
        if self._silence(phase) and self.task is not None:
            self.task.cancel()

    def _silence(self, phase: RunPhase) -> bool:
        """Write nothing from now on. Returns False if the run writes nothing any more anyway."""
        if self.phase not in WRITES:
            return False
        self.phase = phase
        if self.deadline is not None:
            self.deadline.stop()
        self.sink.writer.stop()
        return True

    def fail(self, end: End) -> None:
        """End the task like this, whatever the agent does now."""
        self._failure = self._failure or end

    def impose(self, end: End) -> None:
        """Ask the agent to stop, and end the task like this."""
        self._failure = end
        if self.task is not None:
            self.task.cancel()

    def stop_overdue(self) -> None:
        """Ask the agent to stop because it is past its deadline. Its task fails once it has."""
        if self.phase is not RunPhase.WORKING or self.task is None or self.log.terminal:
            return
        assert self.deadline is not None
        self.phase = RunPhase.OVERDUE
        limit_s = self.deadline.limit_s
        said = Part(text=overdue_text(limit_s))
        self._failure = self._failure or End(TaskState.FAILED, (said,), OVERDUE)
        log.warning(
            "task %s: agent %s took longer than deadline_s = %g: it is stopped",
            self.head.id,
            self.head.agent,
            limit_s,
            extra=about(self.head.agent, agent=self.head.agent),
        )
        self.task.cancel()
        self._services.effects.want(StopOverdue(self.log))

    def release(self) -> None:
        """Drop the references that form a cycle with this run, which is over."""
        self.task = None
        self._work = self.deadline = None
        self.sink.release(canceled=self.canceled)

    # -- its questions -------------------------------------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self.sink.questions.asking

    @property
    def suspended(self) -> bool:
        """Whether the agent waits for an answer to a question that is committed: the run holds no lease."""
        return self.asking and self.log.state in INTERRUPTED

    @property
    def asleep(self) -> bool:
        """Whether the task sleeps, so that the run is over: another one begins when it wakes."""
        return self.sink.writer.asleep

    def receive(self, message: Message, answers: bool = False) -> None:
        """Take a message for the next question; one that `answers` the open question waits for `resume_offered`."""
        self.sink.questions.receive(message, answers)

    def resumes_under(self, epoch: int) -> bool:
        """Whether the run waits for an answer, and a lease of `epoch` is the first since it asked.

        If there was another one, another run may have gone on with the answer, and has to be replayed.
        """
        return self.asking and epoch == self.lease + 1

    def resume(self, message: Message | None) -> bool:
        """Go on under the task's new epoch with the answer, or with None if no answer is wanted any more.

        Returns False if this run cannot take it.
        """
        questions = self.sink.questions
        if self.phase not in WRITES or not questions.asking:
            return False
        self.sink.writer.resume(self.log.row.epoch)
        questions.resume(message)
        return True

    def resume_offered(self) -> bool:
        """As `resume`, with the answer that another engine wrote, if it wrote one."""
        able, answer = self.sink.questions.take_offered()
        return able and self.resume(answer)

    # -- its end -------------------------------------------------------------------------------------------------------

    async def run_to_end(self) -> None:
        """Run the agent to its end, write that end, and wait until it is committed.

        The end is decided once. One that cannot be written is replaced once, by one without the tokens used and the
        last note. If that cannot be written either, the run is given up, and the engine ends the task in its place.
        """
        sink, traits = self.sink, self.runner.traits
        begin_first_branch()
        if self._announces and not traits.waits:
            sink.announce()
        if self.deadline is not None and sink.writer.state is TaskState.WORKING:
            self.deadline.restart()
        end: End | None
        try:
            await (self.runner.run(self.run) if self._work is None else self._work(self))
            end = self._own_end(COMPLETED)
        except BaseException as error:
            end = self._end_of(error)
            if end is None:
                raise
        finally:
            if self.deadline is not None:
                self.deadline.stop()
        if end.parts and self._services.files.keeps:
            end = await self._keep_files(end)
        await self._write_end(end, sink.used)

    async def _write_end(self, end: End, used: Usage | None) -> None:
        writer = self.sink.writer
        for replaced in (False, True):
            if writer.lost:
                return
            now_ms = self._services.clock.now_ms()
            imposed = self._failure
            try:
                said = closing(self.head, end.state, now_ms, end.parts, end.reason, used, end.retry_after_s)
                plain = said.message is None and used is None
                writer.put(said, now_ms, weight=PART_BYTES if plain else 0)
            except (TypeError, ValueError) as error:
                self._failure = agent_error(self.head, "gave out what cannot be written", error)
            while (commit := writer.next_commit()) is not None:
                try:
                    await commit
                except asyncio.CancelledError:  # a cancel does not interrupt this: the end is already decided
                    if writer.lost or not (self.phase is RunPhase.CANCELED or self._failure is not imposed):
                        raise
            if self._failure is None or self._failure is imposed:
                return
            if replaced:
                break
            end, used = self._failure, None
        log.error("task %s: no end of its run can be written: the run is given up", self.head.id)
        self._leave(RunPhase.UNWRITTEN)

    def _end_of(self, error: BaseException) -> End | None:
        """Return the end of a run whose agent raised `error`; None if the process is going down."""
        match error:
            case asyncio.CancelledError():
                if self._failure is not None or self.phase is not RunPhase.WORKING or self.log.terminal:
                    return self._failure or CANCELED
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    return None
                return agent_error(self.head, "canceled itself", error)
            case GeneratorExit():
                return None
            case Reject():
                try:
                    text = self.run.bounds.text("reason", str(error))
                except Exception as unfit:  # noqa: BLE001  it is what the agent's own `__str__` raises
                    return agent_error(self.head, "rejected the task with what cannot be sent,", unfit)
                return End(TaskState.REJECTED, (Part(text=text),) if text else (), "rejected")
            case ReplayMismatch():
                return self._failure or mismatched(self.head, error)
            case Ended():
                return self._own_end(error)
            case _ if self.phase is RunPhase.CANCELED and self._failure is None:
                failed(self.head, "raised as it was canceled,", error)
                return CANCELED
            case _:
                return self._failure or agent_error(self.head, "raised", error)

    def _own_end(self, said: End | Ended) -> End:
        """The end that the agent gives the task, unless another is imposed, or it has not told again all that is
        recorded."""
        imposed, replay = self._failure, self.sink.replay
        if replay.active and (imposed is None or imposed.reason != MISMATCH):  # else that is the first difference
            return mismatched(self.head, replay.left())
        if imposed is not None:
            return imposed
        if isinstance(said, End):
            return said
        try:
            return said.check(self.run.bounds)
        except (TypeError, ValueError) as unfit:
            return agent_error(self.head, "ended the task with what cannot be sent,", unfit)

    async def _keep_files(self, end: End) -> End:
        """Move the large files of the closing message into the blob store."""
        files = self._services.files
        if not files.large(end.parts):
            return end
        try:
            return replace(end, parts=await files.kept_by_run(self.head.id, end.parts))
        except StoreError as error:
            return agent_error(self.head, "gave out a file that cannot be kept,", error)
        except asyncio.CancelledError:
            if self.phase is RunPhase.CANCELED or self.phase not in WRITES:
                return CANCELED
            raise


Work = Callable[[TaskRun], Awaitable[None]]
"""The work of a run until its end."""
