"""Observer: the interface through which the engine reports events of tasks, for counts and spans.

Invariant: observation never changes what the engine does.
"""

from collections.abc import Sequence
from contextvars import Context
from typing import Protocol


class Execution(Protocol):
    """A run under observation. The agent runs in `context`, if there is one."""

    @property
    def traceparent(self) -> str | None:
        """The trace context of this run; None to continue the trace that the task came with."""
        ...

    @property
    def context(self) -> Context | None: ...

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

    def executing(self, agent: str, task_id: str, traceparent: str | None) -> Execution:
        """A run begins. `traceparent` is the trace context that the task came with."""
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

    def executing(self, agent: str, task_id: str, traceparent: str | None) -> "Executions":
        """See `engine.observer.Observer`."""
        return Executions([observer.executing(agent, task_id, traceparent) for observer in self._observers])


class Executions:
    """One run as several observers see it."""

    __slots__ = ("_executions", "context", "traceparent")

    def __init__(self, executions: Sequence[Execution]) -> None:
        self._executions = executions
        self.traceparent = next((each.traceparent for each in executions if each.traceparent is not None), None)
        self.context: Context | None = next((each.context for each in executions if each.context is not None), None)

    def finished(self, state: str) -> None:
        """See `engine.observer.Execution`."""
        for execution in self._executions:
            execution.finished(state)
