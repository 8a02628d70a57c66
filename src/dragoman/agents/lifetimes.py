"""The served agents: opened at the start or by a reload, closed after their last run.

Invariant: no agent keeps the server from starting or makes it unready. Each opened agent is closed once.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from dragoman.agents.kinds import upstream_agents, worker_agents
from dragoman.agents.worker.attendance import Attendance
from dragoman.engine.api import Runner
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.telemetry.counts import Counts, WorkerPool
from dragoman.telemetry.job_group import JobGroup


class AgentLifetimes:
    """Opens agents before they are served. `counts` gets the call counters of agents on other servers.

    Workers take their tasks from `worker_tasks`. The `attendance` is there if other replicas serve the same workers.
    """

    def __init__(self, counts: Counts | None, worker_tasks: WorkerTasks, attendance: Attendance | None = None) -> None:
        self._counts = counts
        self._worker_tasks = worker_tasks
        self._attendance = attendance
        self._served: tuple[Runner, ...] = ()
        self._open: list[Runner] = []

    def degraded(self) -> dict[str, str]:
        """The agents that cannot do all of their work: the reason by agent id."""
        return {agent.profile.id: why for agent in self._served if (why := agent.degraded) is not None}

    def pools(self) -> Mapping[str, WorkerPool]:
        """The workers of the agents that have any, by agent."""
        return {agent_id: agent.leases for agent_id, agent in worker_agents(self._served).items()}

    def breakers(self) -> Mapping[str, str]:
        """The states of the circuit breakers before agents of other servers, by agent."""
        return {
            agent_id: agent.route.health.breaker.state.value
            for agent_id, agent in upstream_agents(self._served).items()
        }

    def served(self) -> frozenset[str]:
        """The ids of the agents that are served."""
        return frozenset(agent.profile.id for agent in self._served)

    async def open(self, group: JobGroup, agents: Collection[Runner]) -> None:
        """Open all agents at once. Each bounds its own time, and goes on trying in `group` if it is not ready then."""
        self._open += agents
        await asyncio.gather(*(agent.open(group) for agent in agents))

    def serve(self, agents: Sequence[Runner]) -> None:
        """Serve `agents` from now on, and give their workers work."""
        self._served = tuple(agents)
        for worker in worker_agents(self._served).values():
            worker.leases.serve(self._worker_tasks)
            if self._attendance is not None:
                worker.leases.presence.attend(self._attendance)
        if self._counts is not None:
            upstreams = upstream_agents(self._served)
            calls = {agent_id: agent.route.health.calls for agent_id, agent in upstreams.items()}
            self._counts.serve(calls, self.pools())

    def stop_work(self) -> None:
        """Give workers no more work."""
        for worker in worker_agents(self._served).values():
            worker.leases.close()

    async def close_agents(self, agents: Collection[Runner]) -> None:
        """Close agents that are no longer served. Call it after the last of their tasks."""
        closing = tuple(agents)
        self._open = [agent for agent in self._open if not any(agent is other for other in closing)]
        await asyncio.gather(*(agent.close() for agent in closing))

    async def close(self) -> None:
        """Close all open agents."""
        await self.close_agents(self._open)
