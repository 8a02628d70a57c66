"""After a crash, and when the server stops (A2A has no word for it)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from dragoman.engine.api import Run, Traits
from dragoman.engine.ends import INTERRUPTED_TEXT
from dragoman.engine.words import Step, StepDone
from dragoman.model.lifecycle import fold
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import Record, TaskState, Usage
from dragoman.store.api import Append
from tests.buses import Hub
from tests.engine.house import DEADLINE_S, Scripted, echo, house, read, say, seqs, text_of
from tests.engine.replicas import Stage, replicas
from tests.kit.waiting import until
from tests.store.cases.bench import new_task

S = TaskState


class Halting:
    """An agent that says something and then halts, until told not to."""

    def __init__(self) -> None:
        self.halts = True

    async def __call__(self, run: Run) -> None:
        run.usage(Usage(1, 1, 1))
        await say(run, "one,")
        await run.status(())
        await say(run, "two,")
        if self.halts:
            await asyncio.Event().wait()
        await say(run, "three")


def interrupted(task: Record) -> bool:
    message = task.status.message
    return (
        task.state is S.FAILED
        and message is not None
        and message.text == INTERRUPTED_TEXT
        and message.metadata == {"reason": "interrupted"}
    )


async def begun(url: str, agent: Scripted, *, crashes: bool = True) -> str:
    """A task that was at work when its process crashed."""
    async with house(agent, url=url, crashes=crashes, grace_s=0) as h:
        task_id = await h.begin()
        stream = await h.open(Subscribe(id=task_id), after="0")
        await read(stream, until=lambda items: len(items) >= 5)
        stream.close()
    return task_id


async def test_a_task_whose_run_died_is_failed_as_interrupted(url: str) -> None:
    task_id = await begun(url, Scripted(Halting()))
    async with house(Scripted(Halting()), url=url) as h:
        task = await h.get(task_id)
        assert interrupted(task)
        assert text_of(task) == "one,two,"
        assert not task.open_artifacts
        await until(lambda: h.in_memory == 0)
        follow = await read(await h.open(Subscribe(id=task_id), after="5"))
        assert seqs(follow) == [6]


async def test_a_task_of_an_agent_that_is_gone_is_failed(url: str) -> None:
    task_id = await begun(url, Scripted(Halting(), restartable=True))
    async with house(Scripted(echo, "other"), url=url):
        pass
    async with house(Scripted(echo), url=url) as h:
        assert interrupted(await h.get(task_id))


class Undecided:
    """The traits of an agent that fails when it is asked whether it may run again."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traits, name)

    @property
    def restartable(self) -> bool:
        raise LookupError("a fault of ours")


class Broken(Scripted):
    """An agent whose traits are `Undecided`."""

    def __init__(self, script: Callable[[Run], Awaitable[None]]) -> None:
        super().__init__(script)
        self.traits = cast("Traits", Undecided(self.traits))


async def test_a_task_that_cannot_be_recovered_keeps_no_other_from_being_served(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await begun(url, Scripted(Halting()))
    async with house(Broken(echo), url=url) as h:
        task = await h.reach(task_id, S.FAILED)
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "internal_error"}
        assert "a fault of ours" not in task.status.message.text
        assert (await h.send()).state is S.COMPLETED
    assert "a fault of ours" in caplog.text


async def test_a_restartable_agent_runs_again_and_replaces_what_the_dead_run_left(url: str) -> None:
    """The first chunk that a new epoch writes to an artifact has `append: false`."""
    script = Halting()
    agent = Scripted(script, restartable=True)
    task_id = await begun(url, agent)
    script.halts = False
    async with house(agent, url=url) as h:
        task = await h.reach(task_id, S.COMPLETED)
        assert text_of(task) == "one,two,three"
        assert task.usage == Usage(1, 1, 1)
        log = await h.log(task_id)
        assert [item.seq for item in log] == list(range(1, len(log) + 1))


