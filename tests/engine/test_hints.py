"""Several engines on one store, and a bus between them: it brings events at once, and nothing depends on it."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman.engine.api import Run
from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.model.events import Logged
from dragoman.model.operations import Subscribe
from dragoman.model.task import TaskState
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.testing.buses import Hub, HubBus
from tests.engine.house import Fragile, House, Scripted, StandingClock, read, say, sending, seqs, streaming

S = TaskState
NEVER_S = 1000.0
SMALL, LARGE = "x" * 100, "x" * 6000


class Counted(Fragile):
    """The store as one replica has it, which counts its reads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()
        self.broken: list[Exception] = []
        self.blind = 0
        """How many more reads find nothing, because they do not see the latest commits yet."""

    async def load(self, task_id: str, size: int | None = None) -> Any:
        self.reads["load"] += 1
        return await super().load(task_id, size)

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        self.reads["read"] += 1
        return await super().read(task_id, after, limit_bytes)

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        self.reads["read_since"] += 1
        if self.broken:
            raise self.broken.pop()
        if self.blind:
            self.blind -= 1
            return {}
        found: Mapping[str, tuple[Logged, ...]] = await self._store.read_since(seen, limit_bytes)
        return found


class Replica(House):
    """An engine with its bus."""

    store: Counted

    def __init__(self, engine: Engine, store: Counted, clock: StandingClock, bus: HubBus) -> None:
        super().__init__(engine, store, clock)
        self.bus = bus

    async def follow(self, task_id: str) -> "asyncio.Task[list[Any]]":
        """Subscribe to a task, and read until its end."""
        return asyncio.create_task(read(await self.open(Subscribe(id=task_id))))


