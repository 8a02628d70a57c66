"""Leases that change hands in a write without events: whatever becomes of its acknowledgement, the task goes on."""

import asyncio
from typing import Any

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.engine import writes
from dragoman.engine.api import Run
from dragoman.engine.words import Ask, End, Say
from dragoman.model.errors import Unavailable
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Appended, Repeat, StoreError
from dragoman.store.replicas import Replica
from dragoman.store.worker_leases import WORKER
from tests.buses import Hub
from tests.engine.house import DEADLINE_S, say, text_of
from tests.engine.replicas import Stage, replicas
from tests.kit.agents import hired
from tests.kit.waiting import until

S = TaskState


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose outcome is unknown is repeated soon."""
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)


class Hired(Stage):
    """Both replicas serve an agent whose tasks workers do. `agents` are theirs, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: list[WorkerAgent] = []

    def agent(self) -> WorkerAgent:  # type: ignore[override]
        self.agents.append(hired("agent", lease_s=1000.0))
        return self.agents[-1]


async def test_others_hear_of_a_task_that_was_queued_by_a_write_whose_acknowledgement_is_lost() -> None:
    stage = Hired()
    async with replicas(2, stage, Hub().bus) as (one, _):
        task_id = await one.begin()
        here, there = (agent.leases for agent in stage.agents)
        taken = await here.take("w1", DEADLINE_S)
        assert taken is not None
        waiting = asyncio.create_task(there.take("w2", DEADLINE_S))
        await asyncio.sleep(0.1)
        one.store.lost = 1
        await here.release(taken.lease.token)
        again = await waiting
        assert again is not None
        assert again.head.id == task_id
        assert one.store.lost == 0
        await there.say(again.lease.token, End(S.COMPLETED, (Part(text="done"),)))
        assert (await one.reach(task_id, S.COMPLETED)).state is S.COMPLETED


async def test_a_lease_whose_acknowledgement_is_lost_is_granted_once() -> None:
    stage = Hired()
    async with replicas(2, stage, Hub().bus) as (one, other):
        task_id = await one.begin()
        other.store.lost = 1
        taken = await stage.agents[1].leases.take("w1", DEADLINE_S)
        assert taken is not None
        stored = await other.store.load(task_id)
        assert (stored.holder, stored.epoch, stored.delivered, other.store.lost) == (WORKER, 1, 1, 0)
        await stage.agents[0].leases.say(taken.lease.token, End(S.COMPLETED))
        await other.reach(task_id, S.COMPLETED)


async def test_a_run_that_is_not_kept_any_more_is_not_kept_whatever_becomes_of_the_acknowledgement() -> None:
    """The write is repeated after the task was answered, and has its first result. The answer is done once."""
    stage, answered = Stage(), asyncio.Event()
    outcomes: list[Appended | Repeat] = []

    async with replicas(2, stage, Hub().bus, suspend_max_s=0.01) as (one, other):
        append = one.store.append

        async def repeat(write: Append) -> Appended | Repeat:
            await answered.wait()
            outcomes.append(await append(write))
            return outcomes[-1]

        def lose(write: Append) -> "asyncio.Future[Appended | Repeat]":
            if write.events or not write.release:
                return append(write)
            released.append(write)
            if len(released) > 1:
                return asyncio.ensure_future(repeat(write))
            one.store.lost = 1
            return append(write)

        released: list[Append] = []
        one.store.append = lose  # type: ignore[method-assign]
        asked = await one.send("ask")
        await until(lambda: len(released) == 2)
        done = await other.send("red", task_id=asked.head.id)
        assert (done.state, text_of(done)) == (S.COMPLETED, "red")
        answered.set()
        await until(lambda: one.in_memory == 0)
        assert released[0] == released[1]
        assert [(outcome.last_seq, outcome.epoch) for outcome in outcomes if isinstance(outcome, Appended)] == [
            (asked.seq, 1)
        ]
        assert (await other.get(asked.head.id)) == done


async def test_a_run_that_is_let_go_while_it_is_offered_the_lease_does_not_keep_the_caller_waiting() -> None:
    """The offer never runs out here, because the clock stands."""
    async with replicas(2, Stage(), Hub().bus, suspend_max_s=0.01, retry_s=0.01) as (one, other):
        append = one.store.append

        def refuse(write: Append) -> "asyncio.Future[Appended | Repeat]":
            if write.release and not write.events and not refused:
                refused.append(write)
                one.store.full = 1 << 30
            return append(write)

        refused: list[Append] = []
        one.store.append = refuse  # type: ignore[method-assign]
        asked = await one.send("ask")
        await until(lambda: refused)
        looks = one.store.reads["leased"]
        answering = asyncio.create_task(other.send("red", task_id=asked.head.id))
        await until(lambda: one.store.reads["leased"] > looks)  # it was told of the offer, and is still letting go
        one.store.full = 0
        assert text_of(await answering) == "red"


class Tidy(Stage):
    """The agent asks, and takes its time to clean up when its suspended run is given up."""

    def __init__(self) -> None:
        super().__init__()
        self.tidied = asyncio.Event()

    async def _run(self, run: Run) -> None:
        try:
            await say(run, (await run.ask((Part(text="what?"),))).text)
        except asyncio.CancelledError:
            self.canceled.set()
            await self.tidied.wait()
            raise


