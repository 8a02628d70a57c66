"""Every setting once: name, kind, default, help; and the kinds, which are the allowed values and their parsers.

Invariant: `Config` is the only declaration of a setting; keys in the file, variables, flags and the table in
docs/configuration.md follow from it. `parse` takes values of TOML and texts of the environment and flags, and raises
ValueError for anything that is not allowed.
"""

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypeVar, get_type_hints
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import fields

from dragoman.config.agents import AgentEntry
from dragoman.config.budgets import Budget
from dragoman.config.prices import NO_PRICES, Prices
from dragoman.config.teams import TeamEntry
from dragoman.dialects.registry import PROFILES
from dragoman.model.task import TOKENS_MAX
from dragoman.store.path import ALLOWED, store_path

_Number = TypeVar("_Number", int, float)


class SettingKind(Struct, frozen=True):
    """The allowed values of a setting in words, and the function that parses them or raises ValueError."""

    allowed: str
    parse: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return (*FALSE, *TRUE).index(_text(value).lower()) >= len(FALSE)


def whole(low: int, high: int) -> SettingKind:
    """A whole number from `low` to `high`."""

    def parse(value: Any) -> int:
        number = value if type(value) is int else int(_match(r"-?[0-9]{1,18}", value))
        return _within(number, low, high)

    return SettingKind(f"must be a whole number from {low} to {high}", parse)


def seconds(low: float, high: float) -> SettingKind:
    """A number of seconds from `low` to `high`, with a fraction or without."""

    def parse(value: Any) -> float:
        number = value if type(value) in (int, float) else float(_match(r"[0-9]{1,18}(\.[0-9]{1,18})?", value))
        return float(_within(number, low, high))

    return SettingKind(f"must be a number of seconds from {low:g} to {high:g}", parse)


def _within(number: _Number, low: float, high: float) -> _Number:
    if not low <= number <= high:
        raise ValueError
    return number


def _match(pattern: str, value: Any) -> str:
    found = re.fullmatch(pattern, _text(value), re.ASCII)
    if found is None:
        raise ValueError
    return found[0]


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(value: Any) -> timedelta | None:
    if value == "forever":
        return None
    text = _match(r"[0-9]{1,6}[smhdw]", value)
    return timedelta(**{UNITS[text[-1]]: int(text[:-1])})


def choice(*words: str) -> SettingKind:
    """One of `words`, in any case."""

    return SettingKind(f"must be {' or '.join(words)}", lambda value: words[words.index(_text(value).lower())])


def _host(value: Any) -> str:
    return _match(r"\[[0-9A-Fa-f:.]+\]|[^\s/\[\]@]+", value).strip("[]")


def _store(value: Any) -> str:
    url = _text(value)
    store_path(url)
    return url


def _bus(value: Any) -> str:
    bus = _text(value)
    if bus.lower() in BUSES:
        return bus.lower()
    for url in bus.split(","):
        parts = urlsplit(_match(r"(nats|tls)://[^\s/?#]+/?", url.strip()))
        if not parts.hostname or parts.port == 0:
            raise ValueError
    return bus


def _postgres(value: Any) -> str:
    return _match(r"postgres(ql)?://\S+", value)


def _files(value: Any) -> str:
    found = _match(r"folder:[^\0]+|s3://[a-z0-9][a-z0-9._-]{1,62}(/[^\s?#]*)?(\?[^\s#]*)?", value)
    if found.startswith("s3:"):
        for name, given in parse_qsl(urlsplit(found).query, keep_blank_values=True, strict_parsing="?" in found):
            if name not in S3_OPTIONS or not given:
                raise ValueError
            if name == "endpoint":
                _http_url(given)
            if name == "path_style" and given not in ("true", "false"):
                raise ValueError
    return found


def _http_url(value: Any) -> str:
    url = _match(r"https?://[^\s?#@\\]+", value)
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError
    return url.rstrip("/")


def _grpc_address(value: Any) -> str:
    address = _match(r"(grpcs?://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", value)
    if not 0 < int(address.rpartition(":")[2]) < 65_536:
        raise ValueError
    return address


