"""Conversations with an agent, task after task, and the space in which their sessions are kept."""

from typing import Any

from dragoman.client import Connection
from dragoman.engine.state_space import StoredSpace
from dragoman.model.ids import Clock, SystemClock
from dragoman.model.task import Task
from dragoman.store.state import StateScope, StateStore


async def send(connection: Connection, text: str, before: Task | None = None, **more: Any) -> Task:
    """The task that comes of a message, in the conversation of the one `before`."""
    if before is not None:
        more["context_id"] = before.context_id
    task = await connection.send(text, **more)
    assert isinstance(task, Task)
    return task


class Anybody:
    """May write."""

    outdated = False

    async def settle(self) -> None:
        """Nothing is under way."""

    def state_guard(self) -> None:
        """No run has to be at work."""


def space_of(state: StateStore, scope: StateScope, clock: Clock | None = None) -> StoredSpace:
    """A space in which anybody may write."""
    return StoredSpace(state, scope, Anybody(), clock or SystemClock(), retry_s=0)
