"""Agents of other frameworks behind a card: recognised by where their classes are defined, without importing any.

Invariant: none of them is a dependency; the adapter of a framework is loaded when an object of it is met, and it
imports of the framework what that object's program has imported already.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from dragoman.agents.python import Agent


class Framework(Struct, frozen=True):
    """A framework: the package that its classes come from, its name for people, and our module that adapts them."""

    package: str
    name: str
    module: str


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        framework.package: framework
        for framework in (
            Framework("pydantic_ai", "Pydantic AI", "pydantic_ai"),
            Framework("langgraph", "LangGraph", "langgraph"),
            Framework("agents", "OpenAI Agents SDK", "openai_agents"),
            Framework("crewai", "CrewAI", "crewai"),
            Framework("google.adk", "Google ADK", "google_adk"),
            Framework("strands", "Strands Agents", "strands"),
            Framework("agno", "Agno", "agno"),
        )
    }
)


class Adapter(Protocol):
    """What the module of a framework has."""

    def adapts(self, value: object) -> bool:
        """Whether the object can be an agent. It is one of the framework's."""
        ...

    def adapted(self, value: object, agent_id: str) -> Agent:
        """The object behind a card; the card says what the object says of itself."""
        ...


def framework_of(value: object) -> Framework | None:
    """The framework whose object this is."""
    if isinstance(value, type):
        return None
    for kind in type(value).__mro__:
        module = getattr(kind, "__module__", "")
        for package, framework in FRAMEWORKS.items():
            if module == package or module.startswith(package + "."):
                return framework
    return None


def adaptable(value: object) -> bool:
    """Whether the object can be an agent."""
    adapter = _adapter(value)
    return adapter is not None and adapter.adapts(value)


def adapted(value: object, agent_id: str) -> Agent | None:
    """The object as an agent; None if it is of no framework, or cannot be an agent."""
    adapter = _adapter(value)
    return adapter.adapted(value, agent_id) if adapter is not None and adapter.adapts(value) else None


def _adapter(value: object) -> Adapter | None:
    framework = framework_of(value)
    if framework is None:
        return None
    adapter: Adapter = importlib.import_module(f"{__name__}.{framework.module}")
    return adapter
