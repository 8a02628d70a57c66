"""The user's own modules: which loaded modules they are, whether their files changed, and how to import them again.

Invariant: installed packages, the standard library and Dragoman itself are never reimported. After a failed import
`sys.modules` has the same modules as before.
"""

import importlib
import importlib.util
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of directories with installed packages: modules below them are never the user's own."""

Stamp = tuple[int, int, int]
"""Tells whether a file has changed: its modification time in ns, its size, its inode."""


class Own:
    """The loaded modules from files below `roots`."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(dict.fromkeys(root.resolve() for root in roots))
        self._system = tuple(
            Path(path).resolve()
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
            if (path := sysconfig.get_path(name)) is not None
        )

    def modules(self) -> dict[str, ModuleType]:
        """The modules by name, including packages."""
        return {name: module for name, module in tuple(sys.modules.items()) if self._is_own(name, module)}

    def stamps(self) -> dict[str, Stamp | None]:
        """The stamp of each module's file; None: the file is gone."""
        files = {file for module in self.modules().values() if (file := getattr(module, "__file__", None))}
        return {file: _stamp(file) for file in sorted(files)}

    @contextmanager
    def fresh(self, changed: Iterable[str]) -> Iterator[None]:
        """Import the modules anew in this block; if it fails, the old modules are restored.

        The bytecode of the files that `changed` is deleted, so that they are compiled again.
        """
        old = self.modules()
        for file in changed:  # bytecode is matched by a time in whole seconds, and edits may come faster
            with suppress(OSError, NotImplementedError):
                os.unlink(importlib.util.cache_from_source(file))
        for name in old:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        linecache.checkcache()
        try:
            yield
        except BaseException:
            self.restore(old)
            raise

    def restore(self, old: Mapping[str, ModuleType]) -> None:
        """Put the modules `old` back in place of those imported since."""
        for name in self.modules():
            sys.modules.pop(name, None)
        sys.modules.update(old)

    def _is_own(self, name: str, module: ModuleType) -> bool:
        if name == "__main__" or name == "dragoman" or name.startswith("dragoman."):
            return False
        file = getattr(module, "__file__", None)
        if file is None:  # a directory without __init__.py
            return any(self._is_below(Path(path)) for path in getattr(module, "__path__", ()))
        return isinstance(file, str) and file.endswith(".py") and self._is_below(Path(file))

    def _is_below(self, path: Path) -> bool:
        path = path.resolve()
        return (
            any(path.is_relative_to(root) for root in self._roots)
            and INSTALLED.isdisjoint(path.parts)
            and not any(path.is_relative_to(place) for place in self._system)
        )


def roots_of(places: Iterable[str]) -> Iterator[Path]:
    """Yield where the user's own modules are.

    These are the working directory, the directory of each file that agents name, and the package or file of each
    module that they name.
    """
    yield Path.cwd()
    for place in places:
        if place.endswith(".py") or "/" in place:
            yield Path(place).parent
        elif isinstance(file := getattr(sys.modules.get(place.partition(".")[0]), "__file__", None), str):
            path = Path(file)
            yield path.parent if path.name == "__init__.py" else path


def _stamp(file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
