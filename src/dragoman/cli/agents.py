"""From `MODULE:OBJECT` on the command line and `[[agents]]` in the file to the agents themselves.

Invariant: whatever is wrong with a reference, the result is an `AgentReferenceError` that names it and the fix.
"""

import copy
import difflib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from msgspec.structs import replace

from dragoman.agents.leases import LEASE_S
from dragoman.agents.upstream import UpstreamAgent
from dragoman.agents.upstream_way import Address, Made
from dragoman.agents.worker import WorkerAgent
from dragoman.client import ApiKey, BearerToken, ClientCredentials, Timeouts
from dragoman.config import WORKER, AgentEntry, Upstream, UpstreamCredentials, agent_id_fault
from dragoman.engine.api import Runner
from dragoman.model.card import AgentProvider, AgentSkill, Profile

R = TypeVar("R", bound=Runner)


class AgentReferenceError(Exception):
    """An agent that cannot be served. The message names the reference and what to do."""


def load_agents(entries: Sequence[AgentEntry], references: Sequence[str], default: str | None) -> list[Runner]:
    """The agents of the file, then those of the command line; the one that answers at `/` comes first.

    Modules are looked for in the working directory, too. Raises AgentReferenceError.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    agents = [_declared(entry) for entry in entries]
    for reference in references:
        agents.extend(referenced(reference))
    if not agents:
        raise AgentReferenceError(
            "no agents: name one as MODULE:OBJECT or file.py:OBJECT, or in [[agents]] of the file"
        )
    ids = [agent.profile.id for agent in agents]
    for agent_id in ids:
        if ids.count(agent_id) > 1:
            raise AgentReferenceError(f"agent id {agent_id!r} is given {ids.count(agent_id)} times: ids must differ")
        if fault := agent_id_fault(agent_id):
            raise AgentReferenceError(f"agent id {agent_id!r}: {fault}")
    if default is not None and default not in ids:
        raise AgentReferenceError(f"default = {default!r}: no such agent; there are {', '.join(ids)}")
    return sorted(agents, key=lambda agent: agent.profile.id != default) if default else agents


def referenced(reference: str) -> list[Runner]:
    """The agent that `MODULE:OBJECT` or `file.py:OBJECT` names; without an object every agent in the module."""
    place, name = _split(reference)
    module = _module(reference, place)
    if name:
        return [_named(reference, module, name)]
    found = _agents_in(module)
    if not found:
        raise AgentReferenceError(f'{reference}: no agents in it; make one with agent = Agent("my-agent", …)')
    return list(found.values())


def configured(agent: R, entry: AgentEntry) -> R:
    """A copy of `agent` under the id of `entry`, whose card says what the table says in place of what the code says."""
    served = copy.copy(agent)
    served.profile = said(agent.profile, entry)
    return served


def said(profile: Profile, entry: AgentEntry, *, anew: bool = False) -> Profile:
    """The profile with what the table says in place of what it says itself; `anew`: the table may add skills."""
    said: dict[str, Any] = {
        name: value
        for name in ("name", "description", "version", "icon_url", "documentation_url", "input_modes", "output_modes")
        if (value := getattr(entry, name)) is not None
    }
    if entry.provider is not None:
        said["provider"] = AgentProvider(url=entry.provider.url, organization=entry.provider.organization)
    skills = {skill.id: skill for skill in (*profile.skills, *profile.extended_skills)}
    extended = {skill.id for skill in profile.extended_skills}
    for skill in entry.skills:
        if anew and skill.id not in skills:
            skills[skill.id] = AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=())
        if skill.id not in skills:
            raise AgentReferenceError(
                f"agent {entry.id!r}: skill {skill.id!r} is not in the code; there are {', '.join(skills) or 'none'}"
            )
        skills[skill.id] = _skill(skills[skill.id], skill)
        if skill.extended is not None:
            (extended.add if skill.extended else extended.discard)(skill.id)
    said["skills"] = tuple(skill for skill in skills.values() if skill.id not in extended)
    said["extended_skills"] = tuple(skill for skill in skills.values() if skill.id in extended)
    return replace(profile, id=entry.id, **said)


def _declared(entry: AgentEntry) -> Runner:
    """The agent of a table of the file."""
    if entry.run == WORKER:
        return worker_agent(entry)
    if entry.upstream is not None:
        return upstream_agent(entry, entry.upstream, os.environ)
    return configured(_one(entry.run.removeprefix("python:")), entry)


def worker_agent(entry: AgentEntry) -> WorkerAgent:
    """An agent that worker processes serve: its card says what the table says, since its code is not here."""
    profile = Profile(
        id=entry.id,
        name=entry.name or entry.id,
        description=entry.description or entry.name or entry.id,
        version=entry.version or "1.0.0",
        skills=tuple(
            _skill(AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=()), skill)
            for skill in entry.skills
        ),
    )
    bare = WorkerAgent(
        profile, queues=entry.offline == "queue", lease_s=LEASE_S if entry.lease_s is None else entry.lease_s
    )
    return configured(bare, entry)


def upstream_agent(entry: AgentEntry, upstream: Upstream, environ: Mapping[str, str]) -> UpstreamAgent:
    """An agent of another server: its card is that of the other, but for what the table says.

    Raises AgentReferenceError if the environment has no credentials.
    """
    shown = upstream.credentials
    return UpstreamAgent(
        Profile(
            id=entry.id,
            name=entry.name or entry.id,
            description=entry.description or entry.name or entry.id,
            version=entry.version or "1.0.0",
            skills=(),
        ),
        Address(
            url=upstream.url,
            card=upstream.card,
            dialect=upstream.dialect,
            binding=upstream.binding,
            origins=upstream.origins,
            dedupes=upstream.dedupes,
            card_s=upstream.card_s,
            timeouts=Timeouts(answer_s=upstream.answer_s, idle_s=upstream.idle_s, mend_s=upstream.wait_s),
        ),
        said=lambda profile: said(profile, entry, anew=True),
        made=_credentials(entry, shown, environ),
        forwards=shown is not None and shown.forward,
        queues=entry.offline == "queue",
        failures=upstream.failures,
        pause_s=upstream.pause_s,
    )


def _credentials(entry: AgentEntry, shown: UpstreamCredentials | None, environ: Mapping[str, str]) -> Made:
    """What makes the credentials of an upstream, once there is a way out."""
    if shown is None or shown.forward:
        return lambda egress: None
    secret = environ.get(shown.env, "").strip()
    if not secret:
        raise AgentReferenceError(f"agent {entry.id!r}: credentials: the environment has no {shown.env}: set it")
    if shown.token_url is not None and shown.client_id is not None:
        token_url, client_id = shown.token_url, shown.client_id
        return lambda egress: ClientCredentials(
            token_url,
            client_id,
            secret,
            egress=egress,
            scope=shown.scope,
            audience=shown.audience,
            method=shown.method,
        )
    return lambda egress: BearerToken(secret) if shown.header is None else ApiKey(secret, shown.header)


def _skill(skill: AgentSkill, entry: Any) -> AgentSkill:
    said = {
        name: value
        for name in AgentSkill.__struct_fields__
        if name in entry.__struct_fields__ and (value := getattr(entry, name)) is not None
    }
    return replace(skill, **said)


def _one(reference: str) -> Runner:
    return referenced(reference)[0]


def _split(reference: str) -> tuple[str, str]:
    place, colon, name = reference.rpartition(":")
    if not colon:
        return reference, ""
    if not place or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise AgentReferenceError(f"{reference}: must be MODULE:OBJECT or file.py:OBJECT")
    return place, name


def _module(reference: str, place: str) -> ModuleType:
    if place.endswith(".py") or "/" in place:
        return _file(reference, Path(place))
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", place):
        raise AgentReferenceError(f"{reference}: {place!r} is no module; write MODULE:OBJECT or file.py:OBJECT")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            hint = (
                f"; did you mean {place.replace('.', '/')}.py?"
                if Path(place.replace(".", "/") + ".py").exists()
                else ""
            )
            raise AgentReferenceError(
                f"{reference}: no module {error.name!r} in {Path.cwd()} or among the installed packages{hint}"
            ) from error
        raise _broken(reference, error) from error
    except Exception as error:
        raise _broken(reference, error) from error


def _file(reference: str, path: Path) -> ModuleType:
    """The module in the file `path`, loaded once; like a script, it finds its neighbours."""
    if not path.is_file():
        raise AgentReferenceError(f"{reference}: no file {path} in {Path.cwd()}")
    name = "dragoman_file_" + re.sub(r"\W", "_", str(path.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise AgentReferenceError(f"{reference}: {path} is no Python file")
    if (neighbours := str(path.resolve().parent)) not in sys.path:
        sys.path.append(neighbours)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(reference, error) from error
    return module


def _broken(reference: str, error: Exception) -> AgentReferenceError:
    """The user's module raised: say what and where, as its author needs it."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith("<frozen ") and frame.f_globals.get("__name__") != "importlib":
            place = f" ({frame.f_code.co_filename}:{line})"
    if isinstance(error, SyntaxError):
        place = ""  # its text says where
    return AgentReferenceError(f"{reference}: importing it failed with {type(error).__name__}: {error}{place}")


def _named(reference: str, module: ModuleType, name: str) -> Runner:
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            raise AgentReferenceError(f"{reference}: {step!r} is not in it; {_choices(step, _agents_in(module))}")
        found = getattr(found, step)
    if not _is_agent(found):
        raise AgentReferenceError(
            f"{reference}: is of type {type(found).__name__}, not an Agent; {_choices(name, _agents_in(module))}"
        )
    agent: Runner = found
    return agent


def _choices(name: str, agents: Iterable[str]) -> str:
    names = list(agents)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"its agents are {', '.join(names)}" if names else "it has no agents"


def _agents_in(module: ModuleType) -> dict[str, Runner]:
    """The agents of a module by name, in the order of their definition, each once."""
    found: dict[str, Runner] = {}
    for name, value in vars(module).items():
        if _is_agent(value) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _is_agent(value: object) -> bool:
    return (
        not isinstance(value, type)
        and isinstance(getattr(value, "profile", None), Profile)
        and callable(getattr(value, "run", None))
    )
