"""The `[[agents]]` tables of the file: the agents to serve, and where their cards differ from the code.

Invariant: every id can be a path segment, and no two entries have the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from dragoman.config.budgets import Reserve, read_reserve
from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.headers import FORWARD, ForwardedCredentials, check_forwarding, check_headers
from dragoman.config.models import MODEL_KEYS, OPENAI, Model
from dragoman.config.pools import AgentPool, describe_run, pool_keys, read_pool
from dragoman.config.programs import COMMAND, PROGRAM_KEYS, Program, program_entry
from dragoman.config.upstreams import A2A, KEYS, Upstream

RESERVED_AGENT_IDS = frozenset(
    {
        ".well-known",
        "a2a",
        "admin",
        "agents",
        "api",
        "console",
        "docs",
        "extendedAgentCard",
        "files",
        "health",
        "healthz",
        "mcp",
    }
    | {"memory", "message:send", "message:stream", "metrics", "openapi.json", "ready", "static", "stream", "tasks"}
    | {"tools", "v1", "workers"}
)
"""First path segments that mean something else, so that no agent can be mounted there."""

AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
NAME_FORM = "1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit"
"""The form of an agent's id, and of a version of its code, in words."""
RUN = re.compile(r"(?:python:)?(?P<module>[^\s:]+):(?P<object>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)
WORKER = "worker"
"""The value of `run` for an agent whose tasks are done by worker processes."""
LEASE_S_MIN, LEASE_S_MAX = 0.5, 86_400.0
DIRECT_WAIT_S_MIN, DIRECT_WAIT_S_MAX = 0.01, 60.0
DEADLINE_S_MIN, DEADLINE_S_MAX = 0.1, 2_592_000.0
LIFESPAN_TIMEOUT_S_MIN, LIFESPAN_TIMEOUT_S_MAX = 0.1, 3600.0
OTHER_RUN = re.compile(r"(openai|a2a|worker|command)\b", re.ASCII)


class KindOfRun(msgspec.Struct, frozen=True):
    """A kind of agent with keys of its own: the prefix and an example of its `run`, the keys and their reader.

    `field` is the field of AgentEntry for the result. Without a reader its members are read by `config.pools`.
    """

    prefix: str
    example: str
    field: str
    keys: tuple[str, ...]
    read: Callable[[str, str, dict[str, Any]], Any] | None = None


KINDS = (
    KindOfRun(A2A, "a2a:https://…", "upstream", (*KEYS, *pool_keys(A2A))),
    KindOfRun(OPENAI, "openai:https://…", "model", (*MODEL_KEYS, *pool_keys(OPENAI))),
    KindOfRun(COMMAND, "command:…", "program", PROGRAM_KEYS, program_entry),
)


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`[agents.provider]`: the organization that runs the agent."""

    organization: str
    url: str


class SkillEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`[[agents.skills]]`: where the card's description of the skill `id` differs from the code.

    An `extended` skill is on the extended card only.
    """

    id: str
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    examples: tuple[str, ...] | None = None
    input_modes: tuple[str, ...] | None = None
    output_modes: tuple[str, ...] | None = None
    extended: bool | None = None


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`[[agents]]`: an agent to serve. A field that is None stays as the code has it.

    With `push` False no webhooks are called for its tasks, and registering one is refused. `offline` is for workers and
    for agents of other servers: whether tasks are accepted while none is there (`queue`) or refused (`error`).
    `lease_s` is for workers: how long one may be silent before its task goes to another. With `direct` "auto" a run
    answers with a Message, unless it needs a task or takes longer than `direct_wait_s`. `deadline_s` is how long
    its runs may work at a stretch. `lifespan_timeout_s` is for Python agents: how long it may take to open what they
    need, and to close it; `memory` "shared" lets all callers of one share what outlives a conversation, and with
    `checkpointer` "none" a graph of LangGraph keeps no checkpoints, with `session` "none" an agent of the OpenAI Agents
    SDK or Google ADK no sessions. `steps_version` names the code that tasks begin with, and go on with. `headers` are
    those of its callers' requests that it is given, in lower case, and `credentials` say whether it is given the
    callers' own, unless the agent is another server's. `reserve` is what its tasks reserve of budgets. `upstream`,
    `model` and `program` hold the keys of an agent of that kind.
    """

    id: str
    run: str
    name: str | None = None
    description: str | None = None
    version: str | None = None
    icon_url: str | None = None
    documentation_url: str | None = None
    provider: ProviderEntry | None = None
    input_modes: tuple[str, ...] | None = None
    output_modes: tuple[str, ...] | None = None
    versions: Annotated[tuple[Literal["1.0", "0.3"], ...], msgspec.Meta(min_length=1)] | None = None
    skills: tuple[SkillEntry, ...] = ()
    api_key: str | None = None
    push: bool | None = None
    offline: Literal["queue", "error"] | None = None
    lease_s: Annotated[float, msgspec.Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)] | None = None
    upstream: Upstream | None = None
    model: Model | None = None
    program: Program | None = None
    pool: AgentPool | None = None
    direct: Literal["auto"] | None = None
    direct_wait_s: Annotated[float, msgspec.Meta(ge=DIRECT_WAIT_S_MIN, le=DIRECT_WAIT_S_MAX)] | None = None
    deadline_s: Annotated[float, msgspec.Meta(ge=DEADLINE_S_MIN, le=DEADLINE_S_MAX)] | None = None
    lifespan_timeout_s: Annotated[float, msgspec.Meta(ge=LIFESPAN_TIMEOUT_S_MIN, le=LIFESPAN_TIMEOUT_S_MAX)] | None = (
        None
    )
    memory: Literal["caller", "shared"] | None = None
    checkpointer: Literal["none"] | None = None
    session: Literal["none"] | None = None
    steps_version: Annotated[str, msgspec.Meta(pattern=rf"^{AGENT_ID.pattern}\Z")] | None = None
    headers: tuple[str, ...] | None = None
    credentials: ForwardedCredentials | None = None
    reserve: Reserve | None = None


OF_PYTHON = "lifespan_timeout_s", "memory", "checkpointer", "session", "steps_version"
"""The keys of agents that are Python objects."""

_TABLE = tuple(name for name in AgentEntry.__struct_fields__ if name not in {*(kind.field for kind in KINDS), "pool"})


_ALLOWED = {
    "provider": "must be a table with organization and url",
    "skills": "must be tables with an id each: write [[agents.skills]]",
    **dict.fromkeys(("input_modes", "output_modes", "tags", "examples"), "must be a list of texts"),
    "headers": 'must be a list of names, such as ["x-tenant"]',
    "credentials": FORWARD,
    "versions": 'must be a list of "1.0", "0.3", or both',
    "offline": "must be error or queue",
    "direct": "must be auto, or be left out",
    "direct_wait_s": f"must be a number of seconds from {DIRECT_WAIT_S_MIN:g} to {DIRECT_WAIT_S_MAX:g}",
    "deadline_s": f"must be a number of seconds from {DEADLINE_S_MIN:g} to {DEADLINE_S_MAX:.0f}",
    "lifespan_timeout_s": f"must be a number of seconds from {LIFESPAN_TIMEOUT_S_MIN:g} to {LIFESPAN_TIMEOUT_S_MAX:g}",
    "memory": "must be caller or shared",
    **dict.fromkeys(("checkpointer", "session"), "must be none, or be left out"),
    "steps_version": f"must be {NAME_FORM}",
    **dict.fromkeys(("extended", "push"), "must be true or false"),
    "lease_s": f"must be a number of seconds from {LEASE_S_MIN:g} to {LEASE_S_MAX:g}",
}
"""The allowed values of the keys of a table that are not texts."""


def steps_version_fault(version: str) -> str | None:
    """Why a version of an agent's code cannot be named so, with the form of those that can; None if it can."""
    return None if AGENT_ID.fullmatch(version) else f"must be {NAME_FORM}"


def agent_id_fault(agent_id: str) -> str | None:
    """Why an agent's id cannot be mounted, with the ids that are allowed; None if it can."""
    if agent_id in RESERVED_AGENT_IDS:
        return f"is a path of the server itself; taken are {', '.join(sorted(RESERVED_AGENT_IDS))}"
    if not AGENT_ID.fullmatch(agent_id):
        return f"must be {NAME_FORM}"
    return None


def agent_entries(source: str, tables: Any) -> tuple[AgentEntry, ...]:
    """Read the entries of all tables. Raises ConfigError."""
    found: dict[str, int] = {}
    entries: list[AgentEntry] = []
    for index, table in enumerate(agent_tables(source, tables)):
        entries.append(agent_entry(source, index, table, found))
        found[entries[-1].id] = index
    return tuple(entries)


def agent_tables(source: str, tables: Any) -> list[dict[str, Any]]:
    """Check that `agents` holds tables. Raises ConfigError."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(source, "agents", tables, "must be tables: write [[agents]]")
    return tables


def agent_entry(source: str, index: int, table: dict[str, Any], others: Mapping[str, int]) -> AgentEntry:
    """Read the entry of the table at `index`. Raises ConfigError, also for an id that is among `others`.

    `others` are the ids of earlier tables, with their indexes.
    """
    path = f"agents[{index}]"
    entry = _agent(source, path, table)
    if fault := agent_id_fault(entry.id):
        raise ConfigError(source, f"{path}.id", entry.id, fault)
    if entry.id in others:
        raise ConfigError(source, f"{path}.id", entry.id, f"is the id of agents[{others[entry.id]}]: ids must differ")
    if entry.api_key is not None and not entry.api_key.strip():  # else the agent would be open to all
        raise ConfigError(source, f"{path}.api_key", entry.api_key, "must be text that is not empty")
    _check_run(source, path, entry, table)
    return entry


def _check_run(source: str, path: str, entry: AgentEntry, table: dict[str, Any]) -> None:
    """Raises ConfigError for an invalid `run`, and for keys of another kind of agent."""
    own = _kind(entry.run)
    for name in table:
        kinds = [kind for kind in KINDS if name in kind.keys]
        if kinds and own not in kinds and name not in _TABLE:
            allowed = f"is for agents with run = {_either(kind.example for kind in kinds)} only"
            raise ConfigError(source, f"{path}.{name}", None, allowed, shows_value=False)
    if entry.lease_s is not None and entry.run != WORKER:
        raise ConfigError(
            source, f"{path}.lease_s", entry.lease_s, f"is for agents with run = {_either([WORKER])} only"
        )
    if entry.offline is not None and entry.run != WORKER and entry.upstream is None:
        allowed = f"is for agents with run = {_either([WORKER, KINDS[0].example])} only"
        raise ConfigError(source, f"{path}.offline", entry.offline, allowed)
    for name in OF_PYTHON:
        if (value := getattr(entry, name)) is not None and (entry.run == WORKER or own is not None):
            raise ConfigError(source, f"{path}.{name}", value, "is for agents of Python only: leave it out")
    _check_direct(source, path, entry)
    if entry.run.startswith(("http://", "https://")):
        raise ConfigError(
            source, f"{path}.run", entry.run, "must begin with a2a: (another A2A server) or openai: (a model's API)"
        )
    if entry.run != WORKER and own is None and (OTHER_RUN.match(entry.run) or not RUN.fullmatch(entry.run)):
        raise ConfigError(
            source,
            f"{path}.run",
            entry.run,
            "must be a Python agent: module:object or path/to/file.py:object; or worker, for one in other processes; "
            "or a2a: and the URL of another server's agent; or openai: and the URL of a model's API; or command: and "
            "a program",
        )


def _check_direct(source: str, path: str, entry: AgentEntry) -> None:
    """Raises ConfigError for an agent that cannot answer with a Message, and for `direct_wait_s` without `direct`."""
    if entry.direct is not None and (entry.run == WORKER or entry.model is not None):
        reason = "its tasks are leased" if entry.run == WORKER else "it keeps its conversations as tasks"
        raise ConfigError(
            source, f"{path}.direct", entry.direct, f"is not for {entry.run}, since {reason}: leave it out"
        )
    if entry.direct_wait_s is not None and entry.direct is None:
        allowed = 'is for agents with direct = "auto" only: set that, too, or leave it out'
        raise ConfigError(source, f"{path}.direct_wait_s", entry.direct_wait_s, allowed)


def _keys_of(run: object) -> list[str]:
    """The keys that a table with this `run` may have."""
    kind = _kind(run) if isinstance(run, str) else None
    keys = [*_TABLE, *(kind.keys if kind is not None else ())]
    if run != WORKER:
        keys.remove("lease_s")
        if kind is None or kind.prefix != A2A:
            keys.remove("offline")
    if run == WORKER or kind is not None:
        keys = [key for key in keys if key not in OF_PYTHON]
    return keys


def _kind(run: str) -> KindOfRun | None:
    return next((kind for kind in KINDS if run.startswith(kind.prefix)), None)


def _either(examples: Iterable[str]) -> str:
    return " or ".join(f'"{example}"' for example in examples)


def _agent(source: str, path: str, table: dict[str, Any]) -> AgentEntry:
    known = (*_TABLE, *(key for kind in KINDS for key in kind.keys))
    run = describe_run(source, path, table)
    check_keys(source, table, known, f"{path}.", _keys_of(run))
    if isinstance(provider := table.get("provider"), dict):
        check_keys(source, provider, ProviderEntry.__struct_fields__, f"{path}.provider.")
    skills = table.get("skills")
    for index, skill in enumerate(skills if isinstance(skills, list) else ()):
        if isinstance(skill, dict):
            check_keys(source, skill, SkillEntry.__struct_fields__, f"{path}.skills[{index}].")
    kind = None if run is None else _kind(run)
    if "credentials" in table and (kind is None or "credentials" not in kind.keys):
        check_forwarding(source, f"{path}.credentials", table["credentials"])
    own = {name: value for name, value in table.items() if name in _TABLE and (kind is None or name not in kind.keys)}
    if run is not None:
        own["run"] = run
    reserve = read_reserve(source, f"{path}.reserve", own.pop("reserve")) if "reserve" in own else None
    try:
        entry = replace(msgspec.convert(own, AgentEntry), reserve=reserve)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        place = place.rstrip("`")
        raise ConfigError(source, path + place, _value_at(table, place), _allowed(place, reason)) from error
    if kind is not None and kind.read is not None:
        entry = replace(entry, **{kind.field: kind.read(source, path, table)})
    elif kind is not None and (pool := read_pool(source, path, table)) is not None:
        entry = replace(entry, pool=pool, upstream=pool.members[0].upstream, model=pool.members[0].model)
    return entry if entry.headers is None else replace(entry, headers=_headers(source, path, entry, entry.headers))


def _headers(source: str, path: str, entry: AgentEntry, names: tuple[str, ...]) -> tuple[str, ...]:
    """The headers that the agent is given. Raises ConfigError."""
    if entry.pool is None:
        forwards, taken = entry.credentials is not None and entry.credentials.forward, frozenset[str]()
    else:
        forwards = any(member.upstream is not None and member.upstream.forwards for member in entry.pool.members)
        shown = [member.credentials for member in entry.pool.members]
        taken = frozenset((each.header or "authorization").lower() for each in shown if each is not None and each.env)
    to_server = entry.pool is not None
    return check_headers(source, f"{path}.headers", names, forwards=forwards, to_server=to_server, taken=taken)


def _allowed(place: str, reason: str) -> str:
    """The allowed values at `place` of a table, whose value msgspec refused for `reason`."""
    if "missing required field" in reason:
        return f"must have the key {reason.split('`')[1]}"
    key, index, _ = place.rpartition(".")[2].partition("[")
    return "must be text" if index and key not in ("skills", "versions") else _ALLOWED.get(key, "must be text")


def _value_at(table: Any, place: str) -> object:
    """The value of `table` at a path such as `.skills[0].tags`, or the innermost one with a definite place."""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place):
        if index == "...":
            break
        table = table[name] if name else table[int(index)]
    return table
