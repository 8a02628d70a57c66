"""Store cases: two engines on one store object, as two servers on one database.

Invariant: the engines share nothing but the store. Each sees what the other writes, and leaves its runs alone.
"""

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context as Variables
from typing import Any

from msgspec.structs import replace

from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Context
from dragoman.engine.announcements import PutOff, Step
from dragoman.engine.delegated_tasks import SLACK_MS
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Snapshot, Stream
from dragoman.engine.policy import EngineSettings
from dragoman.engine.writes import OVERTAKEN_MAX
from dragoman.model.errors import AgentNotFound, Unavailable, UnsupportedOperation
from dragoman.model.events import Logged, MessageReceived, StatusChanged
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    Call,
    CancelTask,
    CreatePushConfig,
    GetTask,
    Operation,
    PushConfig,
    SendMessage,
    Subscribe,
)
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.api import Append, Appended, Repeat, Store, Stored
from dragoman.store.outbox import Delivery, Registration
from dragoman.store.replicas import ReplicaBuried, ReplicaEvent, ReplicaFenced, Replicas
from dragoman.telemetry.job_group import JobGroup
from tests.store.cases.bench import Bench, Case, W, by_run, chunk, ending, loaded, new_task

DEADLINE_S = 30.0
"""Nothing here takes so long, unless it hangs."""

POLL_S = 0.01

HURRY_S = 3600.0
"""How long a delegation takes at most, by the clock of the case."""

WHOLE_LOG_BYTES = 1 << 30


