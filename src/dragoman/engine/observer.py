"""Observer: the interface through which the engine reports events of tasks, for counts and spans.

Invariant: observation never changes what the engine does.
"""

from collections.abc import Sequence
from contextvars import Context
from typing import Protocol

from dragoman.telemetry.genai import InvokedHead, InvokedRunner, ToolCall


class ObservedStep(Protocol):
    """The execution of a step under observation: either of these is called once."""

    def executed(self, attempts: int, failure: str | None) -> None:
        """It was executed so many times. `failure` is the name of the exception with which it failed for good."""
        ...

    def interrupted(self) -> None:
        """The execution is over without an outcome that could be recorded."""
        ...


class Execution(Protocol):
    """A run under observation. The agent runs in `context`, if there is one."""

    @property
    def traceparent(self) -> str | None:
        """The trace context of this run; None to continue the trace that the task came with."""
        ...

    @property
    def context(self) -> Context | None: ...

    def step_begins(self, name: str, key: str) -> ObservedStep:
        """A step of the run is executed now, by the calling coroutine."""
        ...

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        """A step of the run was executed by a worker between these times, and its outcome is committed: see
        `ObservedStep.executed`."""
        ...

    def step_replayed(self) -> None:
        """A step of the run is recorded, and was not executed again."""
        ...

    def sleeps(self, until: str) -> None:
        """The task sleeps until then, which is committed."""
        ...

    def tool_called(self, call: ToolCall) -> None:
        """The run has told its caller that it calls a tool, or that a call has ended."""
        ...

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        """A token was exchanged, with which the `actors` act for the subject: see `model.acting_chain.ActingLink`."""
        ...

    def finished(self, state: str) -> None:
        """The run is over, and the task is in `state`."""
        ...


class Observer(Protocol):
    """Receives the events of tasks, for counts and spans. States are spelled `completed`, `input-required` …

    It is called on the loop for every event, so it must be quick, and it never raises.
    """

    def submitted(self, agent: str) -> None:
        """A task was written."""
        ...

    def cancel_requested(self, agent: str) -> None:
        """A caller, or the task that delegated it, asked for a task to be canceled."""
        ...

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        """The end of a task was committed."""
        ...

    def taken_over(self, agent: str) -> None:
        """A task that nobody alive worked on was claimed, while the engine runs."""
        ...

    def lease_lost(self, agent: str) -> None:
        """Another server has leased a task that was run here."""
        ...

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        """A task whose end was committed has used so many tokens, as its agent reported them."""
        ...

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> Execution:
        """A run of the task with that head begins. None: the agent is not served here any more."""
        ...


class Observers:
    """Several observers as one. The first one with a context, or with a trace context, supplies it to the run."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def submitted(self, agent: str) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.submitted(agent)

    def cancel_requested(self, agent: str) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.cancel_requested(agent)

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.ended(agent, state, duration_ms)

    def taken_over(self, agent: str) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.taken_over(agent)

    def lease_lost(self, agent: str) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.lease_lost(agent)

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        """See `engine.observer.Observer`."""
        for observer in self._observers:
            observer.used(agent, input_tokens, output_tokens)

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> "Executions":
        """See `engine.observer.Observer`."""
        return Executions([observer.executing(head, runner) for observer in self._observers])


class Executions:
    """One run as several observers see it."""

    __slots__ = ("_executions", "context", "traceparent")

    def __init__(self, executions: Sequence[Execution]) -> None:
        self._executions = executions
        self.traceparent = next((each.traceparent for each in executions if each.traceparent is not None), None)
        self.context: Context | None = next((each.context for each in executions if each.context is not None), None)

    def step_begins(self, name: str, key: str) -> "ObservedSteps":
        """See `engine.observer.Execution`."""
        return ObservedSteps([execution.step_begins(name, key) for execution in self._executions])

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.step_told(name, key, began_ms, ended_ms, attempts, failure)

    def step_replayed(self) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.step_replayed()

    def sleeps(self, until: str) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.sleeps(until)

    def tool_called(self, call: ToolCall) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.tool_called(call)

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.exchanged(subject, actors, audience, issuer)

    def finished(self, state: str) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.finished(state)


class ObservedSteps:
    """The execution of one step as several observers see it."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Sequence[ObservedStep]) -> None:
        self._steps = steps

    def executed(self, attempts: int, failure: str | None) -> None:
        """See `engine.observer.ObservedStep`."""
        for step in self._steps:
            step.executed(attempts, failure)

    def interrupted(self) -> None:
        """See `engine.observer.ObservedStep`."""
        for step in self._steps:
            step.interrupted()
