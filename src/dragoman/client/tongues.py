"""The dialects that a client supports, by name.

Invariant: a dialect is loaded on first use, so that a client of one does not pay for six.
"""

from importlib import import_module

from dragoman.dialects.tongue import Tongue

PACKAGES = {
    "1.0": "v1",
    "0.3": "v03",
    "beeos": "beeos",
    "kaos": "kaos",
    "evoai": "evoai",
    "protoagent": "protoagent",
}
"""Names for `dialect=`, and the package of each."""


def tongue(dialect: str | Tongue) -> Tongue:
    """Load the dialect of that name. Raises ValueError if there is none."""
    if isinstance(dialect, Tongue):
        return dialect
    if dialect not in PACKAGES:
        raise ValueError(f"dialect {dialect!r} is not known: use one of {', '.join(PACKAGES)}")
    found = import_module(f"dragoman.dialects.{PACKAGES[dialect]}.tongue").TONGUE
    assert isinstance(found, Tongue)
    return found


def double_base64(spoken: Tongue) -> Tongue:
    """Return the dialect for agents that encode the bytes of files in base64 twice over HTTP+JSON; only 0.3 differs."""
    if spoken is not tongue("0.3"):
        return spoken
    found = import_module("dragoman.dialects.v03.tongue").TWICE
    assert isinstance(found, Tongue)
    return found
