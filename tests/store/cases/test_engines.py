"""Store cases: two engines on one store object, as two servers on one database.

Invariant: the engines share nothing but the store. Each sees what the other writes, and leaves its runs alone.
"""

import asyncio
from asyncio import Future
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from dragoman.agents.python.agent import Agent
from dragoman.engine.delegated_tasks import SLACK_MS
from dragoman.engine.handler import Snapshot, Stream
from dragoman.engine.writes import OVERTAKEN_MAX
from dragoman.model.errors import AgentNotFound, Unavailable
from dragoman.model.events import Logged, MessageReceived, StatusChanged
from dragoman.model.task import Record, TaskState
from dragoman.store.api import ASLEEP, Append, Appended, Repeat, Store, Stored
from dragoman.store.replicas import ReplicaBuried, ReplicaFenced
from tests.store.cases.bench import Bench, W, by_run, chunk, ending, loaded, new_task
from tests.store.cases.engines import (
    DEADLINE_S,
    HURRY_S,
    POLL_S,
    CutReplicas,
    EngineCaller,
    _read,
    _stage,
    two_engines,
)


def _text(record: Record) -> str:
    return "".join(part.text or "" for artifact in record.artifacts for part in artifact.parts).strip()


async def test_events_of_the_other_engine_are_seen_in_order_each_once(bench: Bench) -> None:
    """A stream at one engine gives everything that a run of the other writes."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait count count count", wait=False)
        await engines.stage.begun.wait()
        stream = await other.follow(task.head.id)
        engines.stage.gate.set()
        seqs = await _read(stream, TaskState.COMPLETED)
        record = await other.get(task.head.id)
        assert seqs == list(range(seqs[0], record.seq + 1))
        assert _text(record) == "0 1 2"
        assert engines.ends.ends == ["completed"], "it is counted once"
        assert record == await one.get(task.head.id)


async def test_an_answer_is_read_by_the_other_engine_as_soon_as_it_is_given(bench: Bench) -> None:
    """GetTask at any engine shows what was written before, also while that engine follows the task."""
    async with two_engines(bench) as (_, one, other):
        task = await one.send("ask ask")
        stream = await other.follow(task.head.id)
        answered = await one.send("yes", task.head.id)
        assert (await other.get(task.head.id)).seq >= answered.seq
        await one.send("no", task.head.id)
        assert (await other.get(task.head.id)).state is TaskState.COMPLETED
        await _read(stream, TaskState.COMPLETED)


async def test_a_cancel_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
    """The agent is told to stop, and the cancel is answered when it has."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        canceled = await other.cancel(task.head.id)
        assert canceled.state is TaskState.CANCELED
        assert engines.stage.canceled.is_set()
        assert (await one.get(task.head.id)).state is TaskState.CANCELED


async def test_an_answer_at_the_other_engine_resumes_the_suspended_run(bench: Bench) -> None:
    """The run goes on where the question was asked, wherever it is answered."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("ask ask ask")
        assert (await loaded(engines.store, task.head.id)).keeper == "h1"
        await other.send("a", task.head.id)
        await one.send("b", task.head.id)
        done = await other.send("c", task.head.id)
        assert (done.state, _text(done)) == (TaskState.COMPLETED, "a b c")
        assert engines.stage.runs == 1
        questions = [logged for logged in await engines.log(task.head.id) if _asks(logged)]
        assert len(questions) == 3
        assert engines.ends.ends == ["completed"]


async def test_an_answer_to_a_run_of_a_dead_engine_is_replayed(bench: Bench) -> None:
    """The engine that takes the answer runs the agent once more, at once, whether it is restartable or not."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents(restartable=False), poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        other = await engines.start("h2", engines.stage.agents(restartable=False), claim_s=DEADLINE_S)
        task = await one.send("ask ask")
        await engines.store.replicas.leave("h1")
        await other.send("a", task.head.id)
        assert _text(await other.send("b", task.head.id)) == "a b"
        assert engines.stage.runs == 2


