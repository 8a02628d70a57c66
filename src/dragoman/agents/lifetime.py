"""Opens what agents need while they are served (connections, watches, programs), and tells whether it works.

Invariant: an agent that cannot be opened does not stop its server from starting; it reports the fault when asked.
"""

from asyncio import TaskGroup
from typing import Protocol, runtime_checkable


@runtime_checkable
class Living(Protocol):
    """An agent that is opened before its first task and closed after its last."""

    async def open(self, group: TaskGroup) -> None:
        """Get ready within a bounded time. Work that continues beside its tasks runs in `group`. Raises nothing."""
        ...

    async def close(self) -> None:
        """Release what is open. All of the agent's tasks have ended by then."""
        ...


@runtime_checkable
class Dependent(Protocol):
    """An agent that depends on something that may be away: another server, an endpoint, workers, tools."""

    @property
    def degraded(self) -> str | None:
        """Why it cannot do all of its work, in words for any caller, without an address; None if no fault is known."""
        ...
