"""Several engines on one store, and a bus between them: it brings events at once, and nothing depends on it."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.engine.api import Run
from dragoman.engine.handler import Snapshot
from dragoman.model.errors import TaskNotFound, Unavailable
from dragoman.model.events import Event
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Appended, Unknown
from dragoman.store.replicas import LocalReplicas, ReplicaBuried, StoreRewound
from tests.buses import Hub, HubBus
from tests.engine.house import DEADLINE_S, read, sending, seqs, streaming
from tests.engine.replicas import Replica, Stage, replicas
from tests.kit.waiting import until
from tests.store.cases.bench import chunk, new_task, status

S = TaskState
SMALL, LARGE = "x" * 100, "x" * 6000


@asynccontextmanager
async def at_work(count: int, **settings: Any) -> AsyncIterator[tuple[Any, ...]]:
    """The stage, the bus and a task that the first of so many replicas works on; then the replicas."""
    stage, hub = Stage(), Hub()
    async with replicas(count, stage, hub.bus, **settings) as made:
        task_id = await made[0].begin()
        await stage.begun.wait()
        yield stage, hub, task_id, *made


async def test_a_follower_gets_every_event_by_hints_and_reads_nothing_for_them() -> None:
    async with at_work(2) as (stage, _, task_id, one, other):
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


async def test_a_reader_misses_no_event_that_a_refresh_skips_because_a_snapshot_holds_it() -> None:
    """The other replica refreshes from the newest snapshot, behind which the events in its memory do not go on."""
    async with at_work(2) as (stage, hub, task_id, one, other):
        reader = await other.open(Subscribe(id=task_id))
        items = list(await reader.next() or ())
        reading = asyncio.create_task(reader.next())
        await until(lambda: other.bus.followed[task_id])
        stage.pieces.put_nowait(SMALL)
        items += await reading or ()
        hub.down = True
        for piece in (LARGE * 4, LARGE * 4, SMALL):  # the second is written with a snapshot
            before = one.seq(task_id)
            stage.pieces.put_nowait(piece)
            await until(lambda before=before: one.seq(task_id) > before)
        stored = await one.store.load(task_id)
        assert stored.snapshot.seq > other.seq(task_id), "a refresh skips events"
        again = await other.open(Subscribe(id=task_id))  # refreshes what the replica has in memory
        assert other.seq(task_id) == one.seq(task_id)
        hub.down = False
        stage.pieces.put_nowait(None)
        items += await read(reader)
        assert seqs(items) == list(range(seqs(items)[0], len(await one.log(task_id)) + 1))
        assert seqs(await read(again))[-1] == seqs(items)[-1]


async def test_a_stream_that_comes_back_with_an_event_that_was_lost_begins_with_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failover may have taken the event, and the server that told the client to come back must not refuse it."""
    monkeypatch.setattr(LocalReplicas, "shared", True)
    async with at_work(1) as (stage, _, task_id, one):
        stream = await one.open(Subscribe(id=task_id), after="99")
        first, *_ = await stream.next() or ()
        assert isinstance(first, Snapshot)
        stage.pieces.put_nowait(None)
        assert seqs(await read(stream))[-1] == len(await one.log(task_id))


async def test_a_task_is_shown_as_the_store_has_it_until_its_log_has_been_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failover, a write that is in doubt keeps the log from being compared for a while."""
    async with at_work(1) as (stage, _, task_id, one):
        await until(lambda: one.seq(task_id) == 2)
        log = one.engine.tasks.known(task_id)
        assert log is not None
        log.publish((chunk(SMALL),), Appended(3, log.row.epoch, 100), log.row.status_ms, own=False)
        assert (await one.get(task_id)).seq == 3
        async with log.writes.turn(log):
            monkeypatch.setattr(LocalReplicas, "history", "another")
            assert (await one.get(task_id)).seq == 2
        stage.pieces.put_nowait(None)


def lose(one: Replica[HubBus], task_id: str, event: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the log in memory have an event that a failover takes away before it has been compared with the store."""
    log = one.engine.tasks.known(task_id)
    assert log is not None
    log.publish((event,), Appended(log.seq + 1, log.row.epoch, 100), log.row.status_ms, own=False)
    monkeypatch.setattr(LocalReplicas, "history", "another")


