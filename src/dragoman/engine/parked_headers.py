"""The headers of requests whose tasks are not in memory: they wait for a worker, or for their caller.

Invariant: at most `PARKED_BYTES_MAX` are kept. Beyond that those that were parked first are lost, as by a restart.
"""

from dragoman.model.headers import TaskHeaders

PARKED_BYTES_MAX = 16 * 1024 * 1024
"""Enough for some 20,000 tasks whose agents are given two short headers."""


class ParkedHeaders:
    """Headers by the ids of their tasks."""

    def __init__(self, bytes_max: int = PARKED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parked: dict[str, TaskHeaders] = {}

    def park(self, task_id: str, headers: TaskHeaders) -> None:
        """Keep the headers of a task, in place of those that are there."""
        self.take_back(task_id)
        self._parked[task_id] = headers
        self._bytes += headers.size
        while self._bytes > self._bytes_max:
            self._bytes -= self._parked.pop(next(iter(self._parked))).size

    def take_back(self, task_id: str) -> TaskHeaders | None:
        """Return the headers of a task, which are kept no longer; None if none are here."""
        headers = self._parked.pop(task_id, None)
        if headers is not None:
            self._bytes -= headers.size
        return headers
