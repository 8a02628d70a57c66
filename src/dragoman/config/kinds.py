"""Kinds of settings: the allowed values in words, and the function that parses them.

Invariant: `parse` takes values of TOML and texts of the environment and flags, and raises ValueError for anything that
is not allowed.
"""

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from dragoman.store.path import ALLOWED, store_path

Number = TypeVar("Number", int, float)


class Kind(Struct, frozen=True):
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


def whole(low: int, high: int) -> Kind:
    """A whole number from `low` to `high`."""

    def parse(value: Any) -> int:
        number = value if type(value) is int else int(_matched(r"-?[0-9]{1,18}", value))
        return _within(number, low, high)

    return Kind(f"must be a whole number from {low} to {high}", parse)


def seconds(low: float, high: float) -> Kind:
    """A number of seconds from `low` to `high`, with a fraction or without."""

    def parse(value: Any) -> float:
        number = value if type(value) in (int, float) else float(_matched(r"[0-9]{1,18}(\.[0-9]{1,18})?", value))
        return float(_within(number, low, high))

    return Kind(f"must be a number of seconds from {low:g} to {high:g}", parse)


def _within(number: Number, low: float, high: float) -> Number:
    if not low <= number <= high:
        raise ValueError
    return number


def _matched(pattern: str, value: Any) -> str:
    found = re.fullmatch(pattern, _text(value), re.ASCII)
    if found is None:
        raise ValueError
    return found[0]


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _duration(value: Any) -> timedelta | None:
    if value == "forever":
        return None
    text = _matched(r"[0-9]{1,6}[smhdw]", value)
    return timedelta(**{UNITS[text[-1]]: int(text[:-1])})


def choice(*words: str) -> Kind:
    """One of `words`, in any case."""

    return Kind(f"must be {' or '.join(words)}", lambda value: words[words.index(_text(value).lower())])


def _host(value: Any) -> str:
    return _matched(r"\[[0-9A-Fa-f:.]+\]|[^\s/\[\]@]+", value).strip("[]")


def _store(value: Any) -> str:
    url = _text(value)
    store_path(url)
    return url


def _files(value: Any) -> str:
    found = _matched(r"folder:[^\0]+|s3://[a-z0-9][a-z0-9._-]{1,62}(/[^\s?#]*)?(\?[^\s#]*)?", value)
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
    url = _matched(r"https?://[^\s?#@\\]+", value)
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError
    return url.rstrip("/")


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
    return _matched(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", host)


def _network(value: Any) -> str:
    return str(ipaddress.ip_network(_text(value)))


ALGORITHMS_KNOWN = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Asymmetric signatures (RFC 7518 §3.1, RFC 8037, RFC 9864). With others, anybody who can verify can also forge."""


def _algorithm(value: Any) -> str:
    return ALGORITHMS_KNOWN[ALGORITHMS_KNOWN.index(_text(value))]


S3_OPTIONS = ("endpoint", "region", "path_style")
"""The query parameters of a bucket."""

TEXT = Kind("must be text that is not empty", _text)
NAME = Kind(
    "must be 1 to 64 letters, digits or '_', and not begin with a digit",
    lambda value: _matched(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value),
)
HOST = Kind("must be an IP address or a host name, without port", _host)
HEADER = Kind(
    "must be the name of a header, like X-Client-DN",
    lambda value: _matched(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", value),  # RFC 9110 §5.1
)
BOOLEAN = Kind("must be true or false", _boolean)
DURATION = Kind("must be a whole number with a unit, like 90s, 15m, 12h, 30d or 4w, or forever", _duration)
STORE = Kind(ALLOWED, _store)
FILES = Kind(
    "use folder:path, or s3://bucket/prefix?endpoint=https://…&region=… (both may be left out), without a key: that is "
    "taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    _files,
)
URL = Kind("must be a base URL like https://agents.example.org, without query", _http_url)
ORIGINS = Kind(
    "must be origins like https://app.example.org (in a file a list, else separated by commas), or *", _origins
)
HOSTS = Kind(
    "must be IP addresses or host names, without port (in a file a list, else separated by commas)",
    lambda value: tuple(_allowed_host(item) for item in _items(value)),
)
NETWORKS = Kind(
    "must be networks like 10.0.0.0/8 or fd00::/8 with no bits set beyond the prefix (in a file a list, else separated "
    "by commas)",
    lambda value: tuple(_network(item) for item in _items(value)),
)
ALGORITHMS = Kind(
    f"must be some of {', '.join(ALGORITHMS_KNOWN)} (in a file a list, else separated by commas)",
    lambda value: tuple(_algorithm(item) for item in _items(value)),
)
