"""Two engines on one store object, as two servers on one database, and stores that lose what an engine needs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context as Variables
from typing import Any

from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Context
from dragoman.engine.announcements import PutOff, WebhookStep
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Snapshot, Stream
from dragoman.engine.policy import EngineSettings
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.events import Logged, StatusChanged
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
from dragoman.store.api import (
    Append,
    Appended,
    NewTask,
    OutcomeUnknown,
    Repeat,
    Store,
)
from dragoman.store.outbox import Delivery, Registration
from dragoman.store.replicas import ReplicaEvent, Replicas
from dragoman.telemetry.genai import InvokedHead, InvokedRunner, ToolCall
from dragoman.telemetry.job_group import JobGroup
from tests.kit.waiting import no_hang
from tests.store.cases.bench import Bench

DEADLINE_S = 60.0
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
        if "sleep" in ctx.text or "doze" in ctx.text:
            yield "asleep "
            await ctx.sleep("1h", wake_on_message="doze" in ctx.text)
            yield "awake "
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

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> "Ends":
        """A run begins."""
        return self

    def step_begins(self, name: str, key: str) -> "Ends":
        """A step begins."""
        return self

    def executed(self, attempts: int, failure: str | None) -> None:
        """A step was executed."""

    def interrupted(self) -> None:
        """A step has no outcome."""

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        """A worker has executed a step."""

    def step_replayed(self) -> None:
        """A step was not executed again."""

    def sleeps(self, until: str) -> None:
        """A task sleeps."""

    def tool_called(self, call: ToolCall) -> None:
        """A tool is called."""

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        """A token was exchanged."""

    def finished(self, state: str) -> None:
        """A run is over."""


class Heralds:
    """The announcer of all engines: a delivery of a few bytes for each step, which nobody sends."""

    async def registration(self, config: PushConfig, field: str) -> Registration:
        """Any URL may be called."""
        return Registration(config=config, host="https://hooks.example:443")

    def deliveries(
        self, head: TaskHead, configs: Sequence[PushConfig], steps: Sequence[WebhookStep], put_off: PutOff
    ) -> tuple[tuple[Delivery, ...], PutOff]:
        """The state after each step."""
        made = [
            Delivery(id=new_id(), config_id=config.id, seq=step.seq, kept=True, body=step.state.value.encode())
            for step in steps
            for config in configs
        ]
        return tuple(made), put_off

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> tuple[bytes, ...]:
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
        no_hang(),
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


class Unacknowledged:
    """A store that makes every write, and loses the acknowledgement of as many as `lost` says."""

    def __init__(self, store: Store, lost: int = 0) -> None:
        self.lost = lost
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, new: NewTask) -> "asyncio.Future[Appended | Repeat]":
        """As `Store.create`; raises OutcomeUnknown if the acknowledgement is lost."""
        return self._acknowledge(self._store.create(new))

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """As `Store.append`; raises OutcomeUnknown if the acknowledgement is lost."""
        return self._acknowledge(self._store.append(append))

    def _acknowledge(self, written: "asyncio.Future[Appended | Repeat]") -> "asyncio.Future[Appended | Repeat]":
        if not self.lost:
            return written
        self.lost -= 1
        return asyncio.ensure_future(_lose(written))


async def _lose(written: Awaitable[Appended | Repeat]) -> Appended | Repeat:
    await written
    raise OutcomeUnknown("the connection was lost")
