"""Streams: order, once each, resumed, slow, left, ended."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine import newest_events, subscriptions
from dragoman.engine.api import Run
from dragoman.engine.handler import Snapshot
from dragoman.engine.newest_events import NewestEvents
from dragoman.model.errors import InvalidParams, TaskNotFound, Unavailable, UnsupportedOperation
from dragoman.model.events import ArtifactChunk, Logged
from dragoman.model.message import Part
from dragoman.model.operations import GetTask, Subscribe
from dragoman.model.task import TaskState
from tests.engine.house import DEADLINE_S, House, Scripted, house, read, say, seqs, states, streaming, text_of

S = TaskState


@contextmanager
def newest_of(here: House, task_id: str) -> Iterator[NewestEvents]:
    """The events of a followed task that are in memory."""
    task = here.engine.tasks.known(task_id)
    assert task is not None
    try:
        yield task.followers.enter()
    finally:
        task.followers.leave()


def kept(newest: NewestEvents) -> list[Logged]:
    """All of them."""
    return next(events for seq in range(10_000) if (events := newest.after(seq, 10_000, 1 << 30)))


class Steps:
    """An agent that says a chunk whenever it is let go on."""

    def __init__(self, count: int, size: int = 1) -> None:
        self.count = count
        self.size = size
        self.go = asyncio.Semaphore(0)

    async def __call__(self, run: Run) -> None:
        for number in range(self.count):
            await self.go.acquire()
            await say(run, f"{number:04d}".ljust(self.size, "."))

    def all(self) -> None:
        for _ in range(self.count):
            self.go.release()


async def ask_once(run: Run) -> None:
    await say(run, "before")
    await run.ask((Part(text="?"),))
    await say(run, "after", "b")


def contiguous(items: Sequence[Any], first: int) -> bool:
    return seqs(items) == list(range(first, first + len(items)))


async def test_a_send_stream_begins_with_the_task_and_ends_with_its_end() -> None:
    """A2A 1.0 §3.1.2."""
    steps = Steps(5)
    steps.all()
    async with house(Scripted(steps)) as h:
        stream = await h.open(streaming())
        items = await read(stream)
        assert isinstance(items[0], Snapshot)
        assert items[0].record.state is S.SUBMITTED
        assert contiguous(items, 1)
        assert states(items) == [S.WORKING, S.COMPLETED]
        assert not stream.retry
        assert await stream.next() is None


async def test_a_send_stream_ends_when_the_task_waits_for_its_caller() -> None:
    """A2A 1.0 §11.7; the follow-up's stream begins with the task after the answer."""
    async with house(Scripted(ask_once)) as h:
        items = await read(await h.open(streaming()))
        assert states(items)[-1] is S.INPUT_REQUIRED
        task_id = items[0].record.head.id
        more = await read(await h.open(streaming("x", task_id=task_id)))
        assert more[0].record.state is S.WORKING
        # the message itself, the seq between, is in the snapshot
        assert contiguous(
            [*items, Logged(items[-1].seq + 1, more[0]), *more], 1
        )  # the message itself is in the snapshot
        assert states(more) == [S.COMPLETED]


async def test_a_hundred_subscribers_see_the_same() -> None:
    """Invariant 3."""
    steps = Steps(60)
    async with house(Scripted(steps)) as h:
        task_id = await h.begin()
        readers = []
        for number in range(100):
            if number % 2:
                steps.go.release()
            readers.append(asyncio.create_task(read(await h.open(Subscribe(id=task_id)))))
        steps.all()
        seen = await asyncio.gather(*readers)
        log = await h.log(task_id)
        for items in seen:
            assert isinstance(items[0], Snapshot)
            assert contiguous(items, items[0].record.seq)
            assert [item.event for item in items[1:]] == [item.event for item in log[items[0].record.seq :]]


async def test_a_stream_tells_of_no_commit_that_the_log_has_not_heard_of() -> None:
    """Its caller may read the task next, and would find an older state."""
    steps = Steps(2)
    async with house(Scripted(steps)) as h:
        task_id = await h.at_work()
        steps.go.release()
        h.store.held_appends = asyncio.Event()
        while not isinstance((await h.log(task_id))[-1].event, ArtifactChunk):
            pass  # each look waits for a thread
        stream = await h.open(Subscribe(id=task_id), after="0")
        before = await stream.next()
        known = h.engine.tasks.known(task_id)
        assert known is not None
        assert seqs(before or ()) == list(range(1, known.seq + 1))
        h.store.held_appends.set()
        h.store.held_appends = None
        steps.all()
        assert contiguous([*(before or ()), *await read(stream)], 1)
        assert (await h.get(task_id)).state is S.COMPLETED


