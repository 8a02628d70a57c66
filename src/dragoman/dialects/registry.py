"""The registry of all systems. A new one is a package with a value `SYSTEM`, and a row here.

Invariant: a package is loaded on first use, so that a client of one system does not pay for all of them.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from msgspec import Struct

from dragoman.dialects.api import PushForm
from dragoman.dialects.system import ServerProfile, System


class Entry(Struct, frozen=True):
    """A row: the package below `dragoman.dialects`, and what is known of its value without loading it.

    `calls`: it has a client's side. `poses`: a server can run as it.
    """

    package: str
    calls: bool = True
    poses: bool = False


SYSTEMS: dict[str, Entry] = {
    "1.0": Entry("v1"),
    "0.3": Entry("v03"),
    "beeos": Entry("beeos", poses=True),
    "kaos": Entry("kaos", poses=True),
    "evoai": Entry("evoai", poses=True),
    "protoagent": Entry("protoagent", poses=True),
    "fasta2a": Entry("fasta2a", calls=False),
    "python-a2a": Entry("python_a2a", calls=False),
}
"""Every system by its name: in `dialect`, in `--profile`, and in the tasks made in its dialect."""

DIALECTS = tuple(name for name, entry in SYSTEMS.items() if entry.calls)
"""Names for a client's `dialect`."""

PROFILES = tuple(name for name, entry in SYSTEMS.items() if entry.poses)
"""Names for `--profile`."""


@cache
def load_system(name: str) -> System:
    """Load the system of that name. Raises KeyError if there is none."""
    found = import_module(f"dragoman.dialects.{SYSTEMS[name].package}").SYSTEM
    assert isinstance(found, System)
    return found


def load_systems() -> tuple[System, ...]:
    """Load all systems, in the order of the table."""
    return tuple(map(load_system, SYSTEMS))


def push_forms() -> Mapping[str, PushForm]:
    """How the systems that have webhooks call them, by the name of each."""
    return {each.name: each.dialect.push for each in load_systems() if each.dialect.push is not None}


def load_profile(name: str) -> ServerProfile:
    """Load the profile of a system in `PROFILES`."""
    profile = load_system(name).profile
    assert profile is not None
    return profile
