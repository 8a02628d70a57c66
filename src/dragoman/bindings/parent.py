"""The application in which a server is mounted: what it knows of its callers.

Invariant: nothing that the application puts into a request names a caller by itself. Only its `authenticate` does, and
the principal that it returns has the rights of one kind of caller, never those of a key of this server's store.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.bindings.request import PARENT_SCOPE, Request
from dragoman.model.errors import Forbidden, Unauthorized
from dragoman.model.principal import MEMBER_PREFIX, Principal, Sharing, Team, join_team, reach_of

NO_TEAMS: Mapping[str, Team] = {}

ID_CHARACTERS_MAX = 500
"""Ids are keys of indexes; PostgreSQL refuses entries of more than 2,704 bytes."""

Authenticate = Callable[[Mapping[str, Any]], Principal | Awaitable[Principal | None] | None]
"""Finds the caller of a request by its ASGI scope, as the application has left it; None: the application knows nobody.

It is called for each request that needs a caller, in the event loop. An exception with a `status_code` of 401 or 403,
as web frameworks have, refuses the request.
"""


class Parent:
    """The application around a mounted server. Without `authenticate`, what it knows of its callers counts nothing.

    A principal that it names may be of one of the `teams`.
    """

    def __init__(self, authenticate: Authenticate | None = None, teams: Mapping[str, Team] = NO_TEAMS) -> None:
        self._authenticate = authenticate
        self._teams = teams

    @property
    def authenticates(self) -> bool:
        """Whether the application says who the callers are."""
        return self._authenticate is not None

    async def identify(self, request: Request, *, public: bool = False) -> Principal | None:
        """The caller that the application names; None if it names nobody.

        With `public`, strangers may read the answer, so that a 401 of the application names nobody. Raises Unauthorized
        or Forbidden if it refuses the request, TypeError if its answer cannot be used.
        """
        if self._authenticate is None:
            return None
        try:
            found = self._authenticate(request.scope.get(PARENT_SCOPE, request.scope))
            if inspect.isawaitable(found):
                found = await found
        except Exception as error:
            match getattr(error, "status_code", None):
                case 401 if public:
                    return None
                case 401:
                    raise Unauthorized("the application does not accept these credentials") from error
                case 403:
                    raise Forbidden("the application does not let this caller in") from error
            raise
        return None if found is None else self._join(_check_principal(found))

    def _join(self, principal: Principal) -> Principal:
        """The principal in its team. Raises TypeError for a team that there is not."""
        if not principal.team:
            return principal
        team = self._teams.get(principal.team)
        if team is None:
            raise TypeError(
                f"authenticate returned a Principal of the team {principal.team!r}, and no [[teams]] has that id: add "
                "the table, or leave the team out"
            )
        return join_team(replace(principal, team=""), team)


def _check_principal(found: object) -> Principal:
    """The principal, with nothing in it that belongs to keys. Raises TypeError, which names the field and the fix."""
    if not isinstance(found, Principal):
        raise TypeError(f"authenticate returned {type(found).__name__}: give a dragoman.Principal, or None for nobody")
    try:
        principal = msgspec.convert(msgspec.to_builtins(found), Principal)  # a role may be given as text
    except msgspec.ValidationError as error:
        raise TypeError(f"authenticate returned a Principal that cannot be used: {error}") from error
    # Stores and logs have it: PostgreSQL keeps no NUL, no store half of a surrogate pair, a log no line within a line.
    if not 0 < len(principal.id) <= ID_CHARACTERS_MAX or not principal.id.isprintable():
        raise TypeError(
            "authenticate returned a Principal whose id cannot be kept: give 1 to "
            f"{ID_CHARACTERS_MAX} printable characters, equal for one owner of tasks"
        )
    if principal.id.startswith(MEMBER_PREFIX):
        raise TypeError(
            f"authenticate returned a Principal whose id begins with {MEMBER_PREFIX}, as those of members of teams do: "
            "give the id without it, and the team as `team`"
        )
    agents = reach_of(principal.role, principal.agents)
    return replace(
        principal, agents=agents, key="", works=False, one_person=False, shared=Sharing.NONE, team_limits=None
    )
