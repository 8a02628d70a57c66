"""The facts of a server for its administration."""

from dragoman.admin.overview import AgentFacts, UpstreamLine, WorkerLine
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.task import TaskStatus


class NoFacts:
    """A server that serves nothing."""

    def agents(self) -> tuple[AgentFacts, ...]:
        return ()

    def workers(self) -> tuple[WorkerLine, ...]:
        return ()

    def upstreams(self) -> tuple[UpstreamLine, ...]:
        return ()

    async def ask_upstream(self, agent: str, notes: UpstreamNotes) -> TaskStatus | str:
        raise AssertionError("nobody asks")