class Stage:
    """The agents of both engines: they do what the caller's text says, and wait for `gate` where they are told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.canceled = asyncio.Event()
        self.runs = 0

    def agents(self, *names: str, restartable: bool = True) -> dict[str, Agent]:
        """The agents for one engine: `stage` and `other`, unless it is told which."""
        agents = {name: Agent(name, restartable=restartable) for name in names or ("stage", "other")}
        for agent in agents.values():
            agent.skill("play")(self._play)
        return agents

    async def _play(self, ctx: Context) -> AsyncIterator[str]:
        self.runs += 1
        if "delegate" in ctx.text:
            await ctx.delegate("other", "wait")
        if "hurry" in ctx.text:
            await ctx.delegate("other", "ask", timeout_s=HURRY_S)
        if "wait" in ctx.text:
            self.begun.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.canceled.set()
                raise
        for number in range(ctx.text.count("ask")):
            yield f"{await ctx.ask(f'question {number}')} "
        if "after" in ctx.text:
            self.begun.set()
            await self.gate.wait()
        for number in range(ctx.text.count("count")):
            yield f"{number} "


class EngineCaller:
    """Calls an agent of one of the engines, always as the same principal."""

    def __init__(self, engine: Engine, agent: str = "stage") -> None:
        self.engine = engine
        self._agent = agent

    async def send(self, text: str, task_id: str | None = None, *, wait: bool = True) -> Record:
        """Send a message."""
        message = Message(message_id=new_id(), role=Role.USER, parts=(Part(text=text),), task_id=task_id)
        return await self._ask(SendMessage(message=message, return_immediately=not wait))

    async def get(self, task_id: str) -> Record:
        """Read a task."""
        return await self._ask(GetTask(id=task_id))

    async def cancel(self, task_id: str) -> Record:
        """Cancel a task."""
        return await self._ask(CancelTask(id=task_id))

    async def register(self, task_id: str) -> None:
        """Register a webhook for a task."""
        config = PushConfig(url="https://hooks.example/in", task_id=task_id)
        await self.engine.operations.call(self._call(CreatePushConfig(config=config)))

    async def follow(self, task_id: str) -> Stream:
        """Subscribe to a task."""
        return await self.engine.operations.stream(self._call(Subscribe(id=task_id)))

    async def reach(self, task_id: str, state: TaskState) -> Record:
        """Wait until the task is in that state."""
        if (await self.get(task_id)).state is not state:
            with suppress(UnsupportedOperation):  # it has ended since then
                await _read(await self.follow(task_id), state)
        record = await self.get(task_id)
        assert record.state is state, record.status
        return record

    async def _ask(self, operation: Operation) -> Record:
        answer = await self.engine.operations.call(self._call(operation))
        assert isinstance(answer, Record)
        return answer

    def _call(self, operation: Operation) -> Call:
        return Call(operation=operation, principal=Principal("ann"), agent=self._agent, dialect="1.0", mount="/")


async def _read(stream: Stream, until: TaskState) -> list[int]:
    """Read a stream until its task is in that state. Returns the seqs in the order they came."""
    seqs: list[int] = []
    state: TaskState | None = None
    try:
        while state is not until and (batch := await stream.next()) is not None:
            for item in batch:
                if isinstance(item, Snapshot):
                    seqs.append(item.record.seq)
                    state = item.record.state
                elif isinstance(item, Logged):
                    seqs.append(item.seq)
                    state = item.event.state if isinstance(item.event, StatusChanged) else state
    finally:
        stream.close()
    return seqs


class Ends:
    """An observer of all engines: it counts the ends of tasks, those that were taken over, and lost leases."""

    traceparent: str | None = None
    context: Variables | None = None

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.taken_over_tasks = 0
        self.leases_lost = 0

    def submitted(self, agent: str) -> None:
        """A task was written."""

    def cancel_requested(self, agent: str) -> None:
        """Somebody asked for a task to be canceled."""

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        """The end of a task was committed."""
        self.ends.append(state)

    def taken_over(self, agent: str) -> None:
        """A task was claimed."""
        self.taken_over_tasks += 1

    def lease_lost(self, agent: str) -> None:
        """Another engine has leased a task that ran in the one that says so."""
        self.leases_lost += 1

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        """A task has used tokens."""

    def executing(self, agent: str, task_id: str, traceparent: str | None) -> "Ends":
        """A run begins."""
        return self

    def finished(self, state: str) -> None:
        """A run is over."""


class Heralds:
    """The announcer of all engines: a delivery of a few bytes for each step, which nobody sends."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """Any URL may be called."""
        return Registration(config=config, host="https://hooks.example:443")

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[Step], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        """The state after each step."""
        made = [
            Delivery(id=new_id(), config_id=config.id, seq=step.seq, kept=True, body=step.state.value.encode())
            for step in steps
            for config in configs
        ]
        return tuple(made), put_off

    def possible_bodies(self, head: TaskHead, step: Step, dialect: str) -> tuple[bytes, ...]:
        """The state after the step."""
        return (step.state.value.encode(),)

    def wake(self) -> None:
        """Nobody sends anything."""


class Engines:
    """The engines on one store, by their holders; each has an agent of every name, unless it is started with others."""

    def __init__(self, bench: Bench, store: Store, group: asyncio.TaskGroup, stores: AsyncExitStack) -> None:
        self.store = store
        self.stage = Stage()
        self.ends = Ends()
        self._bench = bench
        self._group = group
        self._stores = stores
        self._running: list[Engine] = []

    async def start(
        self, holder: str, agents: Mapping[str, Agent] | None = None, *, store: Any = None, **settings: Any
    ) -> EngineCaller:
        """Start one more engine, on `store` or one of its own if there can be several. Returns a caller of it."""
        if store is None:
            store = self.store
        if store is self.store and self._bench.shared:
            store = await self._stores.enter_async_context(self._bench.opened(holder))
        engine = Engine(
            store,
            self.stage.agents() if agents is None else agents,
            clock=store.clock,
            settings=EngineSettings(**{"poll_s": POLL_S, "claim_s": POLL_S, **settings}),
            holder=holder,
            observer=self.ends,
            announcer=Heralds(),
        )
        await engine.start(JobGroup(self._group))
        self._running.append(engine)
        return EngineCaller(engine)

    async def stop(self) -> None:
        """Let everything end, and stop all engines."""
        self.stage.gate.set()
        for engine in self._running:
            await engine.drain(1)

    async def log(self, task_id: str) -> tuple[Logged, ...]:
        """The whole log of a task."""
        return await self.store.read(task_id, 0, WHOLE_LOG_BYTES)


@asynccontextmanager
async def _stage(bench: Bench) -> AsyncIterator[Engines]:
    async with (
        AsyncExitStack() as stores,
        asyncio.timeout(DEADLINE_S),
        bench.opened("h0") as store,
        asyncio.TaskGroup() as group,
    ):
        engines = Engines(bench, store, group, stores)
        try:
            yield engines
        finally:
            await engines.stop()


@asynccontextmanager
async def two_engines(bench: Bench, **settings: Any) -> AsyncIterator[tuple[Engines, EngineCaller, EngineCaller]]:
    """Two engines with the same agents, and a caller of each."""
    async with _stage(bench) as engines:
        yield engines, await engines.start("h1", **settings), await engines.start("h2", **settings)


def _text(record: Record) -> str:
    return "".join(part.text or "" for artifact in record.artifacts for part in artifact.parts).strip()


async def events_of_the_other_engine_are_seen_in_order_each_once(bench: Bench) -> None:
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


async def an_answer_is_read_by_the_other_engine_as_soon_as_it_is_given(bench: Bench) -> None:
    """GetTask at any engine shows what was written before, also while that engine follows the task."""
    async with two_engines(bench) as (_, one, other):
        task = await one.send("ask ask")
        stream = await other.follow(task.head.id)
        answered = await one.send("yes", task.head.id)
        assert (await other.get(task.head.id)).seq >= answered.seq
        await one.send("no", task.head.id)
        assert (await other.get(task.head.id)).state is TaskState.COMPLETED
        await _read(stream, TaskState.COMPLETED)


async def a_cancel_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
    """The agent is told to stop, and the cancel is answered when it has."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        canceled = await other.cancel(task.head.id)
        assert canceled.state is TaskState.CANCELED
        assert engines.stage.canceled.is_set()
        assert (await one.get(task.head.id)).state is TaskState.CANCELED


