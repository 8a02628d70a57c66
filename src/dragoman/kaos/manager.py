"""TaskManager, the interface that KAOS's contract names, and NullTaskManager, which keeps no tasks.

Invariant: no method raises for a missing task; it returns None.
"""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from dragoman.kaos.task import Task, TaskState, TaskStatus
from dragoman.model.ids import new_id

NULL_SESSION = "null-session"
"""The session of a stub, unless the caller names one."""


class TaskManager(ABC):
    """Takes messages and keeps the tasks they become. `async with` shuts it down at the end."""

    @abstractmethod
    async def send_message(
        self,
        text: str,
        session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        context_id: str | None = None,
    ) -> Task:
        """Make a task of `text`, work on it, and return it when it has ended.

        `session_id` continues a session; without one the task begins its own. `context_id` is A2A's name for the same.
        """

    @abstractmethod
    async def get_task(self, task_id: str) -> Task | None:
        """The task as it stands."""

    @abstractmethod
    async def cancel_task(self, task_id: str) -> Task | None:
        """Stop the task, and return it as it stands then. A task that has ended does not change."""

    @abstractmethod
    async def wait_for_completion(self, task_id: str, timeout: float = 60.0, poll_interval: float = 0.1) -> Task | None:
        """The task once it has ended, or as it stands after `timeout` seconds.

        `poll_interval`, in seconds, is for managers that can only look again and again.
        """

    @abstractmethod
    async def shutdown(self) -> None:
        """Stop all running tasks and release everything. May be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()


def session_of(session_id: str | None, context_id: str | None) -> str | None:
    """The session a caller means. Raises ValueError if it names two."""
    if session_id and context_id and session_id != context_id:
        raise ValueError(
            f"session_id {session_id!r} and context_id {context_id!r} are the same thing: give one of them"
        )
    return session_id or context_id or None


class NullTaskManager(TaskManager):
    """Keeps no tasks: a message is answered with an empty, completed stub."""

    async def send_message(
        self,
        text: str,
        session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        context_id: str | None = None,
    ) -> Task:
        """A stub; nothing has run."""
        return Task(
            id=f"null_task_{new_id()[-8:]}",
            session_id=session_of(session_id, context_id) or NULL_SESSION,
            status=TaskStatus(TaskState.COMPLETED, None, datetime.now(UTC)),
        )

    async def get_task(self, task_id: str) -> Task | None:
        """None: nothing is kept."""
        return None

    async def cancel_task(self, task_id: str) -> Task | None:
        """None: nothing runs."""
        return None

    async def wait_for_completion(self, task_id: str, timeout: float = 60.0, poll_interval: float = 0.1) -> Task | None:
        """None: there is nothing to wait for."""
        return None

    async def shutdown(self) -> None:
        """Do nothing: there is nothing to release."""