@pytest.mark.parametrize("event", [chunk(SMALL), status(S.INPUT_REQUIRED)], ids=("goes on", "settled"))
async def test_a_waiting_caller_is_not_answered_from_a_log_that_a_failover_has_made_outdated(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, hub = Stage(), Hub()
    async with replicas(1, stage, hub.bus, blocking_timeout_s=1.0) as (one,):
        sending = asyncio.create_task(one.send("hello"))
        await stage.begun.wait()
        (log,) = one.engine.tasks.all()
        await until(lambda: log.seq == 2)
        lose(one, log.head.id, event, monkeypatch)
        told = await sending
        assert (told.seq, told.state) == (2, S.WORKING)
        stage.pieces.put_nowait(None)


async def test_a_stream_brings_nothing_from_a_log_that_a_failover_has_made_outdated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with at_work(1) as (stage, _, task_id, one):
        await until(lambda: one.seq(task_id) == 2)
        stream = await one.open(Subscribe(id=task_id))
        assert seqs(await stream.next() or ()) == [2]
        lose(one, task_id, chunk(SMALL), monkeypatch)
        assert await stream.next() is None
        assert stream.retry
        stage.pieces.put_nowait(None)


@pytest.mark.parametrize("lost", [False, True], ids=("kept", "lost"))
async def test_the_stream_of_a_message_does_not_begin_in_a_log_that_a_failover_has_made_outdated(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failover comes while the message is being acknowledged."""
    async with at_work(1) as (stage, _, task_id, one):
        await until(lambda: one.seq(task_id) == 2)
        log = one.engine.tasks.known(task_id)
        assert log is not None
        publish = log.publish

        def publish_and_lose(*args: Any, **options: Any) -> None:
            publish(*args, **options)
            monkeypatch.setattr(LocalReplicas, "history", "another")

        async def find_nothing(*args: Any) -> None:
            return None

        monkeypatch.setattr(type(log), "publish", lambda _, *args, **options: publish_and_lose(*args, **options))
        if lost:
            monkeypatch.setattr(one.store, "load", find_nothing)
            with pytest.raises(Unavailable, match="send it once more"):
                await one.open(streaming("more", task_id=task_id))
        else:
            stream = await one.open(streaming("more", task_id=task_id))
            assert not log.outdated
            assert seqs(await stream.next() or ()) == [3]
        stage.pieces.put_nowait(None)


async def test_a_cancel_is_not_over_in_a_log_that_a_failover_has_made_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica has ended the task, which the failover takes back: the cancel goes on."""
    async with at_work(2) as (stage, hub, task_id, one, other):
        hub.down = True
        canceling = asyncio.create_task(other.cancel(task_id))
        await until(lambda: any(log.followers.waiting for log in other.engine.tasks.all()))
        hub.down = False
        lose(other, task_id, status(S.CANCELED), monkeypatch)
        assert (await canceling).state is S.CANCELED
        assert stage.canceled.is_set()
        assert (await one.get(task_id)).state is S.CANCELED


async def test_a_page_too_large_for_a_hint_is_read_once_for_all_who_follow() -> None:
    """1,000 clients follow one task on three replicas: one read for each replica and page."""
    stage, hub, clients, pages = Stage(), Hub(), 1000, 10
    async with replicas(3, stage, hub.bus) as (one, *others):
        task_id = await one.begin()
        await stage.begun.wait()
        following = [await (one, *others)[number % 3].follow(task_id) for number in range(clients)]
        for other in others:
            await until(lambda other=other: other.bus.followed[task_id])
            await until(lambda other=other: other.store.reads["read_since"])
        last = len(await one.log(task_id))
        before = [other.store.reads.total() for other in others]
        for number in range(1, pages + 1):
            stage.pieces.put_nowait(LARGE)
            await until(lambda number=number: all(other.seq(task_id) == last + number for other in others))
        stage.pieces.put_nowait(None)
        for seen in await asyncio.gather(*following):
            assert seqs(seen)[-1] == last + pages + 1
        for other, reads in zip(others, before, strict=True):
            assert other.store.reads.total() - reads <= pages + 1, other.store.reads  # one a page, and the end


async def test_a_follower_hears_of_a_task_whose_run_met_the_new_lease_before_its_replica_heard_of_it() -> None:
    """The lease is all that is new, so that no event wakes those who follow the task where its run was."""
    async with at_work(2) as (stage, _, task_id, one, other):
        following = await one.follow(task_id)
        await until(lambda: one.seq(task_id) == 2)
        await one.store.replicas.leave(one.engine.replica_id)
        await other.store.replicas.join("r9", address="", agents=("agent",))
        assert await other.store.claim("r9", 1, ["agent"], 0, queued=False)  # r9 ends before it has written anything
        stage.pieces.put_nowait(SMALL)  # for the run that has lost the task, whose write is refused
        await asyncio.wait_for(stage.canceled.wait(), 60)
        # A late hint, or a doubled one: it tells of no new event.
        other.bus.publish(task_id, one.seq(task_id), None, to=one.engine.replica_id)
        await asyncio.wait_for(until(lambda: one.bus.followed[task_id]), 60)
        canceling = asyncio.create_task(other.cancel(task_id))
        await other.store.replicas.leave("r9")
        one.bus.queued("agent")  # the other one claims it, and cancels it
        await asyncio.wait_for(canceling, 60)
        seen = seqs(await asyncio.wait_for(following, 60))
        assert seen == list(range(seen[0], len(await one.log(task_id)) + 1))


async def test_followers_see_each_event_once_and_in_order_whatever_becomes_of_the_hints() -> None:
    rng = random.Random(7)

    def fate() -> Sequence[float]:
        return tuple(rng.choice((0.0, 0.001, 0.005)) for _ in range(rng.choice((0, 1, 1, 1, 2))))

    stage, hub = Stage(), Hub(fate)
    async with replicas(3, stage, hub.bus, poll_s=0.02, healthy_poll_s=0.05) as (one, two, three):
        task_id = await one.begin()
        await stage.begun.wait()
        following = [await replica.follow(task_id) for replica in (one, two, three, two)]
        await until(lambda: one.seq(task_id) == 2)
        for number in range(60):
            stage.pieces.put_nowait(SMALL if number % 5 else LARGE)
            await until(lambda number=number: one.seq(task_id) == 3 + number)  # each is a page of its own
        stage.pieces.put_nowait(None)
        last = [seqs(await seen) for seen in following]
        size = len(await one.log(task_id))
        assert all(seen == list(range(seen[0], size + 1)) for seen in last)


async def test_a_poll_makes_up_for_a_bus_that_is_down_and_survives_any_error(caplog: pytest.LogCaptureFixture) -> None:
    stage, hub = Stage(), Hub()
    hub.down = True
    async with replicas(2, stage, hub.bus, poll_s=0.01) as (one, other):
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
    async with replicas(2, stage, hub.bus) as (one, other):
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
    async with replicas(2, stage, hub.bus) as (one, other):
        task_id = await one.begin()
        await until(lambda: one.seq(task_id) == 2)
        following = await other.follow(task_id)
        await until(lambda: other.bus.followed[task_id] and other.store.reads["read_since"])
        await until(lambda: not other.store.under_way)  # one under way would see what comes next
        other.store.blind = 2
        stage.pieces.put_nowait(LARGE)
        await until(lambda: other.seq(task_id) == 3)
        assert other.store.blind == 0
        stage.pieces.put_nowait(None)
        assert seqs(await following)[1:] == [3, 4]


async def test_nothing_is_told_before_it_is_committed() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
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
    async with at_work(2) as (stage, _, task_id, one, other):
        await until(lambda: one.seq(task_id) == 2)  # the run has said that it works, and says nothing more
        await other.send("more", task_id=task_id, return_immediately=True)
        await until(lambda: one.seq(task_id) == 3)
        assert not one.bus.followed
        canceled = await other.cancel(task_id)
        assert canceled.state is S.CANCELED
        assert stage.canceled.is_set()


async def test_a_cancel_does_not_wait_for_a_task_that_falls_asleep_meanwhile() -> None:
    """The replica that ran the task has let it go, so that nobody heeds the mark, and events do not say who has it."""
    async with at_work(2, suspend_after_s=0.0) as (stage, hub, task_id, one, other):
        await until(lambda: one.seq(task_id) == 2)
        hub.down = True
        canceling = asyncio.create_task(other.cancel(task_id))
        await until(lambda: any(log.followers.waiting for log in other.engine.tasks.all()))
        stage.pieces.put_nowait("sleep")
        await until(lambda: one.in_memory == 0)
        hub.down = False
        one.bus.publish(task_id, len(await one.log(task_id)))
        async with asyncio.timeout(DEADLINE_S):
            assert (await canceling).state is S.CANCELED


async def test_a_cancel_does_not_wait_for_a_task_that_the_store_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica that runs the task hears of nothing, so that the cancel would wait as long as it has patience."""

    async def find_nothing(*args: Any) -> None:
        return None

    def refuse(append: Append) -> "asyncio.Future[Appended]":
        refused: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        refused.set_exception(Unknown(append.task_id))
        return refused

    async with at_work(2) as (stage, hub, task_id, _, other):
        hub.down = True
        canceling = asyncio.create_task(other.cancel(task_id))
        await until(lambda: any(log.followers.waiting for log in other.engine.tasks.all()))
        monkeypatch.setattr(other.store, "load", find_nothing)
        monkeypatch.setattr(other.store, "append", refuse)
        await other.store.replicas.say(StoreRewound())
        with pytest.raises(TaskNotFound):
            await canceling
        hub.down = False
        stage.pieces.put_nowait(None)


async def take_over(one: Replica[HubBus], other: Replica[HubBus]) -> None:
    """Let the other replica go on with what the first one runs, which counts as dead. Nobody has told the first one."""
    await one.store.replicas.leave(one.engine.replica_id)
    one.bus.queued("agent")
    await until(lambda: other.engine.taken_over == 1)


async def test_readers_go_on_at_once_where_the_run_of_a_task_is_taken_from() -> None:
    """A take-over adds no event. The replica that counts as dead follows the task once it hears that it does."""
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
        task_id = await one.begin()
        await until(lambda: one.seq(task_id) == 2)
        following = await one.follow(task_id)
        await take_over(one, other)
        await one.store.replicas.say(ReplicaBuried("r0"))
        await until(stage.canceled.is_set)
        stage.pieces.put_nowait(SMALL)
        stage.pieces.put_nowait(None)
        assert seqs(await following)[-1] == len(await other.log(task_id))


async def test_a_run_learns_by_a_message_that_is_written_here_that_its_task_was_taken_over() -> None:
    """The message is in the epoch of the new lease, which nothing else has told this replica of."""
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
        task_id = await one.begin()
        await until(lambda: one.seq(task_id) == 2)
        await take_over(one, other)
        hub.down = True
        await one.send("more", task_id=task_id, return_immediately=True)
        await until(stage.canceled.is_set)
        stage.pieces.put_nowait(None)
        await other.reach(task_id, S.COMPLETED)


async def test_the_keeper_of_a_suspended_run_learns_at_once_what_became_of_the_task() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
        asked = await one.send("ask")
        assert (asked.state, one.in_memory, one.bus.followed) == (S.INPUT_REQUIRED, 1, {})
        await other.cancel(asked.head.id)
        await until(lambda: one.in_memory == 0)


async def test_the_tasks_of_a_replica_that_stops_are_taken_over_at_once() -> None:
    async with at_work(2) as (stage, _, task_id, one, other):
        stage.begun.clear()
        await one.engine.drain(0)
        async with asyncio.timeout(60):
            await stage.begun.wait()
        stage.pieces.put_nowait(None)
        await other.reach(task_id, S.COMPLETED)


async def test_a_caller_who_waits_elsewhere_is_answered_by_a_hint() -> None:
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
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
    async with replicas(2, stage, hub.bus) as (one, other):
        followed: list[str] = []
        one.bus.follow = followed.append  # type: ignore[method-assign]
        await one.send()
        assert (followed, other.bus.figures.received) == ([], 0)


async def test_an_engine_alone_on_its_store_uses_no_bus() -> None:
    stage, hub = Stage(), Hub()
    for _ in range(2):
        stage.pieces.put_nowait(None)
    async with replicas(1, stage, hub.bus, poll_s=0.0) as (alone,):
        await alone.send()
        await read(await alone.open(streaming()))
        assert alone.bus.figures.published == 0
        assert not alone.bus.followed


async def test_a_hint_of_work_costs_no_look_for_delegated_tasks() -> None:
    hub = Hub()
    async with replicas(1, Stage(), hub.bus) as (one,):
        elsewhere = hub.bus()
        await elsewhere.open()
        for _ in range(5):
            looks = one.store.reads["leased"]
            elsewhere.queued("agent")
            await until(lambda seen=looks: one.store.reads["leased"] > seen)
        await until(lambda: one.store.reads["orphans"])
        assert one.store.reads["orphans"] == 1


async def test_a_message_to_a_queued_task_has_others_look_for_it_again() -> None:
    """They may have passed it over, because the message was being written to it."""
    stage, hub = Stage(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
        await one.store.create(new_task("queued", owner="anna", agent="agent", holder=None))
        await one.send("more", task_id="queued", return_immediately=True)
        await asyncio.wait_for(stage.begun.wait(), 60)
        stored = await one.store.load("queued")
        assert stored.holder == other.engine.replica_id
        stage.pieces.put_nowait(None)
        await other.reach("queued", S.COMPLETED)


class AsksTwice(Stage):
    """The first question is answered by a message that has come before it. It works on for ever after the second."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = asyncio.Event()

    async def _run(self, run: Run) -> None:
        self.begun.set()
        await self.asks.wait()
        for question in ("first?", "second?"):
            await run.ask((Part(text=question),))
        await asyncio.Event().wait()


async def test_a_blocking_call_returns_at_a_question_that_somebody_else_has_answered_before_it_is_heard() -> None:
    stage, hub = AsksTwice(), Hub()
    async with replicas(2, stage, hub.bus) as (one, other):
        task_id = await one.begin()
        await stage.begun.wait()
        waiting = asyncio.create_task(other.send("more", task_id=task_id))
        await until(lambda: other.seq(task_id) == one.seq(task_id) == 3)
        hub.down = True
        stage.asks.set()
        asked = await one.reach(task_id, S.INPUT_REQUIRED)
        await one.send("answer", task_id=task_id, return_immediately=True)
        hub.down = False
        following = await other.open(Subscribe(id=task_id))  # which reads what the replica has not heard
        task = await asyncio.wait_for(waiting, 60)
        assert (task.state, task.status, task.seq) == (S.INPUT_REQUIRED, asked.status, asked.seq)
        assert (await other.get(task_id)).state is S.WORKING
        following.close()
        await one.cancel(task_id)


async def test_a_follower_hears_of_the_end_of_a_task_whose_log_has_been_pruned_since() -> None:
    async with at_work(2) as (stage, hub, task_id, one, other):
        following = await other.follow(task_id)
        await until(lambda: other.bus.followed[task_id])
        await until(lambda: other.seq(task_id) == one.seq(task_id) == 2)
        hub.down = True
        stage.pieces.put_nowait(None)
        ended = await one.reach(task_id, S.COMPLETED)
        far_ms = 1 << 50
        await one.store.sweep(far_ms, -1, 0, -1)
        assert await one.log(task_id) == []
        hub.down = False
        one.bus.publish(task_id, ended.seq)  # a hint that comes late
        assert seqs(await asyncio.wait_for(following, 60))[-1] == ended.seq
