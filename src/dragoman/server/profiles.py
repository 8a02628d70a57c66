"""The current profiles of the server's agents.

Invariant: the set of agents never changes; a reload makes a new `Profiles`. The profile of an agent on another server
may change.
"""

from collections.abc import Iterator, Mapping

from dragoman.engine.api import Runner
from dragoman.model.card import Profile


class Profiles(Mapping[str, Profile]):
    """The profiles by agent id, read from the agents at each access."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners

    def __getitem__(self, agent: str) -> Profile:
        return self._runners[agent].profile

    def __contains__(self, agent: object) -> bool:
        return agent in self._runners

    def __iter__(self) -> Iterator[str]:
        return iter(self._runners)

    def __len__(self) -> int:
        return len(self._runners)
