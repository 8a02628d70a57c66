"""KAOS's Python names over Dragoman's engine and client, for code that imports them from `pais`.

Invariant: no other part of Dragoman imports this. It assembles engine, store and client as `dragoman.server` does.
"""

from dragoman.kaos.local import LocalTaskManager, ProcessFn, task_manager_from_env
from dragoman.kaos.manager import NullTaskManager, Task, TaskManager, TaskMessage, TaskState, TaskStatus
from dragoman.kaos.remote import AgentTimedOut, AgentUnavailable, RemoteAgent, RemoteAgentError, TaskFailed

__all__ = [
    "AgentTimedOut",
    "AgentUnavailable",
    "LocalTaskManager",
    "NullTaskManager",
    "ProcessFn",
    "RemoteAgent",
    "RemoteAgentError",
    "Task",
    "TaskFailed",
    "TaskManager",
    "TaskMessage",
    "TaskState",
    "TaskStatus",
    "task_manager_from_env",
]
