"""The definition of an agent that an operator gives by the API: the keys of a table of the file, with less freedom.

Invariant: a definition names no code, no file, no variable of the process and no socket of the machine. Each URL in it
is in its plainest spelling, so that the URL that is checked is the one that is dialled. Its secrets are apart from it.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.config.agents import AgentEntry, agent_entry, agent_id_fault
from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.headers import check_header
from dragoman.config.models import MCP, OPENAI
from dragoman.config.pools import describe_run
from dragoman.config.programs import COMMAND
from dragoman.config.upstreams import A2A, UpstreamCredentials
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target, endpoint_target

COMMON_KEYS = (
    *("run", "name", "description", "version", "icon_url", "documentation_url", "provider", "input_modes"),
    *("output_modes", "versions", "skills", "push", "deadline_s", "headers", "credentials", "failures", "pause_s"),
    *("connect_timeout_s", "answer_s", "idle_s", "retry_wait_s", "pool", "strategy"),
)

UPSTREAM_KEYS = (
    *("offline", "direct", "direct_wait_s", "card", "card_keys", "dialect", "binding", "grpc_tls", "origins"),
    *("dedupes", "double_base64", "card_s", "wait_s", "affinity", "shared_dedupe", "probe_s"),
)

MODEL_KEYS = (
    *("model", "system", "temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty"),
    *("presence_penalty", "reasoning_effort", "extra", "schema", "schema_strict", "usage", "takes"),
    *("history_messages", "history_tokens", "coalesce_ms", "retries", "on_refusal", "on_length", "tools"),
    *("tool_rounds", "step_uncertain", "move_models"),
)

TOOL_KEYS = (
    *("run", "name", "credentials", "allow", "approve", "at_most_once", "start_s", "call_s", "task_s", "elicitation"),
)

MEMBER_KEYS = (
    *("url", "name", "weight", "order", "credentials", "model", "card", "card_keys", "dialect", "binding"),
    *("grpc_tls", "origins", "dedupes", "double_base64"),
)
"""The keys that a definition may have. A key that the file gets later is refused here until somebody lists it."""

FILE_KEYS = (
    *("api_key", "env", "system_file", "schema_file", "lease_s", "lifespan_timeout_s", "memory", "checkpointer"),
    *("session", "steps_version", "cwd", "command", "price", "reserve"),
)
"""Keys that people know from the file."""

CREDENTIAL_KEYS = (
    *("header", "value", "token_url", "client_id", "scope", "audience", "resource", "method", "forward", "exchange"),
)

LISTS: Mapping[str, tuple[str, ...]] = {"tools": TOOL_KEYS, "pool": MEMBER_KEYS}
"""The keys with tables that may have credentials of their own, and the keys of these."""

RUN = (
    f"must be {A2A} and the URL of another server's agent, or {OPENAI} and the URL of a model's API: code, programs "
    "and workers come from the file alone"
)

TOOL_RUN = f"must be {MCP} and the http:// or https:// URL of a server: programs come from the file alone"

CREDENTIALS = (
    'must be one of {"header": "x-api-key", "value": "…"}, {"value": "…"} for a bearer token, '
    '{"token_url": "https://…", "client_id": "…", "value": "…"}, {"forward": true}, '
    '{"exchange": true, "token_url": "https://…", "client_id": "…", "value": "…", "audience": "…"}'
)

FILE_ALONE = "is set in the file alone: leave it out"

SECRET = re.compile(r"[!-~]([ -~]{0,16382}[!-~])?", re.ASCII)
"""The form of a secret that every header can hold."""

BYTES_MAX = 65_536
"""The largest definition, as JSON without spaces."""

_SOURCE = "agent"
_PATH = "agents[0]"


class AgentDefinition(Struct, frozen=True):
    """A definition that can be served: `entry` is what a table of the file would be read to.

    `secrets` has the places of its secrets, such as `credentials` or `tools[0].credentials`, with the origins that the
    secret is sent to; the origin of a `token_url` says so, because another secret goes there than to the agent.
    `targets` are the URLs that are dialled, by their places. `passed` has the places of those that are shown what
    callers send beside their messages, such as their credentials, with the key that says so.
    """

    entry: AgentEntry
    secrets: Mapping[str, tuple[str, ...]]
    targets: Mapping[str, Target]
    passed: Mapping[str, str]

    def find_unnamed(self, named: Callable[[str], bool]) -> tuple[str, str] | None:
        """The first place of `passed` whose host is not `named`, with the key; None if there is none."""
        return next(((place, key) for place, key in self.passed.items() if not named(self.targets[place].host)), None)


def secret_variable(place: str) -> str:
    """The name by which an entry refers to the secret of a place. It names no variable of the process."""
    return re.sub(r"[^A-Za-z0-9]", "_", place)


def part_secrets(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Part a table as an operator gave it into itself without secrets, and the secrets by their places.

    Raises ConfigError for a secret that no header can hold.
    """
    found, secrets = _copy(table), dict[str, str]()
    for place, holder in _holders(found):
        credentials = holder["credentials"]
        if isinstance(credentials, dict) and "value" in credentials:
            value = credentials.pop("value")
            if not isinstance(value, str) or not SECRET.fullmatch(value):
                raise _fault(f"{place}.value", "must be plain text of 1 to 16384 characters, without line breaks")
            secrets[place] = value
    return found, secrets