async def test_several_tasks_are_taken_up_at_once(url: str) -> None:
    script = Halting()
    agent = Scripted(script, restartable=True)
    async with house(agent, url=url, crashes=True) as h:
        ids = [await h.begin() for _ in range(20)]
    script.halts = False
    async with house(agent, url=url) as h:
        streams = [await h.open(Subscribe(id=task_id), after="1") for task_id in ids]
        for stream in streams:
            items = await read(stream)
            assert seqs(items)[0] == 2
        for task_id in ids:
            assert text_of(await h.get(task_id)) == "one,two,three"


async def test_a_run_that_crashed_after_an_answer_goes_on_from_it(url: str) -> None:
    halted = asyncio.Event()
    halts = True

    async def script(run: Run) -> None:
        await say(run, "before,")
        answer = await run.ask((Part(text="?"),))
        await say(run, answer.text)
        await say(run, ",more", "b")
        if halts:
            await run.status(())
            halted.set()
            await asyncio.Event().wait()
        await say(run, ",after")

    agent = Scripted(script, restartable=True)
    async with house(agent, url=url, crashes=True) as h:
        task_id = (await h.send()).head.id
        await h.send("yes", task_id=task_id, return_immediately=True)
        await halted.wait()
        while (await h.get(task_id)).seq < 9:
            await asyncio.sleep(0)
    halts = False
    async with house(agent, url=url) as h:
        task = await h.reach(task_id, S.COMPLETED)
        assert [text_of(task, number) for number in range(2)] == ["before,yes,after", ",more"]


async def test_a_cancel_that_was_asked_for_wins(url: str) -> None:
    async def stubborn(run: Run) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if done.is_set():
                    raise

    done = asyncio.Event()
    async with house(Scripted(stubborn, restartable=True), url=url, crashes=True) as h:
        task_id = await h.at_work()
        canceling = asyncio.create_task(h.cancel(task_id))
        while not (await h.store.load(task_id)).cancel_requested:
            await asyncio.sleep(0)
        h.store.cut = True
        done.set()
        canceling.cancel()
    async with house(Scripted(echo, restartable=True), url=url) as h:
        assert (await h.get(task_id)).state is S.CANCELED


async def test_a_drain_gives_runs_their_time() -> None:
    go = asyncio.Event()

    async def script(run: Run) -> None:
        await go.wait()
        await echo(run)

    async with house(Scripted(script)) as h:
        sent = asyncio.create_task(h.send("hi"))
        while not (await h.listed()).total_size:
            await asyncio.sleep(0)
        draining = asyncio.create_task(h.engine.drain(10))
        await asyncio.sleep(0)
        go.set()
        assert (await sent).state is S.COMPLETED
        await draining


async def test_what_does_not_end_in_time_is_interrupted_and_its_callers_answered(url: str) -> None:
    agent = Scripted(Halting())
    async with house(agent, url=url, grace_s=0.02) as h:
        sent = asyncio.create_task(h.send("hi"))
        while not (found := (await h.listed()).records):
            await asyncio.sleep(0)
        await h.reach(found[0].head.id, S.WORKING)
    assert interrupted(await sent)
    async with house(agent, url=url) as h:
        assert interrupted(await h.get(found[0].head.id))


async def test_a_run_that_does_not_let_itself_be_canceled_does_not_hold_the_drain_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.engine.drain.LEAVE_S", 0.02)
    let_go, over = asyncio.Event(), asyncio.Event()

    async def stubborn(run: Run) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        over.set()

    try:
        async with house(Scripted(stubborn), grace_s=0.02) as h:
            task_id = await h.at_work()
            await h.engine.drain(0.02)
            assert interrupted(await h.get(task_id))
        assert "left behind" in caplog.text
        assert not over.is_set()
    finally:
        let_go.set()  # a loop waits for ever for what it cannot cancel
    async with asyncio.timeout(DEADLINE_S):
        await over.wait()


