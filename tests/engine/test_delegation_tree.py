"""The trees of delegations."""

from msgspec.structs import replace

from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.model.events import Delegated, Noted, StatusChanged
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
        tree = await DelegationTrees(store).read("t1", {})
        assert [(task.id, task.parent) for task in tree.tasks] == [("t1", None), ("t2", "t1")]
        assert not tree.more
    finally:
        await store.close()


async def test_a_task_at_another_server_is_a_row_of_its_own_unless_it_is_in_this_store() -> None:
    """Only agents of other servers note the ids of tasks there; the notes of others are their own."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        for task_id, agent, there in (("t1", "far", "x1"), ("t2", "near", "t3"), ("t3", "own", "x3")):
            new = new_task(task_id, agent=agent)
            ended = StatusChanged(TaskState.COMPLETED, "2027-01-15T08:00:09.000Z")
            events = (*new.events, Noted({"task": there}), ended)
            await store.create(replace(new, events=events, state=TaskState.COMPLETED, holder=None))
        trees, upstreams = DelegationTrees(store), {"far": "https://far.example", "near": "http://localhost"}
        ours, theirs = (await trees.read("t1", upstreams)).tasks
        assert (ours.id, ours.url, ours.elsewhere) == ("t1", None, False)
        assert (theirs.id, theirs.parent, theirs.url) == ("x1", "t1", "https://far.example")
        assert (theirs.elsewhere, theirs.state, theirs.ended_at) == (True, "completed", "2027-01-15T08:00:09.000Z")
        here = (await trees.read("t2", upstreams)).tasks
        assert [(task.id, task.parent, task.agent, task.elsewhere) for task in here] == [
            ("t2", None, "near", False),
            ("t3", "t2", "own", False),
        ]
    finally:
        await store.close()