async def test_a_task_that_sleeps_wakes_at_another_engine_than_the_one_that_is_dead(bench: Bench) -> None:
    """It is not restartable. Nobody works on it before, and each output comes once."""
    async with _stage(bench) as engines:
        agents = engines.stage.agents(restartable=False)
        one = await engines.start("h1", agents, claim_s=DEADLINE_S)
        other = await engines.start("h2", engines.stage.agents(restartable=False))
        task = await one.send("sleep count", wait=False)
        while (found := await loaded(engines.store, task.head.id)).holder != ASLEEP:
            await asyncio.sleep(POLL_S)
        assert found.offered_until_ms is not None
        await engines.store.replicas.leave("h1")
        bench.clock.ms = found.offered_until_ms - 1
        await asyncio.sleep(5 * POLL_S)
        assert (await other.get(task.head.id)).state is TaskState.WORKING
        assert engines.stage.runs == 1
        bench.clock.ms += 1
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "asleep awake 0"
        assert engines.stage.runs == 2


async def test_a_message_at_another_engine_ends_a_sleep(bench: Bench) -> None:
    """It does not know yet that the task sleeps."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", claim_s=DEADLINE_S)
        other = await engines.start("h2", poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        task = await one.send("doze ask", wait=False)
        stream = await other.follow(task.head.id)
        while (await loaded(engines.store, task.head.id)).holder != ASLEEP:
            await asyncio.sleep(POLL_S)
        await other.send("now", task.head.id, wait=False)
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "asleep awake now"
        stream.close()


async def test_an_answer_that_the_keeper_does_not_take_is_replayed(bench: Bench) -> None:
    """An offer that was not accepted in time is claimed, and the agent runs once more, restartable or not."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents(restartable=False), poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        other = await engines.start("h2", engines.stage.agents(restartable=False))
        task = await one.send("ask")
        await other.send("yes", task.head.id, wait=False)
        found = await loaded(engines.store, task.head.id)
        assert (found.holder, found.epoch) == ("h1", 2)
        assert found.offered_until_ms is not None
        bench.clock.ms = found.offered_until_ms
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "yes"
        assert engines.stage.runs == 2
        assert engines.ends.taken_over_tasks == 1
        assert (one.engine.taken_over, other.engine.taken_over) == (0, 1)


async def test_an_answer_to_a_run_that_is_not_kept_any_more_is_offered_to_nobody(bench: Bench) -> None:
    """The engine that takes the answer runs the agent once more, at once."""
    async with _stage(bench) as engines:
        agents = engines.stage.agents(restartable=False)
        one = await engines.start("h1", agents, poll_s=DEADLINE_S, claim_s=DEADLINE_S, suspend_max_s=POLL_S)
        other = await engines.start("h2", engines.stage.agents(restartable=False), claim_s=DEADLINE_S)
        task = await one.send("ask")
        found = await loaded(engines.store, task.head.id)
        while found.keeper is not None:
            await asyncio.sleep(POLL_S)
            found = await loaded(engines.store, task.head.id)
        assert _text(await other.send("yes", task.head.id)) == "yes"
        assert (await loaded(engines.store, task.head.id)).epoch == 2
        assert engines.stage.runs == 2


async def test_a_message_to_an_offered_task_comes_after_the_answer(bench: Bench) -> None:
    """A caller's message before the offer is accepted answers the next question."""
    async with _stage(bench) as engines:
        slow = 0.2
        one = await engines.start("h1", poll_s=slow)
        other = await engines.start("h2")
        task = await one.send("ask ask")
        await other.send("first", task.head.id, wait=False)
        await other.send("second", task.head.id, wait=False)
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "first second"
        assert engines.stage.runs == 1


async def _sent_again(caller: EngineCaller, text: str) -> Record:
    """Send until the engine takes work."""
    while True:
        try:
            return await caller.send(text)
        except Unavailable:
            await asyncio.sleep(POLL_S)


