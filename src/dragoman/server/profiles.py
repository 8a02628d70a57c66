"""Profiles: what the agents of the server say of themselves, now.

Invariant: which agents there are never changes: other agents have another one of these. What an agent of another server
says of itself may.
"""

from collections.abc import Iterator, Mapping

from dragoman.engine.api import Runner
from dragoman.model.card import Profile


class Profiles(Mapping[str, Profile]):
    """The profiles by agent id, read off the agents whenever they are asked for."""

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
