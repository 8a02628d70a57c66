"""ConfigError for a setting that cannot be used, and the checks that the tables of the file share.

Invariant: the message names the source, the key, the value and what is allowed. A value that may be a secret in the
wrong place is not shown.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

T = TypeVar("T")


class ConfigError(Exception):
    """A setting that cannot be used. The message names the source, the key, the value and what is allowed."""

    def __init__(self, source: str, key: str, value: object, allowed: str, *, shows_value: bool = True) -> None:
        named = f"{key} = {value!r}: " if shows_value else f"{key}: "
        super().__init__(f"{source}: {named if key else ''}{allowed}")
        self.source = source
        self.key = key
        self.value = value
        self.allowed = allowed
        self.shows_value = shows_value


def check_keys(
    source: str, table: Mapping[str, object], known: Iterable[str], path: str, offered: Iterable[str] | None = None
) -> None:
    """Raises ConfigError for a key that is not `known`. Suggests one of those `offered` (None: all)."""
    every = frozenset(known)
    names = sorted(every if offered is None else offered)
    for key in table:
        if key not in every:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            # A text under a misspelled name such as `apikey` may be a secret, so its value is not printed.
            shown = not isinstance(table[key], str)
            raise ConfigError(source, path + key, table[key], f"no such setting; {hint}", shows_value=shown)


HTTP = ("http", "https")


def check_url(
    source: str, key: str, url: str, allowed: str, *, prefix: str = "", schemes: Sequence[str] = HTTP
) -> None:
    """Raises ConfigError for a URL that cannot be called, or holds a password. The file has `prefix` before it."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
        parts = urlsplit("")
    if not sound:
        raise ConfigError(source, key, prefix + url, allowed)
    if parts.username is not None or parts.password is not None:
        raise ConfigError(source, key, None, "must not hold a password: use `credentials`", shows_value=False)


def convert_table(
    source: str,
    path: str,
    table: Mapping[str, Any],
    into: type[T],
    allowed: Mapping[str, str],
    *,
    shows_value: bool = False,
) -> T:
    """The keys of a table as an `into`. Raises ConfigError, with what is `allowed` at a key that is not a text."""
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        place = str(error).partition(" - at `$.")[2].rstrip("`") or "run"  # the one key that a table must have
        key = re.split(r"[.\[]", place)[0]
        said = allowed.get(key, "must be text")
        raise ConfigError(source, f"{path}.{place}", table.get(key), said, shows_value=shows_value) from error
