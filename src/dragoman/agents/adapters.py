"""Recognises the objects of other frameworks, and puts them behind a card.

Invariant: no framework is a dependency. An object is recognised by the modules of its classes, without any import. The
adapter of a framework, in `frameworks`, is loaded when one of its objects is met.
"""

import importlib
from collections.abc import Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Protocol, TypeGuard

from msgspec import Struct

from dragoman.config import agent_id_fault
from dragoman.engine.api import Runner, Traits
from dragoman.model.card import Profile

ADAPTERS = "dragoman.agents.frameworks"


class Framework(Struct, frozen=True):
    """A framework: the package of its classes, its name for people, and our module that adapts it.

    With `classes` a class can be served as well as its objects.
    """

    package: str
    name: str
    module: str
    classes: bool = False


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
            Framework("a2a", "the official A2A SDK", "a2a_sdk", classes=True),
        )
    }
)


NOTHING_BESIDE: Mapping[str, object] = MappingProxyType({})


class Adapter(Protocol):
    """The interface of a framework's adapter module."""

    def adapts(self, value: object) -> bool:
        """Whether the object, which is one of the framework's, can be an agent."""
        ...

    def adapt(self, value: object, agent_id: str) -> Runner:
        """Put the object behind a card, which says what the object says about itself.

        Raises ValueError if it cannot be served. An adapter whose framework keeps the card apart from the object has
        `introduce`, too: it takes the agent and the names of the module, and raises the same.
        """
        ...

    def name_of(self, value: object) -> str:
        """The name that the object's author has given it; empty if there is none but the framework's default."""
        ...


def framework_of(value: object) -> Framework | None:
    """The framework that the object belongs to; None if it belongs to none."""
    return None if isinstance(value, type) else next(_frameworks(type(value)), None)


def _frameworks(kind_of_object: type) -> Iterator[Framework]:
    """Yield the frameworks of a class: one that extends another framework's belongs to both."""
    for kind in kind_of_object.__mro__:
        module = getattr(kind, "__module__", "")
        for package, framework in FRAMEWORKS.items():
            if module == package or module.startswith(package + "."):
                yield framework


def adaptable(value: object) -> bool:
    """Whether the object can be an agent."""
    return _adapter(value) is not None


def adapt(value: object, agent_id: str, beside: Mapping[str, object] = NOTHING_BESIDE) -> Runner | None:
    """The object as an agent; None if it belongs to no framework, or cannot be an agent.

    `beside` are the names of the module in which it was found, where a framework may keep the card. Raises ValueError
    if it cannot be served.
    """
    adapter = _adapter(value)
    if adapter is None:
        return None
    agent = adapter.adapt(value, agent_id)
    if callable(introduce := getattr(adapter, "introduce", None)):
        introduce(agent, beside)
    return agent


def runner_of(value: object, agent_id: str, beside: Mapping[str, object] = NOTHING_BESIDE) -> Runner | None:
    """An agent of ours as it is, or a framework's object as an agent; None if it is neither.

    Raises ValueError if it cannot be served.
    """
    return value if is_runner(value) else adapt(value, agent_id, beside)


def is_runner(value: object) -> TypeGuard[Runner]:
    """Whether it is an agent of ours. Raises ValueError for a Runner of one's own that lacks what it needs."""
    if isinstance(value, type) or not isinstance(value, Runner):
        return False
    lacks = [
        f"self.{name} = {kind.__name__}(…)"
        for name, kind in (("profile", Profile), ("traits", Traits))
        if not isinstance(getattr(value, name, None), kind)
    ]
    if lacks and Runner in type(value).__mro__:
        raise ValueError(f"{type(value).__name__} is a Runner that is not finished: write {', '.join(lacks)}")
    return not lacks


def own_id(value: object) -> str:
    """The name of a framework's object, if it can be an agent's id; else empty."""
    adapter = _adapter(value)
    name = "" if adapter is None else adapter.name_of(value)
    return name if agent_id_fault(name) is None else ""


def advice(value: object) -> str:
    """Advice for the author of an object that cannot be an agent; empty if there is none."""
    if isinstance(value, type):
        framework = next(_frameworks(value), None)
        if framework is not None or callable(getattr(value, "run", None)) or callable(getattr(value, "crew", None)):
            return f"name an object of it, agent = {value.__name__}(…)"
        return ""
    if isinstance(value, FunctionType):
        return (
            f"it is a function: name what it returns, agent = {value.__name__}(…), let it need no arguments, or write "
            "@agent.skill above it"
        )
    if hasattr(value, "__aenter__") and hasattr(value, "gen"):
        return "it is a context manager, which can be entered once: name the function that makes it"
    framework = framework_of(value)
    if framework is None:
        crew = callable(getattr(value, "crew", None))
        return "name its crew: crew = …().crew()" if crew else ""
    if callable(getattr(value, "compile", None)):
        return "it is not compiled: name what its .compile() returns"
    return f"of {framework.name}, only agents and objects that run like one can be served"


def _adapter(value: object) -> Adapter | None:
    """The adapter that takes the object; None if there is none."""
    by_class = isinstance(value, type)
    for framework in _frameworks(value if isinstance(value, type) else type(value)):
        if framework.classes or not by_class:
            adapter: Adapter = importlib.import_module(f"{ADAPTERS}.{framework.module}")
            if adapter.adapts(value):
                return adapter
    return None
