"""Tools for tests: run an agent without a server or against a recorded task, call it through one, and example agents.

`agents.py` is a link to `examples/agents.py`: one definition, to be read there and installed here.
"""

from typing import TYPE_CHECKING

from dragoman.testing.run import Ran, run
from dragoman.testing.task_replay import Replayed, replay

if TYPE_CHECKING:
    from dragoman.testing.loopback import ClientFixture, client

__all__ = ["ClientFixture", "Ran", "Replayed", "client", "replay", "run"]


def __getattr__(name: str) -> object:
    """Load the parts that need a server when they are first used."""
    if name not in ("ClientFixture", "client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dragoman.testing import loopback

    value = globals()[name] = getattr(loopback, name)
    return value