class CutStore:
    """A store whose replica can be cut off."""

    def __init__(self, store: Store) -> None:
        self.replicas = CutReplicas(store.replicas)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_an_engine_that_was_cut_off_goes_on_under_another_name(bench: Bench) -> None:
    """Its runs stop and it takes no work, but its streams go on once it is back."""
    async with _stage(bench) as engines:
        cut = CutStore(engines.store)
        one = await engines.start("h1", store=cut)
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        stream = await one.follow(task.head.id)
        await cut.replicas.say(ReplicaFenced("h1"))
        await engines.stage.canceled.wait()
        try:
            await one.send("count")
        except Unavailable:
            pass
        else:
            raise AssertionError("it takes work")
        found = await loaded(engines.store, task.head.id)
        assert (found.state, found.holder) == (TaskState.WORKING, "h1"), "nothing was written"
        other = await engines.start("h2")
        await engines.store.replicas.leave("h1")
        engines.stage.gate.set()
        await other.reach(task.head.id, TaskState.COMPLETED)
        await cut.replicas.say(ReplicaBuried("h1"))
        record = await one.get(task.head.id)
        seqs = await _read(stream, TaskState.COMPLETED)
        assert seqs == list(range(seqs[0], record.seq + 1))
        assert _text(await _sent_again(one, "count")) == "0"
        assert (await loaded(engines.store, (await one.send("ask")).head.id)).keeper == one.engine.replica_id


async def test_an_engine_that_counts_as_dead_while_it_starts_goes_on_under_another_name(bench: Bench) -> None:
    """A machine can be so busy that the first lease runs out before the start is over."""
    async with _stage(bench) as engines:
        cut = CutStore(engines.store)
        cut.replicas.late = True
        one = await engines.start("h1", store=cut)
        await cut.replicas.say(ReplicaFenced("h1"))
        assert one.engine.fenced
        await cut.replicas.say(ReplicaBuried("h1"))
        assert _text(await _sent_again(one, "count")) == "0"
        assert not one.engine.fenced


async def test_a_message_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
    """A message to a task at work answers the next question of its run, wherever that is."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait ask", wait=False)
        await engines.stage.begun.wait()
        await other.send("early", task.head.id, wait=False)
        engines.stage.gate.set()
        done = await other.reach(task.head.id, TaskState.COMPLETED)
        assert _text(done) == "early"
        log = await engines.log(task.head.id)
        assert sum(isinstance(logged.event, MessageReceived) for logged in log) == 1
        assert not any(map(_asks, log))


async def test_a_drain_leaves_the_tasks_of_the_other_engine_alone(bench: Bench) -> None:
    """A task that was asked for at one engine and goes on at the other survives the stop of the first."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("ask after count")
        await other.send("yes", task.head.id, wait=False)
        await engines.stage.begun.wait()
        await one.engine.drain(0)
        assert (await other.get(task.head.id)).state is TaskState.WORKING
        engines.stage.gate.set()
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "yes 0"


async def test_a_cancel_ends_what_was_delegated_at_the_other_engine(bench: Bench) -> None:
    """The tasks that a canceled task delegated are canceled, too."""
    async with two_engines(bench) as (engines, one, other):
        parent = await one.send("delegate", wait=False)
        await engines.stage.begun.wait()
        (child,) = await engines.store.children(parent.head.id)
        await other.cancel(parent.head.id)
        await EngineCaller(other.engine, "other").reach(child.id, TaskState.CANCELED)
        assert engines.stage.canceled.is_set()
        assert await engines.store.children(parent.head.id) == ()


async def test_an_engine_that_starts_leaves_running_tasks_alone(bench: Bench) -> None:
    """A task that an engine works on is not recovered by one that starts meanwhile."""
    async with two_engines(bench) as (engines, one, _):
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        third = await engines.start("h3")
        engines.stage.gate.set()
        assert _text(await third.reach(task.head.id, TaskState.COMPLETED)) == "0"
        assert engines.stage.runs == 1