async def test_an_answer_does_not_wait_for_an_agent_that_cleans_up_after_its_suspended_run() -> None:
    """The offer never runs out here, because the clock stands."""
    stage = Tidy()
    async with replicas(2, stage, Hub().bus, suspend_max_s=0.01) as (one, other):
        asked = await one.send("ask")
        await stage.canceled.wait()
        done = await other.send("red", task_id=asked.head.id)
        assert (done.state, text_of(done)) == (S.COMPLETED, "red")
        stage.tidied.set()


async def test_an_offer_that_comes_after_a_run_was_let_go_is_taken_up_when_that_is_acknowledged() -> None:
    """The look for offered tasks passes it over, because its run is still being let go. No other look comes."""
    async with replicas(2, Stage(), Hub().bus, suspend_max_s=0.01) as (one, other):
        let_go, offers = one.store.append, other.store.append
        acknowledged, released = asyncio.Event(), asyncio.Event()

        async def late(write: Append) -> Appended | Repeat:
            await offered.wait()
            outcome = await let_go(write)
            released.set()
            await acknowledged.wait()
            return outcome

        async def after(write: Append) -> Appended | Repeat:
            offered.set()
            await released.wait()
            return await offers(write)

        def hold(write: Append) -> "asyncio.Future[Appended | Repeat]":
            return asyncio.ensure_future(late(write)) if write.release and not write.events else let_go(write)

        offered = asyncio.Event()
        one.store.append = hold  # type: ignore[method-assign]
        other.store.append = lambda write: asyncio.ensure_future(after(write))  # type: ignore[method-assign]
        asked = await one.send("ask")
        looks = one.store.reads["leased"]
        answering = asyncio.create_task(other.send("red", task_id=asked.head.id))
        await released.wait()
        await until(lambda: one.store.reads["leased"] > looks)
        acknowledged.set()
        assert text_of(await answering) == "red"


class Curious(Stage):
    """The agent asks three times, and says after each answer what it was."""

    async def _run(self, run: Run) -> None:
        for question in ("first?", "second?", "third?"):
            await say(run, (await run.ask((Part(text=question),))).text)


class NobodyKnown:
    """The replicas as one sees them that has not read yet who keeps the run of a task."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)

    async def all(self) -> tuple[Replica, ...]:
        return ()


@pytest.mark.parametrize("claimed", ["before the next message is written", "after that"])
async def test_a_suspended_run_hears_each_message_once_and_in_order_when_its_answer_was_queued(claimed: str) -> None:
    """The answer is read here before the task is claimed. A claim before the next message comes after its read."""
    async with replicas(2, Curious(), Hub().bus) as (one, other):
        claim, append, looked = one.store.claim, one.store.append, asyncio.Event()

        async def claim_nothing(*wanted: Any, **more: Any) -> tuple[()]:
            looked.set()
            return ()

        async def append_after_a_claim(write: Append) -> Appended | Repeat:
            one.store.append = append  # type: ignore[method-assign]
            assert len(await claim("r0", 1, ("agent",), 1000.0)) == 1
            return await append(write)

        task_id = (await one.send("go")).head.id
        other.engine.serve({})
        assert await other.engine.operations.served_elsewhere("agent")  # which is known for a second
        other.store.replicas = NobodyKnown(other.store.replicas)  # type: ignore[attr-defined]
        one.store.claim = claim_nothing  # type: ignore[attr-defined]
        await other.send("red", task_id=task_id, return_immediately=True)
        await one.get(task_id)
        if claimed != "after that":
            one.store.append = lambda write: asyncio.ensure_future(append_after_a_claim(write))  # type: ignore[method-assign]
        await looked.wait()
        one.store.claim = claim  # type: ignore[method-assign]
        await one.send("blue", task_id=task_id, return_immediately=True)
        await other.send("green", task_id=task_id, return_immediately=True)
        assert text_of(await one.reach(task_id, S.COMPLETED)) == "redbluegreen"


async def test_a_lease_that_was_read_without_its_log_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails between the two: how far a worker has repeated its words comes with both."""
    stage = Hired()

    async def fail(*args: object) -> None:
        raise StoreError("the store cannot answer")

    async with replicas(2, stage, Hub().bus) as (one, other):
        here, there = (agent.leases for agent in stage.agents)
        task_id, where = await one.begin(), Ask((Part(text="Where?"),))
        first = await here.take("w1", DEADLINE_S)
        assert first is not None
        assert await here.ask(first.lease.token, where, 1, 0) is None
        await one.send("there", task_id=task_id, return_immediately=True)
        await here.release(first.lease.token)
        again = await here.take("w2", DEADLINE_S, replays=True)
        assert again is not None
        token, end = again.lease.token, End(S.COMPLETED, (Part(text="done"),))
        await here.say(token, Say((Part(text="looking"),)), number=1)
        assert (await there.ask(token, where, 1, 0)) is not None
        with monkeypatch.context() as failing:
            failing.setattr(one.store, "read", fail)
            with pytest.raises(Unavailable):
                await here.say(token, end)
        await here.say(token, end)
        assert (await other.reach(task_id, S.COMPLETED)).state is S.COMPLETED
