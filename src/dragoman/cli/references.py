"""Resolve `MODULE:OBJECT` or `ID=MODULE:OBJECT` to the agent that it names.

Invariant: any fault of a reference is an `AgentReferenceError` that names the reference and the fix.
"""

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from msgspec.structs import replace

from dragoman.agents.adapters import adapt, adaptable, advice, framework_of, is_runner, own_id
from dragoman.agents.python.factory import FactoryAgent, is_factory
from dragoman.agents.python.lifespan import read_lifespan
from dragoman.agents.table import configure_python, describe_anew
from dragoman.agents.user_code import describe_error, error_place
from dragoman.config import AgentEntry
from dragoman.engine.api import Runner

R = TypeVar("R", bound=Runner)

LIFESPAN = "lifespan"
"""The name of the function of a module that opens what its agents need."""

OPENED_BY_SERVER = (
    "open it in a function that the server calls: write @asynccontextmanager above an `async def` that opens it and "
    "yields the agent, and name that function (docs/agents.md#factories)"
)
"""The fix for a module that opens what belongs to the loop of the server."""

IN_FILE = ("a2a", "openai", "command")
"""The kinds of agents that only the file can have, since they have settings."""

OTHER_KINDS = "; agents that are not Python are a2a:URL, openai:URL, command:PROGRAM or worker, as `run` in the file"


