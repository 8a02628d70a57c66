"""Store cases: two engines on one store object, as two servers on one database.

Invariant: the engines share nothing but the store. Each sees what the other writes, and leaves its runs alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Context
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Snapshot, Stream
from dragoman.engine.policy import EngineSettings
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.events import Logged, MessageReceived, StatusChanged
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, CancelTask, GetTask, Operation, SendMessage, Subscribe
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskState
from dragoman.store.api import Store
from dragoman.testing.store_cases.bench import Bench, Case

DEADLINE_S = 30.0
"""Nothing here takes so long, unless it hangs."""

POLL_S = 0.01

WHOLE_LOG_BYTES = 1 << 30


class Stage:
    """The agents of both engines: they do what the caller's text says, and wait for `gate` where they are told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.canceled = asyncio.Event()
        self.runs = 0

    def agents(self) -> dict[str, Agent]:
        """The agents for one engine: one that callers reach, and one to delegate to."""
        agents = {name: Agent(name, restartable=True) for name in ("stage", "other")}
        for agent in agents.values():
            agent.skill("play")(self._play)
        return agents

    async def _play(self, ctx: Context) -> AsyncIterator[str]:
        self.runs += 1
        if "delegate" in ctx.text:
            await ctx.delegate("other", "wait")
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

    async def follow(self, task_id: str) -> Stream:
        """Subscribe to a task."""
        return await self.engine.stream(self._call(Subscribe(id=task_id)))

    async def reach(self, task_id: str, state: TaskState) -> Record:
        """Wait until the task is in that state."""
        if (await self.get(task_id)).state is not state:
            with suppress(UnsupportedOperation):  # it has ended since then
                await _read(await self.follow(task_id), state)
        record = await self.get(task_id)
        assert record.state is state, record.status
        return record

    async def _ask(self, operation: Operation) -> Record:
        answer = await self.engine.call(self._call(operation))
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


class Engines:
    """The engines on one store, by their holders; each has an agent of every name."""

    def __init__(self, bench: Bench, store: Store, group: asyncio.TaskGroup) -> None:
        self.store = store
        self.stage = Stage()
        self._bench = bench
        self._group = group
        self._running: list[Engine] = []

    async def start(self, holder: str) -> EngineCaller:
        """Start one more engine. Returns a caller of it."""
        settings = EngineSettings(poll_s=POLL_S)
        engine = Engine(self.store, self.stage.agents(), clock=self._bench.clock, settings=settings, holder=holder)
        await engine.start(self._group)
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
async def _two(bench: Bench) -> AsyncIterator[tuple[Engines, EngineCaller, EngineCaller]]:
    async with bench.store() as store, asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        engines = Engines(bench, store, group)
        try:
            yield engines, await engines.start("h1"), await engines.start("h2")
        finally:
            await engines.stop()


def _text(record: Record) -> str:
    return "".join(part.text or "" for artifact in record.artifacts for part in artifact.parts).strip()


async def events_of_the_other_engine_are_seen_in_order_each_once(bench: Bench) -> None:
    """A stream at one engine gives everything that a run of the other writes."""
    async with _two(bench) as (engines, one, other):
        task = await one.send("wait count count count", wait=False)
        await engines.stage.begun.wait()
        stream = await other.follow(task.head.id)
        engines.stage.gate.set()
        seqs = await _read(stream, TaskState.COMPLETED)
        record = await other.get(task.head.id)
        assert seqs == list(range(seqs[0], record.seq + 1))
        assert _text(record) == "0 1 2"
        assert record == await one.get(task.head.id)


async def an_answer_is_read_by_the_other_engine_as_soon_as_it_is_given(bench: Bench) -> None:
    """GetTask at any engine shows what was written before, also while that engine follows the task."""
    async with _two(bench) as (_, one, other):
        task = await one.send("ask ask")
        stream = await other.follow(task.head.id)
        answered = await one.send("yes", task.head.id)
        assert (await other.get(task.head.id)).seq >= answered.seq
        await one.send("no", task.head.id)
        assert (await other.get(task.head.id)).state is TaskState.COMPLETED
        await _read(stream, TaskState.COMPLETED)


