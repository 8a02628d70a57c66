"""The agents, workers, upstreams and streams of one application, for operators.

Invariant: everything is read from the agents at the moment of the request.
"""

from collections.abc import Mapping

from dragoman.admin.overview import AgentFacts, KnownWorker, UpstreamLine, WorkerLease, WorkersHere
from dragoman.agents.kinds import upstream_agents, worker_agents
from dragoman.agents.worker.leases import Leases
from dragoman.agents.worker.roster import RosterEntry
from dragoman.bindings.streams import Streams
from dragoman.engine.api import Runner
from dragoman.model.task import TaskStatus


class ServedAgents:
    """See `engine.admin.overview.ServerFacts`."""

    def __init__(self, runners: Mapping[str, Runner], streams: Streams) -> None:
        self._runners = runners
        self._streams = streams

    def agents(self) -> tuple[AgentFacts, ...]:
        """The agents that are served."""
        return tuple(
            AgentFacts(
                id=agent_id,
                name=runner.profile.name,
                version=runner.profile.version,
                kind=runner.traits.kind,
                degraded=runner.degraded,
                deadline_s=runner.traits.deadline_s,
            )
            for agent_id, runner in self._runners.items()
        )

    def workers(self) -> tuple[WorkersHere, ...]:
        """Those that workers serve."""
        return tuple(
            _workers_here(agent_id, agent.leases) for agent_id, agent in worker_agents(self._runners.values()).items()
        )

    async def known_workers(self) -> tuple[KnownWorker, ...]:
        """The workers of all these, as every server on the store knows them. Raises StoreError."""
        return tuple(
            [
                _known_worker(agent_id, entry)
                for agent_id, agent in worker_agents(self._runners.values()).items()
                for entry in await agent.leases.workers()
            ]
        )

    def upstreams(self) -> tuple[UpstreamLine, ...]:
        """Those of other servers."""
        return tuple(
            UpstreamLine(
                agent=agent_id,
                breaker=upstream.route.health.breaker.state.value,
                url=upstream.route.access.place,
                dragoman=upstream.dragoman,
                **upstream.route.health.calls.outcomes,
            )
            for agent_id, upstream in upstream_agents(self._runners.values()).items()
        )

    def open_streams(self) -> int:
        """How many streams are open."""
        return self._streams.open

    async def ask_upstream(self, agent: str, task_id: str) -> TaskStatus | str:
        """Ask one of these for the status of its task. A text says why there is no answer."""
        return await upstream_agents(self._runners.values())[agent].ask_status(task_id)


def _workers_here(agent_id: str, leases: Leases) -> WorkersHere:
    presence = leases.presence
    return WorkersHere(agent=agent_id, connected=presence.seen, workers=presence.connected, idle=presence.wants)


def _known_worker(agent_id: str, entry: RosterEntry) -> KnownWorker:
    return KnownWorker(
        agent=agent_id,
        name=entry.worker,
        last_word=entry.word,
        last_word_s=None if entry.age_s is None else round(entry.age_s, 1),
        waits=entry.waits,
        leases=tuple(WorkerLease(task=task_id, expires_s=round(left_s, 1)) for task_id, left_s in entry.leases),
    )