async def test_a_restartable_run_that_was_drained_runs_at_the_next_start(url: str) -> None:
    script = Halting()
    agent = Scripted(script, restartable=True)
    task_id = await begun(url, agent, crashes=False)
    script.halts = False
    async with house(agent, url=url) as h:
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "one,two,three"


async def test_a_run_whose_first_step_is_being_written_at_the_drain_runs_at_the_next_start(url: str) -> None:
    go, left, works = asyncio.Event(), asyncio.Event(), list[str]()

    async def work(key: str) -> StepDone:
        works.append(key)
        return StepDone((Part(text="done"),), "text")

    async def script(run: Run) -> None:
        await go.wait()
        try:
            done = await run.step(Step("work"), work)
        finally:
            left.set()
        await say(run, done.result[0].text or "")

    agent = Scripted(script)
    async with house(agent, url=url, grace_s=0) as h:
        task_id = await h.at_work()
        appended = len(h.store.appends)
        acknowledged = h.store.held_appends = asyncio.Event()
        go.set()
        await until(lambda: len(h.store.appends) > appended)
        draining = asyncio.create_task(h.engine.drain(0))
        async with asyncio.timeout(DEADLINE_S):
            await left.wait()
        acknowledged.set()
        await draining
    async with house(agent, url=url) as h:
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "done"
    assert len(works) == 1


async def test_a_suspended_run_stays_a_question(url: str) -> None:
    async def script(run: Run) -> None:
        await say(run, (await run.ask((Part(text="?"),))).text)

    async with house(Scripted(script), url=url, grace_s=5) as h:
        task_id = (await h.send()).head.id
        await asyncio.wait_for(h.engine.drain(300), 60)
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
    async with house(Scripted(script), url=url) as h:
        assert text_of(await h.send("yes", task_id=task_id)) == "yes"


async def test_a_task_whose_agent_nobody_serves_is_failed_once_it_may_be_claimed() -> None:
    """It may not be claimed yet when this server starts, because its replica may be about to start as well."""
    async with replicas(1, Stage(), Hub().bus, agent_absent_s=0.0, claim_s=0.05) as (one,):
        await one.store.create(new_task("t", agent="gone", owner="anna", holder="dead"))
        async with asyncio.timeout(DEADLINE_S):
            while (stored := await one.store.load("t")).state is not S.FAILED:
                await asyncio.sleep(0.001)
        assert interrupted(fold(stored.head, stored.snapshot, stored.events))


class Once(Stage):
    """An agent that is not restartable."""

    def agent(self) -> Scripted:
        return Scripted(self._run)


async def test_a_task_that_two_looks_have_found_is_begun_once_and_not_interrupted() -> None:
    """One look finds the offer, and another one claims it, since it has run out, before the first has read the task."""
    stage, hub, looked, read_late = Once(), Hub(), asyncio.Event(), asyncio.Event()
    async with replicas(1, stage, hub.bus) as (one,):
        load, loads = one.store.load, 0

        async def load_late(task_id: str, size: int | None = None) -> Any:
            nonlocal loads
            loads += 1
            if loads == 2:  # the first one has loaded the log
                looked.set()
                await read_late.wait()
            return await load(task_id, size)

        one.store.load = load_late  # type: ignore[method-assign]
        other = hub.bus()
        await other.open()
        await one.store.create(new_task("t1", agent="agent", holder="r9"))
        await one.store.append(Append(task_id="t1", events=(), state=S.WORKING, status_ms=1, holder="r0", offered_ms=1))
        other.tell("r0")
        await looked.wait()
        one.store.clock.ms += 2
        other.tell("r0")
        await stage.begun.wait()
        read_late.set()
        stage.pieces.put_nowait("done")
        stage.pieces.put_nowait(None)
        await until(lambda: one.in_memory == 0)
        ended = await load("t1")
        assert ended.state is S.COMPLETED