class AgentReferenceError(Exception):
    """An agent that cannot be served. The message names the reference and what to do, which may come apart as `fix`."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


def load_entry(entry: AgentEntry) -> Runner:
    """The agent of Python that a table names, as the table describes it. Raises AgentReferenceError."""
    reference = entry.run.removeprefix("python:")
    place, name = _split(reference)
    module = _load_module(reference, place)
    found = _find_object(reference, module, name)
    if (made := _make_factory_agent(reference, module, found, entry.id, entry)) is not None:
        return _adopt_lifespan(reference, module, made)
    try:
        agent = configure_python(_read_object(reference, module, found, name, entry.id), entry)
    except ValueError as error:
        raise AgentReferenceError(str(error)) from error
    return _adopt_lifespan(reference, module, agent)


def load_reference(reference: str) -> list[Runner]:
    """The agent that `MODULE:OBJECT` or `file.py:OBJECT` names; without an object, every agent in the module.

    With `ID=` in front there must be exactly one agent, which is served under that id. Otherwise a framework's object
    gets its own name as id if it has one that can be an id, else that of its variable; what a function makes gets the
    name of the function. Without an object, a module without agents of ours is searched for one object of a framework.
    """
    agent_id, place = _split_label(reference)
    place, name = _split(place)
    module = _load_module(reference, place)
    if name:
        value = _find_object(reference, module, name)
        made = _make_factory_agent(reference, module, value, agent_id or name.rpartition(".")[2])
        found = [_read_object(reference, module, value, name, agent_id) if made is None else made]
    else:
        found = list(_agents_in(reference, module).values()) or _find_adaptable(reference, module, agent_id)
    if not found:
        raise AgentReferenceError(f"{reference}: it has no agents; {_advice_on(module)}")
    if agent_id and len(found) > 1:
        raise AgentReferenceError(f"{reference}: has {len(found)} agents: write {agent_id}={place}:OBJECT")
    if agent_id and found[0].profile.id != agent_id:
        found = [_rename(found[0], agent_id)]
    return [_adopt_lifespan(reference, module, agent) for agent in found]


def load_object(reference: str) -> object:
    """Return the object that MODULE:OBJECT names, as it is. Raises AgentReferenceError."""
    place, name = _split(reference)
    return _find_object(reference, _load_module(reference, place), name)


def read_given(value: object, agent_id: str = "") -> Runner:
    """The agent that a program gives as an object, under `agent_id` if that is not empty.

    It is an agent of ours, a framework's object, a function that makes either, or a pair of an executor of the official
    SDK and its card. Without an id, a framework's object has its own name, and what a function makes that of the
    function. Raises AgentReferenceError.
    """
    value, *cards = value if isinstance(value, tuple) and len(value) == 2 else (value,)
    kind = value if isinstance(value, type) else type(value)
    named = repr(agent_id) if agent_id else f"an object of type {type(value).__name__}"
    module = sys.modules.get(getattr(value, "__module__", kind.__module__))
    beside: dict[str, object] = {"card": cards[0]} if cards else vars(module) if module is not None else {}
    try:
        if is_runner(value):
            return value if agent_id in ("", value.profile.id) else _rename(value, agent_id)
        if is_factory(value):
            return FactoryAgent(agent_id or getattr(value, "__name__", ""), value, None, beside)
        if adaptable(value) and not (agent_id or own_id(value)):
            raise AgentReferenceError(f"agents: {named} has no name", 'give it an id: {"my-agent": …}')
        agent = adapt(value, agent_id or own_id(value), beside)
    except ValueError as error:
        raise AgentReferenceError(f"agents: {named}: {error}") from error
    if agent is None:
        raise AgentReferenceError(f"agents: {named} is not an agent", advice(value) or "give an Agent")
    return agent


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
    agents = (_adapt(reference, module, value, agent_id or own_id(value) or name) for name, value in found.items())
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
        if kind not in (*IN_FILE, "http", "https"):
            raise AgentReferenceError(f"{reference}: must be MODULE:OBJECT or file.py:OBJECT")
        run = reference if kind in IN_FILE else f"a2a:{reference}"
        model = "" if kind in IN_FILE else " (for a model's API, openai: in place of a2a:)"
        raise AgentReferenceError(
            f'{reference}: write it as a table [[agents]] into dragoman.toml, with id = "NAME" and run = "{run}"{model}'
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
    place = "" if isinstance(error, SyntaxError) else error_place(error)  # its text says where
    what = f"{reference}: importing it failed with {describe_error(error)}" + (f" ({place})" if place else "")
    if isinstance(error, ModuleNotFoundError):
        return AgentReferenceError(f"{what}; is it installed where Dragoman is?")
    return AgentReferenceError(what, OPENED_BY_SERVER if _opens_too_early(error) else "")


def _opens_too_early(error: Exception) -> bool:
    """Whether a module opens something as it is imported, for which it would need the event loop of the server.

    asyncio says so by its text. A library that is given a context manager that nobody has entered names its type.
    """
    text = str(error)
    if isinstance(error, RuntimeError):
        return "no running event loop" in text or "no current event loop" in text
    return isinstance(error, TypeError | AttributeError) and "GeneratorContextManager" in text


def _find_object(reference: str, module: ModuleType, name: str) -> object:
    """The object of the module that the reference names."""
    found: object = module
    for step in name.split("."):
        if not hasattr(found, step):
            raise AgentReferenceError(
                f"{reference}: {step!r} is not in it; {_choices(step, _names_in(reference, module))}"
            )
        found = getattr(found, step)
    return found


def _read_object(reference: str, module: ModuleType, value: object, name: str, agent_id: str) -> Runner:
    """The agent that the object is, or can be: then with that id, or else a default."""
    try:
        if is_runner(value):
            return value
    except ValueError as error:
        raise AgentReferenceError(f"{reference}: {error}") from error
    theirs = _adapt(reference, module, value, agent_id or own_id(value) or name.rpartition(".")[2])
    if theirs is not None:
        return theirs
    fix = advice(value) or _choices(name, _names_in(reference, module))
    kind = "a class" if isinstance(value, type) else f"of type {type(value).__name__}"
    raise AgentReferenceError(f"{reference}: is {kind}, not an Agent; {fix}")


def _make_factory_agent(
    reference: str, module: ModuleType, value: object, agent_id: str, entry: AgentEntry | None = None
) -> FactoryAgent | None:
    """The agent that a function of the module will make; None if the object is no such function."""
    try:
        return FactoryAgent(agent_id, value, entry, vars(module)) if is_factory(value) else None
    except ValueError as error:
        raise AgentReferenceError(f"{reference}: {error}") from error


def _adopt_lifespan(reference: str, module: ModuleType, agent: R) -> R:
    """Give an agent the `lifespan` of its module, if it has none of its own."""
    found = vars(module).get(LIFESPAN)
    if callable(found) and agent.lifespan is None:
        try:
            agent.adopt(read_lifespan(LIFESPAN, found))
        except TypeError as error:
            raise AgentReferenceError(f"{reference}: {error}") from error
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
    for name, value in vars(module).items():
        if isinstance(value, type) and adaptable(value):  # one of the module's own would have been served
            return f"to serve {name}, which it imports, write :{name} behind it"
    return 'make one with agent = Agent("my-agent", …)'


def _agents_in(reference: str, module: ModuleType) -> dict[str, Runner]:
    """The agents of a module by name, in the order of their definition, each once."""
    found: dict[str, Runner] = {}
    try:
        for name, value in vars(module).items():
            if is_runner(value) and not any(value is other for other in found.values()):
                found[name] = value
    except ValueError as error:  # a Runner of one's own that is not finished
        raise AgentReferenceError(f"{reference}: {error}") from error
    return found


def _names_in(reference: str, module: ModuleType) -> list[str]:
    """The names that a reference can use: the module's agents, and framework objects that can be agents."""
    return [*_agents_in(reference, module), *(name for name, value in vars(module).items() if adaptable(value))]
