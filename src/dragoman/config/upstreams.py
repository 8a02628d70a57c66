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

TOKEN_TYPES = ("access_token", "id_token", "jwt")
"""The types of tokens (RFC 8693 §3) that have a short name."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

ONE_OF = (
    'must be one of { header = "x-api-key", env = "NAME" }, { env = "NAME" } for a bearer token, '
    '{ token_url = "https://…", client_id = "…", env = "NAME" }, { forward = true }, '
    '{ exchange = true, token_url = "https://…", client_id = "…", env = "NAME", audience = "…" }'
)

EXCHANGE = "must be true, or a table of actor_audience, actor_token, actor_type, audiences, scopes and subject_type"

EXCHANGE_NEEDS = "an exchange needs token_url, client_id, env, and the audience or the resource of the other server"

TOKEN_TYPE = "must be access_token, id_token, jwt, or the URI of a token type"

CARD_KEYS = "must be the file, or the http:// or https:// URL, of a JWK Set, or a list of such"

Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=86_400.0)]


class ExchangeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`exchange`: how callers' tokens are exchanged (RFC 8693).

    `scopes` names, for scopes of a caller's token, those that they stand for at the other server. The token may be for
    the further `audiences`, too. `subject_type` and `actor_type` are types of tokens. With `actor_token` this server's
    own token, for the `actor_audience`, goes along.
    """

    scopes: dict[str, str] = {}
    audiences: tuple[str, ...] = ()
    subject_type: str = "access_token"
    actor_token: bool = False
    actor_type: str = "access_token"
    actor_audience: str | None = None


class UpstreamCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """`credentials`: the credentials for the other server. `env` names the variable that holds the secret.

    With `forward` the caller's own credentials are passed on, with `exchange` they are exchanged for a token of the
    `audience`, or the `resource`.
    """

    env: str = ""
    header: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None
    audience: str | None = None
    resource: str | None = None
    exchange: bool | ExchangeEntry = False
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    forward: bool = False

    @property
    def exchanged(self) -> ExchangeEntry | None:
        """How callers' tokens are exchanged; None if they are not."""
        if isinstance(self.exchange, bool):
            return ExchangeEntry() if self.exchange else None
        return self.exchange


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent of another server. `url` is the URL in `run`.

    `card` is the URL of its card, if that is at none of the usual places. `card_keys` are files or URLs of JWK Sets,
    one of whose keys must have signed the card. A `dialect` is spoken whatever the card says. `grpc_tls` says whether
    an address over gRPC that has no scheme is called over TLS; None leaves that to its port and its card. `origins` are
    other origins that its card may name, and that get the credentials, too. `dedupes` says that it recognises a
    repeated message by its id; None leaves that to its card. `double_base64`: over 0.3's HTTP+JSON and gRPC it encodes
    the bytes of files in base64 once more. After `failures` calls in a row that did not get through, none is made for
    `pause_s`. Its card is read again every `card_s`. `connect_timeout_s` is the timeout for a connection, `answer_s`
    for the beginning of an answer, `idle_s` for each next item. A task whose upstream is gone waits `wait_s` for it. A
    call that is refused for now is repeated as long as the upstream asks for at most `retry_wait_s` in total.
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
    connect_timeout_s: Seconds = 5.0
    answer_s: Seconds = 330.0
    idle_s: Seconds = 120.0
    wait_s: Seconds = 600.0
    retry_wait_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0

    @property
    def forwards(self) -> bool:
        """Whether it is called with its callers' credentials."""
        return self.credentials is not None and self.credentials.forward

    @property
    def exchanges(self) -> bool:
        """Whether it is called with tokens for which those of its callers are exchanged."""
        return self.credentials is not None and self.credentials.exchanged is not None

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
        ("pause_s", "card_s", "connect_timeout_s", "answer_s", "idle_s", "wait_s"),
        "must be a number of seconds from 0.1 to 86400",
    ),
}


def upstream_entry(source: str, path: str, table: Mapping[str, Any]) -> Upstream:
    """Read the keys of an agent's table about the other server. Raises ConfigError."""
    url = str(table["run"]).removeprefix(A2A).strip()
    allowed = f"must be {A2A} and the http:// or https:// URL of an agent, or grpc://host:port, or grpcs://…"
    check_url(source, f"{path}.run", url, allowed, prefix=A2A, schemes=SCHEMES)
    given = {name: table[name] for name in KEYS if name in table}
    check_credential_keys(source, f"{path}.credentials", given.get("credentials"))
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


def check_credential_keys(source: str, path: str, given: object) -> None:
    """Raises ConfigError for a key that a table of credentials cannot have, and for a table that is no exchange."""
    if not isinstance(given, dict):
        return
    check_keys(source, given, UpstreamCredentials.__struct_fields__, f"{path}.")
    exchange = given.get("exchange")
    if isinstance(exchange, dict):
        check_keys(source, exchange, ExchangeEntry.__struct_fields__, f"{path}.exchange.")
    if exchange is not None:
        try:
            msgspec.convert(exchange, bool | ExchangeEntry)
        except msgspec.ValidationError as error:
            raise ConfigError(source, f"{path}.exchange", None, EXCHANGE, shows_value=False) from error


def check_credentials(source: str, path: str, given: UpstreamCredentials, allowed: str) -> None:
    """Raises ConfigError, with what is `allowed`, for credentials of no known kind."""
    exchange = given.exchanged
    if exchange is not None:
        _check_exchange(source, path, given, exchange)
    elif given.resource is not None:
        raise ConfigError(
            source, f"{path}.resource", None, "is for an exchange only: set exchange = true", shows_value=False
        )
    tokens = given.token_url is not None or given.client_id is not None
    extra = given.scope is not None or given.audience is not None
    sound = (
        not (given.env or given.header or tokens or extra)
        if given.forward and exchange is None
        else bool(VARIABLE.fullmatch(given.env))
        and (given.header is None or bool(HEADER.fullmatch(given.header)))
        and not (given.header is not None and tokens)
        and (bool(given.token_url and given.client_id) if tokens else not extra)
    )
    if not sound:
        raise ConfigError(source, path, None, allowed, shows_value=False)
    if given.token_url is not None:
        check_url(source, f"{path}.token_url", given.token_url, "must be an http:// or https:// URL")


def _check_exchange(source: str, path: str, given: UpstreamCredentials, exchange: ExchangeEntry) -> None:
    """Raises ConfigError for an exchange that cannot work."""
    if given.forward or given.header is not None:
        allowed = "cannot be there beside forward or header: callers' tokens are exchanged"
        raise ConfigError(source, f"{path}.exchange", None, allowed, shows_value=False)
    if not (given.token_url and given.client_id and given.env and (given.audience or given.resource)):
        raise ConfigError(source, path, None, EXCHANGE_NEEDS, shows_value=False)
    if exchange.scopes and given.scope is not None:
        allowed = "is there beside scope: a scope of a caller's token stands for itself, or for another one"
        raise ConfigError(source, f"{path}.exchange.scopes", None, allowed, shows_value=False)
    for name in ("subject_type", "actor_type"):
        value = getattr(exchange, name)
        if value not in TOKEN_TYPES and ":" not in value:
            raise ConfigError(source, f"{path}.exchange.{name}", value, TOKEN_TYPE)
    if exchange.actor_audience is not None and not exchange.actor_token:
        allowed = "is for this server's own token: set actor_token = true"
        raise ConfigError(source, f"{path}.exchange.actor_audience", exchange.actor_audience, allowed)
