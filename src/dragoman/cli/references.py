"""Resolve `MODULE:OBJECT` or `ID=MODULE:OBJECT` to the agent that it names.

Invariant: any fault of a reference is an `AgentReferenceError` that names the reference and the fix.
"""

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from dragoman.agents.adapters import adapt, adaptable, advice, framework_of
from dragoman.agents.kinds import describe_anew
from dragoman.engine.api import Runner, Traits
from dragoman.model.card import Profile

OTHER_KINDS = "; agents that are not Python are a2a:URL, openai:URL, command:PROGRAM or worker, as `run` in the file"


class AgentReferenceError(Exception):
    """An agent that cannot be served. The message names the reference and what to do."""


def load_reference_as(reference: str, agent_id: str) -> Runner:
    """The agent that a reference with an object names. A framework's object becomes the agent `agent_id`."""
    place, name = _split(reference)
    return _find_object(reference, _load_module(reference, place), name, agent_id)


def load_reference(reference: str) -> list[Runner]:
    """The agent that `MODULE:OBJECT` or `file.py:OBJECT` names; without an object, every agent in the module.

    With `ID=` in front there must be exactly one agent, which is served under that id. Otherwise a framework's object
    gets the name of its variable as id. Without an object, a module without agents of ours is searched for one object
    of a framework.
    """
    agent_id, place = _split_label(reference)
    place, name = _split(place)
    module = _load_module(reference, place)
    if name:
        found = [_find_object(reference, module, name, agent_id)]
    else:
        found = list(_agents_in(reference, module).values()) or _find_adaptable(reference, module, agent_id)
    if not found:
        raise AgentReferenceError(f"{reference}: it has no agents; {_advice_on(module)}")
    if not agent_id:
        return found
    if len(found) > 1:
        raise AgentReferenceError(f"{reference}: has {len(found)} agents: write {agent_id}={place}:OBJECT")
    return [_rename(found[0], agent_id)]


def place_of(reference: str) -> str:
    """The module or file in which a reference looks."""
    _, rest = _split_label(reference)
    place, colon, _ = rest.rpartition(":")
    return place if colon else rest


def _split_label(reference: str) -> tuple[str, str]:
    """Split off the id before `=`, if there is one, and the optional prefix `python:` that the file allows."""
    agent_id, equals, rest = reference.partition("=")
    labelled = bool(equals) and re.fullmatch(r"[\w.-]+", agent_id) is not None
    return (agent_id if labelled else "", (rest if labelled else reference).removeprefix("python:"))


def _rename(agent: Runner, agent_id: str) -> Runner:
    """The agent under another id."""
    return describe_anew(agent, replace(agent.profile, id=agent_id))


def _find_adaptable(reference: str, module: ModuleType, agent_id: str) -> list[Runner]:
    """The only framework object in a module that can be an agent; without any, the only class of its own.

    Raises AgentReferenceError for several: sub-agents are objects, too, so the choice is the user's.
    """
    objects: dict[str, Any] = {}
    classes: dict[str, Any] = {}
    for name, value in vars(module).items():
        if not adaptable(value):
            continue
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                classes[name] = value
        elif not any(value is other for other in objects.values()):
            objects[name] = value
    found = objects or classes
    if len(found) > 1:
        raise AgentReferenceError(f"{reference}: has several agents: write one of them as :{', :'.join(found)}")
    agents = (_adapt(reference, module, value, agent_id or name) for name, value in found.items())
    return [agent for agent in agents if agent is not None]


def _adapt(reference: str, module: ModuleType, value: object, agent_id: str) -> Runner | None:
    """Adapt a framework's object to an agent; None if it is no such object. Raises AgentReferenceError."""
    try:
        return adapt(value, agent_id, vars(module))
    except ValueError as error:
        raise AgentReferenceError(f"{reference}: {error}") from error


def _split(reference: str) -> tuple[str, str]:
    place, colon, name = reference.rpartition(":")
    if not colon:
        return reference, ""
    if not place or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        kind = place.partition(":")[0]
        raise AgentReferenceError(
            f"{reference}: must be MODULE:OBJECT or file.py:OBJECT"
            if kind not in ("a2a", "openai", "command")
            else f"{reference}: an agent of the kind {kind} has an id and settings: write it into the file, as `run` "
            "of a table [[agents]]"
        )
    return place, name


