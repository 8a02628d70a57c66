"""A replica's report of itself while it is cut off and joins anew, and while its agents are replaced."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.model.errors import Unavailable
from dragoman.store.replicas import ReplicaBuried, ReplicaFenced
from tests.buses import Hub
from tests.engine.house import DEADLINE_S, Scripted, echo
from tests.engine.replicas import Replica, Stage, replicas
from tests.kit.agents import hired
from tests.kit.waiting import until


async def served(replica: Replica[Any], *agents: str) -> None:
    """Wait until the store says that a replica serves these agents."""
    async with asyncio.timeout(DEADLINE_S):
        while (replica.engine.replica_id, agents) not in [
            (each.id, tuple(each.agents)) for each in await replica.store.replicas.all()
        ]:
            await asyncio.sleep(0.001)


async def test_agents_that_are_replaced_while_a_replica_joins_anew_are_known_to_others() -> None:
    joined, go_on = asyncio.Event(), asyncio.Event()
    async with replicas(1, Stage(), Hub().bus) as (one,):
        registry = one.store.replicas
        join = registry.join

        async def join_slowly(replica_id: str, *, address: str, agents: Collection[str]) -> None:
            await join(replica_id, address=address, agents=agents)
            joined.set()
            await go_on.wait()

        registry.join = join_slowly
        await registry.say(ReplicaFenced("r0"))
        await registry.leave("r0")
        await registry.say(ReplicaBuried("r0"))
        await joined.wait()
        one.engine.serve({"other": Scripted(echo, "other")})
        go_on.set()
        await served(one, "other")
        assert one.engine.replica_id != "r0"


async def test_the_agents_that_are_served_last_are_known_to_others_however_slow_the_store() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    async with replicas(1, Stage(), Hub().bus) as (one,):
        registry = one.store.replicas
        serve = registry.serve

        async def serve_slowly(replica_id: str, agents: Collection[str]) -> None:
            if "slow" in agents:
                asked.set()
                await go_on.wait()
            await serve(replica_id, agents)
            done.append(tuple(agents))

        done: list[tuple[str, ...]] = []
        registry.serve = serve_slowly
        one.engine.serve({"slow": Scripted(echo, "slow")})
        await asked.wait()
        one.engine.serve({"last": Scripted(echo, "last")})
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(DEADLINE_S):
            while len(done) < 2:
                await asyncio.sleep(0.001)
        await served(one, "last")


async def test_a_replica_that_is_cut_off_refuses_at_once_to_give_a_worker_a_task() -> None:
    agents: list[WorkerAgent] = []

    class Hired(Stage):
        def agent(self) -> WorkerAgent:  # type: ignore[override]
            agents.append(hired("agent"))
            return agents[-1]

    async with replicas(2, Hired(), Hub().bus) as (one, other):
        await one.begin()
        await other.store.replicas.say(ReplicaFenced("r1"))
        await until(lambda: other.engine.fenced)
        with pytest.raises(Unavailable, match="lost touch with its store"):
            await agents[1].leases.take("w1", 0)
