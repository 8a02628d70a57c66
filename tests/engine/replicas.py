"""Several engines on one store in one process, with a bus between them, and an agent that the test leads."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

from dragoman.agents.kinds import worker_agents
from dragoman.bus.api import Bus
from dragoman.engine.api import Run
from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.words import Sleep
from dragoman.model.events import Logged
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import Fragile, House, Scripted, StandingClock, read, say

HOUR = Sleep(for_ms=3_600_000)

NEVER_S = 1000.0
"""When the poll comes that a test must not need."""


class Counted(Fragile):
    """The store as one replica has it, which counts its reads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()
        self.broken: list[Exception] = []
        self.under_way = 0
        """How many calls of `read_since` look at the store now."""
        self.blind = 0
        """How many more reads find nothing, because they do not see the latest commits yet."""

    async def load(self, task_id: str, size: int | None = None) -> Any:
        self.reads["load"] += 1
        return await super().load(task_id, size)

    async def find(self, task_id: str, owner: str, agent: str, bytes_max: int | None = None) -> Any:
        self.reads["load"] += 1
        return await super().find(task_id, owner, agent, bytes_max)

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        self.reads["read"] += 1
        return await super().read(task_id, after, limit_bytes)

    async def leased(self, holder: str, *, offered: bool = False) -> Sequence[str]:
        found: Sequence[str] = await self._store.leased(holder, offered=offered)
        self.reads["leased"] += 1
        return found

    async def orphans(self, after: str, limit: int) -> Any:
        self.reads["orphans"] += 1
        return await self._store.orphans(after, limit)

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        self.reads["read_since"] += 1
        if self.broken:
            raise self.broken.pop()
        if self.blind:
            self.blind -= 1
            return {}
        self.under_way += 1
        try:
            found: Mapping[str, tuple[Logged, ...]] = await self._store.read_since(seen, limit_bytes)
        finally:
            self.under_way -= 1
        return found


BusT = TypeVar("BusT", bound=Bus)


class Replica(House, Generic[BusT]):
    """An engine with its bus."""

    store: Counted

    def __init__(
        self, engine: Engine, store: Counted, clock: StandingClock, bus: BusT, records: RecordReader | None = None
    ) -> None:
        super().__init__(engine, store, clock, records)
        self.bus = bus

    def seq(self, task_id: str) -> int:
        """How much of a task's log the engine has in memory; 0 if it has none."""
        return next((task.seq for task in self.engine.tasks.all() if task.head.id == task_id), 0)

    async def follow(self, task_id: str) -> "asyncio.Task[list[Any]]":
        """Subscribe to a task, and read until its end."""
        return asyncio.create_task(read(await self.open(Subscribe(id=task_id))))


class Stage:
    """The agent of every replica: it gives out what it is told to, a piece for each time the gate is opened.

    The piece `sleep` lets it sleep for an hour.
    """

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.canceled = asyncio.Event()

    def agent(self) -> Scripted:
        return Scripted(self._run, restartable=True)

    async def _run(self, run: Run) -> None:
        self.begun.set()
        if run.message.text == "ask":
            await say(run, (await run.ask((Part(text="what?"),))).text)
            return
        try:
            while (piece := await self.pieces.get()) is not None:
                await (run.sleep(HOUR) if piece == "sleep" else say(run, piece))
        except asyncio.CancelledError:
            self.canceled.set()
            raise


@asynccontextmanager
async def replicas(
    count: int,
    stage: Stage,
    make_bus: Callable[[], BusT],
    *,
    poll_s: float = NEVER_S,
    healthy_poll_s: float = NEVER_S,
    clock: StandingClock | None = None,
    seen_as: Callable[[Store], Any] = lambda store: store,
    **settings: Any,
) -> AsyncIterator[list[Replica[BusT]]]:
    """So many engines on one store, which hear of each other by the bus, or else by a poll that never comes.

    The time stands still for them and for the store, unless they are given a `clock`. `seen_as` gives each the store as
    it has it.
    """
    shared = open_store("memory:", clock or StandingClock())
    clock = clock or StandingClock()
    await shared.open("first")
    polls = {"poll_s": poll_s, "healthy_poll_s": healthy_poll_s, "cancel_grace_s": NEVER_S, "claim_s": NEVER_S}
    made: list[Replica[BusT]] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(shared.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for number in range(count):
            store, bus, agent = Counted(seen_as(shared)), make_bus(), stage.agent()
            records = RecordReader(store, bus, shared=True)
            await records.refresh()
            engine = Engine(
                store,
                {agent.profile.id: agent},
                clock=clock,
                settings=EngineSettings(**(polls | settings)),
                holder=f"r{number}",
                bus=bus,
                records=records,
            )
            for workers in worker_agents((agent,)).values():
                workers.leases.serve(engine.worker_tasks)
            await bus.open()
            stack.push_async_callback(bus.close)
            await engine.start(JobGroup(group))
            stack.push_async_callback(engine.drain, 0)
            reading = group.create_task(records.run())
            stack.callback(reading.cancel)
            made.append(Replica(engine, store, clock, bus, records))
        yield made
