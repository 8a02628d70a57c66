"""Effects that get lost: whatever has to follow still does, within two `claim_s`."""

import asyncio
import logging
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from msgspec.structs import replace

from dragoman.engine import delegated_tasks
from dragoman.engine.api import Run
from dragoman.engine.delegated_tasks import AGAIN_S
from dragoman.engine.effects import CancelChildren, ClaimSoon, Delegate, DropSuspended, Effect, Effects, StopOverdue
from dragoman.engine.engine import Engine
from dragoman.engine.lineage import child_of
from dragoman.engine.policy import EngineSettings
from dragoman.engine.worker_watch import LOOK_S
from dragoman.model.message import Part
from dragoman.model.task import Record, TaskState
from dragoman.store.api import Store, StoreError
from dragoman.store.open import open_store
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import House, Scripted, StandingClock, call, echo, house, say, sending, silence
from tests.engine.test_delegate import order
from tests.kit.agents import hired
from tests.store.cases.bench import new_task
from tests.virtual_time import Waited, in_virtual_time

S = TaskState

CLAIM_S, GRACE_S, SUSPEND_S, DEADLINE_S = 3.0, 10.0, 30.0, 20.0

KINDS: tuple[type[Effect], ...] = get_args(Effect)


class Case(NamedTuple):
    """A store, and the kinds of effects that get lost. The work of the store takes none of the virtual time."""

    url: str
    lost: tuple[type[Effect], ...]


CASES = [*(Case("memory:", lost) for lost in ((), *((kind,) for kind in KINDS), KINDS)), Case("postgres:", KINDS)]


def name_of(case: Case) -> str:
    lost = "all" if case.lost == KINDS else "-".join(kind.__name__ for kind in case.lost) or "none"
    return f"{case.url}{lost}"


@pytest.fixture(params=CASES, ids=name_of)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    found: Case = request.param
    put = Effects.put

    def put_others(effects: Effects, effect: Effect) -> None:
        if not isinstance(effect, found.lost):
            put(effects, effect)

    monkeypatch.setattr(Effects, "put", put_others)
    if found.url == "postgres:":
        return found._replace(url=request.getfixturevalue("used_postgres_url"))
    return found


class Watch:
    """Measures the time of the loop between a cause and what follows from it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cause_s = self._loop.time()

    def begin(self) -> None:
        self._cause_s = self._loop.time()

    def check(self, lost: tuple[type[Effect], ...], kind: type[Effect], after_s: float = 0.0) -> None:
        """Check that what an effect is for has happened in time, `after_s` after its cause if nothing was lost."""
        took_s = self._loop.time() - self._cause_s
        assert took_s <= after_s + (2 * CLAIM_S if kind in lost else 0.1), f"{took_s:g} s"


def at_work(url: str, *agents: Scripted) -> AbstractAsyncContextManager[House]:
    poll_s = 0.0 if url == "memory:" else 1.0
    return house(
        *agents,
        url=url,
        seen_as=Waited,
        claim_s=CLAIM_S,
        poll_s=poll_s,
        cancel_grace_s=GRACE_S,
        suspend_max_s=SUSPEND_S,
    )


@in_virtual_time
async def test_a_delegation_is_made_once(case: Case) -> None:
    begun: list[str] = []

    async def other(run: Run) -> None:
        begun.append(run.head.id)
        await asyncio.sleep(5 * CLAIM_S)  # others look again meanwhile
        await echo(run)

    async def script(run: Run) -> None:
        delegated = await run.delegate(order(text="one"))
        await say(run, delegated.text)

    async with at_work(case.url, Scripted(script), Scripted(other, "other")) as h:
        watch = Watch()
        task = await h.send()
        watch.check(case.lost, Delegate, 5 * CLAIM_S)
        assert (task.state, begun) == (S.COMPLETED, [child_of(task.head.id, 1)])


async def test_a_process_that_goes_down_leaves_a_delegation_to_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    """The group of the server's jobs ends, as with a fault of the server. The runs, which are not in it, end later."""
    store = open_store("memory:", StandingClock())
    await store.open("here")
    runs: list[asyncio.Task[None] | None] = []
    begun = asyncio.Event()

    async def script(run: Run) -> None:
        runs.append(asyncio.current_task())
        await run.delegate(order())

    async def other(run: Run) -> None:
        runs.append(asyncio.current_task())
        begun.set()
        await silence(run)

    agents = {"agent": Scripted(script), "other": Scripted(other, "other")}
    engine = Engine(store, agents, clock=store.clock, settings=EngineSettings(), holder="here")

    async def fail() -> None:
        await begun.wait()
        raise ValueError

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            await engine.start(JobGroup(group))
            task = await engine.operations.call(call(sending(return_immediately=True)))
            group.create_task(fail())
    assert isinstance(task, Record)
    for run in runs:
        assert run is not None
        run.cancel()
        await asyncio.wait([run])
    row = await store.load(task.head.id)
    assert row.state is S.WORKING
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    await store.close()


