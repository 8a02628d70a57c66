"""For tests of agents and of servers: run an agent without a server, and agents that behave as scripted.

`agents.py` is a link to `examples/agents.py`: one definition, to be read there and installed here.
"""

from dragoman.testing.run import Ran, run

__all__ = ["Ran", "run"]
