"""Sleep: a task on which nobody works until a time, or until its caller says something."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dragoman.engine.api import Run
from dragoman.engine.words import Sleep
from dragoman.model.events import StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import TaskState as S
from dragoman.store.api import ASLEEP
from tests.engine.house import DEADLINE_S, House, Scripted, StandingClock, house, say, text_of
from tests.kit.waiting import until
from tests.virtual_time import Waited, in_virtual_time

HOUR = Sleep(for_ms=3_600_000)
HOUR_MS = 3_600_000

CLAIM_S = 0.01

SLEEP = "urn:dragoman:sleep:v1"


class MovingClock(StandingClock):
    """The time of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return self.ms + int(self._loop.time() * 1000)


class Sleeper:
    """An agent that says where it is, before and after its sleep."""

    def __init__(self, word: Sleep = HOUR, then: Callable[[Run], Awaitable[None]] | None = None) -> None:
        self.word, self.then = word, then
        self.runs = 0
        self.canceled: list[bool] = []
        self.asleep = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        self.runs += 1
        await say(run, "before,")
        self.asleep.set()
        try:
            await run.sleep(self.word)
        except asyncio.CancelledError:
            self.canceled.append(run.canceled)
            raise
        if self.then is not None:
            await self.then(run)
        await say(run, "after")


async def fall_asleep(h: House, script: Sleeper) -> str:
    """The id of a new task, which sleeps, and is not in memory any more."""
    task_id = await h.begin()
    await until(lambda: h.in_memory == 0 and bool(script.canceled))
    assert (await h.store.load(task_id)).holder == ASLEEP
    return task_id


async def sleeps(h: House, task_id: str) -> list[StatusChanged]:
    """The sleeps that the log has."""
    events = [logged.event for logged in await h.log(task_id)]
    return [event for event in events if isinstance(event, StatusChanged) and SLEEP in (event.metadata or {})]


