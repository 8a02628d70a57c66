"""What a bus promises: nothing but to try.

Invariant: the bus is never the only copy; whoever listens reads the store to know.
"""

from collections.abc import Callable
from typing import Protocol


class Bus(Protocol):
    """Carries the news that a task's log has grown, to every server of one store."""

    def publish(self, task_id: str, seq: int) -> None:
        """Say that `task_id` has events up to `seq`. Returns at once; may be lost, repeated or come out of order."""
        ...

    def listen(self, moved: Callable[[str, int], None]) -> None:
        """Call `moved(task_id, seq)` on the loop for what other servers publish."""
        ...
