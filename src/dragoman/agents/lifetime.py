"""What agents have that is open as long as they are served: connections, watches, programs; and whether it works.

Invariant: an agent that cannot be opened does not keep its server from starting; it says so where it is asked.
"""

from asyncio import TaskGroup
from typing import Protocol, runtime_checkable


@runtime_checkable
class Living(Protocol):
    """An agent that is opened before its first task and closed after its last."""

    async def open(self, group: TaskGroup) -> None:
        """Make ready, within a bounded time; what goes on beside its tasks runs in `group`. Raises nothing."""
        ...

    async def close(self) -> None:
        """End what is open. Tasks of it have ended."""
        ...


@runtime_checkable
class Dependent(Protocol):
    """An agent that needs what may be away: another server, an endpoint, workers, tools."""

    @property
    def degraded(self) -> str | None:
        """Why it cannot do all of its work, in words for everybody, without an address; None if nothing is known."""
        ...
