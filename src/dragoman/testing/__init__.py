"""For tests of agents and servers: run an agent without a server, ask it through one, and agents that are scripted.

`agents.py` is a link to `examples/agents.py`: one definition, to be read there and installed here.
"""

from typing import TYPE_CHECKING

from dragoman.testing.run import Ran, run

if TYPE_CHECKING:
    from dragoman.testing.loopback import ClientFixture, client

__all__ = ["ClientFixture", "Ran", "client", "run"]


def __getattr__(name: str) -> object:
    """What needs a server brings one along, which is loaded when it is first used."""
    if name not in ("ClientFixture", "client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dragoman.testing import loopback

    value = globals()[name] = getattr(loopback, name)
    return value
