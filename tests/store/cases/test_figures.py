"""The figures of a store: the tasks that have not ended, its size, and its commits.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import ASIDE, ASLEEP, Owners, TaskSearch
from dragoman.store.audit import AuditEntry
from dragoman.store.figures import OldestRows, OpenTasks
from tests.store.cases.bench import DAY_MS, START_MS, Bench, W, by_run, ending, new_task, status


async def test_open_tasks_are_counted_by_agent_with_the_oldest_of_each_phase(bench: Bench) -> None:
    """Tasks of all owners count. Those that have ended do not. A working one that nobody has is queued."""
    at = START_MS
    async with bench.store() as store:
        assert (await store.figures()).open_tasks == ()
        for number, (agent, owner, state) in enumerate(
            (
                ("other", "ann", TaskState.INPUT_REQUIRED),
                ("echo", "bob", TaskState.SUBMITTED),
                ("echo", "ann", TaskState.SUBMITTED),
                ("echo", "ann", TaskState.SUBMITTED),
                ("echo", "ann", TaskState.WORKING),
                ("other", "bob", TaskState.AUTH_REQUIRED),
            )
        ):
            holder = "h1" if state is TaskState.WORKING else None
            await store.create(
                new_task(f"t{number}", at=at + number, state=state, holder=holder, agent=agent, owner=owner)
            )
        other = OpenTasks(agent="other", waiting=2, waiting_since_ms=at)
        assert (await store.figures()).open_tasks == (
            OpenTasks(agent="echo", queued=3, running=1, queued_since_ms=at + 1, running_since_ms=at + 4),
            other,
        )
        await store.create(new_task("t6", at=at - 5, state=TaskState.WORKING, holder=None, agent="echo", owner="ann"))
        await store.create(new_task("t7", at=at + 7, state=TaskState.WORKING, holder="h1", agent="echo", owner="ann"))
        assert (await store.figures()).open_tasks == (
            OpenTasks(agent="echo", queued=4, running=2, queued_since_ms=at - 5, running_since_ms=at + 4),
            other,
        )
        await store.append(ending("t6", 1, epoch=None))
        await store.append(ending("t7", 1))
        await store.append(ending("t1", 1, epoch=None))
        await store.append(ending("t4", 1))
        assert (await store.figures()).open_tasks == (
            OpenTasks(agent="echo", queued=2, queued_since_ms=at + 2),
            other,
        )


async def test_tasks_that_sleep_are_counted_apart(bench: Bench) -> None:
    """They are not running, nor is the oldest of them the oldest that runs."""
    at = START_MS
    async with bench.store() as store:
        for number, owner in enumerate(("ann", "bob", "ann")):
            await store.create(new_task(f"t{number}", at=at + number, owner=owner))
        for number in (0, 1):
            append = by_run(f"t{number}", status(W, at + number))
            await store.append(replace(append, status_ms=at + number, holder=ASLEEP, wakes_ms=at + 100))
        sleeping = OpenTasks(agent="echo", sleeping=2, sleeping_since_ms=at, running=1, running_since_ms=at + 2)
        assert (await store.figures()).open_tasks == (sleeping,)


async def test_tasks_that_are_put_aside_count_as_queued(bench: Bench) -> None:
    """Nobody has them, and nobody waits for a time. A search for those that sleep does not find them."""
    at = START_MS
    async with bench.store() as store:
        for number, holder in enumerate((ASIDE, ASLEEP, ASIDE, None)):
            await store.create(new_task(f"t{number}", at=at + number))
            append = by_run(f"t{number}", status(W, at + number))
            said = {"status_ms": at + number} | ({} if holder is None else {"holder": holder, "wakes_ms": at + 100})
            await store.append(replace(append, **said))
        queued = OpenTasks(
            agent="echo",
            queued=2,
            queued_since_ms=at,
            running=1,
            running_since_ms=at + 3,
            sleeping=1,
            sleeping_since_ms=at + 1,
        )
        assert (await store.figures()).open_tasks == (queued,)
        found = await store.search(TaskSearch(owner=Owners.ALL, agent=None, asleep=True))
        assert [row.head.id for row in found.rows] == ["t1"]


async def test_the_size_grows_with_what_is_written(bench: Bench) -> None:
    """A store that is new has some size already. Space that deleted rows have left is used first."""
    async with bench.store() as store:
        size = before = (await store.figures()).size_bytes
        assert before > 0
        written = 0
        while size <= before + 100_000:
            assert written < 4_000, "4,000 tasks of 4 KB do not make the store larger"
            for _ in range(200):
                await store.create(new_task(f"t{written}", context_id="c" * 4000))
                written += 1
            size = (await store.figures()).size_bytes


async def test_each_commit_is_timed(bench: Bench) -> None:
    """Writes of one moment share a commit."""
    async with bench.store() as store:
        before = sum(store.writing.commits.counts)
        await store.create(new_task("t1"))
        await store.create(new_task("t2"))
        assert sum(store.writing.commits.counts) == before + 2
        assert store.writing.commits.sum_s > 0


async def test_commits_are_told_to_whoever_watches(bench: Bench) -> None:
    """Until nobody does."""
    async with bench.store() as store:
        first, second = asyncio.Event(), asyncio.Event()
        store.writing.watch(first)
        await store.create(new_task("t1"))
        await asyncio.wait_for(first.wait(), 60)
        store.writing.watch(None)
        first.clear()
        await store.append(ending("t1", 1))
        store.writing.watch(second)
        await store.create(new_task("t2"))
        await asyncio.wait_for(second.wait(), 60)
        store.writing.watch(None)
        assert not first.is_set()


async def test_the_oldest_of_what_retention_deletes_is_known(bench: Bench) -> None:
    at = START_MS
    async with bench.store() as store:
        assert (await store.figures()).oldest == OldestRows()
        for number, state in enumerate((TaskState.WORKING, TaskState.WORKING, TaskState.INPUT_REQUIRED)):
            await store.create(new_task(f"t{number}", at=at + number, state=state))
        assert (await store.figures()).oldest == OldestRows(waiting_ms=at + 2)
        await store.append(ending("t0", 1, at=at + 10))
        await store.append(ending("t1", 1, at=at + 20))
        oldest = OldestRows(tasks_ms=at + 10, logs_ms=at + 10, waiting_ms=at + 2, usage_day=at // DAY_MS)
        assert (await store.figures()).oldest == oldest
        assert await store.sweep(at + 15, -1, 0, -1) > 0
        assert (await store.figures()).oldest == replace(oldest, logs_ms=at + 20)
        child = new_task("child", at=at - 3)
        await store.create(new_task("parent", at=at - 3))
        await store.create(replace(child, head=replace(child.head, parent="parent")))
        await store.append(ending("child", 1, at=at - 2))
        kept = replace(oldest, logs_ms=at + 20)
        assert (await store.figures()).oldest == kept, "a task that has not ended has delegated it"
        await store.append(ending("parent", 1, at=at + 40))
        assert (await store.figures()).oldest == replace(kept, tasks_ms=at - 2, logs_ms=at - 2)
        entry = AuditEntry(at_ms=at + 30, principal="ann", action="SendMessage", allowed=True)
        await store.audit.write([entry])
        assert (await store.figures()).oldest.audit_ms == at + 30
