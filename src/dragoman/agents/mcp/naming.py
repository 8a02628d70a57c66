"""Names: what a model calls the tools of servers.

Invariant: a name means the same tool as long as the process lasts, and a model's API takes it: 1 to 64 of letters,
digits, `_` and `-`.
"""

import hashlib
import re

from msgspec import Struct

CHARS_MAX = 64
DIGEST_CHARS = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


class Named(Struct, frozen=True):
    """A tool: its server, by number, and what the server calls it."""

    server: int
    tool: str


class Names:
    """The names that were given so far. With several servers each begins with its server's, whether that is needed or
    not: so what a name means does not depend on which of them could be reached."""

    def __init__(self, servers: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{server}__" if len(servers) > 1 else "" for server in servers)
        self._meant: dict[str, Named] = {}
        self._names: dict[Named, str] = {}

    def name(self, tool: Named) -> str:
        """What a model calls it."""
        if (name := self._names.get(tool)) is None:
            name = _plain(self._prefixes[tool.server], tool.tool)
            if name in self._meant:  # of this server two tools are spelled alike
                name = _cut(name, tool.tool)
            self._names[tool] = name
            self._meant[name] = tool
        return name

    def meant(self, name: str) -> Named | None:
        """The tool that a model calls so; None if none was ever offered to it."""
        return self._meant.get(name)


def _plain(prefix: str, tool: str) -> str:
    name = prefix + (_OTHER.sub("_", tool) or "_")
    return name if len(name) <= CHARS_MAX else _cut(name, tool)


def _cut(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
    return f"{name[: CHARS_MAX - DIGEST_CHARS - 1]}_{digest}"
