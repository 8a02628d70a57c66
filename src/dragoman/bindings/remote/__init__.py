"""Agents elsewhere that an operator tries by their URL: `agents` fetches their cards and carries the exchanges.

`questions` has the rows of the admin API, and `values` what is given and answered. `ways` decides which addresses may
be dialled, `feed` streams an agent's updates, and `failures` words its failures. `examination` runs the doctor, and
`check` finds faults in a message.
"""

from dragoman.bindings.remote.agents import RemoteAgents
from dragoman.bindings.remote.ways import RemoteWays

__all__ = ["RemoteAgents", "RemoteWays"]
