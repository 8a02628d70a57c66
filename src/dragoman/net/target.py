"""Parses URLs: a stranger's URL by one strict grammar, or a refusal that says what is wrong.

Invariant: a URL that two parsers could read differently is refused, so the checked URL is the dialled one.
"""

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from dragoman.net.errors import BadUrl

MAX_URL = 2048
"""The length that every receiver, proxy and log on the way is known to accept, in characters."""

KNOWN_MAX = 4096
"""How many parsed URLs are remembered: the same webhooks are registered and called again and again."""

_WORD_MAX = 20
"""Most characters of the first segment of a path that `shown_url` shows."""

_SHOWN_MAX = 200
_PORTS = {"http": 80, "https": 443}
_GRPC = {"grpc": "http", "grpcs": "https"}
"""The schemes of gRPC endpoints, without and with TLS, and the schemes of HTTP that have the same default ports."""

_SPLIT = re.compile(r"(https?)://([^/?]*)(.*)", re.IGNORECASE | re.ASCII)
_PLACE = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([^:]*))?", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_PRINTED = "".join(map(chr, range(0x21, 0x7F)))
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


class Target(Struct, frozen=True):
    """A URL that can be called. `host` is in lower case, an IPv6 address has no brackets, and a trailing dot is kept.

    `origin` is the same for all URLs of one host and port, however they are written: `https://example.org:443`.
    """

    url: str
    scheme: str
    host: str
    port: int
    origin: str

    @property
    def shown(self) -> str:
        """The URL for logs and answers, without its query, which may hold secrets."""
        return self.url.partition("?")[0]


@lru_cache(KNOWN_MAX)
def target(url: str, longest: int = MAX_URL) -> Target:
    """Parse a URL. Raises BadUrl, which says what to change, if the URL is not in its plainest spelling."""
    if fault := _odd(url, longest):
        raise BadUrl(_shown(url), fault)
    if (split := _SPLIT.fullmatch(url)) is None:
        raise BadUrl(_shown(url), "use http://host:port/path or https://…")
    scheme, place, rest = split[1].lower(), split[2].lower(), split[3]
    if "@" in place:
        raise BadUrl(_shown(url), "must not hold a user or password; credentials are set apart from the URL")
    parts = _PLACE.fullmatch(place)
    if parts is None:
        raise BadUrl(_shown(url), "has more than a host and a port before its path")
    host, written = parts[1], parts[2]
    if written is not None and not (_PORT.fullmatch(written) and int(written) <= 65535):
        raise BadUrl(_shown(url), "its port must be a number from 1 to 65535")
    port = _PORTS[scheme] if written is None else int(written)
    if fault := _fault6(host) if host.startswith("[") else _fault_of_name(host):
        raise BadUrl(_shown(url), fault)
    path, _, query = rest.partition("?")
    asked = f"{path or '/'}?{query}" if query else path or "/"
    return Target(
        url=f"{scheme}://{place}{asked}",
        scheme=scheme,
        host=host.strip("[]"),
        port=port,
        origin=f"{scheme}://{host.removesuffix('.')}:{port}",
    )


def is_grpc(url: str) -> bool:
    """Whether a URL has the scheme of a gRPC endpoint."""
    return url.partition("://")[0].lower() in _GRPC


@lru_cache(KNOWN_MAX)
def grpc_target(url: str) -> Target:
    """Parse `grpc://host:port`, or `grpcs://host:port` for TLS. Raises BadUrl as `target` does, and for a path."""
    scheme, _, place = url.partition("://")
    if (over := _GRPC.get(scheme.lower())) is None:
        raise BadUrl(_shown(url), "use grpc://host:port or grpcs://…")
    to = target(f"{over}://{place}")
    if not to.url.endswith("/") or to.url.count("/") != 3:
        raise BadUrl(_shown(url), "has a path, which a gRPC endpoint does not have: use grpc://host:port")
    origin = f"{scheme.lower()}{to.origin.removeprefix(over)}"
    return Target(url=origin, scheme=scheme.lower(), host=to.host, port=to.port, origin=origin)