async def test_a_task_that_sleeps_is_not_in_memory_and_goes_on_when_it_wakes() -> None:
    script = Sleeper()
    async with house(Scripted(script), claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        assert script.canceled == [False]
        assert (await h.get(task_id)).state is S.WORKING
        (sleep,) = await sleeps(h, task_id)
        assert sleep.metadata == {SLEEP: {"until": "2027-01-15T09:00:00.000Z"}}
        h.clock.ms += HOUR_MS - 1
        await asyncio.sleep(10 * CLAIM_S)
        assert script.runs == 1, "it wakes early"
        h.clock.ms += 1
        task = await h.reach(task_id, S.COMPLETED)
        assert (text_of(task), script.runs) == ("before,after", 2)
        log = [logged.event for logged in await h.log(task_id)]
        woken = log[log.index(sleep) + 1]
        assert isinstance(woken, StatusChanged)
        assert (woken.state, woken.metadata) == (S.WORKING, None)
        assert len(await sleeps(h, task_id)) == 1


async def test_a_caller_who_waits_gets_what_comes_after_the_sleep() -> None:
    script = Sleeper()
    async with house(Scripted(script), claim_s=CLAIM_S) as h:
        sent = asyncio.create_task(h.send())
        await until(lambda: bool(script.canceled))
        h.clock.ms += HOUR_MS
        assert text_of(await sent) == "before,after"


@in_virtual_time
async def test_a_short_sleep_keeps_the_run() -> None:
    script = Sleeper(Sleep(for_ms=30))
    async with house(Scripted(script), clock=MovingClock(), claim_s=CLAIM_S, seen_as=Waited) as h:
        began = asyncio.get_running_loop().time()
        task = await h.send()
        assert asyncio.get_running_loop().time() - began >= 0.03
        assert (text_of(task), script.runs) == ("before,after", 1)
        assert len(await sleeps(h, task.head.id)) == 1


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


async def test_a_sleep_outlives_the_process_and_is_not_told_again(url: str) -> None:
    """The agent is not restartable. A task that wakes while no server is there goes on with the next start."""
    clock, script = StandingClock(), Sleeper()
    async with house(Scripted(script), url=url, clock=clock, crashes=True) as h:
        task_id = await fall_asleep(h, script)
    async with house(Scripted(script), url=url, clock=clock, crashes=True, claim_s=CLAIM_S) as h:
        await asyncio.sleep(5 * CLAIM_S)
        assert ((await h.get(task_id)).state, script.runs) == (S.WORKING, 1)
    clock.ms += HOUR_MS
    async with house(Scripted(script), url=url, clock=clock) as h:
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,after"
        assert len(await sleeps(h, task_id)) == 1


async def test_the_rest_of_a_short_sleep_is_slept_after_a_crash(url: str) -> None:
    """The lease was kept, so that the task is claimed at once."""
    clock, script = StandingClock(), Sleeper(Sleep(for_ms=4000))
    async with house(Scripted(script), url=url, clock=clock, crashes=True) as h:
        task_id = await h.begin()
        while not await sleeps(h, task_id):
            await asyncio.sleep(0.001)
    clock.ms += 3990
    async with house(Scripted(script), url=url, clock=clock) as h:
        await until(lambda: script.runs == 2)
        await asyncio.sleep(0.05)
        assert (await h.get(task_id)).state is S.WORKING, "it woke early"
        clock.ms += 10
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,after"
        assert len(await sleeps(h, task_id)) == 1


async def test_a_run_that_dies_after_the_sleep_does_not_sleep_again(url: str) -> None:
    clock, halts = StandingClock(), asyncio.Event()

    async def halt(run: Run) -> None:
        await say(run, "half,")
        await halts.wait()

    script = Sleeper(then=halt)
    async with house(Scripted(script), url=url, clock=clock, crashes=True, claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        clock.ms += HOUR_MS
        await until(lambda: script.runs == 2)
        while "half," not in text_of(await h.get(task_id)):
            await asyncio.sleep(0.001)
    halts.set()
    async with house(Scripted(script), url=url, clock=clock) as h:
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,half,after"
        assert len(await sleeps(h, task_id)) == 1


async def test_a_cancel_ends_a_task_that_sleeps_at_once() -> None:
    script = Sleeper()
    async with house(Scripted(script), claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        assert (await h.cancel(task_id)).state is S.CANCELED
        h.clock.ms += HOUR_MS
        await asyncio.sleep(5 * CLAIM_S)
        assert script.runs == 1


async def ask(run: Run) -> None:
    await say(run, f"{(await run.ask((Part(text='?'),))).text},")


async def test_a_message_to_a_task_that_sleeps_is_kept_for_the_next_question() -> None:
    script = Sleeper(then=ask)
    async with house(Scripted(script), claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        await h.send("early", task_id=task_id, return_immediately=True)
        await asyncio.sleep(5 * CLAIM_S)
        assert (script.runs, (await h.store.load(task_id)).holder) == (1, ASLEEP)
        h.clock.ms += HOUR_MS
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,early,after"


@pytest.mark.parametrize("for_ms", [HOUR_MS, 4000])
async def test_a_message_ends_a_sleep_that_it_is_to_end(for_ms: int) -> None:
    """One that keeps the run, too. It is the answer to the next question."""
    script = Sleeper(Sleep(for_ms=for_ms, wake_on_message=True), then=ask)
    async with house(Scripted(script), claim_s=CLAIM_S) as h:
        task_id = await h.begin()
        while not await sleeps(h, task_id):
            await asyncio.sleep(0.001)
        await h.send("now", task_id=task_id, return_immediately=True)
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,now,after"
        assert script.runs == 1 + (for_ms == HOUR_MS)


async def test_a_message_that_was_not_read_ends_such_a_sleep_before_it_begins() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def script(run: Run) -> None:
        begun.set()
        await go.wait()
        await run.sleep(Sleep(for_ms=HOUR_MS, wake_on_message=True))
        await ask(run)

    async with house(Scripted(script)) as h:
        task_id = await h.begin()
        await begun.wait()
        await h.send("early", task_id=task_id, return_immediately=True)
        go.set()
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "early,"


async def test_what_a_message_has_ended_is_over_for_a_later_run(url: str) -> None:
    """Also long before its time."""
    clock, halts = StandingClock(), asyncio.Event()

    async def halt(run: Run) -> None:
        await say(run, "woken,")
        await halts.wait()

    script = Sleeper(Sleep(for_ms=HOUR_MS, wake_on_message=True), then=halt)
    async with house(Scripted(script), url=url, clock=clock, crashes=True) as h:
        task_id = await fall_asleep(h, script)
        await h.send("now", task_id=task_id, return_immediately=True)
        while "woken," not in text_of(await h.get(task_id)):
            await asyncio.sleep(0.001)
    halts.set()
    async with house(Scripted(script), url=url, clock=clock) as h:
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,woken,after"


async def test_a_sleep_beside_other_work_keeps_the_run() -> None:
    """What the other branch does would be lost."""
    go = asyncio.Event()

    async def work(run: Run) -> None:
        await go.wait()
        await say(run, "work,")

    async def script(run: Run) -> None:
        await asyncio.gather(run.sleep(HOUR), work(run))

    async with house(Scripted(script)) as h:
        task_id = await h.begin()
        while not await sleeps(h, task_id):
            await asyncio.sleep(0.001)
        go.set()
        while not (await h.get(task_id)).artifacts:
            await asyncio.sleep(0.001)
        assert (await h.store.load(task_id)).holder == h.engine.replica_id
        await h.cancel(task_id)


async def test_a_sleep_that_the_agent_gives_up_before_it_is_written_does_not_end_the_run() -> None:
    async def script(run: Run) -> None:
        await say(run, "before,")
        await asyncio.sleep(0.01)  # that is being written
        try:
            async with asyncio.timeout(0.05):
                await run.sleep(HOUR)
        except TimeoutError:
            gone_on.set()
        await say(run, "after")

    gone_on, written = asyncio.Event(), asyncio.Event()
    async with house(Scripted(script)) as h:
        h.store.held_appends = written
        task_id = await h.begin()
        await gone_on.wait()
        h.store.held_appends = None
        written.set()
        assert text_of(await h.reach(task_id, S.COMPLETED)) == "before,after"


async def test_a_branch_that_is_over_lets_the_task_sleep() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    async def script(run: Run) -> None:
        await asyncio.gather(work(), work())
        await run.sleep(HOUR)

    async with house(Scripted(script)) as h:
        await h.begin()
        await until(lambda: h.in_memory == 0)


@in_virtual_time
async def test_no_time_counts_towards_the_deadline_while_the_agent_sleeps() -> None:
    script = Sleeper(Sleep(for_ms=150))
    async with house(Scripted(script, deadline_s=0.1), clock=MovingClock(), seen_as=Waited) as h:
        assert (await h.send()).state is S.COMPLETED


async def test_the_deadline_counts_anew_when_a_task_wakes() -> None:
    async def late(run: Run) -> None:
        await asyncio.sleep(DEADLINE_S)

    script = Sleeper(then=late)
    async with house(Scripted(script, deadline_s=0.1), claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        h.clock.ms += HOUR_MS
        task = await h.reach(task_id, S.FAILED)
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "deadline_exceeded"}
        assert script.runs == 2


async def test_a_run_that_does_not_tell_its_sleep_again_is_no_replay() -> None:
    script = Sleeper()
    agent = Scripted(script)
    async with house(agent, claim_s=CLAIM_S) as h:
        task_id = await fall_asleep(h, script)
        agent.script = ask
        h.clock.ms += HOUR_MS
        task = await h.reach(task_id, S.FAILED)
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "replay_mismatch"}


async def test_a_sleep_counts_as_a_step() -> None:
    async def script(run: Run) -> None:
        for _ in range(3):
            await run.sleep(Sleep(until_ms=1))

    async with house(Scripted(script), max_steps=2) as h:
        task = await h.send()
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "too_many_steps"}


async def test_a_task_of_an_agent_that_is_gone_is_interrupted_when_it_wakes(url: str) -> None:
    clock, script = StandingClock(), Sleeper()
    async with house(Scripted(script), url=url, clock=clock, crashes=True) as h:
        task_id = await fall_asleep(h, script)
    async with house(Scripted(script, "other"), url=url, clock=clock, claim_s=CLAIM_S) as h:
        assert (await h.store.load(task_id)).holder == ASLEEP
        clock.ms += HOUR_MS
        while (found := await h.store.load(task_id)).state is not S.FAILED:
            await asyncio.sleep(0.001)
        assert found.snapshot.status.message.metadata == {"reason": "interrupted"}