class Stage:
    """The agent of every replica: it gives out what it is told to, a piece for each time the gate is opened."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.begun = asyncio.Event()
        self.canceled = asyncio.Event()

    def agent(self) -> Scripted:
        return Scripted(self._run)

    async def _run(self, run: Run) -> None:
        self.begun.set()
        if run.message.text == "ask":
            await say(run, (await run.ask("what?")).text)
            return
        try:
            while (piece := await self.pieces.get()) is not None:
                await say(run, piece)
        except asyncio.CancelledError:
            self.canceled.set()
            raise


@asynccontextmanager
async def replicas(
    count: int, stage: Stage, hub: Hub, *, poll_s: float = NEVER_S, healthy_poll_s: float = NEVER_S
) -> AsyncIterator[list[Replica]]:
    """So many engines on one store, which hear of each other by the bus, or else by a poll that never comes."""
    clock, shared = StandingClock(), open_store("memory:", StandingClock())
    await shared.open("first")
    settings = EngineSettings(poll_s=poll_s, healthy_poll_s=healthy_poll_s, cancel_grace_s=NEVER_S)
    made: list[Replica] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(shared.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for number in range(count):
            store, bus, agent = Counted(shared), hub.bus(), stage.agent()
            engine = Engine(
                store, {agent.profile.id: agent}, clock=clock, settings=settings, holder=f"r{number}", bus=bus
            )
            await bus.open()
            stack.push_async_callback(bus.close)
            await engine.start(group)
            stack.push_async_callback(engine.drain, 0)
            made.append(Replica(engine, store, clock, bus))
        yield made


async def until(happened: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.001)


async def test_a_follower_gets_every_event_by_hints_and_reads_nothing_for_them() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        task_id = await one.begin()
        await stage.begun.wait()
        following = await other.follow(task_id)
        await until(lambda: other.bus.followed[task_id])
        stage.pieces.put_nowait(SMALL)
        await until(lambda: other.bus.figures.received)
        before = other.store.reads.total()
        for _ in range(20):
            heard = other.bus.figures.received
            stage.pieces.put_nowait(SMALL)
            await until(lambda heard=heard: other.bus.figures.received > heard)
        stage.pieces.put_nowait(None)
        seen = seqs(await following)
        assert seen == list(range(seen[0], len(await one.log(task_id)) + 1))
        assert other.store.reads.total() <= before + 2, other.store.reads  # the reads that follow the subscription
        await until(lambda: not other.bus.followed)
        assert one.bus.figures.received == 0


async def test_a_page_too_large_for_a_hint_is_read_once_for_all_who_follow() -> None:
    stage, hub, followers, pages = Stage(), Hub(), 200, 10
    async with replicas(2, stage, hub) as (one, other):
        task_id = await one.begin()
        await stage.begun.wait()
        following = [await other.follow(task_id) for _ in range(followers)]
        await until(lambda: other.bus.followed[task_id])
        await until(lambda: other.store.reads["read_since"])
        before, last = other.store.reads.total(), len(await one.log(task_id))
        for number in range(1, pages + 1):
            stage.pieces.put_nowait(LARGE)
            await until(lambda number=number: _seq(other, task_id) == last + number)
        stage.pieces.put_nowait(None)
        for seen in await asyncio.gather(*following):
            assert seqs(seen)[-1] == last + pages + 1
        assert other.store.reads.total() - before <= 2 * pages  # one a page, and one more that finds nothing


def _seq(replica: Replica, task_id: str) -> int:
    return next((task.seq for task in replica.engine._tasks.all() if task.head.id == task_id), 0)


async def test_followers_see_each_event_once_and_in_order_whatever_becomes_of_the_hints() -> None:
    rng = random.Random(7)

    def fate() -> Sequence[float]:
        return tuple(rng.choice((0.0, 0.001, 0.005)) for _ in range(rng.choice((0, 1, 1, 1, 2))))

    stage, hub = Stage(), Hub(fate)
    async with replicas(3, stage, hub, poll_s=0.02, healthy_poll_s=0.05) as (one, two, three):
        task_id = await one.begin()
        await stage.begun.wait()
        following = [await replica.follow(task_id) for replica in (one, two, three, two)]
        await until(lambda: _seq(one, task_id) == 2)
        for number in range(60):
            stage.pieces.put_nowait(SMALL if number % 5 else LARGE)
            await until(lambda number=number: _seq(one, task_id) == 3 + number)  # each is a page of its own
        stage.pieces.put_nowait(None)
        last = [seqs(await seen) for seen in following]
        size = len(await one.log(task_id))
        assert all(seen == list(range(seen[0], size + 1)) for seen in last)


async def test_a_poll_makes_up_for_a_bus_that_is_down_and_survives_any_error(caplog: pytest.LogCaptureFixture) -> None:
    stage, hub = Stage(), Hub()
    hub.down = True
    async with replicas(2, stage, hub, poll_s=0.01) as (one, other):
        task_id = await one.begin()
        await stage.begun.wait()
        following = await other.follow(task_id)
        other.store.broken = [RuntimeError("strange"), ConnectionError("lost")]
        await until(lambda: not other.store.broken)
        stage.pieces.put_nowait(SMALL)
        stage.pieces.put_nowait(None)
        seen = seqs(await following)
        assert seen == list(range(seen[0], len(await one.log(task_id)) + 1))
    assert [record.levelno for record in caplog.records if record.exc_info].count(logging.ERROR) == 2


async def test_early_forged_and_meaningless_hints_do_no_harm() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        stranger = hub.bus()
        await stranger.open()
        task_id = await one.begin()
        await stage.begun.wait()
        following = await other.follow(task_id)
        await until(lambda: other.bus.followed[task_id])
        for seq, page in ((99, None), (99, b"not a page"), (1, b"\xc1"), (10**12, b""), (3, b"\x93\x01\x02\x03")):
            stranger.publish(task_id, seq, page)
            stranger.publish("unheard-of", seq, page)
        stranger.publish(task_id, 5, None, to="r0")
        stage.pieces.put_nowait(SMALL)
        stage.pieces.put_nowait(None)
        seen = seqs(await following)
        assert seen == list(range(seen[0], len(await one.log(task_id)) + 1))


async def test_an_event_that_is_announced_before_it_can_be_seen_is_looked_for_again() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        task_id = await one.begin()
        await until(lambda: _seq(one, task_id) == 2)
        following = await other.follow(task_id)
        await until(lambda: other.bus.followed[task_id] and other.store.reads["read_since"])
        other.store.blind = 2
        stage.pieces.put_nowait(LARGE)
        await until(lambda: _seq(other, task_id) == 3)
        assert other.store.blind == 0
        stage.pieces.put_nowait(None)
        assert seqs(await following)[1:] == [3, 4]


async def test_nothing_is_told_before_it_is_committed() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        one.store.held_appends = asyncio.Event()
        task_id = await one.begin()
        async with asyncio.timeout(60):
            while len(await one.log(task_id)) < 2:  # from then on it is committed, and its writer does not know it
                await asyncio.sleep(0)
        assert one.bus.figures.published == 0
        one.store.held_appends.set()
        await until(lambda: one.bus.figures.published == 1)
        stage.pieces.put_nowait(None)
        await other.reach(task_id, S.COMPLETED)


async def test_a_message_and_a_cancel_reach_the_run_at_once() -> None:
    """No poll comes: the replica that runs the task is told although it follows nothing."""
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        task_id = await one.begin()
        await stage.begun.wait()
        await until(lambda: _seq(one, task_id) == 2)  # the run has said that it works, and says nothing more
        await other.send("more", task_id=task_id, return_immediately=True)
        await until(lambda: _seq(one, task_id) == 3)
        assert not one.bus.followed
        canceled = await other.cancel(task_id)
        assert canceled.state is S.CANCELED
        assert stage.canceled.is_set()


async def test_a_caller_who_waits_elsewhere_is_answered_by_a_hint() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub) as (one, other):
        message = sending("go", message_id="00000000-0000-4000-8000-000000000001")
        task_id = await one.begin("go", message_id=message.message.message_id)
        await stage.begun.wait()
        waiting = asyncio.create_task(other.ask(message))
        await until(lambda: other.bus.followed[task_id])
        stage.pieces.put_nowait(None)
        assert (await waiting).state is S.COMPLETED


async def test_a_caller_of_a_task_that_runs_here_costs_the_bus_no_subscription() -> None:
    stage, hub = Stage(), Hub()
    stage.pieces.put_nowait(None)
    async with replicas(2, stage, hub) as (one, other):
        followed: list[str] = []
        one.bus.follow = followed.append  # type: ignore[method-assign]
        await one.send()
        assert (followed, other.bus.figures.received) == ([], 0)


async def test_an_engine_alone_on_its_store_uses_no_bus() -> None:
    stage, hub = Stage(), Hub()
    for _ in range(2):
        stage.pieces.put_nowait(None)
    async with replicas(1, stage, hub, poll_s=0.0) as (alone,):
        await alone.send()
        await read(await alone.open(streaming()))
        assert alone.bus.figures.published == 0
        assert not alone.bus.followed
