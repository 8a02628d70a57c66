"""The `[[teams]]` tables of the file: teams of callers, who is in them, and what they may do and share.

Invariant: no two teams have the same id, and no two name the same value of the same claim.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from dragoman.config.agents import AGENT_ID, NAME_FORM
from dragoman.config.errors import ConfigError, check_keys, convert_table

TEAM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)

TEXT_MAX = 200
"""Most characters of a claim, and of its value."""


class TeamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`limits`: those of a key, by the same names, for all members of the team together. None: no limit."""

    max_requests_per_s: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    max_open_tasks: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None = None
    max_daily_tasks: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | None = None
    max_daily_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)] | None = None


class TeamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`[[teams]]`: a team. Callers are in it by a key of the team, or by a token whose `claim` has the `value`.

    Its members reach no other `agents`; None: all. `shared` is what they may do with each other's tasks.
    """

    id: str
    claim: str | None = None
    value: str | None = None
    agents: tuple[str, ...] | None = None
    limits: TeamLimits = TeamLimits()
    shared: Literal["none", "read", "all"] = "none"


_ALLOWED: Mapping[str, str] = {
    "agents": 'must be a list of ids of agents: agents = ["echo"]',
    "limits": "must be a table: limits = { max_open_tasks = 20 }",
    "shared": 'must be "none", "read" or "all"',
}

_ALLOWED_LIMITS = dict.fromkeys(TeamLimits.__struct_fields__, "must be a whole number from 1")


def read_teams(source: str, tables: object) -> tuple[TeamEntry, ...]:
    """The tables `[[teams]]` of a file. Raises ConfigError."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(source, "teams", tables, "must be tables: write [[teams]] before each")
    teams: list[TeamEntry] = []
    for index, table in enumerate(tables):
        teams.append(_read_team(source, f"teams[{index}]", table, teams))
    return tuple(teams)


def _read_team(source: str, path: str, table: dict[str, Any], earlier: Sequence[TeamEntry]) -> TeamEntry:
    check_keys(source, table, TeamEntry.__struct_fields__, f"{path}.")
    if "id" not in table:
        raise ConfigError(source, path, None, "must have the key id", shows_value=False)
    if isinstance(limits := table.get("limits"), dict):
        place = f"{path}.limits"
        check_keys(source, limits, TeamLimits.__struct_fields__, f"{place}.")
        table = table | {"limits": convert_table(source, place, limits, TeamLimits, _ALLOWED_LIMITS, shows_value=True)}
    team = convert_table(source, path, table, TeamEntry, _ALLOWED, shows_value=True)
    _check(source, path, team)
    for other in earlier:
        if other.id == team.id:
            raise ConfigError(source, f"{path}.id", team.id, "stands twice: give each team an id of its own")
        if team.claim is not None and (other.claim, other.value) == (team.claim, team.value):
            raise ConfigError(
                source, f"{path}.value", team.value, f"is that of team {other.id}, too: a token is in one team"
            )
    return team


def _check(source: str, path: str, team: TeamEntry) -> None:
    """Raises ConfigError."""
    if not TEAM_ID.fullmatch(team.id):
        raise ConfigError(source, f"{path}.id", team.id, f"must be {NAME_FORM}")
    if (team.claim is None) != (team.value is None):
        given = "claim" if team.value is None else "value"
        missing = "value" if team.value is None else "claim"
        raise ConfigError(
            source, f"{path}.{given}", getattr(team, given), f"goes with {missing}: set both, or leave both out"
        )
    for name in ("claim", "value"):
        text = getattr(team, name)
        if text is not None and not 0 < len(text) <= TEXT_MAX:
            raise ConfigError(source, f"{path}.{name}", text, f"must have 1 to {TEXT_MAX} characters")
    if team.agents == ():
        raise ConfigError(source, f"{path}.agents", [], "must name at least one agent, or be left out for all")
    for place, agent in enumerate(team.agents or ()):
        if not AGENT_ID.fullmatch(agent):
            raise ConfigError(source, f"{path}.agents[{place}]", agent, f"must be the id of an agent, {NAME_FORM}")
