"""`run = "openai:https://…"`: a model behind a card, by any endpoint of chat completions, and its MCP servers.

Invariant: the file holds no secret: a table names the environment variable that holds it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from dragoman.config.errors import ConfigError, check_keys, check_url, convert_table
from dragoman.config.programs import COMMAND, command_words
from dragoman.config.upstreams import (
    VARIABLE,
    Seconds,
    UpstreamCredentials,
    check_credential_keys,
    check_credentials,
)

OPENAI = "openai:"
"""The prefix of `run` for a model; the base URL of its endpoint follows."""

MODEL_CREDENTIALS = (
    'must be one of { env = "NAME" } for a bearer token, { header = "api-key", env = "NAME" }, '
    '{ token_url = "https://…", client_id = "…", env = "NAME" }, '
    '{ exchange = true, token_url = "https://…", client_id = "…", env = "NAME", audience = "…" }'
)

OURS = ("messages", "model", "n", "response_format", "stream", "stream_options", "tools")
"""Keys that `extra` may not have, because the agent itself sets them."""

COALESCED_MAX = 4
"""An answer is silent for `coalesce_ms`, and for three times as long on a busy server; this bounds that silence."""

_SECONDS = "must be a number of seconds from 0.1 to 86400"

MCP = "mcp:"
"""The prefix of `run` for an MCP server; its URL follows, or `command:` and a program."""

TOOL_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}", re.ASCII)
"""The name of a server. It leaves room for the name of a tool in the 64 characters that a model's API allows."""

TOOL_CREDENTIALS = (
    'must be one of { env = "NAME" } for a bearer token, { header = "x-api-key", env = "NAME" }, '
    '{ token_url = "https://…", client_id = "…", env = "NAME" }, '
    '{ exchange = true, token_url = "https://…", client_id = "…", env = "NAME", audience = "…" }'
)

InputKind = Literal["image", "image_url", "audio", "file"]

TAKES: tuple[InputKind, ...] = ("image", "image_url", "audio", "file")


class McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server, by its `url`, or as a program with its words in `command`; one of the two is empty.

    `name` tells its tools apart from those of other servers. `allow` lists the tools that can be called, all if None.
    `approve` lists those about which the caller of a task is asked first: `always`, `never`, or their names.
    `at_most_once` lists those that are not called again after a crash: `always`, `never`, their names beside those of
    which the server says that a second call may do harm, or the latter alone (`hints`). `env`
    names the variables that the program gets beside the usual ones. `start_s` is the timeout for the server to start,
    `call_s` for a call, `task_s` for a task that the server makes of a call. With `elicitation` the server may ask the
    caller of a task.
    """

    run: str
    name: str = ""
    url: str = ""
    command: tuple[str, ...] = ()
    credentials: UpstreamCredentials | None = None
    env: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None
    approve: Literal["always", "never"] | tuple[str, ...] = "never"
    at_most_once: Literal["hints", "always", "never"] | tuple[str, ...] = "hints"
    start_s: Seconds = 30.0
    call_s: Seconds = 120.0
    task_s: Annotated[float, msgspec.Meta(ge=0.1, le=2_592_000)] = 3600.0
    elicitation: bool = True


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent that is a model. `url` is the URL in `run`; see docs/agents/openai.md for all others.

    The contents of `system_file` and `schema_file` have been read into `system` and `schema`.
    """

    url: str = ""
    model: str = ""
    credentials: UpstreamCredentials | None = None
    system: str | None = None
    system_file: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra: dict[str, Any] = {}
    schema: dict[str, Any] | None = None
    schema_file: str | None = None
    schema_strict: bool = True
    usage: bool = True
    takes: tuple[InputKind, ...] = TAKES
    history_messages: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 20
    history_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    coalesce_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 30.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    retry_wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0
    on_refusal: Literal["reject", "fail", "answer"] = "reject"
    on_length: Literal["complete", "fail"] = "complete"
    tools: tuple[McpEntry, ...] = ()
    tool_rounds: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    step_uncertain: Literal["fail", "ask"] = "fail"
    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    pause_s: Seconds = 10.0
    answer_s: Seconds = 120.0
    idle_s: Seconds = 60.0

    @property
    def exchanges(self) -> bool:
        """Whether it is called with tokens for which those of its callers are exchanged."""
        return self.credentials is not None and self.credentials.exchanged is not None


