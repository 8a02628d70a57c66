"""The parts of a server that an installation may be without, each a package of its own.

Invariant: the core imports such a package by this function alone. One whose files are not there is a part that nobody
asked for.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def load_optional(name: str) -> ModuleType | None:
    """Import a module of an optional part; None if this installation is without it."""
    return None if find_spec(name) is None else import_module(name)