def credentials_of(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The tables of credentials in a table."""
    return (holder["credentials"] for _, holder in _holders(table) if isinstance(holder["credentials"], Mapping))


def _secret_places(table: Mapping[str, Any]) -> tuple[str, ...]:
    """The places of a table that need a secret: all credentials but those that callers' own are passed on for."""
    return tuple(
        place
        for place, holder in _holders(table)
        if isinstance(holder["credentials"], Mapping) and not holder["credentials"].get("forward")
    )


def read_definition(agent_id: str, table: Mapping[str, Any]) -> AgentDefinition:
    """Read a table without its secrets. Raises ConfigError, whose key is the place of the field."""
    if fault := agent_id_fault(agent_id):
        raise _fault("id", fault)
    _check_shape(table)
    places, named = _secret_places(table), _copy(table)
    for place, holder in _holders(named):
        if place in places:
            holder["credentials"]["env"] = secret_variable(place)
    try:
        entry = agent_entry(_SOURCE, 0, {"id": agent_id, **named}, {})
    except ConfigError as error:
        key = _place_of(error)
        raise _fault(key, CREDENTIALS if key.endswith("credentials") else error.allowed) from None
    targets, sent, passed = dict[str, Target](), dict[str, set[str]](), dict[str, str]()
    for dial in _dials(entry, table):
        to = targets[dial.place] = _parse_url(dial)
        sent.setdefault(dial.variable, set()).add(f"{to.origin} (token_url)" if dial.issues else to.origin)
        if dial.passed:
            passed[dial.place] = dial.passed
    secrets = {place: tuple(sorted(sent.get(secret_variable(place), ()))) for place in places}
    return AgentDefinition(entry, secrets, targets, passed)


def _check_shape(table: Mapping[str, Any]) -> None:
    """Raises ConfigError for keys, and for values of `run`, that only the file may have."""
    if len(msgspec.json.encode(table)) > BYTES_MAX:
        raise _fault("", f"must be at most {BYTES_MAX} bytes of JSON")
    try:
        run = describe_run(_SOURCE, _PATH, table) or ""
    except ConfigError as error:
        raise _fault(_place_of(error), error.allowed) from None
    if not run.startswith((A2A, OPENAI)):
        raise _fault("run", RUN)
    own = (*COMMON_KEYS, *(UPSTREAM_KEYS if run.startswith(A2A) else MODEL_KEYS))
    _check_keys("", table, (*COMMON_KEYS, *UPSTREAM_KEYS, *MODEL_KEYS), own)
    for name, keys in LISTS.items():
        rows = table.get(name)
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, Mapping):
                _check_keys(f"{name}[{index}].", row, keys, keys)
                where = row.get("run")
                if name == "tools" and isinstance(where, str) and where.removeprefix(MCP).strip().startswith(COMMAND):
                    raise _fault(f"tools[{index}].run", TOOL_RUN)
    for place, holder in _holders(table):
        credentials = holder["credentials"]
        if not isinstance(credentials, Mapping):
            raise _fault(place, CREDENTIALS)
        _check_keys(f"{place}.", credentials, CREDENTIAL_KEYS, CREDENTIAL_KEYS)
        header = credentials.get("header")
        if isinstance(header, str):
            try:
                check_header(header.lower(), forwards=True, to_server=True)
            except ValueError as error:
                raise _fault(f"{place}.header", str(error)) from None