def _load_module(reference: str, place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        return _load_file(reference, Path(place))
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", place):
        raise AgentReferenceError(f"{reference}: {place!r} is not a module; write MODULE:OBJECT or file.py:OBJECT")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            hint = (
                f"; did you mean {place.replace('.', '/')}.py?"
                if Path(place.replace(".", "/") + ".py").exists()
                else ""
                if "." in place
                else OTHER_KINDS
            )
            raise AgentReferenceError(
                f"{reference}: no module {error.name!r} in {Path.cwd()} or among the installed packages{hint}"
            ) from error
        raise _import_error(reference, error) from error
    except Exception as error:  # a user's module may raise anything
        raise _import_error(reference, error) from error


def _load_file(reference: str, path: Path) -> ModuleType:
    """Load the module in the file `path`, once. Like a script, it can import its neighbours."""
    if not path.is_file():
        if path.is_dir():
            raise AgentReferenceError(f"{reference}: is a folder: name the file in it that has the agent")
        raise AgentReferenceError(f"{reference}: no file {path}" + ("" if path.is_absolute() else f" in {Path.cwd()}"))
    name = "dragoman_file_" + re.sub(r"\W", "_", str(path.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise AgentReferenceError(f"{reference}: {path} is not a Python file")
    if (neighbours := str(path.resolve().parent)) not in sys.path:
        sys.path.append(neighbours)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's module may raise anything
        del sys.modules[name]
        raise _import_error(reference, error) from error
    return module


def _import_error(reference: str, error: Exception) -> AgentReferenceError:
    """Make an error for an exception in the user's module, with what its author needs: the exception and the place."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if not frame.f_code.co_filename.startswith("<frozen ") and package not in ("importlib", "dragoman"):
            place = f" ({frame.f_code.co_filename}:{line})"
    if isinstance(error, SyntaxError):
        place = ""  # its text says where
    fix = "; is it installed where Dragoman is?" if isinstance(error, ModuleNotFoundError) else ""
    return AgentReferenceError(f"{reference}: importing it failed with {type(error).__name__}: {error}{place}{fix}")


def _find_object(reference: str, module: ModuleType, name: str, agent_id: str = "") -> Runner:
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            raise AgentReferenceError(
                f"{reference}: {step!r} is not in it; {_choices(step, _names_in(reference, module))}"
            )
        found = getattr(found, step)
    if not _is_agent(reference, found):
        if (theirs := _adapt(reference, module, found, agent_id or name.rpartition(".")[2])) is not None:
            return theirs
        fix = advice(found) or _choices(name, _names_in(reference, module))
        kind = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise AgentReferenceError(f"{reference}: is {kind}, not an Agent; {fix}")
    agent: Runner = found
    return agent


def _choices(name: str, agents: Iterable[str]) -> str:
    names = list(agents)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"its agents are {', '.join(names)}" if names else "it has no agents"


def _advice_on(module: ModuleType) -> str:
    """Advice on a module without agents, which may have an object that can become one."""
    for name, value in vars(module).items():
        if framework_of(value) is not None and (told := advice(value)):
            return f"{name}: {told}"
    return 'make one with agent = Agent("my-agent", …)'


def _agents_in(reference: str, module: ModuleType) -> dict[str, Runner]:
    """The agents of a module by name, in the order of their definition, each once."""
    found: dict[str, Runner] = {}
    for name, value in vars(module).items():
        if _is_agent(reference, value) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _names_in(reference: str, module: ModuleType) -> list[str]:
    """The names that a reference can use: the module's agents, and framework objects that can be agents."""
    return [*_agents_in(reference, module), *(name for name, value in vars(module).items() if adaptable(value))]


def _is_agent(reference: str, value: object) -> bool:
    """Whether it is an agent. Raises AgentReferenceError for a Runner of one's own that lacks what it needs."""
    if isinstance(value, type) or not isinstance(value, Runner):
        return False
    lacks = [
        f"self.{name} = {kind.__name__}(…)"
        for name, kind in (("profile", Profile), ("traits", Traits))
        if not isinstance(getattr(value, name, None), kind)
    ]
    if lacks and Runner in type(value).__mro__:
        kind = type(value).__name__
        raise AgentReferenceError(f"{reference}: {kind} is a Runner that is not finished: write {', '.join(lacks)}")
    return not lacks
