"""The Bus protocol: best-effort hints between servers.

Invariant: the bus never holds the only copy of anything. Listeners read the store to learn what changed.
"""

from collections.abc import Callable
from typing import Protocol


class Bus(Protocol):
    """Carries the news that a task's log has grown, to every server of one store."""

    def publish(self, task_id: str, seq: int) -> None:
        """Announce that `task_id` has events up to `seq`. Returns at once; may be lost, repeated or reordered."""
        ...

    def listen(self, moved: Callable[[str, int], None]) -> None:
        """Call `moved(task_id, seq)` on the loop for each hint of another server."""
        ...