def _check_keys(path: str, table: Mapping[str, Any], known: Collection[str], offered: Collection[str]) -> None:
    for key in table:
        if key in FILE_KEYS:
            raise _fault(f"{path}{key}", FILE_ALONE)
    try:
        check_keys(_SOURCE, table, known, path, offered)
    except ConfigError as error:
        raise _fault(error.key, error.allowed) from None


def _holders(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables that have credentials, each with the place of these."""
    if "credentials" in table:
        yield "credentials", table  # type: ignore[misc]  # JSON gives dicts
    for name in LISTS:
        rows = table.get(name)
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, dict) and "credentials" in row:
                yield f"{name}[{index}].credentials", row


class _Dial(Struct, frozen=True):
    """A URL that an agent dials, its place, and the variable of the secret that is sent there; empty for none.

    `passed` is the key by which callers' own credentials or headers are sent there, too; empty for none. `issues`: it
    is that of a `token_url`.
    """

    place: str
    url: str
    variable: str = ""
    passed: str = ""
    issues: bool = False


def _dials(entry: AgentEntry, table: Mapping[str, Any]) -> Iterator[_Dial]:
    """The URLs that an agent dials. Raises ConfigError for keys of cards that are in a file."""
    assert entry.pool is not None  # `_check_shape` has refused agents that have no members
    for at, member in enumerate(entry.pool.members):
        before = f"pool[{at}]." if "pool" in table else ""
        own = table["pool"][at] if before else table
        run = f"{before}url" if before else f"run[{at}]" if isinstance(table.get("run"), list) else "run"
        shown = member.credentials
        variable, passed = "" if shown is None else shown.env, _passed_by(shown)
        told = passed or ("headers" if entry.headers else "")
        yield _Dial(run, member.url, variable, told)
        if shown is not None and shown.token_url is not None:
            holder = before if "credentials" in own else ""
            yield _Dial(f"{holder}credentials.token_url", shown.token_url, variable, passed, issues=True)
        if (upstream := member.upstream) is None:
            continue
        if upstream.card is not None and "://" in upstream.card:
            yield _Dial(f"{before if 'card' in own else ''}card", upstream.card, variable, told)
        for index, origin in enumerate(upstream.origins):
            yield _Dial(f"{before if 'origins' in own else ''}origins[{index}]", origin, variable, told)
        for index, place in enumerate(upstream.key_places):
            at_keys = f"{before if 'card_keys' in own else ''}card_keys"
            if "://" not in place:
                raise _fault(at_keys, "must be the http:// or https:// URL of a JWK Set, or a list of such")
            yield _Dial(f"{at_keys}[{index}]", place)
    for index, tool in enumerate(entry.model.tools if entry.model is not None else ()):
        shown = tool.credentials
        variable, passed = "" if shown is None else shown.env, _passed_by(shown)
        yield _Dial(f"tools[{index}].run", tool.url, variable, passed)
        if shown is not None and shown.token_url is not None:
            place = f"tools[{index}].credentials.token_url"
            yield _Dial(place, shown.token_url, variable, passed, issues=True)


def _passed_by(shown: UpstreamCredentials | None) -> str:
    """The key of credentials by which callers' own are sent, or exchanged; empty if they are not."""
    if shown is None:
        return ""
    return "forward" if shown.forward else "" if shown.exchanged is None else "exchange"


def _parse_url(dial: _Dial) -> Target:
    """Parse a URL by the grammar for strangers'. Raises ConfigError."""
    try:
        return endpoint_target(dial.url)
    except BadUrl as error:
        reason = str(error).removeprefix(f"{error.url}: ")
        raise _fault(dial.place, f"must be a URL that is spelled plainly ({reason})") from None


def _place_of(error: ConfigError) -> str:
    """The place of a fault within the definition. It is empty if the definition as a whole is at fault."""
    return error.key.removeprefix(_PATH).removeprefix(".")


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of a value of JSON."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(table))
    return found


def _fault(place: str, allowed: str) -> ConfigError:
    return ConfigError(_SOURCE, place, None, allowed, shows_value=False)
