"""TeamFacts: what a server knows at this moment, as the operators of one team are told.

Invariant: agents that the team does not reach are left out, and so is what comes of the work of all teams together.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.admin.overview import AgentFacts, KnownWorker, UpstreamLine, WorkersHere
from dragoman.admin.switches import Switch
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.task import TaskStatus


def _unsigned(switch: Switch | None) -> Switch | None:
    """A switch without who has set it and why, which is for operators of the server."""
    return None if switch is None else replace(switch, by="", reason="")


class TeamFacts:
    """The `ServerFacts` of a team that reaches `agents`; None: all. `whole` returns those of the server."""

    def __init__(self, whole: Callable[[], ServerFacts], agents: frozenset[str] | None) -> None:
        self._whole = whole
        self._agents = agents

    def agents(self) -> tuple[AgentFacts, ...]:
        """See `ServerFacts`."""
        return tuple(
            replace(
                agent,
                switch=_unsigned(agent.switch),
                members=tuple(replace(member, switch=_unsigned(member.switch)) for member in agent.members),
            )
            for agent in self._whole().agents()
            if self._reaches(agent.id)
        )

    def workers(self) -> tuple[WorkersHere, ...]:
        """See `ServerFacts`. Workers do the tasks of every team."""
        return ()

    async def known_workers(self) -> tuple[KnownWorker, ...]:
        """See `ServerFacts`."""
        return ()

    def upstreams(self) -> tuple[UpstreamLine, ...]:
        """See `ServerFacts`. They are called for every team, so that calls are not counted."""
        lines = (line for line in self._whole().upstreams() if self._reaches(line.agent))
        return tuple(replace(line, succeeded=0, refused=0, failed=0, url="") for line in lines)

    def open_streams(self) -> int:
        """See `ServerFacts`. They are those of every team."""
        return 0

    async def ask_upstream(self, agent: str, notes: UpstreamNotes) -> TaskStatus | str:
        """See `ServerFacts`."""
        return await self._whole().ask_upstream(agent, notes)

    def _reaches(self, agent: str) -> bool:
        return self._agents is None or agent in self._agents