async def test_a_run_whose_holder_is_dead_is_abandoned(bench: Bench) -> None:
    """Once an engine has taken the tasks of a dead one, the runs of that one stop, and write nothing more."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        await one.reach(task.head.id, TaskState.WORKING)
        await engines.store.replicas.leave("h1")
        await engines.stage.canceled.wait()
        await other.reach(task.head.id, TaskState.WORKING)
        engines.stage.gate.set()
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "0"
        assert engines.stage.runs == 2
        assert (engines.ends.taken_over_tasks, engines.ends.leases_lost) == (1, 1)
        assert engines.ends.ends == ["completed"], "the one that wrote the end counts it"


async def test_tasks_of_a_dead_engine_that_cannot_run_again_fail(bench: Bench) -> None:
    """A living engine fails those of agents that are not restartable, and cancels those that were to be canceled."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents(restartable=False), claim_s=DEADLINE_S)
        first = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        engines.stage.begun.clear()
        second = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        await engines.store.request_cancel(second.head.id)
        await engines.store.replicas.leave("h1")
        other = await engines.start("h2", engines.stage.agents(restartable=False))
        failed = await other.reach(first.head.id, TaskState.FAILED)
        assert failed.status.message is not None
        assert failed.status.message.metadata == {"reason": "interrupted"}
        await other.reach(second.head.id, TaskState.CANCELED)


async def test_a_task_for_an_agent_of_another_engine_is_left_to_it(bench: Bench) -> None:
    """A send at an engine that does not serve the agent is queued. An agent that nobody serves is not found."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents("stage"))
        await engines.start("h2", engines.stage.agents("other"))
        asked = await EngineCaller(one.engine, "other").send("ask ask")
        assert asked.state is TaskState.INPUT_REQUIRED
        assert (await loaded(engines.store, asked.head.id)).keeper == "h2"
        await EngineCaller(one.engine, "other").send("a", asked.head.id)
        assert _text(await EngineCaller(one.engine, "other").send("b", asked.head.id)) == "a b"
        assert engines.stage.runs == 1
        try:
            await EngineCaller(one.engine, "none").send("x")
        except AgentNotFound:
            pass
        else:
            raise AssertionError("there is no such agent")


async def test_an_agent_delegates_to_an_agent_of_another_engine(bench: Bench) -> None:
    """The task runs where its agent is served, and its outcome comes back."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents("stage"))
        await engines.start("h2", engines.stage.agents("other"))
        parent = await one.send("delegate count", wait=False)
        await engines.stage.begun.wait()
        (child,) = await engines.store.children(parent.head.id)
        assert (await loaded(engines.store, child.id)).holder == "h2"
        engines.stage.gate.set()
        assert _text(await one.reach(parent.head.id, TaskState.COMPLETED)) == "0"


async def test_a_delegation_whose_parent_has_ended_is_canceled_by_any_engine(bench: Bench) -> None:
    """Nobody who was there when the parent ended has to be alive."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents("stage"), poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        other = await engines.start("h2", engines.stage.agents("other"))
        parent = await one.send("delegate", wait=False)
        await engines.stage.begun.wait()
        (child,) = await engines.store.children(parent.head.id)
        seq = (await loaded(engines.store, parent.head.id)).seq
        await engines.store.append(ending(parent.head.id, seq, epoch=None, state=TaskState.CANCELED))
        await engines.store.replicas.leave("h1")
        await EngineCaller(other.engine, "other").reach(child.id, TaskState.CANCELED)


async def test_a_delegation_past_its_deadline_is_ended_by_any_engine(bench: Bench) -> None:
    """Its parent goes on elsewhere, if the engine that waited for the answer is dead."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", claim_s=DEADLINE_S)
        other = await engines.start("h2")
        parent = await one.send("hurry", wait=False)
        await other.reach(parent.head.id, TaskState.INPUT_REQUIRED)
        (child,) = await engines.store.children(parent.head.id)
        await engines.store.replicas.leave("h1")
        bench.clock.ms += int(HURRY_S * 1000) + SLACK_MS
        await EngineCaller(other.engine, "other").reach(child.id, TaskState.CANCELED)
        await other.reach(parent.head.id, TaskState.FAILED)


async def test_an_engine_claims_only_tasks_of_its_agents(bench: Bench) -> None:
    """Queued tasks run at an engine that serves their agent; the others wait for one that does."""
    async with _stage(bench) as engines:
        other = await engines.start("h1", engines.stage.agents("other"))
        for agent in ("stage", "other"):
            await engines.store.create(new_task(agent, agent=agent, holder=None, state=TaskState.SUBMITTED))
        await EngineCaller(other.engine, "other").reach("other", TaskState.COMPLETED)
        assert (await loaded(engines.store, "stage")).epoch == 0
        stage = await engines.start("h2", engines.stage.agents("stage"))
        await stage.reach("stage", TaskState.COMPLETED)
        assert (await loaded(engines.store, "stage")).epoch == 1, "it was claimed once"


