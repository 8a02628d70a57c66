"""AutoRun: one execution of an agent that answers with a Message, or with a task if a Message cannot hold its work.

Invariant: a run has one outcome. Nothing is written before it, so that until then a crash leaves no trace. The agent's
coroutine, and its handle, are the same in both cases, and cannot tell.

```
            the agent's end         ┌──► ANSWER   the outcome is a Message
  OPEN ─────────────────────────────┘
   │ └─── a word that a Message cannot hold, `wait_s` ───► TASK   the outcome is a task, which is being made, or there
   │                                                        │
   └───────── its work cannot become a task ────────────────┴──► OVER   the agent was stopped
```
"""

import asyncio
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct

from dragoman.engine.api import Replied, Run, Runner
from dragoman.engine.runs.message_sink import MessageSink
from dragoman.engine.runs.places import begin_first_branch
from dragoman.engine.runs.run import TaskRun
from dragoman.engine.runs.services import RunServices
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part
from dragoman.model.operations import Call
from dragoman.model.task import TaskHead, Usage
from dragoman.store.api import Dedupe, StoreError


class BecameTask(Struct, frozen=True):
    """The outcome of a run that has a task. `seq` is the log's length after the caller's message."""

    task_id: str
    seq: int


Decided = Message | BecameTask
"""The outcome of a run for its callers."""


class AutoPhase(Enum):
    """The states of an execution: see the drawing."""

    OPEN = auto()
    TASK = auto()
    ANSWER = auto()
    OVER = auto()


class UndecidedCalls(Protocol):
    """The calls that runs work for, until their outcomes are decided."""

    async def keep(self, run: "AutoRun", answer: Message, used: Usage | None) -> Decided:
        """Store the answer of a run with the tokens used. Returns what its caller gets. Raises StoreError."""
        ...

    def make_task(self, run: "AutoRun") -> None:
        """Begin to make the task that the run has become. That ends with its `resume` or its `drop`."""
        ...


class AutoRun:
    """An execution of `runner` for the `message` of a `call`, whose repeats have the key of `dedupe`.

    The run becomes a task with whatever a Message cannot hold (`MessageSink`), and `wait_s` after its beginning. Then
    the `calls` make the task, and the TaskRun that takes over is given to `resume`.
    """

    def __init__(
        self,
        runner: Runner,
        head: TaskHead,
        message: Message,
        services: RunServices,
        *,
        call: Call,
        dedupe: Dedupe | None,
        calls: UndecidedCalls,
        traceparent: str | None,
    ) -> None:
        self.runner = runner
        self.head = head
        self.message = message
        self.call = call
        self.dedupe = dedupe
        self.outcome: asyncio.Future[Decided] = services.loop.create_future()
        """The answer for the callers, or the error. It does not wait for the agent's end."""
        self.outcome.add_done_callback(_retrieve)
        self.task: asyncio.Task[None] | None = None
        self._loop = services.loop
        self._calls = calls
        self._phase = AutoPhase.OPEN
        self._timer: asyncio.TimerHandle | None = None
        headers = call.headers_with(message.message_id)
        self._sink = MessageSink(head, message, services, traits=runner.traits, headers=headers, execution=self)
        self.run = Run(head, message, self._sink, services.bounds, traceparent=traceparent)

    @property
    def open(self) -> bool:
        """See `engine.runs.message_sink.Undecided`."""
        return self._phase is AutoPhase.OPEN

    @property
    def canceled(self) -> bool:
        """Whether the work is to stop for good, as it is when the server ends before there is a task."""
        stopped = self.task is not None and self.task.cancelling() > 0
        return self._phase is AutoPhase.OVER or (self._phase is AutoPhase.OPEN and stopped)

    def begin(self, task: "asyncio.Task[None]", wait_s: float) -> None:
        """Take note of the asyncio task in which `run_to_end` runs; after `wait_s` this run becomes a task."""
        self.task = task
        self._timer = self._loop.call_later(wait_s, self.become_task)

    async def run_to_end(self) -> None:
        """Run the agent, and answer with a Message if there is no task by then. Raises what the agent raised."""
        begin_first_branch()
        try:
            await self._run_agent()
        except Replied as reply:
            if not await self._answer(reply.parts):
                raise
        except (SystemExit, KeyboardInterrupt) as ended:  # asyncio would take it out of the loop
            self.become_task()
            raise RuntimeError(f"{type(ended).__name__} in an agent") from ended
        except BaseException:
            self.become_task()  # a Message cannot tell of such an end
            raise
        else:
            await self._answer(())

    async def _run_agent(self) -> None:
        """Run the agent. Raises TypeError or ValueError if the Message with which it replies cannot be sent."""
        try:
            await self.runner.run(self.run)
        except Replied as reply:
            reply.parts = self.run.bounds.parts("parts", reply.parts)
            raise

    def become_task(self) -> None:
        """Have a task made, unless there is one or the answer is decided."""
        if self._phase is AutoPhase.OPEN:
            self._leave(AutoPhase.TASK)
            self._calls.make_task(self)

    async def resume(self, run: TaskRun) -> None:
        """Hand what was said over to the run of the task, and end as the agent ends."""
        assert self.task is not None
        try:
            if await self._sink.pour(run.sink):
                self.run.redirect(run.sink)
        except BaseException:
            self.drop()
            raise
        await self.task

    def decide(self, outcome: Decided | BaseException) -> None:
        """Set the outcome, unless it has been set."""
        if self.outcome.done():
            return
        if isinstance(outcome, BaseException):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)

    def drop(self, outcome: Decided | BaseException | None = None) -> None:
        """Stop the agent, because nothing that it does counts any more."""
        self._leave(AutoPhase.OVER)
        self._sink.drop(canceled=True)
        if self.task is not None:
            self.task.cancel()
        if outcome is not None:
            self.decide(outcome)

    def _leave(self, phase: AutoPhase) -> None:
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _answer(self, words: tuple[Part, ...]) -> bool:
        """Answer with a Message. Returns False if there is a task."""
        if self._sink.large(words):
            self.become_task()
        if self._phase is not AutoPhase.OPEN:
            return False
        self._leave(AutoPhase.ANSWER)
        self._sink.drop(canceled=False)  # nothing that the agent left running can emit anything
        try:
            self.decide(await self._calls.keep(self, self._sink.answer(words, new_id()), self._sink.used))
        except StoreError as error:
            self.decide(error)
        return True


def _retrieve(outcome: "asyncio.Future[Decided]") -> None:
    """Look at the error, so that it is not logged when all callers have left."""
    if not outcome.cancelled():
        outcome.exception()