def _origin(value: Any) -> str:
    origin = _text(value)
    if origin == "*":
        return origin
    if urlsplit(_http_url(origin)).path not in ("", "/"):
        raise ValueError
    return origin.rstrip("/")


def _origins(value: Any) -> tuple[str, ...]:
    return tuple(_origin(item) for item in _items(value))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [item for item in str(value).split(",") if item.strip()]


def _allowed_host(value: Any) -> str:
    host = _host(value).lower().rstrip(".")
    if ":" in host:
        return str(ipaddress.ip_address(host))
    return _match(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", host)


def _network(value: Any) -> str:
    return str(ipaddress.ip_network(_text(value)))


ALGORITHMS_KNOWN = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Asymmetric signatures (RFC 7518 §3.1, RFC 8037, RFC 9864). With others, anybody who can verify can also forge."""


def _algorithm(value: Any) -> str:
    return ALGORITHMS_KNOWN[ALGORITHMS_KNOWN.index(_text(value))]


S3_OPTIONS = ("endpoint", "region", "path_style")
"""The query parameters of a bucket."""

BUSES = ("auto", "postgres", "none")
"""The buses that need no address."""

TEXT = SettingKind("must be text that is not empty", _text)
PEM_FILE = SettingKind("must be the path of a PEM file", _text)
NAME = SettingKind(
    "must be 1 to 64 letters, digits or '_', and not begin with a digit",
    lambda value: _match(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value),
)
HOST = SettingKind("must be an IP address or a host name, without port", _host)
HEADER = SettingKind(
    "must be the name of a header, like X-Client-DN",
    lambda value: _match(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", value),  # RFC 9110 §5.1
)
BOOLEAN = SettingKind("must be true or false", _boolean)
DURATION = SettingKind("must be a whole number with a unit, like 90s, 15m, 12h, 30d or 4w, or forever", _duration)
STORE = SettingKind(ALLOWED, _store)
FILES = SettingKind(
    "use folder:path, or s3://bucket/prefix?endpoint=https://…&region=… (both may be left out), without a key: that is "
    "taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    _files,
)
BUS = SettingKind(f"use {', '.join(BUSES)}, or nats://host:4222 (several separated by commas)", _bus)
POSTGRES = SettingKind("use postgresql://user@host:5432/database", _postgres)
URL = SettingKind("must be a base URL like https://agents.example.org, without query", _http_url)
GRPC_ADDRESS = SettingKind(
    "must be a host and a port like agents.example.org:443; grpc:// or grpcs:// before it is shown in 0.3 only",
    _grpc_address,
)
ORIGINS = SettingKind(
    "must be origins like https://app.example.org (in a file a list, else separated by commas), or *", _origins
)
HOSTS = SettingKind(
    "must be IP addresses or host names, without port (in a file a list, else separated by commas)",
    lambda value: tuple(_allowed_host(item) for item in _items(value)),
)
NETWORKS = SettingKind(
    "must be networks like 10.0.0.0/8 or fd00::/8 with no bits set beyond the prefix (in a file a list, else separated "
    "by commas)",
    lambda value: tuple(_network(item) for item in _items(value)),
)
ALGORITHMS = SettingKind(
    f"must be some of {', '.join(ALGORITHMS_KNOWN)} (in a file a list, else separated by commas)",
    lambda value: tuple(_algorithm(item) for item in _items(value)),
)


ENV_PREFIX = "DRAGOMAN_"


class Setting(Struct, frozen=True, kw_only=True):
    """One setting, under all its names. `default` is text, as the environment would hold it.

    `section` is the heading below which the help of `serve` and the documentation list it.
    """

    name: str
    section: str
    kind: SettingKind
    help: str
    default: str

    @property
    def env(self) -> str:
        """Its environment variable."""
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.name.replace("_", "-")


DAY = 86_400.0

SECTIONS = {
    "profile": "Address and profile",
    "store": "Store and replicas",
    "files": "Files",
    "tls_cert": "TLS",
    "public_url": "Agents and cards",
    "authentication": "Callers",
    "max_body_bytes": "Limits of a request",
    "max_requests_per_s": "Limits of a caller",
    "budget_webhook": "Budgets",
    "max_page_bytes": "Answers and connections",
    "threads_max": "Runs",
    "task_retention": "Retention",
    "cors_origins": "Agents and cards",
    "push": "Webhooks",
    "delivered_retention": "Retention",
    "sign_cards": "Agents and cards",
    "audit": "Logs and audit",
    "usage_retention": "Retention",
    "log_level": "Logs and audit",
    "console": "Console",
    "openai_question_mark": "OpenAI's API",
    "metrics": "Metrics and telemetry",
    "tasks": "Runs",
}
"""The headings of the settings: each of these settings begins a section, to which those behind it belong."""

TABLES = ("prices", "teams", "budgets", "agents")
"""The fields of `Config` that only the file can hold, as tables."""


class Config(Struct, frozen=True, kw_only=True):
    """How the server runs. Every field but `TABLES` is a setting; its annotation holds its kind and its help."""

    profile: Annotated[
        str | None,
        choice(*PROFILES),
        "Act as this system, with its port and its environment variables, and with its paths only.",
    ] = None
    host: Annotated[str, HOST, "Address to listen on."] = "127.0.0.1"
    port: Annotated[int, whole(0, 65_535), "Port to listen on; 0 picks a free one."] = 7870
    grpc_port: Annotated[
        int, whole(0, 65_535), "Port for A2A over gRPC, on the same host; 0 serves none. Needs dragoman[grpc]."
    ] = 0
    grpc_public_url: Annotated[
        str | None,
        GRPC_ADDRESS,
        "Address of gRPC in cards; unset, it is the host of public_url, or of the request, with grpc_port.",
    ] = None
    store: Annotated[str, STORE, "Where tasks are stored."] = "sqlite:///data/dragoman.db"
    bus: Annotated[
        str,
        BUS,
        "How replicas that share a store notify each other: postgres (NOTIFY), a NATS server, or none: then they ask "
        "the store every second. auto is postgres with PostgreSQL.",
    ] = "auto"
    bus_listen_url: Annotated[
        str | None,
        POSTGRES,
        "Direct URL of the database for LISTEN, needed where the store's URL leads to a proxy that pools transactions.",
    ] = None
    replica_lease_s: Annotated[
        float,
        seconds(1, 3600),
        "How long a replica counts as alive after its last heartbeat; then others take over its tasks.",
    ] = 20.0
    replica_beat_s: Annotated[
        float, seconds(0.1, 1200), "Time between two heartbeats; at most a third of replica_lease_s."
    ] = 5.0
    replica_address: Annotated[
        str | None,
        URL,
        "Base URL under which operators reach this very replica; unset, it is made of host and port.",
    ] = None
    processes: Annotated[
        int,
        whole(1, 256),
        "Replicas to run on this machine, each a process, on one port; more than 1 needs PostgreSQL.",
    ] = 1
    files: Annotated[
        str | None,
        FILES,
        "Where the bytes of large files are stored: folder:path or s3://bucket/prefix?endpoint=…&region=…. Callers "
        "then get such files as URLs. Unset, all files are stored with their task and sent within it.",
    ] = None
    files_above: Annotated[int, whole(0, 1 << 31), "Size in bytes above which a file is large, if files is set."] = (
        262_144
    )
    files_expire_s: Annotated[
        int, whole(1, 604_800), "How long the URL of a large file is valid; reading the task again gives a fresh one."
    ] = 3600
    files_redirect: Annotated[
        bool, BOOLEAN, "Redirect readers of a large file to the bucket, which they must be able to reach."
    ] = False
    fetch_max_bytes: Annotated[
        int, whole(1024, 1 << 31), "Largest file that agents fetch (ctx.read) from a URL given by a caller."
    ] = 32 * 1024 * 1024
    fetch_timeout_s: Annotated[
        float, seconds(0.1, 3600), "How long the fetch of a file may take, redirects included."
    ] = 30.0
    fetch_allowed_hosts: Annotated[
        tuple[str, ...], HOSTS, "Hosts that agents may fetch files from, whatever their address."
    ] = ()
    fetch_allowed_cidrs: Annotated[
        tuple[str, ...], NETWORKS, "Networks that agents may fetch files from, although they are not public."
    ] = ()
    tls_cert: Annotated[
        str | None,
        PEM_FILE,
        "PEM file with the server's certificate, followed by its authorities: the server speaks HTTPS only. It is read "
        "again when it changes.",
    ] = None
    tls_key: Annotated[
        str | None,
        PEM_FILE,
        "PEM file with the key of tls_cert, not encrypted; unset, the key is in the file of tls_cert.",
    ] = None
    tls_client_ca: Annotated[
        str | None,
        PEM_FILE,
        "PEM file with the authorities of clients' certificates: a client without a certificate of theirs is refused.",
    ] = None
    tls_client_crl: Annotated[
        str | None,
        PEM_FILE,
        "PEM file with a revocation list of each authority in tls_client_ca; cannot be used together with grpc_port.",
    ] = None
    public_url: Annotated[
        str | None, URL, "Base URL in cards; unset, it is taken from the address and Host header of each request."
    ] = None
    default: Annotated[str | None, TEXT, "Id of the agent that answers at /; unset, the first that is declared."] = None
    authentication: Annotated[
        str,
        choice("auto", "required"),
        "Whether callers must authenticate: auto requires it as soon as there is a way to, such as a key.",
    ] = "auto"
    api_key: Annotated[
        str | None,
        TEXT,
        "One key that all callers share (x-api-key or bearer token); agents can have their own. A flag shows in the "
        "process table: better in the environment, or in api_key_file.",
    ] = None
    api_key_file: Annotated[str | None, TEXT, "File that holds nothing but api_key."] = None
    secret_key: Annotated[
        str | None,
        TEXT,
        "Key that seals the secrets of agents added by the API: 32 bytes in base64. If there are several, "
        "separated by commas, the first one seals. Better in the environment, or in secret_key_file.",
    ] = None
    secret_key_file: Annotated[str | None, TEXT, "File that holds nothing but secret_key, one key a line."] = None
    agents_api_allow_hosts: Annotated[
        tuple[str, ...],
        HOSTS,
        "Hosts where agents added by the API may be, whatever their address; other hosts must be on the open internet.",
    ] = ()
    admin_runs_workers: Annotated[
        bool,
        BOOLEAN,
        "Let the shared api_key, tokens and older keys of the role admin run workers; false: only the role agent may.",
    ] = True
    jwt_issuer: Annotated[
        str | None, URL, "Accept JWTs of this issuer as bearer tokens; OpenID Connect Discovery finds its keys."
    ] = None
    jwt_audience: Annotated[str | None, TEXT, "Audience that JWTs must name; needed with jwt_issuer."] = None
    jwt_jwks_url: Annotated[str | None, URL, "URL of the issuer's keys, in place of discovery."] = None
    jwt_algorithms: Annotated[tuple[str, ...], ALGORITHMS, "Signature algorithms accepted in JWTs."] = (
        "RS256",
        "ES256",
    )
    jwt_leeway_s: Annotated[float, seconds(0, 600), "How far the issuer's clock may be off."] = 30.0
    client_cert_header: Annotated[
        str | None,
        HEADER,
        "Header in which a proxy names the client certificate it has verified; needs trusted_proxies.",
    ] = None
    trusted_proxies: Annotated[
        tuple[str, ...],
        NETWORKS,
        "Addresses of your proxies. Only they name the client: X-Forwarded-For, X-Forwarded-Proto, client_cert_header.",
    ] = ()
    allow_unauthenticated: Annotated[
        bool, BOOLEAN, "DANGEROUS: listen beyond loopback even though anyone who reaches the port may use every agent."
    ] = False

    max_body_bytes: Annotated[
        int, whole(1024, 1 << 31), "Largest request body; the default, 32 MiB, holds a file of 10 MB in base64."
    ] = 32 * 1024 * 1024
    max_parts: Annotated[int, whole(1, 1_000_000), "Most parts in one message."] = 1000
    max_depth: Annotated[int, whole(8, 500), "Deepest nesting of JSON in a request."] = 64
    max_text: Annotated[
        int, whole(1024, 1 << 31), "Most characters of one text in a message; bytes of files are not counted."
    ] = 4 * 1024 * 1024
    max_tokens_per_report: Annotated[
        int,
        whole(1, TOKENS_MAX),
        "Most tokens in one report of usage; a larger report, like one with negative numbers, is not counted, and the "
        "log says so.",
    ] = 100_000_000
    max_values: Annotated[
        int,
        whole(1000, 100_000_000),
        "Most values in a request's JSON: names of members, strings, numbers, objects and arrays. Reading a thousand "
        "blocks the server for 0.05 to 0.2 ms.",
    ] = 200_000
    body_pause_s: Annotated[
        float,
        seconds(0.01, 3600),
        "Longest pause in a request's body; a body that takes longer than this must arrive at 500 bytes a second.",
    ] = 30.0
    max_requests_per_s: Annotated[
        int, whole(0, 1_000_000), "Requests that one caller may make in a second, on average; 0 sets no limit."
    ] = 0
    max_streams: Annotated[int, whole(0, 1_000_000), "Streams that one caller may have open; 0 sets no limit."] = 10_000
    max_open_tasks: Annotated[
        int, whole(0, 1 << 31), "Tasks of one caller that may be running or waiting; 0 sets no limit."
    ] = 0
    max_daily_tasks: Annotated[
        int, whole(0, 1 << 31), "Tasks that one caller may create in a day (UTC); 0 sets no limit."
    ] = 0
    max_tasks_per_context: Annotated[
        int,
        whole(0, 1 << 31),
        "Tasks that one conversation may have, those that agents delegate included; 0 sets no limit.",
    ] = 0
    budget_webhook: Annotated[
        str | None, URL, "URL that is called when a budget passes one of its thresholds, whatever its address."
    ] = None
    budget_webhook_secret: Annotated[
        str | None,
        TEXT,
        "Secret that signs the calls of budget_webhook (Standard Webhooks); better in the environment.",
    ] = None
    max_page_bytes: Annotated[
        int,
        whole(1024, 1 << 31),
        "Most bytes of stored tasks on one page of ListTasks; a page has at least one task.",
    ] = 4 * 1024 * 1024
    max_unread_bytes: Annotated[
        int,
        whole(65_536, 1 << 40),
        "Most bytes of large answers that one caller has yet to read; for all callers together, twice as many.",
    ] = 64 * 1024 * 1024
    reader_pause_s: Annotated[
        float,
        seconds(0.1, 86_400),
        "How long a client may leave an answer or a stream unread before it is cut off.",
    ] = 60.0
    max_connections: Annotated[
        int,
        whole(0, 1_000_000),
        "Most connections over HTTP of each process; beyond them only /healthz is answered. 0 sets no limit.",
    ] = 20_000
    max_connections_per_address: Annotated[
        int,
        whole(0, 1_000_000),
        "Most connections over HTTP of one address, those of trusted_proxies excepted; 0 sets no limit.",
    ] = 0
    threads_max: Annotated[
        int, whole(1, 10_000), "Most threads for agents that are plain functions; further runs wait."
    ] = 32

    blocking_timeout_s: Annotated[
        float, seconds(0.01, DAY), "How long a blocking send waits before it answers with the task as it is."
    ] = 300.0
    mcp_task_after_s: Annotated[
        float,
        seconds(0, DAY),
        "How long an MCP call runs before it becomes a task, if its client knows tasks; 0: it is one at once.",
    ] = 2.0
    keepalive_s: Annotated[float, seconds(0.01, 3600), "Silence in a stream after which a comment is sent."] = 15.0
    cancel_grace_s: Annotated[
        float, seconds(0, 3600), "How long a canceled agent may clean up before its task is canceled without it."
    ] = 5.0
    shutdown_grace_s: Annotated[
        float,
        seconds(0, 3600),
        "Longest time from SIGTERM to the end of the process; tasks may run until 3 s before that.",
    ] = 8.0
    suspend_max_s: Annotated[
        float,
        seconds(0, 30 * DAY),
        "How long an agent that asked a question stays in memory; an answer after that runs it again and replays it.",
    ] = 600.0
    suspend_after_s: Annotated[
        float,
        seconds(0, DAY),
        "An agent that sleeps for longer does not stay in memory; the end of its sleep runs it again and replays it.",
    ] = 5.0
    max_steps: Annotated[
        int,
        whole(1, 1_000_000),
        "Most steps and sleeps of an agent that one task records; it fails at one more.",
    ] = 10_000

    agent_absent_s: Annotated[
        float,
        seconds(1, 30 * DAY),
        "How long tasks wait for an agent, or a `steps_version` of it, that no replica serves, before they fail.",
    ] = 300.0

    task_retention: Annotated[timedelta | None, DURATION, "How long a task is kept after it ends, or forever."] = (
        timedelta(days=30)
    )
    log_retention: Annotated[
        timedelta | None, DURATION, "How long the single events of a task are kept after it ends, or forever."
    ] = timedelta(days=7)
    waiting_retention: Annotated[
        timedelta | None, DURATION, "How long a task that waits for input or authorization is kept, or forever."
    ] = timedelta(days=30)

    cors_origins: Annotated[
        tuple[str, ...], ORIGINS, "Origins whose pages may call the server, separated by commas, or *."
    ] = ()
    card_max_age_s: Annotated[int, whole(0, 31_536_000), "How long clients may keep a card without asking again."] = 60

    push: Annotated[bool, BOOLEAN, "Call webhooks. If false, cards say so, and registering one is refused."] = True
    push_allowed_hosts: Annotated[
        tuple[str, ...],
        HOSTS,
        "Hosts where webhooks may be, whatever their address, such as those of a docker network.",
    ] = ()
    push_allowed_cidrs: Annotated[
        tuple[str, ...], NETWORKS, "Networks where webhooks may be, although they are not public."
    ] = ()
    push_jwt: Annotated[bool, BOOLEAN, "Also sign every delivery with a JWT; the key is at /.well-known/jwks.json."] = (
        False
    )
    delivered_retention: Annotated[
        timedelta | None,
        DURATION,
        "How long deliveries that arrived are remembered, at most as long as their task; 0s: not at all.",
    ] = timedelta(days=7)
    sign_cards: Annotated[bool, BOOLEAN, "Sign agent cards; the key is at /.well-known/jwks.json."] = True

    audit: Annotated[
        str,
        choice("auto", "all", "refused", "off"),
        "Extent of the audit trail; auto is all where callers must authenticate, else refused.",
    ] = "auto"
    audit_retention: Annotated[timedelta | None, DURATION, "How long audit entries are kept, or forever."] = timedelta(
        days=90
    )

    usage_retention: Annotated[
        timedelta | None, DURATION, "How long the sums of usage by day are kept, or forever."
    ] = timedelta(days=400)

    log_level: Annotated[str, choice("debug", "info", "warning", "error"), "Lowest level that is logged."] = "info"
    log_format: Annotated[str, choice("text", "json"), "Format of a line of the log: text or json."] = "text"
    queue_warn_s: Annotated[
        float,
        seconds(1, 86_400),
        "How long a task may wait to run before the log warns of its agent's queue.",
    ] = 60.0
    access_log: Annotated[
        str, choice("off", "text", "json"), "Format of the line that is logged for each request; off logs none."
    ] = "off"
    access_log_file: Annotated[
        str | None, TEXT, "File for the lines of access_log, or - for stdout. Without it they go to stderr."
    ] = None

    console: Annotated[bool, BOOLEAN, "Serve the console for operators at /console."] = True
    console_allowed_hosts: Annotated[
        tuple[str, ...], HOSTS, "Hosts of agents that operators may try from the console, whatever their address."
    ] = ()
    oidc_issuer: Annotated[
        str | None,
        URL,
        "OpenID provider by which operators sign in to the console; needs public_url, oidc_client_id, oidc_role_claim "
        "and oidc_role_value.",
    ] = None
    oidc_client_id: Annotated[str | None, TEXT, "Id of the console as a client of the provider."] = None
    oidc_client_secret: Annotated[
        str | None,
        TEXT,
        "Secret of oidc_client_id, if it has one; better in the environment, or in oidc_client_secret_file.",
    ] = None
    oidc_client_secret_file: Annotated[str | None, TEXT, "File that holds nothing but oidc_client_secret."] = None
    oidc_scope: Annotated[str, TEXT, "Scopes that are asked for, with spaces between them; openid is one of them."] = (
        "openid"
    )
    oidc_role_claim: Annotated[
        str | None, TEXT, "Claim of the ID token that says who is an operator, like groups or realm_access.roles."
    ] = None
    oidc_role_value: Annotated[str | None, TEXT, "Value that oidc_role_claim must have, or contain, for operators."] = (
        None
    )
    oidc_session_s: Annotated[
        float,
        seconds(0, 604_800),
        "How long operators stay signed in by the provider; 0: as long as the ID token is valid.",
    ] = 0.0
    openai_question_mark: Annotated[
        bool,
        BOOLEAN,
        "End the question of a chat completion with a mark, which Markdown does not show and by which its answer is "
        "recognised.",
    ] = True
    openai_conversation_header: Annotated[
        str | None,
        HEADER,
        "Header in which your chat interface sends the id of its conversation, like X-OpenWebUI-Chat-Id.",
    ] = None
    openai_reply_within_s: Annotated[
        float,
        seconds(0, 604_800),
        "How long after a question earlier turns alone may say which task an answer belongs to; 0: never.",
    ] = 3600.0
    metrics: Annotated[bool, BOOLEAN, "Serve /metrics for Prometheus."] = True
    telemetry: Annotated[
        bool, BOOLEAN, "Send spans and metrics by OTLP; the OTEL_* variables configure it; needs dragoman[otel]."
    ] = False
    telemetry_prefix: Annotated[str, NAME, "Prefix of the names of spans and metrics."] = "dragoman"
    telemetry_genai: Annotated[
        bool,
        BOOLEAN,
        "Send spans by OpenTelemetry's conventions for generative AI, too: invoke_agent, chat, execute_tool. It turns "
        "telemetry on.",
    ] = False
    telemetry_capture_content: Annotated[
        bool,
        BOOLEAN,
        "Put messages, and arguments and results of tools, into the spans of telemetry_genai: they may hold secrets.",
    ] = False
    tasks: Annotated[
        bool, BOOLEAN, "Create tasks. If false, A2A calls run nothing and are answered with an empty task."
    ] = True

    prices: Prices = NO_PRICES
    teams: tuple[TeamEntry, ...] = ()
    budgets: tuple[Budget, ...] = ()
    agents: tuple[AgentEntry, ...] = ()

    @property
    def begins_empty(self) -> bool:
        """Whether it may serve without an agent of its own: a setting is there that only agents of the API need."""
        given = self.secret_key is not None or self.secret_key_file is not None or bool(self.agents_api_allow_hosts)
        return given and self.profile is None and self.tasks

    @property
    def scheme(self) -> str:
        """The scheme of the URLs on which the server listens."""
        return "http" if self.tls_cert is None else "https"


def settings() -> tuple[Setting, ...]:
    """All settings, in the order of their declaration."""
    hints = get_type_hints(Config, include_extras=True)
    found, section = [], ""
    for field in fields(Config):
        if field.name not in TABLES:
            section = SECTIONS.get(field.name, section)
            kind, text = hints[field.name].__metadata__
            default = spell(field.default)
            found.append(Setting(name=field.name, section=section, kind=kind, help=text, default=default))
    return tuple(found)


def spell(value: object) -> str:
    """A setting's value as text for the environment; empty when it is not set."""
    match value:
        case None | ():
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case timedelta():
            return f"{value.days}d" if not value.seconds else f"{value.total_seconds():g}s"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
