"""The tokens that a worker reports count, whoever ends its task."""

from dragoman.engine.words import Say
from dragoman.model.events import ArtifactChunk
from dragoman.model.task import TaskState, Usage
from tests.agents.worker.test_worker import artifact, taken, token, worker
from tests.engine.house import house

SHORT_S = 1.0
"""Long enough for a word of the worker, on a busy machine too."""


async def test_the_tokens_of_a_task_count_that_its_caller_cancels() -> None:
    agent = worker()
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        chunk = ArtifactChunk(artifact("half of it"), append=False, last_chunk=False)
        await agent.leases.say(token(item), chunk, usage=Usage(5, 7, 12))
        await agent.leases.say(token(item), Say(), usage=Usage(1, 1, 2))
        assert (await here.cancel(task_id)).usage == Usage(6, 8, 14)


async def test_a_report_out_of_bounds_is_not_counted_and_refuses_nothing() -> None:
    agent = worker()
    async with house(agent, max_tokens_per_report=100) as here:
        task_id = await here.begin()
        item = await taken(agent)
        await agent.leases.say(token(item), Say(), usage=Usage(5, 7, 12))
        await agent.leases.say(token(item), Say(), usage=Usage(101, 0, 101))
        assert (await here.cancel(task_id)).usage == Usage(5, 7, 12) + Usage.unknown()


async def test_the_tokens_of_a_worker_count_that_takes_too_long() -> None:
    agent = worker()
    agent.limit(SHORT_S)
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        await agent.leases.say(token(item), Say(), usage=Usage(5, 7, 12))
        assert (await here.reach(task_id, TaskState.FAILED)).usage == Usage(5, 7, 12)
