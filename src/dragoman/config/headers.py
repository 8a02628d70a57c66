"""`headers` and `credentials` of `[[agents]]`: the headers of callers' requests that an agent is given.

Invariant: a name is exact, and a credential is never given to an agent unless its table forwards credentials.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from dragoman.config.errors import ConfigError, check_keys
from dragoman.config.upstreams import HEADER

HEADERS_MAX = 50
"""Most headers that one agent may list."""

FORWARD = "must be { forward = true }: the agent is given its callers' own credentials"

HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect", "host")
)
"""Headers that belong to one connection (RFC 9110 §7.6.1, RFC 9113 §3.2.1)."""

GUARDED = re.compile(r"authorization|cookie|x-(agent-)?api-key|proxy-.*|(x-)?a2a-.*|" + "|".join(sorted(HOP_BY_HOP)))
"""Headers that an agent is given only with the caller's credentials. Keys of this server come in three of them."""

OURS = re.compile(
    r"accept|accept-encoding|content-.*|user-agent|traceparent|tracestate|idempotency-key|mcp-.*|grpc-.*|"
    r"last-event-id|proxy-.*|(x-)?a2a-.*|" + "|".join(sorted(HOP_BY_HOP))
)
"""Headers of this server's own requests to another one, which no caller's header takes the place of."""


class ForwardedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """`credentials` of an agent whose code is no other server: with `forward` it is given its callers' own."""

    forward: bool = False


def check_header(name: str, *, forwards: bool, to_server: bool = False) -> None:
    """Check that an agent can be given a header, whose `name` is in lower case. Raises ValueError with the fix.

    `forwards`: the agent is given its callers' credentials. `to_server`: its headers go to another server.
    """
    if "*" in name:
        raise ValueError("must be an exact name, as there is no wildcard: name each header")
    if not HEADER.fullmatch(name):
        raise ValueError("must be the name of a header, such as x-tenant")
    if name.endswith("-bin"):
        raise ValueError("is binary metadata of gRPC, and no text: send it under a name that does not end in -bin")
    if to_server and OURS.fullmatch(name):
        raise ValueError("is a header of this server's own requests: leave it out")
    if GUARDED.fullmatch(name) and not forwards:
        raise ValueError(
            "is a credential, or belongs to the connection: set credentials = { forward = true }, too, or leave it out"
        )


def check_headers(
    source: str, path: str, names: Sequence[str], *, forwards: bool, to_server: bool, taken: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names in lower case. Raises ConfigError. `taken` are the headers of the table's own credentials."""
    if len(names) > HEADERS_MAX:
        raise ConfigError(source, path, None, f"must be at most {HEADERS_MAX} names", shows_value=False)
    found: list[str] = []
    for index, given in enumerate(names):
        name, at = given.lower(), f"{path}[{index}]"
        try:
            check_header(name, forwards=forwards, to_server=to_server)
        except ValueError as error:
            raise ConfigError(source, at, given, str(error)) from error
        if name in found:
            raise ConfigError(source, at, given, "is listed twice: leave one out")
        if name in taken:
            raise ConfigError(source, at, given, "is the header of the agent's own `credentials`: leave it out")
        found.append(name)
    return tuple(found)


def check_forwarding(source: str, path: str, given: Any) -> None:
    """Raises ConfigError for `credentials` of an agent that is no other server's, unless they are forwarded ones."""
    if not isinstance(given, dict) or set(given) - {"forward"} or not isinstance(given.get("forward", False), bool):
        if isinstance(given, dict):
            check_keys(source, given, ForwardedCredentials.__struct_fields__, f"{path}.")
        raise ConfigError(source, path, None, FORWARD, shows_value=False)
