"""`tools = [{ run = "mcp:…" }]`: MCP servers whose tools a model may call.

Invariant: the file holds no secret: a table names the environment variable that holds it.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from dragoman.config.errors import ConfigError, check_keys, check_url
from dragoman.config.programs import COMMAND, command_words
from dragoman.config.upstreams import VARIABLE, Seconds, UpstreamCredentials, check_credentials

MCP = "mcp:"
"""The prefix of `run` for an MCP server; its URL follows, or `command:` and a program."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}", re.ASCII)
"""The name of a server. It leaves room for the name of a tool in the 64 characters that a model's API allows."""

ONE_OF = (
    'must be one of { env = "NAME" } for a bearer token, { header = "x-api-key", env = "NAME" }, '
    '{ token_url = "https://…", client_id = "…", env = "NAME" }'
)


class McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server, by its `url`, or as a program with its words in `command`; one of the two is empty.

    `name` tells its tools apart from those of other servers. `allow` lists the tools that can be called, all if None.
    `approve` lists those about which the caller of a task is asked first: `always`, `never`, or their names. `env`
    names the variables that the program gets beside the usual ones. `start_s` is the timeout for the server to start,
    `call_s` for a call.
    """

    run: str
    name: str = ""
    url: str = ""
    command: tuple[str, ...] = ()
    credentials: UpstreamCredentials | None = None
    env: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None
    approve: Literal["always", "never"] | tuple[str, ...] = "never"
    start_s: Seconds = 30.0
    call_s: Seconds = 120.0


KEYS = tuple(name for name in McpEntry.__struct_fields__ if name not in ("url", "command"))

_ALLOWED = {
    "run": f"must be {MCP} and the http:// or https:// URL of a server, or {MCP}{COMMAND} and a program",
    "name": "must be 1 to 24 letters, digits, '_' or '-', and begin with a letter or digit",
    "credentials": ONE_OF,
    "env": "must be a list of names of environment variables",
    "allow": "must be a list of names of tools",
    "approve": 'must be "always", "never" or a list of names of tools',
    **dict.fromkeys(("start_s", "call_s"), "must be a number of seconds from 0.1 to 86400"),
}


def tool_entries(source: str, path: str, tables: Any) -> tuple[McpEntry, ...]:
    """Read the servers whose tools a model may call. Raises ConfigError."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(source, path, None, 'must be tables like { run = "mcp:https://…" }', shows_value=False)
    servers: list[McpEntry] = []
    for index, table in enumerate(tables):
        at = f"{path}[{index}]"
        server = _server(source, at, table)
        if not server.name:
            server = replace(server, name=_name(server, {other.name for other in servers}))
        if any(other.name == server.name for other in servers):
            raise ConfigError(source, f"{at}.name", server.name, "is the name of an earlier server: names must differ")
        servers.append(server)
    return tuple(servers)


def _server(source: str, path: str, table: Mapping[str, Any]) -> McpEntry:
    check_keys(source, table, KEYS, f"{path}.")
    if isinstance(credentials := table.get("credentials"), dict):
        check_keys(source, credentials, UpstreamCredentials.__struct_fields__, f"{path}.credentials.")
    approve = table.get("approve")
    given = {**table, "approve": tuple(approve)} if isinstance(approve, list) else dict(table)
    try:
        server = msgspec.convert(given, McpEntry)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`")
        key = re.split(r"[.\[]", place)[0] or "run"
        # the value may be a secret in the wrong place
        raise ConfigError(source, f"{path}.{place or key}", None, _ALLOWED[key], shows_value=False) from error
    if server.name and not NAME.fullmatch(server.name):
        raise ConfigError(source, f"{path}.name", server.name, _ALLOWED["name"])
    if not all(VARIABLE.fullmatch(name) for name in server.env):
        raise ConfigError(source, f"{path}.env", None, _ALLOWED["env"], shows_value=False)
    where = server.run.removeprefix(MCP).strip()
    if not server.run.startswith(MCP):
        raise ConfigError(source, f"{path}.run", server.run, _ALLOWED["run"])
    if where.startswith(COMMAND):
        return _program(source, path, server, where.removeprefix(COMMAND))
    check_url(source, f"{path}.run", where, _ALLOWED["run"])
    if server.env:
        raise ConfigError(source, f"{path}.env", None, f"is for {MCP}{COMMAND}… only", shows_value=False)
    if server.credentials is not None:
        if server.credentials.forward:  # a model calls on its own account, at any time
            raise ConfigError(source, f"{path}.credentials", None, ONE_OF, shows_value=False)
        check_credentials(source, f"{path}.credentials", server.credentials, ONE_OF)
    return replace(server, url=where)


def _program(source: str, path: str, server: McpEntry, command: str) -> McpEntry:
    words = command_words(source, path, server.run, command, _ALLOWED["run"])
    if server.credentials is not None:
        raise ConfigError(
            source, f"{path}.credentials", None, "is for URLs: name the variable in `env`", shows_value=False
        )
    return replace(server, command=words)


def _name(server: McpEntry, taken: set[str]) -> str:
    """Derive a name from the host, without its common parts, or the program; with a number if the name is taken."""
    if server.url:
        host = urlsplit(server.url).hostname or ""
        words = [word for word in host.split(".") if word not in ("www", "api", "mcp")]
        found = host if host.replace(".", "").isdigit() else (words or ["server"])[0]
    else:
        found = server.command[0].rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", found).strip("-_")[:20] or "server"
    return next(name for n in range(1, 1000) if (name := plain if n == 1 else f"{plain}{n}") not in taken)