def endpoint_target(url: str) -> Target:
    """Parse the URL of an agent's endpoint, over HTTP or over gRPC. Raises BadUrl."""
    return grpc_target(url) if is_grpc(url) else target(url)


def parse_operator_url(url: str, shown: str) -> tuple[Target, str]:
    """Parse a URL that the operator chose, in any spelling. Also returns its `user:password`, or an empty string.

    The policy judges its address when it is dialled. Raises BadUrl, which calls the URL `shown`.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise BadUrl(shown, "its host is not a name that can be called") from None
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    asked = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    plain = quote(asked, safe=_PRINTED)
    origin = f"{parts.scheme}://{place}"
    to = Target(url=origin + plain, scheme=parts.scheme, host=host, port=port, origin=origin)
    user = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return to, user


@lru_cache(KNOWN_MAX)
def shown_url(url: str) -> str:
    """The URL of a webhook for operators: its host and the first word of its path. The rest may contain secrets.

    A first segment of more than 20 characters is shown as `…`: it may be a secret itself, as in the URLs of some bots.
    """
    scheme, separator, rest = url.partition("?")[0].partition("#")[0].partition("://")
    host, *path = rest.split("/", 2)
    if path and len(path[0]) > _WORD_MAX:
        path = ["…"]
    elif len(path) > 1 and path[1]:
        path[1] = "…"
    return scheme + separator + "/".join((host, *path))


def _odd(url: str, longest: int) -> str | None:
    """Return what is wrong with the characters of a URL, in any of its parts."""
    if len(url) > longest:
        return f"is longer than {longest} characters"
    if not url.isascii():
        return "has characters beyond ASCII: write its host in punycode (xn--…), the rest percent-encoded"
    if any(character <= " " or character == "\x7f" for character in url):
        return "has spaces or control characters: percent-encode them"
    if "\\" in url:
        return "has a backslash: use / or %5C"
    if "#" in url:
        return "has a fragment (#…), which is never sent: leave it out"
    return None


def _fault6(host: str) -> str | None:
    """Return what is wrong with an IPv6 address in brackets."""
    literal = host[1:-1]
    if "%" in literal:
        return "has an IPv6 address with a zone (%…), which names an interface of this machine"
    try:
        address = IPv6Address(literal)
    except AddressValueError:
        return "what is in the brackets of its host is not an IPv6 address"
    plain = {address.compressed}  # Python 3.13 writes a mapped address with its dotted part, 3.11 without: take both
    if address.ipv4_mapped is not None:
        plain |= {f"::ffff:{address.ipv4_mapped}", f"::ffff:{int(address) >> 16 & 0xFFFF:x}:{int(address) & 0xFFFF:x}"}
    return None if literal in plain else f"write its IPv6 address as [{address.compressed}]"


def _fault_of_name(host: str) -> str | None:
    """Return what is wrong with a host name, or with an IPv4 address in its place."""
    if not host:
        return "has no host"
    if "%" in host:
        return "has percent-encoding in its host: write it plainly"
    labels = host.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):  # as the WHATWG URL standard decides ("ends in a number")
        try:
            IPv4Address(host)
        except AddressValueError:
            return "has an IPv4 address in an odd spelling: write it plainly, four decimal numbers like 198.51.100.7"
        return None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return "its host is not a DNS name: letters, digits, - and _ between single dots, at most 63 in a row"
    return None


def _shown(url: str) -> str:
    """Return a refused URL as it may be shown: without its query, and without a user and password."""
    before = url.partition("?")[0]
    scheme, _, after = before.rpartition("@")[0].partition(":") if "@" in before else ("", "", "")
    shown = f"{scheme}:…@{before.rpartition('@')[2]}" if after else before.rpartition("@")[2]
    return repr(shown[:_SHOWN_MAX])
