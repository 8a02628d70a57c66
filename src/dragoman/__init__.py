"""Dragoman: a server, gateway and client for the Agent2Agent (A2A) protocol.

The names that an agent needs are here. Each is loaded when it is first used, so importing Dragoman costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.agents.python.agent import Agent
    from dragoman.agents.python.context import Answer, Context
    from dragoman.agents.python.threads import SyncContext
    from dragoman.engine.api import DelegationFailed, Reject, Unreadable
    from dragoman.model.card import AgentExtension, AgentProvider
    from dragoman.model.events import Delegated
    from dragoman.model.message import Artifact, Message, Part, Role
    from dragoman.model.principal import Principal
    from dragoman.model.task import TaskState, Usage

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentExtension",
    "AgentProvider",
    "Answer",
    "Artifact",
    "Context",
    "Delegated",
    "DelegationFailed",
    "Message",
    "Part",
    "Principal",
    "Reject",
    "Role",
    "SyncContext",
    "TaskState",
    "Unreadable",
    "Usage",
    "__version__",
]

_HOMES = {
    "Agent": "dragoman.agents.python.agent",
    "AgentExtension": "dragoman.model.card",
    "AgentProvider": "dragoman.model.card",
    "Answer": "dragoman.agents.python.context",
    "Artifact": "dragoman.model.message",
    "Context": "dragoman.agents.python.context",
    "Delegated": "dragoman.model.events",
    "DelegationFailed": "dragoman.engine.api",
    "Message": "dragoman.model.message",
    "Part": "dragoman.model.message",
    "Principal": "dragoman.model.principal",
    "Reject": "dragoman.engine.api",
    "Role": "dragoman.model.message",
    "SyncContext": "dragoman.agents.python.threads",
    "TaskState": "dragoman.model.task",
    "Unreadable": "dragoman.engine.api",
    "Usage": "dragoman.model.task",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
