"""The served agents: opened at the start or by a reload, closed after their last run.

Invariant: an agent that cannot be opened neither keeps the server from starting nor makes it unready; only a lifespan
that cannot be entered does. Each opened agent is closed once, and its lifespans are left after that.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from dragoman.agents.kinds import share_threads, upstream_agents, worker_agents
from dragoman.agents.lifespans import Lifespans
from dragoman.agents.python.threads import Threads
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.agents.worker.attendance import Attendance
from dragoman.engine.api import EndpointFacts, Runner
from dragoman.engine.switches import Switches, describe_switch
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.telemetry.counts import Counts, WorkerPool
from dragoman.telemetry.job_group import JobGroup

BROKEN = "what it needs has broken: the log says how"
"""Why an agent is degraded whose lifespan has ended by itself."""


class AgentLifetimes:
    """Opens agents before they are served. `counts` gets the call counters of agents on other servers.

    Workers take their tasks from `worker_tasks`. The `attendance` is there if other replicas serve the same workers.
    Plain functions run in `threads`. `switches` says which agents operators have taken out of service.
    """

    def __init__(
        self,
        counts: Counts | None,
        worker_tasks: WorkerTasks,
        threads: Threads,
        attendance: Attendance | None = None,
        switches: Switches | None = None,
    ) -> None:
        self._counts = counts
        self._threads = threads
        self._lifespans = Lifespans()
        self._worker_tasks = worker_tasks
        self._attendance = attendance
        self._switches = switches or Switches()
        self._served: tuple[Runner, ...] = ()
        self._withheld: Mapping[str, str] = {}
        self._open: list[Runner] = []
        self._closings: set[asyncio.Task[None]] = set()

    def degraded(self) -> dict[str, str]:
        """The agents that cannot do all of their work, or are not served although they should be: why, by agent id."""
        served = self._served
        broken = {agent.profile.id: BROKEN for agent in served if self._lifespans.broken(agent)}
        lacking = {agent.profile.id: why for agent in served if (why := agent.degraded) is not None}
        found = {agent.profile.id: self._switches.find_switch(agent.profile.id) for agent in served}
        switched = {agent: describe_switch(switch) for agent, switch in found.items() if switch is not None}
        return {**broken, **lacking, **switched, **self._withheld}

    def pools(self) -> Mapping[str, WorkerPool]:
        """The workers of the agents that have any, by agent."""
        return {agent_id: agent.leases for agent_id, agent in worker_agents(self._served).items()}

    def switches(self) -> Mapping[str, str]:
        """The states of the switches of all agents that are served, by agent."""
        found = {agent: self._switches.find_switch(agent) for agent in self.served()}
        return {agent: "enabled" if switch is None else switch.state for agent, switch in found.items()}

    def breakers(self) -> Mapping[str, str]:
        """The states of the circuit breakers before agents of other servers, by agent, or `agent/member` in a pool, and
        before the endpoints of models that have several."""
        found = {route.label: route.health.breaker.state.value for route in self._routes()}
        return found | {label: endpoint.state for label, endpoint in self._endpoints().items()}

    def _routes(self) -> list[UpstreamRoute]:
        return [route for agent in upstream_agents(self._served).values() for route in agent.pool.routes]

    def _endpoints(self) -> Mapping[str, EndpointFacts]:
        return {f"{agent.profile.id}/{each.name}": each for agent in self._served for each in agent.endpoints}

    def served(self) -> frozenset[str]:
        """The ids of the agents that are served."""
        return frozenset(agent.profile.id for agent in self._served)

    async def open(self, group: JobGroup, agents: Collection[Runner]) -> None:
        """Open all agents at once. Each bounds its own time, and goes on trying in `group` if it is not ready then.

        Raises LifespanError if a lifespan cannot be entered. If it raises, none of the agents is open.
        """
        await self._lifespans.enter(group, agents)
        share_threads(self._threads, agents)
        self._open += agents
        try:
            await asyncio.gather(*(agent.open(group) for agent in agents))
        except BaseException:  # a stop, or a class of one's own
            await self.close_agents(agents)
            raise

    def serve(self, agents: Sequence[Runner]) -> None:
        """Serve `agents` from now on, and give their workers work."""
        self._served = tuple(agents)
        for agent in self._served:
            agent.heed(self._switches)
        for worker in worker_agents(self._served).values():
            worker.leases.serve(self._worker_tasks)
            if self._attendance is not None:
                worker.leases.presence.attend(self._attendance)
        if self._counts is not None:
            calls = {route.label: route.health.calls for route in self._routes()}
            calls |= {label: endpoint.calls for label, endpoint in self._endpoints().items()}
            self._counts.serve(calls, self.pools())

    def withhold(self, agents: Mapping[str, str]) -> None:
        """Say from now on why these agents, by id, are not served here although operators have added them."""
        self._withheld = agents

    def stop_work(self) -> None:
        """Give workers no more work."""
        for worker in worker_agents(self._served).values():
            worker.leases.close()

    async def close_agents(self, agents: Collection[Runner]) -> None:
        """Close agents that are no longer served. Call it after the last of their tasks.

        Where the caller is canceled, as a reload is by a stop, their closing goes on, and `close` waits for it.
        """
        await asyncio.gather(*[asyncio.shield(closing) for closing in self._begin_closing(tuple(agents))])

    async def close(self) -> None:
        """Close all open agents, and leave every lifespan. Where the caller is canceled, so are all closings."""
        self._begin_closing(tuple(self._open))
        try:
            await asyncio.gather(*self._closings)
        finally:
            await self._lifespans.leave_all()

    def _begin_closing(self, agents: Collection[Runner]) -> list["asyncio.Task[None]"]:
        self._open = [agent for agent in self._open if not any(agent is other for other in agents)]
        closings = [asyncio.create_task(self._close(agent), name=f"close {agent.profile.id}") for agent in agents]
        for closing in closings:
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)
        return closings

    async def _close(self, agent: Runner) -> None:
        try:
            await agent.close()
        finally:
            await self._lifespans.leave((agent,))
