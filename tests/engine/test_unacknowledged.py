"""Writes whose acknowledgement is lost: they are repeated with their id, and made once."""

import asyncio
from uuid import uuid4

import pytest

from dragoman.engine import writes
from dragoman.engine.api import Run
from dragoman.engine.lineage import child_of
from dragoman.model.errors import Unavailable
from dragoman.model.events import ArtifactChunk, Logged, MessageReceived, StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Appended, Repeat
from tests.engine.house import Scripted, house, say, text_of
from tests.engine.test_delegate import order

S = TaskState


async def test_a_conversation_goes_on_when_acknowledgements_are_lost() -> None:
    async def script(run: Run) -> None:
        for word in ("one ", "two "):
            h.store.lost = 1
            await say(run, word)
            await run.written()
        h.store.lost = 1
        answer = await run.ask((Part(text="which?"),))
        h.store.lost = 1
        await say(run, answer.text, last=True)
        await run.written()
        h.store.lost = 1

    async with house(Scripted(script)) as h:
        h.store.lost = 1
        asked = await h.send("go")
        assert asked.state is S.INPUT_REQUIRED
        h.store.lost = 1
        done = await h.send("three", task_id=asked.head.id)
        assert (done.state, text_of(done)) == (S.COMPLETED, "one two three")
        assert h.store.lost == 0
        log = await h.log(done.head.id)
        events = [logged.event for logged in log]
        assert [logged.seq for logged in log] == list(range(1, len(log) + 1))
        assert [each.message.text for each in events if isinstance(each, MessageReceived)] == ["three"]
        assert len([each for each in events if isinstance(each, ArtifactChunk)]) == 3
        assert [each.state for each in events if isinstance(each, StatusChanged)] == [
            S.WORKING,
            S.INPUT_REQUIRED,
            S.WORKING,
            S.COMPLETED,
        ]


async def test_callers_do_not_wait_for_a_write_whose_outcome_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may repeat the call: the write goes on, and is made once."""
    monkeypatch.setattr(writes, "STALLED_S", 0.05)
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)
    first, second = str(uuid4()), str(uuid4())

    async def script(run: Run) -> None:
        answer = await run.ask((Part(text="which?"),))
        await say(run, answer.text, last=True)

    async with house(Scripted(script)) as h:
        h.store.lost = 1 << 30
        with pytest.raises(Unavailable, match="try again"):
            await h.send("go", message_id=first)
        h.store.lost = 0
        asked = await h.send("go", message_id=first)
        await h.reach(asked.head.id, S.INPUT_REQUIRED)
        h.store.lost = 1 << 30
        with pytest.raises(Unavailable, match="try again"):
            await h.send("red", task_id=asked.head.id, message_id=second)
        h.store.lost = 0
        await h.send("red", task_id=asked.head.id, message_id=second)
        done = await h.reach(asked.head.id, S.COMPLETED)
        assert text_of(done) == "red"
        events = [logged.event for logged in await h.log(done.head.id)]
        assert [each.message.text for each in events if isinstance(each, MessageReceived)] == ["red"]
        assert [task.head.id for task in (await h.listed()).records] == [done.head.id]


async def test_callers_do_not_wait_behind_a_write_whose_outcome_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message, a subscription and a cancel are answered; the cancel is carried out when the store is back."""
    monkeypatch.setattr(writes, "STALLED_S", 0.05)
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)
    spoken = asyncio.Event()

    async def script(run: Run) -> None:
        h.store.lost = 1 << 30
        await say(run, "one")
        spoken.set()
        await asyncio.Event().wait()

    async with house(Scripted(script), retry_s=0.01, cancel_grace_s=0.01) as h:
        task_id = await h.begin("go")
        await spoken.wait()
        with pytest.raises(Unavailable, match="try again"):
            await h.send("more", task_id=task_id)
        with pytest.raises(Unavailable, match="try again"):
            await h.cancel(task_id)
        h.store.lost = 0
        await h.reach(task_id, S.CANCELED)
        events = [logged.event for logged in await h.log(task_id)]
        assert [each.message.text for each in events if isinstance(each, MessageReceived)] == ["more"]


async def test_a_replay_waits_for_a_write_whose_outcome_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "STALLED_S", 0.05)
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)
    reads = 0

    async def script(run: Run) -> None:
        answer = await run.ask((Part(text="which?"),))
        await say(run, answer.text, last=True)

    async with house(Scripted(script), suspend_max_s=0.01, retry_s=0.01) as h:
        read = h.store.read

        async def read_late(task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
            nonlocal reads
            reads += 1
            h.store.lost = 0 if reads > 1 else 1 << 30
            if reads == 1:
                with pytest.raises(Unavailable, match="try again"):
                    await h.send("more", task_id=task_id)
            return await read(task_id, after, limit_bytes)

        asked = await h.send("go")
        while h.in_memory:
            await asyncio.sleep(0)
        monkeypatch.setattr(h.store, "read", read_late)
        await h.send("red", task_id=asked.head.id)
        assert text_of(await h.reach(asked.head.id, S.COMPLETED)) == "red"


async def test_an_answer_that_is_passed_on_and_sent_again_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "STALLED_S", 0.05)
    monkeypatch.setattr(writes, "REPEAT_S", 0.01)

    async def parent(run: Run) -> None:
        delegated = await run.delegate(order())
        await say(run, delegated.text)

    async def asks(run: Run) -> None:
        await say(run, (await run.ask((Part(text="which?"),))).text)

    async with house(Scripted(parent), Scripted(asks, "other"), retry_s=0.01) as h:
        asked = await h.send("go")
        assert asked.state is S.INPUT_REQUIRED
        child_id, append = child_of(asked.head.id, 1), h.store.append

        def lose(write: Append) -> "asyncio.Future[Appended | Repeat]":
            h.store.lost = 1 if write.task_id == child_id and lost.pop() else 0
            return append(write)

        lost = [False] * 50 + [True] * 10
        monkeypatch.setattr(h.store, "append", lose)
        done = await h.send("this", task_id=asked.head.id)
        done = await h.reach(done.head.id, S.COMPLETED)
        assert text_of(done) == "this"
        said = [logged.event for logged in await h.log(child_id) if isinstance(logged.event, MessageReceived)]
        assert [each.message.text for each in said] == ["this"]
