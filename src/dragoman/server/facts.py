"""The agents, workers, upstreams and streams of one application, for operators.

Invariant: everything is read from the agents at the moment of the request.
"""

from collections.abc import Mapping

from dragoman.admin.overview import AgentFacts, AgentMember, KnownWorker, UpstreamLine, WorkersHere, WorkerTaskLine
from dragoman.agents.kinds import upstream_agents, worker_agents
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.agents.worker.leases import Leases
from dragoman.agents.worker.roster import RosterEntry
from dragoman.bindings.streams import Streams
from dragoman.engine.api import EndpointFacts, Runner
from dragoman.engine.switches import Switches, describe_switch
from dragoman.engine.upstream_notes import UpstreamNotes
from dragoman.model.task import TaskStatus


class ServedAgents:
    """See `engine.admin.overview.ServerFacts`."""

    def __init__(self, runners: Mapping[str, Runner], streams: Streams, switches: Switches) -> None:
        self._runners = runners
        self._streams = streams
        self._switches = switches

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
                steps_version=runner.traits.steps_version,
                switch=self._switches.find_switch(agent_id),
                members=tuple(
                    AgentMember(name=name, switch=self._switches.find_switch(agent_id, name)) for name in runner.members
                ),
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
        """Those of other servers, the members of their pools, and the endpoints of models that have several."""
        return tuple(
            self._upstream_line(agent_id, route)
            for agent_id, upstream in upstream_agents(self._runners.values()).items()
            for route in upstream.pool.routes
        ) + tuple(
            self._endpoint_line(agent_id, endpoint)
            for agent_id, runner in self._runners.items()
            for endpoint in runner.endpoints
        )

    def _endpoint_line(self, agent_id: str, endpoint: EndpointFacts) -> UpstreamLine:
        switch = self._switches.find_switch(agent_id, endpoint.name)
        return UpstreamLine(
            agent=agent_id,
            breaker=endpoint.state,
            url=endpoint.place,
            dragoman=None,
            fault=None if switch is None else describe_switch(switch),
            member=endpoint.name,
            order=endpoint.order,
            weight=endpoint.weight,
            open=endpoint.busy,
            **endpoint.calls.outcomes,
        )

    def _upstream_line(self, agent_id: str, route: UpstreamRoute) -> UpstreamLine:
        member = route.member
        switch = None if member is None else self._switches.find_switch(agent_id, member.name)
        return UpstreamLine(
            agent=agent_id,
            breaker=route.health.breaker.state.value,
            url=route.access.place,
            dragoman=route.dragoman,
            fault=route.fault if switch is None else describe_switch(switch),
            member="" if member is None else member.name,
            order=None if member is None else member.order,
            weight=None if member is None else member.weight,
            open=None if member is None else route.busy,
            **route.health.calls.outcomes,
        )

    def open_streams(self) -> int:
        """How many streams are open."""
        return self._streams.open

    async def ask_upstream(self, agent: str, notes: UpstreamNotes) -> TaskStatus | str:
        """Ask one of these for the status of its task. A text says why there is no answer."""
        return await upstream_agents(self._runners.values())[agent].ask_status(notes)


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
        leases=tuple(WorkerTaskLine(task=task_id, expires_s=round(left_s, 1)) for task_id, left_s in entry.leases),
    )
