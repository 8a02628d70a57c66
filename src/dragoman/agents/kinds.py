"""The agents that a server has to know by their class: those whose workers, upstream or threads it looks after.

Invariant: nothing else in the package asks for an agent's class. `Traits` and the methods of `Runner` say the rest.
"""

from collections.abc import Iterable

from dragoman.agents.python.agent import Agent
from dragoman.agents.python.factory import FactoryAgent
from dragoman.agents.python.threads import Threads
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.engine.api import Runner


def worker_agents(agents: Iterable[Runner]) -> dict[str, WorkerAgent]:
    """Those whose tasks workers do, by id: the worker API answers for them."""
    return {agent.profile.id: agent for agent in agents if isinstance(agent, WorkerAgent)}


def upstream_agents(agents: Iterable[Runner]) -> dict[str, UpstreamAgent]:
    """Those of other servers, by id: operators see how they answer."""
    return {agent.profile.id: agent for agent in agents if isinstance(agent, UpstreamAgent)}


def share_threads(threads: Threads, agents: Iterable[Runner]) -> None:
    """Let those with plain functions run them in the same threads, so that one bound holds for all.

    Those that a factory makes have to be made.
    """
    for agent in agents:
        served = agent.made if isinstance(agent, FactoryAgent) else agent
        if isinstance(served, Agent):
            served.use_threads(threads)
