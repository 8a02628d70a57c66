"""What agents have that is open as long as they are served: connections, watches, programs.

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