async def test_subscribers_share_each_event() -> None:
    """An event is encoded once, so it is one object for all."""
    steps = Steps(3)
    async with house(Scripted(steps)) as h:
        task_id = await h.begin()
        streams = [await h.open(Subscribe(id=task_id)) for _ in range(2)]
        steps.all()
        one, two = [await read(stream) for stream in streams]
        assert all(a is b for a, b in zip(one[-3:], two[-3:], strict=True))


async def test_a_subscription_outlasts_a_question_only_where_the_dialect_says_so() -> None:
    """A2A 1.0 §3.1.6: until terminal; 0.3 closes with `final: true`."""
    async with house(Scripted(ask_once)) as h:
        task_id = await h.begin()
        new, old = await h.open(Subscribe(id=task_id)), await h.open(Subscribe(id=task_id), dialect="0.3")
        assert states(await read(old))[-1] is S.INPUT_REQUIRED
        await h.send("x", task_id=task_id)
        assert states(await read(new))[-2:] == [S.WORKING, S.COMPLETED]


async def test_a_terminal_task_is_not_subscribed_to() -> None:
    """A2A 1.0 §3.1.6 UnsupportedOperationError."""
    async with house() as h:
        task = await h.send()
        with pytest.raises(UnsupportedOperation, match="has ended"):
            await h.open(Subscribe(id=task.head.id))
        with pytest.raises(TaskNotFound):
            await h.open(Subscribe(id="nope"))
        with pytest.raises(TaskNotFound):
            await h.open(Subscribe(id=task.head.id), owner="bob")


async def test_an_agent_that_does_not_stream_refuses_streams() -> None:
    """A2A 1.0 §3.3.4."""
    async with house(Scripted(ask_once, streams=False)) as h:
        with pytest.raises(UnsupportedOperation, match="does not stream"):
            await h.open(streaming())
        with pytest.raises(UnsupportedOperation):
            await h.ask(Subscribe(id="x"))
    async with house() as h:
        with pytest.raises(UnsupportedOperation):
            await h.open(GetTask(id="x"))


async def test_a_reader_that_returns_gets_exactly_what_follows() -> None:
    """Invariant 3, at every seq, running and ended, in this process and in the next one."""
    steps = Steps(6)
    async with house(Scripted(steps)) as h:
        task_id = await h.begin()
        first = await h.open(Subscribe(id=task_id), after="0")
        steps.go.release()
        steps.go.release()
        begun = await read(first, until=lambda items: len(items) >= 4)
        again = await h.open(Subscribe(id=task_id), after=str(begun[-1].seq))
        first.close()
        steps.all()
        rest = await read(again)
        assert contiguous([*begun, *rest], 1)
        end = rest[-1].seq
        for seq in range(end + 1):
            assert seqs(await read(await h.open(Subscribe(id=task_id), after=str(seq)))) == list(
                range(seq + 1, end + 1)
            )
        assert seqs(await read(await h.open(Subscribe(id=task_id), after="3.1")))[0] == 3
        assert seqs(await read(await h.open(Subscribe(id=task_id), after="0.1")))[0] == 1
        for wrong in (str(end + 1), "x", "-1", "1.x", "", "1.", "٣", "9" * 30):
            with pytest.raises(InvalidParams, match="Last-Event-ID"):
                await h.open(Subscribe(id=task_id), after=wrong)


async def test_a_reader_that_returns_to_a_new_process_gets_exactly_what_follows(tmp_path: Path) -> None:
    """Invariant 3 across a restart."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with house(Scripted(ask_once), url=url) as h:
        task_id = (await h.send()).head.id
        stream = await h.open(Subscribe(id=task_id), after="0")
        seen = await read(stream, until=lambda items: len(items) >= 4)
        stream.close()
    async with house(Scripted(ask_once), url=url) as h:
        resumed = await h.open(Subscribe(id=task_id), after=str(seen[-1].seq))
        sent = await read(await h.open(streaming("x", task_id=task_id)))
        rest = await read(resumed)
        assert contiguous([*seen, *rest], 1)
        assert states(rest) == [S.WORKING, S.COMPLETED]
        assert states(sent) == [S.COMPLETED]


async def test_a_slow_reader_reads_the_store_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reader falls back to the log and costs no memory."""
    monkeypatch.setattr(newest_events, "RECENT_BYTES_MAX", 20_000)
    monkeypatch.setattr(subscriptions, "BATCH_BYTES_MAX", 5_000)
    steps = Steps(300, size=500)
    async with house(Scripted(steps)) as h:
        task_id = await h.begin()
        slow, fast = await h.open(Subscribe(id=task_id)), await h.open(Subscribe(id=task_id))
        first: list[Any] = list(await slow.next() or ())
        steps.all()
        whole = await read(fast)
        with newest_of(h, task_id) as newest:
            assert 0 < sum(logged.size for logged in kept(newest)) <= 2 * 20_000
        items = first
        while (batch := await slow.next()) is not None:
            assert sum(item.size for item in batch if isinstance(item, Logged)) < 40_000
            items.extend(batch)
        assert contiguous(items, items[0].record.seq)
        assert [item.event for item in items[-300:]] == [item.event for item in whole[-300:]]


