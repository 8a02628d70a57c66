"""The trees of delegations."""

from msgspec.structs import replace

from dragoman.engine.delegation_tree import DelegationTrees
from dragoman.model.events import Delegated
from dragoman.model.ids import SystemClock
from dragoman.model.task import TaskState
from dragoman.store.open import open_store
from dragoman.testing.store_cases.bench import new_task


async def test_a_circle_of_delegations_is_a_tree_that_ends() -> None:
    """An agent of another server gives its tasks ids of its own choice."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        for task_id, other in (("t1", "t2"), ("t2", "t1")):
            new = new_task(task_id)
            outcomes = [
                Delegated(number, "remote", other, TaskState.COMPLETED, "2026-01-01T00:00:00.000Z") for number in (1, 2)
            ]
            await store.create(replace(new, events=(*new.events, *outcomes)))
        tree = await DelegationTrees(store).read("t1")
        assert [(task.id, task.parent) for task in tree.tasks] == [("t1", None), ("t2", "t1")]
        assert not tree.more
    finally:
        await store.close()
