"""`run = "a2a:https://…"`: another server's agent behind a card of this one, and the credentials for it.

Invariant: the file holds no secret: a table names the environment variable that holds it.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from dragoman.config.errors import ConfigError, check_keys, check_url, convert_table
from dragoman.dialects.registry import DIALECTS
from dragoman.net.errors import BadUrl
from dragoman.net.target import grpc_target, is_grpc

A2A = "a2a:"
"""The prefix of `run` for an agent of another server; its URL follows."""

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")

SCHEMES = ("http", "https", "grpc", "grpcs")
"""The schemes of an agent's URL."""

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
"""The name of a header (RFC 9110 §5.1)."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

ONE_OF = (
    'must be one of { header = "x-api-key", env = "NAME" }, { env = "NAME" } for a bearer token, '
    '{ token_url = "https://…", client_id = "…", env = "NAME" }, { forward = true }'
)

CARD_KEYS = "must be the file, or the http:// or https:// URL, of a JWK Set, or a list of such"

Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)]


class UpstreamCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """`credentials`: the credentials for the other server. `env` names the variable that holds the secret.

    With `forward` the caller's own credentials are passed on.
    """

    env: str = ""
    header: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None
    audience: str | None = None
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    forward: bool = False


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent of another server. `url` is the URL in `run`.

    `card` is the URL of its card, if that is at none of the usual places. `card_keys` are files or URLs of JWK Sets,
    one of whose keys must have signed the card. A `dialect` is spoken whatever the card says. `grpc_tls` says whether
    an address over gRPC that has no scheme is called over TLS; None leaves that to its port and its card. `origins` are
    other origins that its card may name, and that get the credentials, too. `dedupes` says that it recognises a
    repeated message by its id; None leaves that to its card. `double_base64`: over 0.3's HTTP+JSON and gRPC it encodes
    the bytes of files in base64 once more. After `failures` calls in a row that did not get through, none is made for
    `pause_s`. Its card is read again every `card_s`. `answer_s` is the timeout for the beginning of an answer, `idle_s`
    for each next item. A task whose upstream is gone waits `wait_s` for it. A call that is refused for now is repeated
    as long as the upstream asks for at most `retry_wait_s` in total.
    """

    url: str = ""
    credentials: UpstreamCredentials | None = None
    card: str | None = None
    card_keys: str | tuple[str, ...] = ()
    dialect: str | None = None
    binding: Literal["JSONRPC", "HTTP+JSON", "GRPC"] | None = None
    grpc_tls: bool | None = None
    origins: tuple[str, ...] = ()
    dedupes: bool | None = None
    double_base64: bool = False
    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    pause_s: Seconds = 10.0
    card_s: Seconds = 300.0
    answer_s: Seconds = 330.0
    idle_s: Seconds = 120.0
    wait_s: Seconds = 600.0
    retry_wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0

    @property
    def forwards(self) -> bool:
        """Whether it is called with its callers' credentials."""
        return self.credentials is not None and self.credentials.forward

    @property
    def key_places(self) -> tuple[str, ...]:
        """The places of the keys that may sign its card; empty if no signature is required."""
        return (self.card_keys,) if isinstance(self.card_keys, str) else self.card_keys


KEYS = tuple(name for name in Upstream.__struct_fields__ if name != "url")

_ALLOWED = {
    "credentials": ONE_OF,
    "card_keys": CARD_KEYS,
    "dialect": f"must be one of {', '.join(DIALECTS)}",
    "binding": f"must be one of {', '.join(BINDINGS)}",
    "origins": "must be a list of URLs",
    "grpc_tls": "must be true or false",
    "dedupes": "must be true or false",
    "double_base64": "must be true or false",
    "failures": "must be a whole number from 1 to 1000",
    "retry_wait_s": "must be a number of seconds from 0 to 3600",
    **dict.fromkeys(
        ("pause_s", "card_s", "answer_s", "idle_s", "wait_s"), "must be a number of seconds from 0.1 to 86400"
    ),
}


def upstream_entry(source: str, path: str, table: Mapping[str, Any]) -> Upstream:
    """Read the keys of an agent's table about the other server. Raises ConfigError."""
    url = str(table["run"]).removeprefix(A2A).strip()
    allowed = f"must be {A2A} and the http:// or https:// URL of an agent, or grpc://host:port, or grpcs://…"
    check_url(source, f"{path}.run", url, allowed, prefix=A2A, schemes=SCHEMES)
    given = {name: table[name] for name in KEYS if name in table}
    credentials = given.get("credentials")
    if isinstance(credentials, dict):
        check_keys(source, credentials, UpstreamCredentials.__struct_fields__, f"{path}.credentials.")
    entry = convert_table(source, path, {**given, "url": url}, Upstream, _ALLOWED)
    if entry.dialect is not None and entry.dialect not in DIALECTS:
        raise ConfigError(source, f"{path}.dialect", None, _ALLOWED["dialect"], shows_value=False)
    if is_grpc(url):
        try:
            grpc_target(url)
        except BadUrl:
            raise ConfigError(source, f"{path}.run", A2A + url, "must be a2a:grpc://host:port, or grpcs://…") from None
        if entry.dialect is None and entry.card is None:
            allowed = 'must say which version is spoken there ("1.0" or "0.3"): a gRPC address has no card'
            raise ConfigError(source, f"{path}.dialect", None, allowed, shows_value=False)
    for origin in entry.origins:
        allowed = "must be http://, https://, grpc:// or grpcs:// URLs"
        check_url(source, f"{path}.origins", origin, allowed, schemes=SCHEMES)
    for place in entry.key_places:
        if not place.strip():
            raise ConfigError(source, f"{path}.card_keys", place, CARD_KEYS)
        if "://" in place:
            check_url(source, f"{path}.card_keys", place, CARD_KEYS)
    if entry.card_keys == () and "card_keys" in given:
        raise ConfigError(source, f"{path}.card_keys", [], CARD_KEYS)
    if entry.credentials is not None:
        check_credentials(source, f"{path}.credentials", entry.credentials, ONE_OF)
    return entry


def check_credentials(source: str, path: str, given: UpstreamCredentials, allowed: str) -> None:
    """Raises ConfigError, with what is `allowed`, for credentials of no known kind."""
    tokens = given.token_url is not None or given.client_id is not None
    extra = given.scope is not None or given.audience is not None
    sound = (
        not (given.env or given.header or tokens or extra)
        if given.forward
        else bool(VARIABLE.fullmatch(given.env))
        and (given.header is None or bool(HEADER.fullmatch(given.header)))
        and not (given.header is not None and tokens)
        and (bool(given.token_url and given.client_id) if tokens else not extra)
    )
    if not sound:
        raise ConfigError(source, path, None, allowed, shows_value=False)
    if given.token_url is not None:
        check_url(source, f"{path}.token_url", given.token_url, "must be an http:// or https:// URL")
