"""TeamMembers: the owners of the tasks of a team.

Invariant: the ids of the members of a team are a range of all ids, so that the indexes of owners find them.
"""

from msgspec import Struct

from dragoman.model.principal import MEMBER_PREFIX


class TeamMembers(Struct, frozen=True):
    """Selects everybody in a team.

    Neither `first` nor `last` is the id of anybody: in that of a member, a slash and more follow the id of the team
    (`model.principal.member_id`).
    """

    team: str

    @property
    def first(self) -> str:
        """The beginning of their ids. It stands for the team as a whole where the name of an owner is kept."""
        return f"{MEMBER_PREFIX}{self.team}/"

    @property
    def last(self) -> str:
        """The end of the range: a zero is the sign after a slash."""
        return f"{MEMBER_PREFIX}{self.team}0"
