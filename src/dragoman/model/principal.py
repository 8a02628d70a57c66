"""Principal: the identity of a caller, and its rights.

Invariant: a task belongs to exactly one principal, the one that made it.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class AccessRole(StrEnum):
    """The role of a principal.

    A caller uses agents. An agent's own worker also does its tasks. A monitor reads the metrics, and reaches no agent.
    An admin uses agents and reads the metrics. An operator uses the admin API, which reads and changes the tasks of
    everybody.
    """

    CALLER = "caller"
    AGENT = "agent"
    MONITOR = "monitor"
    ADMIN = "admin"
    OPERATOR = "operator"


class Scope(StrEnum):
    """A group of operations that a principal may use. Keys and tokens are limited by these words."""

    SEND = "send"
    READ = "read"
    CANCEL = "cancel"
    PUSH = "push"
    CARD = "card"


class KeyLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of a key, in place of the settings of the same names. None: as the setting says.

    Requests in a second on average; tasks that have not ended; tasks that are made within a day (UTC); tokens that the
    runs that ended on a day have used before another message is refused.
    """

    max_requests_per_s: int | None = None
    max_open_tasks: int | None = None
    max_daily_tasks: int | None = None
    max_daily_tokens: int | None = None


class Principal(Struct, frozen=True):
    """A caller. `id` owns the tasks it makes.

    `agents` are the ids of the agents it may reach, `scopes` the operations it may use there; None means all. A
    principal of role `AGENT` may also report on tasks of these agents, as a worker does, and so may one that `works`
    although its role does not say so (see `Authenticator`). `limits` are those of its key, if it has its own. `key` is
    the id of the key that was sent, or that the session was begun with; empty for other credentials.
    """

    id: str
    role: AccessRole = AccessRole.CALLER
    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] | None = None
    limits: KeyLimits | None = None
    key: str = ""
    works: bool = False

    def reaches(self, agent: str) -> bool:
        """Whether the principal may use this agent at all."""
        return self.agents is None or agent in self.agents

    def works_for(self, agent: str) -> bool:
        """Whether the principal may report on this agent's tasks."""
        return (self.role is AccessRole.AGENT or self.works) and self.reaches(agent)

    @property
    def scrapes(self) -> bool:
        """Whether the principal may read the metrics."""
        return self.role in (AccessRole.MONITOR, AccessRole.ADMIN, AccessRole.OPERATOR)

    @property
    def operates(self) -> bool:
        """Whether the principal may use the admin API. One that is limited to agents or scopes may not."""
        return self.role is AccessRole.OPERATOR and self.agents is None and self.scopes is None


OPERATOR_PREFIX = "operator:"
"""Begins the ids of operators who use the store's file, or the token beside it, rather than a key."""

LOCAL_OPERATOR = f"{OPERATOR_PREFIX}local"
"""The id of such an operator whose login is unknown, as in a browser."""

LOGIN_CHARACTERS = 100
"""Most characters of a login that are part of an id. Those of Linux have at most 32."""


def name_operator(login: str) -> str:
    """The id of an operator by the login name on the machine where the command is typed."""
    plain = "".join(sign for sign in login if sign.isprintable() and not sign.isspace())
    return OPERATOR_PREFIX + plain[:LOGIN_CHARACTERS] if plain else LOCAL_OPERATOR


def reach_of(role: AccessRole, agents: Iterable[str] | None) -> frozenset[str] | None:
    """The agents that a credential of `role` reaches, which names `agents`: a monitor reaches none."""
    if role is AccessRole.MONITOR:
        return frozenset()
    return None if agents is None else frozenset(agents)


ANONYMOUS = Principal("anonymous", AccessRole.ADMIN, works=True)
"""The principal of every caller on a server without authentication."""