async def test_a_stream_stays_open_while_the_store_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "READ_AGAIN_S", 0.01)
    steps = Steps(3)
    steps.all()
    async with house(Scripted(steps)) as h:
        task = await h.send("go")
        stream = await h.open(Subscribe(id=task.head.id), after="1")
        h.store.unreadable = True
        assert await stream.next() == ()
        h.store.unreadable = False
        assert seqs(await read(stream)) == list(range(2, task.seq + 1))


async def test_a_silent_stream_gives_empty_batches() -> None:
    """So that a comment keeps proxies from cutting it; an event in between is not lost."""
    steps = Steps(2)
    async with house(Scripted(steps), keepalive_s=0.03) as h:
        stream = await h.open(streaming())
        items: list[Any] = []
        for released in range(2):
            async with asyncio.timeout(DEADLINE_S):
                while not items or seqs(items)[-1] < 2 + released:  # submitted, working, and a chunk for each step
                    items.extend(await stream.next() or ())
                for _ in range(2):
                    assert await stream.next() == ()
            steps.go.release()
        items.extend(await read(stream))
        assert contiguous(items, 1)


async def test_a_stream_ends_when_its_task_waited_too_long_and_was_deleted() -> None:
    async def ask(run: Run) -> None:
        await run.ask((Part(text="?"),))

    async with house(Scripted(ask), keepalive_s=0.01) as h:
        task_id = (await h.send()).head.id
        stream = await h.open(Subscribe(id=task_id))
        await stream.next()
        assert await stream.next() == ()
        h.clock.ms += 1
        assert await h.store.sweep(h.clock.ms, -1, -1, 0)
        assert await read(stream) == []
        assert not stream.retry


async def test_a_reader_that_leaves_is_let_go_at_once() -> None:
    """Stream.close wakes a `next` that waits; the task goes on (invariant 6)."""
    steps = Steps(1)
    async with house(Scripted(steps)) as h:
        stream = await h.open(streaming())
        items: list[Any] = list(await stream.next() or ())
        task_id = items[0].record.head.id
        await h.reach(task_id, S.WORKING)
        await stream.next()
        waiting = asyncio.create_task(stream.next())
        await asyncio.sleep(0)
        stream.close()
        stream.close()
        assert await asyncio.wait_for(waiting, DEADLINE_S) is None
        steps.all()
        await h.reach(task_id, S.COMPLETED)


async def test_readers_that_are_canceled_leave_nothing_behind() -> None:
    steps = Steps(1)
    async with house(Scripted(steps)) as h:
        task_id = await h.at_work()
        stream = await h.open(Subscribe(id=task_id))
        await stream.next()
        for _ in range(50):
            waiting = asyncio.create_task(stream.next())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
        (task,) = h.engine.tasks.all()
        assert task.followers.waiting == 0
        stream.close()
        steps.all()


