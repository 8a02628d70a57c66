"""Principal: the identity of a caller, and its rights.

Invariant: a task belongs to exactly one principal, the one that made it. The id of a member of a team names the team,
so that nobody outside of the team has the same id, whatever their key is called.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


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


class Sharing(StrEnum):
    """What the members of a team may do with each other's tasks.

    none: nothing, they do not exist for them. read: get, list and follow them. all: also answer and cancel them.
    """

    NONE = "none"
    READ = "read"
    ALL = "all"


class Team(Struct, frozen=True, kw_only=True):
    """A team of callers: the agents that its members reach (None: all), its limits as a whole, and what is shared."""

    id: str
    agents: frozenset[str] | None = None
    limits: KeyLimits | None = None
    shared: Sharing = Sharing.NONE


class Principal(Struct, frozen=True):
    """A caller. `id` owns the tasks it makes.

    `agents` are the ids of the agents it may reach, `scopes` the operations it may use there; None means all. A
    principal of role `AGENT` may also report on tasks of these agents, as a worker does, and so may one that `works`
    although its role does not say so (see `Authenticator`). `limits` are those of its key, if it has its own. `key` is
    the id of the key that was sent, or that the session was begun with; empty for other credentials. `one_person`: one
    person alone uses that key.

    A member of a `team` has an id that `member_id` made, and reaches none but the agents of its team. `shared` is what
    members may do with each other's tasks, and `team_limits` are those of the team as a whole. Without a team it is
    empty.
    """

    id: str
    role: AccessRole = AccessRole.CALLER
    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] | None = None
    limits: KeyLimits | None = None
    key: str = ""
    works: bool = False
    one_person: bool = False
    team: str = ""
    shared: Sharing = Sharing.NONE
    team_limits: KeyLimits | None = None

    def reaches(self, agent: str) -> bool:
        """Whether the principal may use this agent at all."""
        return self.agents is None or agent in self.agents

    def works_for(self, agent: str) -> bool:
        """Whether the principal may report on this agent's tasks. A worker does those of every team, so it has none."""
        return (self.role is AccessRole.AGENT or self.works) and not self.team and self.reaches(agent)

    @property
    def scrapes(self) -> bool:
        """Whether the principal may read the metrics. They are those of the whole server."""
        return not self.team and self.role in (AccessRole.MONITOR, AccessRole.ADMIN, AccessRole.OPERATOR)

    @property
    def operates(self) -> bool:
        """Whether the principal may use the admin API. One that is limited to agents or scopes may not.

        A member of a team has the agents of the team, and may use it for what is the team's: see `join_team`.
        """
        return self.role is AccessRole.OPERATOR and self.scopes is None and (self.agents is None or bool(self.team))


MEMBER_PREFIX = "team:"
"""Begins the ids of members of teams. The id of the team follows, which has no slash, then a slash, and the id that
they have by themselves."""

KEY_PREFIX = "key:"
"""Begins the id of a principal that is told by its keys; the name of the keys follows."""


def member_id(team: str, own_id: str) -> str:
    """The id of a principal in a team, by the id that its credential has by itself: `team:search/key:ann`."""
    return f"{MEMBER_PREFIX}{team}/{own_id}"


def team_of(principal_id: str) -> str:
    """The team that the id of a principal names; empty if it names none."""
    return principal_id[len(MEMBER_PREFIX) :].partition("/")[0] if principal_id.startswith(MEMBER_PREFIX) else ""


def own_id(principal_id: str) -> str:
    """The id that the credential of a principal has by itself, without its team."""
    return principal_id.partition("/")[2] if principal_id.startswith(MEMBER_PREFIX) else principal_id


def key_owner(name: str, team: str) -> str:
    """The id of the principal whose keys have a name, in a team or (empty) in none."""
    alone = KEY_PREFIX + name
    return member_id(team, alone) if team else alone


def join_team(principal: Principal, team: Team) -> Principal:
    """The principal as a member of a team: with an id in it, and without the agents that the team does not reach.

    An operator who is limited beyond that is a caller there, as such a one operates nothing without a team either.
    """
    agents = principal.agents
    if team.agents is not None:
        agents = team.agents if agents is None else agents & team.agents
    return replace(
        principal,
        id=member_id(team.id, principal.id),
        role=AccessRole.CALLER if principal.role is AccessRole.OPERATOR and not principal.operates else principal.role,
        agents=agents,
        team=team.id,
        shared=team.shared,
        team_limits=team.limits,
    )


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
