"""Task as in KAOS's Python API, built from the engine's record.

Invariant: a Task is a snapshot of a task at the time of the call, and does not change afterwards.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dragoman.dialects.kaos import encode
from dragoman.model import task as canonical
from dragoman.model.task import Record


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


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)