class Woken:
    """Waits for a parked stream."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self.times = 0

    def wake(self) -> None:
        self.times += 1
        self._woken.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._woken.wait(), DEADLINE_S)
        self._woken.clear()


async def test_a_parked_stream_is_told_once_of_each_change_and_misses_nothing() -> None:
    steps, woken = Steps(3), Woken()
    async with house(Scripted(steps)) as h:
        task_id = await h.at_work()
        stream = await h.open(Subscribe(id=task_id))
        assert not stream.park(woken)  # the snapshot has not been read
        assert len(await stream.next() or ()) == 1
        found: list[int] = []
        for number in range(1, 4):
            assert stream.park(woken)
            assert not stream.unheard
            steps.go.release()
            await woken.wait()
            assert woken.times == number
            assert not stream.park(woken)
            found += seqs(await stream.next() or ())
            if number < 3:
                await h.reach(task_id, S.WORKING)
        found += seqs(await read(stream))
        assert found == [3, 4, 5, 6]


async def test_a_parked_stream_that_is_left_or_stopped_is_over() -> None:
    steps, left, stopped, unparked = Steps(1), Woken(), Woken(), Woken()
    async with house(Scripted(steps)) as h:
        task_id = await h.at_work()
        opened = [await h.open(Subscribe(id=task_id)) for _ in range(3)]
        for stream, woken in zip(opened, (left, stopped, unparked), strict=True):
            await stream.next()
            assert stream.park(woken)
        (task,) = h.engine.tasks.all()
        assert task.followers.waiting == 3
        opened[0].close()
        opened[2].unpark()
        assert (left.times, stopped.times) == (1, 0)
        assert task.followers.waiting == 1
        draining = asyncio.create_task(h.engine.drain(DEADLINE_S))
        await stopped.wait()
        assert await opened[1].next() is None
        assert opened[1].retry
        assert unparked.times == 0
        opened[2].close()
        steps.all()
        await draining


async def test_nobody_hears_of_the_deletion_of_a_task_that_waits_for_its_caller() -> None:
    async with house(Scripted(ask_once)) as h:
        task_id = (await h.send()).head.id
        stream = await h.open(Subscribe(id=task_id))
        await stream.next()
        assert stream.park(Woken())
        assert stream.unheard
        assert not await stream.deleted()
        assert await h.store.sweep(sys.maxsize // 2, -1, -1, 0)
        assert await stream.deleted()
        stream.close()


async def test_a_stopping_engine_ends_streams_with_the_hint_to_come_back() -> None:
    """Issue: SIGTERM drains, streams end with a retry hint."""
    steps = Steps(1)
    async with house(Scripted(steps)) as h:
        stream = await h.open(streaming())
        reading = asyncio.create_task(read(stream))
        task_id = (await h.listed()).records[0].head.id
        await h.reach(task_id, S.WORKING)
        draining = asyncio.create_task(h.engine.drain(DEADLINE_S))
        assert contiguous(await reading, 1)
        assert stream.retry
        with pytest.raises(Unavailable):
            await h.open(Subscribe(id=task_id))
        steps.all()
        await draining
        assert (await h.get(task_id)).state is S.COMPLETED


async def test_no_event_is_kept_in_memory_once_all_readers_are_parked() -> None:
    steps = Steps(2)
    async with house(Scripted(steps)) as h:
        task_id = await h.at_work()
        readers = [await h.open(Subscribe(id=task_id)) for _ in range(2)]
        (task,) = h.engine.tasks.all()
        steps.go.release()
        for reader in readers:
            while not any(isinstance(item, Logged) for item in await reader.next() or ()):
                pass
        newest = task.followers.newest
        assert newest is not None
        assert readers[0].park(Woken())
        assert newest.after(task.seq - 1, 1, 1)
        assert readers[1].park(Woken())
        assert newest.after(task.seq - 1, 1, 1) is None
        for reader in readers:
            reader.close()
        steps.all()


async def test_a_stream_whose_log_went_ends_with_the_task() -> None:
    """A seq older than the oldest kept is answered with the snapshot and what follows."""
    steps = Steps(3)
    async with house(Scripted(steps)) as h:
        stream = await h.open(streaming())
        task_id = (await h.listed()).records[0].head.id
        items: list[Any] = list(await stream.next() or ())
        steps.all()
        done = await h.reach(task_id, S.COMPLETED)
        with newest_of(h, task_id) as newest:
            newest.extend(())
        h.clock.ms += 10_000
        while await h.store.sweep(h.clock.now_ms(), -1, 1000, -1):
            pass
        items = await read(stream)
        assert [type(item) for item in items] == [Snapshot]
        assert items[0].record == done
        resumed = await read(await h.open(Subscribe(id=task_id), after="2"))
        assert [item.record for item in resumed] == [done]


async def test_what_is_published_is_in_the_store() -> None:
    """Invariant 2: commit, then publish."""
    steps = Steps(20)
    async with house(Scripted(steps)) as h:
        stream = await h.open(streaming())
        steps.all()
        task_id = ""
        while (batch := await stream.next()) is not None:
            item: Any
            for item in batch:
                if isinstance(item, Snapshot):
                    task_id = item.record.head.id
                else:
                    assert (await h.store.head(task_id))[1] >= item.seq
        chunks = [item for item in await h.log(task_id) if isinstance(item.event, ArtifactChunk)]
        assert len(chunks) == 20
        assert len(text_of(await h.get(task_id))) == 80
