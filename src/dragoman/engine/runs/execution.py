"""TaskExecution: the execution of an agent, as its words know it on their way to the log.

Invariant: what is over gets nothing more. `OVER` takes the place of an execution, so that its words do not keep it.
"""

from typing import Protocol

from msgspec import Struct

from dragoman.engine.words import End
from dragoman.store.api import Refused


class TaskExecution(Protocol):
    """The execution of the agent whose words these are."""

    @property
    def canceled(self) -> bool:
        """See `engine.api.Run.canceled`."""
        ...

    def abandon(self) -> None:
        """Stop: another run, or nobody, goes on with the task."""
        ...

    def lose(self, refused: Refused) -> None:
        """Stop, because its words count no more: another server has leased the task (Fenced), or it has ended."""
        ...

    def impose(self, end: End) -> None:
        """Stop, and end the task like this."""
        ...

    def fail(self, end: End) -> None:
        """End the task like this, whatever the agent does now."""
        ...


class OverExecution(Struct, frozen=True):
    """Stands in for an execution that is over, or whose outcome is decided: see `TaskExecution` and `Undecided`."""

    canceled: bool
    open: bool = False

    def abandon(self) -> None:
        """Do nothing."""

    def lose(self, refused: Refused) -> None:
        """Do nothing."""

    def impose(self, end: End) -> None:
        """Do nothing."""

    def fail(self, end: End) -> None:
        """Do nothing."""

    def become_task(self) -> None:
        """Do nothing."""


OVER, OVER_CANCELED = OverExecution(False), OverExecution(True)
