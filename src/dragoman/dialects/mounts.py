"""Mounts: the paths under which an agent is reached, and the official versions served there.

Invariant: the two mounts here belong to no system; every other mount is part of its system's value.
"""

from msgspec import Struct


class Mount(Struct, frozen=True):
    """A kind of mount. `path` is its pattern: `/agents/{id}` is the mount of every agent, `/a2a` only of the default.

    `rpc` and `rest` are the official versions that it serves over JSON-RPC and over HTTP+JSON; its card lists them.
    With `fixed` its card lists them for every agent, whatever versions the agent is configured for.
    """

    path: str
    rpc: tuple[str, ...]
    rest: tuple[str, ...]
    fixed: bool = False

    @property
    def names_agents(self) -> bool:
        """Whether the path names the agent."""
        return self.path.endswith("{id}")

    @property
    def catches_all(self) -> bool:
        """Whether any path looks like one of an agent here, known or not."""
        return self.path == "/{id}"

    @property
    def stem(self) -> tuple[str, ...]:
        """The segments of the path before the agent's id."""
        return tuple(segment for segment in self.path.removesuffix("{id}").split("/") if segment)


ROOT = Mount("/", ("1.0", "0.3"), ("1.0", "0.3"))
AGENT = Mount("/agents/{id}", ("1.0", "0.3"), ("1.0", "0.3"))
