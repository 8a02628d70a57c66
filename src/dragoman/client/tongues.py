"""The dialects that a client speaks, by name.

Invariant: a dialect is loaded when it is first spoken; a client of one does not pay for six.
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
"""Names as `dialect=` takes them, and where each is."""


def tongue(dialect: str | Tongue) -> Tongue:
    """The dialect of that name. Raises ValueError if there is none."""
    if isinstance(dialect, Tongue):
        return dialect
    if dialect not in PACKAGES:
        raise ValueError(f"dialect {dialect!r} is not known: use one of {', '.join(PACKAGES)}")
    found = import_module(f"dragoman.dialects.{PACKAGES[dialect]}.tongue").TONGUE
    assert isinstance(found, Tongue)
    return found


def double_base64(spoken: Tongue) -> Tongue:
    """The dialect as spoken over HTTP+JSON by agents that put the bytes of files into base64 twice: only 0.3 has it."""
    if spoken is not tongue("0.3"):
        return spoken
    found = import_module("dragoman.dialects.v03.tongue").TWICE
    assert isinstance(found, Tongue)
    return found
