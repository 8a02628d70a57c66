"""The files whose change makes a developer's server reload: Python below some folders, and the configuration.

Invariant: a look never follows a link to a folder, and never enters folders of tools: hidden ones, environments,
packages of others.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
"""Folders whose files nobody edits."""

ENVIRONMENT = "pyvenv.cfg"
"""The file that tells a virtual environment."""

FILES_MAX = 10_000
"""Most files that are looked at: each costs a microsecond or two, several times a second."""

Stamp = tuple[int, int, int]
"""Tells whether a file has changed: its modification time in ns, its size, its inode."""


class SourceFiles:
    """The `.py` files below `folders`, and the `others`, whether they exist or not."""

    def __init__(self, folders: Iterable[Path], others: Iterable[Path] = ()) -> None:
        resolved = sorted({folder.resolve() for folder in folders})
        self.folders = tuple(
            folder for folder in resolved if not any(folder.is_relative_to(up) for up in resolved if up != folder)
        )
        self._others = tuple(others)

    def stamps(self) -> dict[str, Stamp]:
        """The stamp of each file that exists, of the first `FILES_MAX`."""
        found: dict[str, Stamp] = {}
        for path in self._paths():
            try:
                stat = os.stat(path)
            except OSError:
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if len(found) >= FILES_MAX:
                break
        return found

    def _paths(self) -> Iterator[str]:
        yield from map(str, self._others)
        for top in self.folders:
            for folder, below, names in os.walk(top):
                if ENVIRONMENT in names:
                    below.clear()
                    continue
                below[:] = sorted(name for name in below if not name.startswith(".") and name not in FOREIGN)
                yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))
