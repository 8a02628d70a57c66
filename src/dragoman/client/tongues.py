"""The dialects that a client supports, by name.

Invariant: a dialect is loaded on first use, so that a client of one does not pay for six.
"""

from dragoman.dialects.systems import DIALECTS, load_system
from dragoman.dialects.tongue import Tongue


def tongue(dialect: str | Tongue) -> Tongue:
    """Load the dialect of that name. Raises ValueError if there is none."""
    if isinstance(dialect, Tongue):
        return dialect
    if dialect not in DIALECTS:
        raise ValueError(f"dialect {dialect!r} is not known: use one of {', '.join(DIALECTS)}")
    found = load_system(dialect).tongue
    assert found is not None
    return found


def double_base64(spoken: Tongue) -> Tongue:
    """Return the dialect for agents that encode the bytes of files in base64 twice over HTTP+JSON; only 0.3 differs."""
    if spoken is not tongue("0.3"):
        return spoken
    from dragoman.dialects.v03.tongue import TWICE

    return TWICE
