"""Who is calling, and what they may do.

Invariant: a task belongs to exactly one principal, the one that made it.
"""

from enum import StrEnum

from msgspec import Struct


class Role(StrEnum):
    """What a principal is to the server: one who calls agents, an agent's own worker, or the operator."""

    CALLER = "caller"
    AGENT = "agent"
    ADMIN = "admin"


class Scope(StrEnum):
    """What operations a principal may use, in groups: the words that keys and tokens are limited by."""

    SEND = "send"
    READ = "read"
    CANCEL = "cancel"
    PUSH = "push"
    CARD = "card"


class Principal(Struct, frozen=True):
    """A caller; `id` owns the tasks it makes.

    `agents` are the ids of those it may reach, `scopes` the operations it may use there; None: all. A role of `AGENT`
    or `ADMIN` may also report on tasks, as a worker does, for the agents it may reach.
    """

    id: str
    role: Role = Role.CALLER
    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] | None = None

    def reaches(self, agent: str) -> bool:
        """Whether it may use that agent at all."""
        return self.agents is None or agent in self.agents

    def works_for(self, agent: str) -> bool:
        """Whether it may report on that agent's tasks."""
        return self.role is not Role.CALLER and self.reaches(agent)


ANONYMOUS = Principal("anonymous", Role.ADMIN)
"""Every caller of a server that asks nobody who they are."""