@in_virtual_time
async def test_what_an_ended_task_has_delegated_is_canceled(case: Case) -> None:
    async with at_work(case.url, Scripted(careless), Scripted(silence, "other")) as h:
        watch = Watch()
        task = await h.send("go")
        watch.begin()
        assert task.state is S.COMPLETED
        await h.reach(child_of(task.head.id, 1), S.CANCELED, agent="other")
        watch.check(case.lost, CancelChildren)


async def careless(run: Run) -> None:
    """Leaves a delegation behind."""
    given = asyncio.ensure_future(run.delegate(order()))
    await asyncio.sleep(3 * CLAIM_S)
    given.cancel()


@in_virtual_time
async def test_a_run_past_its_deadline_ends_even_if_its_agent_does_not(case: Case) -> None:
    stubborn = asyncio.Event()

    async def script(run: Run) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                pass

    async with at_work(case.url, Scripted(script, deadline_s=DEADLINE_S)) as h:
        watch = Watch()
        try:
            assert (await h.send()).state is S.FAILED
        finally:
            stubborn.set()
        watch.check(case.lost, StopOverdue, DEADLINE_S + GRACE_S)


@in_virtual_time
async def test_the_delegations_of_a_run_past_its_deadline_end(case: Case) -> None:
    async def script(run: Run) -> None:
        await run.delegate(order())

    async with at_work(case.url, Scripted(script, deadline_s=DEADLINE_S), Scripted(silence, "other")) as h:
        watch = Watch()
        task = await h.send()
        assert task.state is S.FAILED
        await h.reach(child_of(task.head.id, 1), S.CANCELED, agent="other")
        watch.check(case.lost, CancelChildren, DEADLINE_S)


@in_virtual_time
async def test_a_suspended_run_is_kept_no_longer_than_it_may(case: Case) -> None:
    left = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            await run.ask((Part(text="Where?"),))
        finally:
            left.set()

    async with at_work(case.url, Scripted(script)) as h:
        watch = Watch()
        assert (await h.send()).state is S.INPUT_REQUIRED
        await left.wait()
        watch.check(case.lost, DropSuspended, SUSPEND_S)


@in_virtual_time
async def test_a_queued_task_is_claimed(used_postgres_url: str) -> None:
    """`ClaimSoon` hastens this, where others hear of the task. On SQLite nobody else queues tasks."""
    async with at_work(used_postgres_url, Scripted(echo)) as h:
        await asyncio.sleep(CLAIM_S / 2)
        watch = Watch()
        await h.store.create(new_task("queued", owner="anna", agent="agent", holder=None))
        await h.reach("queued", S.COMPLETED)
        watch.check((ClaimSoon,), ClaimSoon)


class Asked:
    """The store, which counts what the engine asks of it, by name."""

    def __init__(self, store: Store) -> None:
        self._store = Waited(store)
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._store, name)


ONLY_HELD = frozenset({"outbox", "replicas", "writing"})
"""The parts of a store that cost nothing to be looked at."""


@in_virtual_time
async def test_an_idle_server_writes_nothing_and_reads_two_indices_after_a_commit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    seen: list[Asked] = []

    def watched(store: Store) -> Any:
        seen.append(Asked(store))
        return seen[0]

    async with house(Scripted(echo), url=url, seen_as=watched, claim_s=CLAIM_S, poll_s=0.0) as h:
        assert (await h.send()).state is S.COMPLETED
        await asyncio.sleep(CLAIM_S / 2)
        await asyncio.sleep(2 * CLAIM_S)
        before, files = Counter(seen[0].asked), as_they_are(tmp_path)
        await asyncio.sleep(10 * CLAIM_S)
        assert {name: count for name, count in (seen[0].asked - before).items() if name not in ONLY_HELD} == {}
        assert as_they_are(tmp_path) == files
        assert (await h.send()).state is S.COMPLETED
        before = Counter(seen[0].asked)
        await asyncio.sleep(10 * CLAIM_S)
        looks = seen[0].asked - before
        assert looks["overdue"] == looks["orphans"] == 1