class LateFinds:
    """A store whose first answer about a task comes between the second read of it and the answer to that."""

    def __init__(self, store: Store) -> None:
        self.reads = 0
        self.first: asyncio.Task[Stream] | None = None
        self.begun = asyncio.Event()
        self._gate = asyncio.Event()
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def find(self, task_id: str, owner: str, agent: str, bytes_max: int | None = None) -> Any:
        """As `Store.find`."""
        self.reads += 1
        first = self.reads == 1
        found = await self._store.find(task_id, owner, agent, bytes_max)
        if first:
            self.begun.set()
            await self._gate.wait()
        elif self.first is not None:
            self._gate.set()
            await asyncio.wait((self.first,))
        return found


async def test_a_caller_sees_what_was_written_before_although_an_earlier_read_is_late(bench: Bench) -> None:
    """The log that the late read left in memory is brought up to date."""
    async with _stage(bench) as engines:
        one = await engines.start("h1")
        late = LateFinds(engines.store)
        other = await engines.start("h2", store=late, poll_s=DEADLINE_S)
        task = await one.send("ask ask")
        late.first = asyncio.create_task(other.follow(task.head.id))
        await late.begun.wait()
        answered = await one.send("a", task.head.id)
        stream = await other.follow(task.head.id)
        batch = await stream.next()
        assert batch is not None
        assert isinstance(batch[0], Snapshot)
        assert batch[0].record.seq >= answered.seq
        stream.close()
        late.first.result().close()


