"""KAOS's Python names over Dragoman's engine and client, for code that imports them from `pais`.

Invariant: no other part of Dragoman imports this. It assembles engine, store and client as `server.py` does.
"""

from dragoman.kaos.environment import task_manager_from_env
from dragoman.kaos.local import LocalTaskManager
from dragoman.kaos.manager import NullTaskManager, TaskManager
from dragoman.kaos.process import ProcessFn
from dragoman.kaos.remote import AgentTimedOut, AgentUnavailable, RemoteAgent, RemoteAgentError, TaskFailed
from dragoman.kaos.task import Task, TaskMessage, TaskState, TaskStatus

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