MODEL_KEYS = tuple(name for name in Model.__struct_fields__ if name != "url")

TOOL_KEYS = tuple(name for name in McpEntry.__struct_fields__ if name not in ("url", "command"))

_ALLOWED = {
    "credentials": MODEL_CREDENTIALS,
    "temperature": "must be a number from 0 to 10",
    "top_p": "must be a number from 0 to 1",
    "max_tokens": "must be a whole number of at least 1",
    "stop": "must be a list of texts",
    "seed": "must be a whole number",
    "frequency_penalty": "must be a number",
    "presence_penalty": "must be a number",
    "extra": "must be a table: its keys are sent as they are",
    "schema": "must be a table, the JSON Schema of the answer",
    "schema_strict": "must be true or false",
    "usage": "must be true or false",
    "takes": f"must be a list of some of {', '.join(TAKES)}",
    "history_messages": "must be a whole number from 0 to 1000",
    "history_tokens": "must be a whole number of at least 0",
    "coalesce_ms": "must be a number of milliseconds from 0 to 10000",
    "retries": "must be a whole number from 0 to 20",
    "retry_wait_s": "must be a number of seconds from 0 to 3600",
    "on_refusal": "must be reject, fail or answer",
    "on_length": "must be complete or fail",
    "tool_rounds": "must be a whole number from 1 to 1000",
    "step_uncertain": "must be fail or ask",
    "failures": "must be a whole number from 1 to 1000",
    **dict.fromkeys(("pause_s", "answer_s", "idle_s"), _SECONDS),
}
"""The allowed values of the keys that are not texts."""

_ALLOWED_IN_TOOLS = {
    "run": f"must be {MCP} and the http:// or https:// URL of a server, or {MCP}{COMMAND} and a program",
    "name": "must be 1 to 24 letters, digits, '_' or '-', and begin with a letter or digit",
    "credentials": TOOL_CREDENTIALS,
    "env": "must be a list of names of environment variables",
    "allow": "must be a list of names of tools",
    "approve": 'must be "always", "never" or a list of names of tools',
    "at_most_once": 'must be "hints", "always", "never" or a list of names of tools',
    **dict.fromkeys(("start_s", "call_s"), "must be a number of seconds from 0.1 to 86400"),
    "task_s": "must be a number of seconds from 0.1 to 2592000",
    "elicitation": "must be true or false",
}


def model_entry(source: str, path: str, table: Mapping[str, Any]) -> Model:
    """Read the keys of an agent's table about the model. Raises ConfigError."""
    url = str(table["run"]).removeprefix(OPENAI).strip()
    check_url(source, f"{path}.run", url, f"must be {OPENAI} and the http:// or https:// URL of an API", prefix=OPENAI)
    given = {name: table[name] for name in MODEL_KEYS if name in table and name != "tools"}
    check_credential_keys(source, f"{path}.credentials", given.get("credentials"))
    model = convert_table(source, path, {**given, "url": url}, Model, _ALLOWED)
    if not model.model.strip():
        raise ConfigError(source, f"{path}.model", None, "must name the model, as the API does", shows_value=False)
    if model.credentials is not None:
        _check_own_credentials(source, f"{path}.credentials", model.credentials, MODEL_CREDENTIALS)
    if model.coalesce_ms > model.idle_s * 1000 / COALESCED_MAX:
        allowed = f"must be at most a quarter of idle_s, which is {model.idle_s:g} s"
        raise ConfigError(source, f"{path}.coalesce_ms", model.coalesce_ms, allowed)
    for name in model.extra:
        if name in OURS:
            raise ConfigError(source, f"{path}.extra.{name}", None, "is said by the agent itself", shows_value=False)
    model = _with_files(source, path, model)
    if "tools" in table:
        model = replace(model, tools=tool_entries(source, f"{path}.tools", table["tools"]))
    return model


