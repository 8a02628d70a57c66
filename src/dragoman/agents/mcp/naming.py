"""Names: the names under which a model calls the tools of servers.

Invariant: a name stands for the same tool as long as the process lasts, and a model's API accepts it: 1 to 64 letters,
digits, `_` and `-`.
"""

import hashlib
import re

from msgspec import Struct

CHARS_MAX = 64
DIGEST_CHARS = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


class Named(Struct, frozen=True):
    """A tool: the number of its server, and its name there."""

    server: int
    tool: str


class Names:
    """The names given so far.

    With several servers, each name begins with its server's, whether needed or not. So the meaning of a name does not
    depend on which servers could be reached.
    """

    def __init__(self, servers: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{server}__" if len(servers) > 1 else "" for server in servers)
        self._meant: dict[str, Named] = {}
        self._names: dict[Named, str] = {}

    def name(self, tool: Named) -> str:
        """The name under which a model calls the tool."""
        if (name := self._names.get(tool)) is None:
            name = _spell(self._prefixes[tool.server], tool.tool)
            if name in self._meant:  # two tools of this server are spelled alike
                name = _cut(name, tool.tool)
            self._names[tool] = name
            self._meant[name] = tool
        return name

    def meant(self, name: str) -> Named | None:
        """The tool with that name; None if no such tool was ever offered to a model."""
        return self._meant.get(name)


def _spell(prefix: str, tool: str) -> str:
    name = prefix + (_OTHER.sub("_", tool) or "_")
    return name if len(name) <= CHARS_MAX else _cut(name, tool)


def _cut(name: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
    return f"{name[: CHARS_MAX - DIGEST_CHARS - 1]}_{digest}"