async def an_answer_at_the_other_engine_resumes_the_suspended_run(bench: Bench) -> None:
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


async def an_answer_to_a_run_of_a_dead_engine_is_replayed(bench: Bench) -> None:
    """The engine that takes the answer runs the agent once more, at once, whether it is restartable or not."""
    async with _stage(bench) as engines:
        one = await engines.start("h1", engines.stage.agents(restartable=False), poll_s=DEADLINE_S, claim_s=DEADLINE_S)
        other = await engines.start("h2", engines.stage.agents(restartable=False), claim_s=DEADLINE_S)
        task = await one.send("ask ask")
        await engines.store.replicas.leave("h1")
        await other.send("a", task.head.id)
        assert _text(await other.send("b", task.head.id)) == "a b"
        assert engines.stage.runs == 2


async def an_answer_that_the_keeper_does_not_take_is_replayed(bench: Bench) -> None:
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


async def an_answer_to_a_run_that_is_not_kept_any_more_is_offered_to_nobody(bench: Bench) -> None:
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


async def a_message_to_an_offered_task_comes_after_the_answer(bench: Bench) -> None:
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


class CutReplicas:
    """The replicas of a store, with a way to say that one of them is cut off.

    With `late` the first one that joins counts as dead by the time it has joined.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.late = False
        self._events: asyncio.Queue[ReplicaEvent] = asyncio.Queue()
        self._dealing = False
        """Whether the engine has an event that it has not dealt with."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)

    async def join(self, replica_id: str, *, address: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        await self._replicas.join(replica_id, address=address, agents=agents)
        if self.late:
            self.late = False
            await self._replicas.leave(replica_id)

    async def next_event(self) -> ReplicaEvent:
        """As the protocol says, of what was said here."""
        if self._dealing:
            self._events.task_done()
        event = await self._events.get()
        self._dealing = True
        return event

    async def say(self, event: ReplicaEvent) -> None:
        """Let this be the next event, and wait until it has been dealt with."""
        self._events.put_nowait(event)
        await self._events.join()


class CutStore:
    """A store whose replica can be cut off."""

    def __init__(self, store: Store) -> None:
        self.replicas = CutReplicas(store.replicas)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def an_engine_that_was_cut_off_goes_on_under_another_name(bench: Bench) -> None:
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


async def an_engine_that_counts_as_dead_while_it_starts_goes_on_under_another_name(bench: Bench) -> None:
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


async def a_message_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
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


async def a_drain_leaves_the_tasks_of_the_other_engine_alone(bench: Bench) -> None:
    """A task that was asked for at one engine and goes on at the other survives the stop of the first."""
    async with two_engines(bench) as (engines, one, other):
        task = await one.send("ask after count")
        await other.send("yes", task.head.id, wait=False)
        await engines.stage.begun.wait()
        await one.engine.drain(0)
        assert (await other.get(task.head.id)).state is TaskState.WORKING
        engines.stage.gate.set()
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "yes 0"


async def a_cancel_ends_what_was_delegated_at_the_other_engine(bench: Bench) -> None:
    """The tasks that a canceled task delegated are canceled, too."""
    async with two_engines(bench) as (engines, one, other):
        parent = await one.send("delegate", wait=False)
        await engines.stage.begun.wait()
        (child,) = await engines.store.children(parent.head.id)
        await other.cancel(parent.head.id)
        await EngineCaller(other.engine, "other").reach(child.id, TaskState.CANCELED)
        assert engines.stage.canceled.is_set()
        assert await engines.store.children(parent.head.id) == ()


async def an_engine_that_starts_leaves_running_tasks_alone(bench: Bench) -> None:
    """A task that an engine works on is not recovered by one that starts meanwhile."""
    async with two_engines(bench) as (engines, one, _):
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        third = await engines.start("h3")
        engines.stage.gate.set()
        assert _text(await third.reach(task.head.id, TaskState.COMPLETED)) == "0"
        assert engines.stage.runs == 1


async def a_run_whose_holder_is_dead_is_abandoned(bench: Bench) -> None:
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


async def tasks_of_a_dead_engine_that_cannot_run_again_fail(bench: Bench) -> None:
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


async def a_task_for_an_agent_of_another_engine_is_left_to_it(bench: Bench) -> None:
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


async def an_agent_delegates_to_an_agent_of_another_engine(bench: Bench) -> None:
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


async def a_delegation_whose_parent_has_ended_is_canceled_by_any_engine(bench: Bench) -> None:
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


async def a_delegation_past_its_deadline_is_ended_by_any_engine(bench: Bench) -> None:
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


async def an_engine_claims_only_tasks_of_its_agents(bench: Bench) -> None:
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


async def a_caller_sees_what_was_written_before_although_an_earlier_read_is_late(bench: Bench) -> None:
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


async def an_engine_that_loses_what_it_claims_while_it_starts_leaves_it_alone(bench: Bench) -> None:
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


async def tasks_of_an_agent_that_nobody_serves_any_more_fail_at_the_next_start(bench: Bench) -> None:
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


async def an_engine_that_has_lost_a_task_does_not_end_it(bench: Bench) -> None:
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


async def a_webhook_registered_at_the_other_engine_misses_no_event(bench: Bench) -> None:
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


async def a_write_that_is_always_overtaken_gets_its_turn(bench: Bench) -> None:
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


async def a_message_to_a_run_that_streams_at_the_other_engine_is_written_at_the_first_try(bench: Bench) -> None:
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


async def two_messages_at_once_reach_a_run_once_each(bench: Bench) -> None:
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


ENGINES: tuple[Case, ...] = (
    events_of_the_other_engine_are_seen_in_order_each_once,
    an_answer_is_read_by_the_other_engine_as_soon_as_it_is_given,
    a_cancel_reaches_the_run_of_the_other_engine,
    an_answer_at_the_other_engine_resumes_the_suspended_run,
    an_answer_to_a_run_of_a_dead_engine_is_replayed,
    an_answer_that_the_keeper_does_not_take_is_replayed,
    an_answer_to_a_run_that_is_not_kept_any_more_is_offered_to_nobody,
    a_message_to_an_offered_task_comes_after_the_answer,
    an_engine_that_was_cut_off_goes_on_under_another_name,
    an_engine_that_counts_as_dead_while_it_starts_goes_on_under_another_name,
    a_message_reaches_the_run_of_the_other_engine,
    a_drain_leaves_the_tasks_of_the_other_engine_alone,
    a_cancel_ends_what_was_delegated_at_the_other_engine,
    an_engine_that_starts_leaves_running_tasks_alone,
    a_run_whose_holder_is_dead_is_abandoned,
    tasks_of_a_dead_engine_that_cannot_run_again_fail,
    a_task_for_an_agent_of_another_engine_is_left_to_it,
    an_agent_delegates_to_an_agent_of_another_engine,
    a_delegation_whose_parent_has_ended_is_canceled_by_any_engine,
    a_delegation_past_its_deadline_is_ended_by_any_engine,
    an_engine_claims_only_tasks_of_its_agents,
    a_caller_sees_what_was_written_before_although_an_earlier_read_is_late,
    an_engine_that_loses_what_it_claims_while_it_starts_leaves_it_alone,
    tasks_of_an_agent_that_nobody_serves_any_more_fail_at_the_next_start,
    an_engine_that_has_lost_a_task_does_not_end_it,
    a_webhook_registered_at_the_other_engine_misses_no_event,
    a_write_that_is_always_overtaken_gets_its_turn,
    a_message_to_a_run_that_streams_at_the_other_engine_is_written_at_the_first_try,
    two_messages_at_once_reach_a_run_once_each,
)
"""Cases for two engines."""