def tool_entries(source: str, path: str, tables: Any) -> tuple[McpEntry, ...]:
    """Read the servers whose tools a model may call. Raises ConfigError."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(source, path, None, 'must be tables like { run = "mcp:https://…" }', shows_value=False)
    servers: list[McpEntry] = []
    for index, table in enumerate(tables):
        at = f"{path}[{index}]"
        server = _server(source, at, table)
        if not server.name:
            server = replace(server, name=_derive_name(server, {other.name for other in servers}))
        if any(other.name == server.name for other in servers):
            raise ConfigError(source, f"{at}.name", server.name, "is the name of an earlier server: names must differ")
        servers.append(server)
    return tuple(servers)


def _check_own_credentials(source: str, path: str, given: UpstreamCredentials, allowed: str) -> None:
    """Raises ConfigError for credentials of no known kind, and for those of callers: they are for this server alone."""
    if given.forward:
        raise ConfigError(source, path, None, allowed, shows_value=False)
    check_credentials(source, path, given, allowed)


def _with_files(source: str, path: str, model: Model) -> Model:
    """Read the model's files. Their paths are relative to the working directory of the server."""
    for name, said in (("system", model.system), ("schema", model.schema)):
        if said is not None and getattr(model, f"{name}_file") is not None:
            raise ConfigError(source, f"{path}.{name}_file", None, f"is there beside {name}", shows_value=False)
    if model.system_file is not None:
        model = replace(model, system=_text(source, f"{path}.system_file", model.system_file))
    if model.schema_file is not None:
        text = _text(source, f"{path}.schema_file", model.schema_file)
        try:
            schema = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            allowed = f"must be a JSON Schema, an object: {error}"
            raise ConfigError(source, f"{path}.schema_file", model.schema_file, allowed) from error
        model = replace(model, schema=schema)
    return model


def _text(source: str, key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(source, key, name, f"must be a file of text: {reason}") from error


def _server(source: str, path: str, table: Mapping[str, Any]) -> McpEntry:
    check_keys(source, table, TOOL_KEYS, f"{path}.")
    check_credential_keys(source, f"{path}.credentials", table.get("credentials"))
    lists = {key: tuple(table[key]) for key in ("approve", "at_most_once") if isinstance(table.get(key), list)}
    given = {**table, **lists}
    server = convert_table(source, path, given, McpEntry, _ALLOWED_IN_TOOLS)
    if server.name and not TOOL_SERVER_NAME.fullmatch(server.name):
        raise ConfigError(source, f"{path}.name", server.name, _ALLOWED_IN_TOOLS["name"])
    if not all(VARIABLE.fullmatch(name) for name in server.env):
        raise ConfigError(source, f"{path}.env", None, _ALLOWED_IN_TOOLS["env"], shows_value=False)
    where = server.run.removeprefix(MCP).strip()
    if not server.run.startswith(MCP):
        raise ConfigError(source, f"{path}.run", server.run, _ALLOWED_IN_TOOLS["run"])
    if where.startswith(COMMAND):
        return _program(source, path, server, where.removeprefix(COMMAND))
    check_url(source, f"{path}.run", where, _ALLOWED_IN_TOOLS["run"])
    if server.env:
        raise ConfigError(source, f"{path}.env", None, f"is for {MCP}{COMMAND}… only", shows_value=False)
    if server.credentials is not None:
        _check_own_credentials(source, f"{path}.credentials", server.credentials, TOOL_CREDENTIALS)
    return replace(server, url=where)


def _program(source: str, path: str, server: McpEntry, command: str) -> McpEntry:
    words = command_words(source, path, server.run, command, _ALLOWED_IN_TOOLS["run"])
    if server.credentials is not None:
        raise ConfigError(
            source, f"{path}.credentials", None, "is for URLs: name the variable in `env`", shows_value=False
        )
    return replace(server, command=words)


def _derive_name(server: McpEntry, taken: set[str]) -> str:
    """Derive a name from the host, without its common parts, or the program; with a number if the name is taken."""
    if server.url:
        host = urlsplit(server.url).hostname or ""
        words = [word for word in host.split(".") if word not in ("www", "api", "mcp")]
        found = host if host.replace(".", "").isdigit() else (words or ["server"])[0]
    else:
        found = server.command[0].rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", found).strip("-_")[:20] or "server"
    return next(name for n in range(1, 1000) if (name := plain if n == 1 else f"{plain}{n}") not in taken)