@in_virtual_time
async def test_silent_and_late_workers_are_looked_for_at_once() -> None:
    seen: list[Asked] = []

    def watched(store: Any) -> Store:
        seen.append(Asked(store.worker_leases))
        store.worker_leases = seen[0]
        return Waited(store)  # type: ignore[return-value]

    workers = hired("agent", queues=False)
    async with house(workers, url="memory:", seen_as=watched, claim_s=CLAIM_S, poll_s=0.0):  # type: ignore[arg-type]
        await asyncio.sleep(LOOK_S / 2)
        before = Counter(seen[0].asked)
        await asyncio.sleep(10 * LOOK_S)
        assert seen[0].asked - before == {"due": 10}


@in_virtual_time
async def test_a_deadline_is_heeded_although_nothing_is_committed_before_it() -> None:
    """A look at an idle store sees the deadlines of the next minute, and another one comes after that."""
    child = new_task("late", owner="anna", agent="agent", holder=None)
    async with at_work("memory:", Scripted(echo)) as h:
        await h.store.create(new_task("parent", owner="anna", agent="agent", holder=None))
        for task_id, wait_ms in (("soon", 5_000), ("late", 90_000)):
            deadline_ms = h.clock.now_ms() + wait_ms
            head = replace(child.head, id=task_id, parent="parent", deadline_ms=deadline_ms)
            await h.store.create(replace(child, head=head))
        await asyncio.sleep(3 * CLAIM_S)
        for task_id, wait_ms in (("soon", 5_000), ("late", 85_000)):
            await asyncio.sleep(20.0)  # whoever was ended at the last look is looked after no more
            h.clock.ms += wait_ms - 1_000
            await asyncio.sleep(3 * CLAIM_S)
            assert (await h.store.head(task_id))[2] is not S.CANCELED
            h.clock.ms += 3_100
            await h.reach(task_id, S.CANCELED)


class ReadOnce(Waited):
    """A store in which the first look for orphans that finds one fails, or the first read of the one that it found."""

    failing = ""

    async def orphans(self, after: str, limit: int) -> Any:
        found = await self.__getattr__("orphans")(after, limit)
        if found[0] and ReadOnce.failing == "orphans":
            ReadOnce.failing = ""
            raise StoreError("the disk did not answer")
        return found

    async def load(self, task_id: str, size: int | None = None) -> Any:
        if ReadOnce.failing == "load":
            ReadOnce.failing = ""
            raise RuntimeError("a fault")
        return await self.__getattr__("load")(task_id, size)


@pytest.mark.parametrize(("failing", "within_s"), [("orphans", 2 * CLAIM_S), ("load", AGAIN_S + 2 * CLAIM_S)])
@in_virtual_time
async def test_an_idle_store_is_looked_at_again_after_a_look_that_failed(
    failing: str, within_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadOnce, "failing", "")
    child = new_task("child", owner="anna", agent="agent", holder=None)
    async with house(Scripted(echo), url="memory:", seen_as=ReadOnce, claim_s=CLAIM_S, poll_s=0.0) as h:
        await asyncio.sleep(2 * CLAIM_S)
        ReadOnce.failing = failing
        await h.store.create(replace(child, head=replace(child.head, parent="gone")))
        await asyncio.sleep(within_s + 0.1)
        assert ReadOnce.failing == ""
        assert (await h.store.head("child"))[2] is S.CANCELED


@in_virtual_time
async def test_a_deadline_is_heeded_behind_many_that_are_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegated_tasks, "OVERDUE_MAX", 3)
    child = new_task("child", owner="anna", agent="agent", holder=None)
    async with at_work("memory:", Scripted(echo)) as h:
        await h.store.create(new_task("parent", owner="anna", agent="agent", holder=None))
        waits_ms = {"a": 30_000, "b": 30_000, "c": 30_000, "d": 1_000}
        for task_id, wait_ms in waits_ms.items():
            head = replace(child.head, id=task_id, parent="parent", deadline_ms=h.clock.now_ms() + wait_ms)
            await h.store.create(replace(child, head=head))
        h.clock.ms += 3_100
        await asyncio.sleep(2 * CLAIM_S)
        assert [task_id for task_id in waits_ms if (await h.store.head(task_id))[2] is S.CANCELED] == ["d"]


def as_they_are(folder: Path) -> dict[str, tuple[int, int]]:
    """The sizes of the files in a folder, and when they were written."""
    return {file.name: ((stat := file.stat()).st_size, stat.st_mtime_ns) for file in folder.iterdir()}