class LateClaims:
    """A store whose first claim is answered after its claimant was declared dead, and `h2` has claimed the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(
        self, holder: str, limit: int, agents: Collection[str] | None, absent_s: float, *, queued: bool
    ) -> tuple[Stored, ...]:
        """As `Store.claim`."""
        claimed = await self._store.claim(holder, limit, agents, absent_s, queued=queued)
        if claimed and not self._late:
            self._late = True
            await self._store.replicas.leave(holder)
            await self._store.claim("h2", limit, agents, absent_s)
        return claimed


async def test_an_engine_that_loses_what_it_claims_while_it_starts_leaves_it_alone(bench: Bench) -> None:
    """The replica that has claimed it since goes on with it."""
    async with _stage(bench) as engines:
        await engines.store.create(new_task("t1", agent="stage", holder="dead"))
        await engines.store.replicas.join("h2", address="", agents=("stage",))
        one = await engines.start("h1", store=LateClaims(engines.store))
        await one.engine.drain(1)
        found = await loaded(engines.store, "t1")
        assert (found.state, found.holder, found.epoch) == (TaskState.WORKING, "h2", 3)


def by_workers(agent_id: str) -> Agent:
    """An agent whose tasks wait for worker processes, of which there are none."""
    agent = Agent(agent_id)
    agent.traits = replace(agent.traits, by_workers=True)
    return agent


async def test_tasks_of_an_agent_that_nobody_serves_any_more_fail_at_the_next_start(bench: Bench) -> None:
    """Those of agents that wait for workers are left to these, wherever they are served."""
    async with _stage(bench) as engines:
        await engines.start("h1", {"theirs": by_workers("theirs")}, claim_s=DEADLINE_S)
        for agent in ("theirs", "work", "gone"):
            await engines.store.create(new_task(agent, agent=agent, holder=None, state=TaskState.SUBMITTED))
            await engines.store.create(new_task(f"{agent}-left", agent=agent, holder="dead"))
        agents = {**engines.stage.agents("stage"), "work": by_workers("work")}
        await engines.start("h2", agents, agent_absent_s=0)
        for task_id in ("gone", "gone-left"):
            failed = await loaded(engines.store, task_id)
            assert failed.state is TaskState.FAILED
            assert failed.snapshot is not None
            assert failed.snapshot.status.message is not None
            assert failed.snapshot.status.message.metadata == {"reason": "interrupted"}
        for task_id in ("theirs", "work"):
            assert (await loaded(engines.store, task_id)).epoch == 0
        assert (await loaded(engines.store, "theirs-left")).holder == "dead"
        left = await loaded(engines.store, "work-left")  # it waits for a worker again
        assert (left.holder, left.state, left.delivered) == (None, W, 0)


async def test_an_engine_that_has_lost_a_task_does_not_end_it(bench: Bench) -> None:
    """A drain ends a run that cannot run again only while the lease is the engine's own."""
    async with _stage(bench) as engines:
        agents = engines.stage.agents(restartable=False)
        one = await engines.start("h1", agents, poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        task = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        await one.reach(task.head.id, TaskState.WORKING)
        await engines.store.replicas.join("h2", address="", agents=("stage",))
        await engines.store.replicas.leave("h1")
        assert [stored.head.id for stored in await engines.store.claim("h2", 1, ("stage",))] == [task.head.id]
        await one.engine.drain(0)
        found = await loaded(engines.store, task.head.id)
        assert (found.state, found.holder) == (TaskState.WORKING, "h2")


async def test_a_webhook_registered_at_the_other_engine_misses_no_event(bench: Bench) -> None:
    """The run's later events are reported, although its engine did not know of the webhook."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", poll_s=DEADLINE_S)
        other = await engines.start("h2")
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        await other.register(task.head.id)
        engines.stage.gate.set()
        await other.reach(task.head.id, TaskState.COMPLETED)
        owed = await engines.store.outbox.owed()
        log = await engines.log(task.head.id)
        assert [one.seq for one in owed][-1] == log[-1].seq
        assert {one.seq for one in owed} >= {each.seq for each in log[2:] if isinstance(each.event, StatusChanged)}


class Overtaken:
    """A store in which the run of a task always writes just before a caller does."""

    def __init__(self, store: Store) -> None:
        self.tries = 0
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """As `Store.append`, just after an event of the run."""
        if append.epoch is None:
            self.tries += 1
            self._store.append(by_run(append.task_id, chunk("x"))).add_done_callback(Future.exception)
        return self._store.append(append)


async def test_a_write_that_is_always_overtaken_gets_its_turn(bench: Bench) -> None:
    """A caller's write is overtaken a few times, then nobody else writes until it is made."""
    async with _stage(bench) as engines:
        one = await engines.start("h1")
        busy = Overtaken(engines.store)
        other = await engines.start("h2", store=busy)
        task = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        await other.register(task.head.id)
        assert busy.tries == OVERTAKEN_MAX
        engines.stage.gate.set()
        await other.reach(task.head.id, TaskState.COMPLETED)
        seqs = [logged.seq for logged in await engines.log(task.head.id)]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_message_to_a_run_that_streams_at_the_other_engine_is_written_at_the_first_try(bench: Bench) -> None:
    """It does not matter what the run writes meanwhile. The run reads it, and followers see every event once."""
    async with _stage(bench) as engines:
        one = await engines.start("h1")
        busy = Overtaken(engines.store)
        other = await engines.start("h2", store=busy)
        task = await one.send("wait ask", wait=False)
        await engines.stage.begun.wait()
        await one.reach(task.head.id, TaskState.WORKING)
        stream = await other.follow(task.head.id)
        await other.send("early", task.head.id, wait=False)
        assert busy.tries == 1
        engines.stage.gate.set()
        seqs = await _read(stream, TaskState.COMPLETED)
        record = await other.get(task.head.id)
        assert seqs == list(range(seqs[0], record.seq + 1))
        assert _text(record).removeprefix("x").strip() == "early"


async def test_two_messages_at_once_reach_a_run_once_each(bench: Bench) -> None:
    """One comes by the engine of the run, the other by the other engine."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait ask ask ask", wait=False)
        await engines.stage.begun.wait()
        await one.reach(task.head.id, TaskState.WORKING)
        await asyncio.gather(*(each.send("early", task.head.id, wait=False) for each in (one, other)))
        engines.stage.gate.set()
        await one.reach(task.head.id, TaskState.INPUT_REQUIRED)
        assert _text(await one.send("late", task.head.id)) == "early early late"


def _asks(logged: Logged) -> bool:
    return isinstance(logged.event, StatusChanged) and logged.event.state is TaskState.INPUT_REQUIRED
