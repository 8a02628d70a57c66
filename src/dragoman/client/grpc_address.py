"""Reads the address of a gRPC endpoint on another agent's card, and decides whether it is called over TLS.

Cards of other makers have a bare `host:port`, or a URL with the scheme grpc, grpcs, http, https or dns. A scheme says
whether there is TLS. Where there is none, the port 443 means TLS, and so does a card that came over https: a caller who
reads the card over TLS shows no credentials without it. Any other address without a scheme is called without TLS, as
its card was fetched.

Invariant: pure and total. Anything that is no address gives an empty text.
"""

import re
from functools import cache
from importlib.util import find_spec

from dragoman.net.errors import BadUrl
from dragoman.net.target import grpc_target

_SECURE = {"grpcs": True, "https": True, "grpc": False, "http": False}
_PORTS = {"grpcs": 443, "https": 443, "grpc": 80, "http": 80}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)(?:[/?#].*)?", re.IGNORECASE | re.ASCII | re.DOTALL)
_BARE = re.compile(r"(?:dns:(?:///)?)?([^/?#]*)/?", re.IGNORECASE | re.ASCII)
"""An address without a scheme; gRPC's own spelling of names, `dns:///host:port`, is one, too."""

_PLACE = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", re.ASCII)


@cache
def grpc_installed() -> bool:
    """Whether the packages of the extra `grpc` are there, without loading them."""
    try:
        return all(find_spec(name) is not None for name in ("grpc", "google.protobuf", "google.rpc"))
    except ModuleNotFoundError:  # there is no package `google` at all
        return False


def grpc_url(given: object, card_url: str, tls: bool | None = None) -> str:
    """Return the address as `grpc://host:port`, or `grpcs://…` if it is called over TLS; empty if it is none.

    `tls` decides for an address that does not say it itself.
    """
    if not isinstance(given, str):
        return ""
    text = given.strip()
    bare = _BARE.fullmatch(text)
    if bare is not None:
        place, secure, port = bare[1], tls, 443
    elif (match := _SCHEME.fullmatch(text)) is not None and match[1].lower() in _SECURE:
        scheme = match[1].lower()
        place, secure, port = match[2], _SECURE[scheme], _PORTS[scheme]
    else:
        return ""
    if (parts := _PLACE.fullmatch(place)) is None or not parts[1]:
        return ""
    port = int(parts[2]) if parts[2] else port
    if secure is None:
        secure = port == 443 or card_url.lower().startswith("https:")
    try:
        return grpc_target(f"{'grpcs' if secure else 'grpc'}://{parts[1]}:{port}").url
    except BadUrl:
        return ""
