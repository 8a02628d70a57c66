"""Agents elsewhere that an operator tries by their URL: `agents` fetches their cards and carries the exchanges.

`values` has what is given and answered, `ways` decides which addresses may be dialled, `exchange` is one exchange with
an agent, and `feed` its updates as a stream.
"""

from dragoman.bindings.remote.agents import RemoteAgents
from dragoman.bindings.remote.ways import RemoteWays

__all__ = ["RemoteAgents", "RemoteWays"]
