"""Dragoman: a server, gateway and client for the Agent2Agent (A2A) protocol.

The names that an agent needs are here. Each is loaded when it is first used, so importing Dragoman costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.agents.content import form
    from dragoman.agents.python.agent import Agent
    from dragoman.agents.python.context import Answer, Context
    from dragoman.agents.python.memory import MemoryChanged, MemoryFull
    from dragoman.agents.python.present import current_context, current_sync_context
    from dragoman.agents.python.steps import StepFailed
    from dragoman.agents.python.sync_context import SyncContext
    from dragoman.application import Application, create_app
    from dragoman.engine.api import DelegationFailed, Reject, Unreadable
    from dragoman.model.card import AgentExtension, AgentProvider
    from dragoman.model.events import Delegated
    from dragoman.model.message import Artifact, Message, Part, Role
    from dragoman.model.principal import AccessRole, KeyLimits, Principal, Scope
    from dragoman.model.task import TaskState, Usage

__version__ = "0.2.0.dev0"

__all__ = [
    "AccessRole",
    "Agent",
    "AgentExtension",
    "AgentProvider",
    "Answer",
    "Application",
    "Artifact",
    "Context",
    "Delegated",
    "DelegationFailed",
    "KeyLimits",
    "MemoryChanged",
    "MemoryFull",
    "Message",
    "Part",
    "Principal",
    "Reject",
    "Role",
    "Scope",
    "StepFailed",
    "SyncContext",
    "TaskState",
    "Unreadable",
    "Usage",
    "__version__",
    "create_app",
    "current_context",
    "current_sync_context",
    "form",
]

_HOMES = {
    "AccessRole": "dragoman.model.principal",
    "Agent": "dragoman.agents.python.agent",
    "AgentExtension": "dragoman.model.card",
    "AgentProvider": "dragoman.model.card",
    "Answer": "dragoman.agents.python.context",
    "Application": "dragoman.application",
    "Artifact": "dragoman.model.message",
    "Context": "dragoman.agents.python.context",
    "Delegated": "dragoman.model.events",
    "DelegationFailed": "dragoman.engine.api",
    "KeyLimits": "dragoman.model.principal",
    "MemoryChanged": "dragoman.agents.python.memory",
    "MemoryFull": "dragoman.agents.python.memory",
    "Message": "dragoman.model.message",
    "Part": "dragoman.model.message",
    "Principal": "dragoman.model.principal",
    "Reject": "dragoman.engine.api",
    "Role": "dragoman.model.message",
    "Scope": "dragoman.model.principal",
    "StepFailed": "dragoman.agents.python.steps",
    "SyncContext": "dragoman.agents.python.sync_context",
    "TaskState": "dragoman.model.task",
    "Unreadable": "dragoman.engine.api",
    "Usage": "dragoman.model.task",
    "create_app": "dragoman.application",
    "current_context": "dragoman.agents.python.present",
    "current_sync_context": "dragoman.agents.python.present",
    "form": "dragoman.agents.content",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
