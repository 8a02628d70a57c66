"""KAOS's contract: TaskManager and the tasks that it gives; and NullTaskManager, which keeps no tasks.

Invariant: no method raises for a missing task; it returns None. A Task is a snapshot of a task at the time of the call,
built from the engine's record, and does not change afterwards.
"""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from dragoman.dialects.kaos import encode
from dragoman.model import task as canonical
from dragoman.model.ids import new_id
from dragoman.model.task import Record

NULL_SESSION = "null-session"
"""The session of a stub, unless the caller names one."""


class TaskState(StrEnum):
    """The life of a task, in KAOS's spelling."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED})
"""States that nothing follows."""

_STATES = {
    canonical.TaskState.SUBMITTED: TaskState.SUBMITTED,
    canonical.TaskState.WORKING: TaskState.WORKING,
    canonical.TaskState.INPUT_REQUIRED: TaskState.INPUT_REQUIRED,
    canonical.TaskState.AUTH_REQUIRED: TaskState.INPUT_REQUIRED,
    canonical.TaskState.COMPLETED: TaskState.COMPLETED,
    canonical.TaskState.FAILED: TaskState.FAILED,
    canonical.TaskState.CANCELED: TaskState.CANCELED,
    canonical.TaskState.REJECTED: TaskState.FAILED,
}
"""KAOS has neither `rejected` nor `auth-required`: each becomes the state to which its callers react alike."""


class TaskStatus(Struct, frozen=True):
    """Where a task stands. `message` is plain text; `timestamp` is aware, in UTC."""

    state: TaskState
    message: str | None
    timestamp: datetime

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: `message` is left out when there is none."""
        said = {} if self.message is None else {"message": self.message}
        return {"state": self.state.value, **said, "timestamp": self.timestamp.isoformat()}


class TaskMessage(Struct, frozen=True):
    """One message: `role` is `user` or `agent`."""

    role: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: one part, tagged `type`."""
        return {"role": self.role, "parts": [{"type": "text", "text": self.text}]}


class Task(Struct, frozen=True, kw_only=True):
    """A unit of work. `output` is the answer so far. When the task has ended, it is also the last of its `history`."""

    id: str
    session_id: str
    status: TaskStatus
    history: tuple[TaskMessage, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = {}  # msgspec copies an empty default for each instance
    output: str = ""

    @property
    def terminal(self) -> bool:
        """Whether the task has ended."""
        return self.status.state in TERMINAL

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the server's answer in KAOS's dialect, followed by `metadata`."""
        return {
            "id": self.id,
            "sessionId": self.session_id,
            "status": self.status.to_dict(),
            "history": [message.to_dict() for message in self.history],
            "contextId": self.session_id,
            "output": self.output,
            "artifacts": list(self.artifacts),
            "metadata": self.metadata,
        }


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


def task_of(record: Record) -> Task:
    """Build the task from the engine's record, as KAOS's dialect encodes it."""
    shown = encode.task(record, None)
    status = shown["status"]
    return Task(
        id=record.head.id,
        session_id=record.head.context_id,
        status=TaskStatus(_STATES[record.state], status.get("message"), datetime.fromisoformat(status["timestamp"])),
        history=tuple(TaskMessage(said["role"], _text(said["parts"])) for said in shown["history"]),
        artifacts=tuple(shown["artifacts"]),
        metadata=record.head.metadata or {},
        output=shown["output"],
    )


def session_of(session_id: str | None, context_id: str | None) -> str | None:
    """The session a caller means. Raises ValueError if it names two."""
    if session_id and context_id and session_id != context_id:
        raise ValueError(
            f"session_id {session_id!r} and context_id {context_id!r} are the same thing: give one of them"
        )
    return session_id or context_id or None


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)