async def a_cancel_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
    """The agent is told to stop, and the cancel is answered when it has."""
    async with _two(bench) as (engines, one, other):
        task = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        canceled = await other.cancel(task.head.id)
        assert canceled.state is TaskState.CANCELED
        assert engines.stage.canceled.is_set()
        assert (await one.get(task.head.id)).state is TaskState.CANCELED


async def an_answer_at_the_other_engine_goes_on_there(bench: Bench) -> None:
    """The suspended run is given up where the question was asked, and the agent runs once more where it is answered."""
    async with _two(bench) as (engines, one, other):
        task = await one.send("ask ask ask")
        await other.send("a", task.head.id)
        await one.send("b", task.head.id)
        done = await other.send("c", task.head.id)
        assert (done.state, _text(done)) == (TaskState.COMPLETED, "a b c")
        assert engines.stage.runs == 4
        questions = [logged for logged in await engines.log(task.head.id) if _asks(logged)]
        assert len(questions) == 3


async def a_message_reaches_the_run_of_the_other_engine(bench: Bench) -> None:
    """A message to a task at work answers the next question of its run, wherever that is."""
    async with _two(bench) as (engines, one, other):
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
    async with _two(bench) as (engines, one, other):
        task = await one.send("ask after count")
        await other.send("yes", task.head.id, wait=False)
        await engines.stage.begun.wait()
        await one.engine.drain(0)
        assert (await other.get(task.head.id)).state is TaskState.WORKING
        engines.stage.gate.set()
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "yes 0"


async def a_cancel_ends_what_was_delegated_at_the_other_engine(bench: Bench) -> None:
    """The tasks that a canceled task delegated are canceled, too."""
    async with _two(bench) as (engines, one, other):
        parent = await one.send("delegate", wait=False)
        await engines.stage.begun.wait()
        (child,) = await engines.store.children(parent.head.id)
        await other.cancel(parent.head.id)
        await EngineCaller(other.engine, "other").reach(child.id, TaskState.CANCELED)
        assert engines.stage.canceled.is_set()
        assert await engines.store.children(parent.head.id) == ()


async def an_engine_that_starts_leaves_running_tasks_alone(bench: Bench) -> None:
    """A task that an engine works on is not recovered by one that starts meanwhile."""
    async with _two(bench) as (engines, one, _):
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        third = await engines.start("h3")
        engines.stage.gate.set()
        assert _text(await third.reach(task.head.id, TaskState.COMPLETED)) == "0"
        assert engines.stage.runs == 1


async def a_run_whose_holder_is_dead_is_abandoned(bench: Bench) -> None:
    """Once an engine has taken the tasks of a dead one, the runs of that one stop, and write nothing more."""
    async with _two(bench) as (engines, one, other):
        task = await one.send("wait count", wait=False)
        await engines.stage.begun.wait()
        await engines.store.replicas.leave("h1")
        await engines.start("h3")
        await engines.stage.canceled.wait()
        assert (await other.get(task.head.id)).state is TaskState.WORKING
        engines.stage.gate.set()
        assert _text(await other.reach(task.head.id, TaskState.COMPLETED)) == "0"
        assert engines.stage.runs == 2


def _asks(logged: Logged) -> bool:
    return isinstance(logged.event, StatusChanged) and logged.event.state is TaskState.INPUT_REQUIRED


ENGINES: tuple[Case, ...] = (
    events_of_the_other_engine_are_seen_in_order_each_once,
    an_answer_is_read_by_the_other_engine_as_soon_as_it_is_given,
    a_cancel_reaches_the_run_of_the_other_engine,
    an_answer_at_the_other_engine_goes_on_there,
    a_message_reaches_the_run_of_the_other_engine,
    a_drain_leaves_the_tasks_of_the_other_engine_alone,
    a_cancel_ends_what_was_delegated_at_the_other_engine,
    an_engine_that_starts_leaves_running_tasks_alone,
    a_run_whose_holder_is_dead_is_abandoned,
)
"""Cases for two engines."""
