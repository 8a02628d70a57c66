"""CancelTask (A2A 1.0 §3.1.5)."""

import asyncio
import contextlib

import pytest

from dragoman.engine.api import Reject, Run
from dragoman.model.errors import TaskNotCancelable, TaskNotFound, Unavailable
from dragoman.model.events import StatusChanged
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import TERMINAL, TaskState
from tests.engine.house import DEADLINE_S, House, Scripted, echo, forever, house, read, say, states, text_of
from tests.kit.waiting import until

S = TaskState


async def one_end(h: House, task_id: str) -> None:
    """Invariant 4: exactly one terminal event, and nothing after it."""
    log = await h.log(task_id)
    ends = [item.seq for item in log if isinstance(item.event, StatusChanged) and item.event.state in TERMINAL]
    assert ends == [log[-1].seq]


async def test_a_working_task_is_canceled() -> None:
    stopped = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            await forever(run)
        finally:
            stopped.set()

    async with house(Scripted(script)) as h:
        task_id = await h.at_work()
        stream = await h.open(Subscribe(id=task_id))
        task = await h.cancel(task_id)
        assert task.state is S.CANCELED
        assert stopped.is_set()
        assert text_of(task) == "begun"
        assert not task.open_artifacts
        assert states(await read(stream))[-1] is S.CANCELED
        await one_end(h, task_id)


async def test_a_blocking_send_is_answered_by_the_cancel() -> None:
    async with house(Scripted(forever)) as h:
        sent = asyncio.create_task(h.send(context_id="c"))
        while not (found := (await h.listed()).records):
            await asyncio.sleep(0)
        canceled = await h.cancel(found[0].head.id)
        assert await sent == canceled


async def test_a_task_is_canceled_at_any_moment_of_its_beginning() -> None:
    """Invariant 7: cancel works from the first millisecond."""
    for turns in range(10):
        async with house(Scripted(forever)) as h:
            task_id = await h.begin()
            for _ in range(turns):
                await asyncio.sleep(0)
            assert (await h.cancel(task_id)).state is S.CANCELED
            await one_end(h, task_id)


async def test_a_waiting_task_is_canceled_and_its_agent_ended() -> None:
    ended = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            await run.ask((Part(text="?"),))
        finally:
            ended.set()

    async with house(Scripted(script)) as h:
        task_id = (await h.send()).head.id
        assert (await h.cancel(task_id)).state is S.CANCELED
        await asyncio.wait_for(ended.wait(), DEADLINE_S)
        await one_end(h, task_id)


async def test_cancel_of_a_canceled_task_gives_the_same_task() -> None:
    async with house(Scripted(forever)) as h:
        task_id = await h.begin()
        first, second = await asyncio.gather(h.cancel(task_id), h.cancel(task_id))
        assert first == second == await h.cancel(task_id)
        await one_end(h, task_id)


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.REJECTED])
async def test_cancel_of_an_ended_task_is_refused(state: TaskState) -> None:
    async def script(run: Run) -> None:
        if state is S.FAILED:
            raise RuntimeError
        if state is S.REJECTED:
            raise Reject("no")

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is state
        with pytest.raises(TaskNotCancelable) as refusal:
            await h.cancel(task.head.id)
        assert refusal.value.state == state.value
        with pytest.raises(TaskNotFound):
            await h.cancel("nope")


async def test_whichever_of_cancel_and_completion_commits_first_wins() -> None:
    outcomes = set()
    async with house() as h:
        for turns in range(25):
            task_id = await h.begin()
            for _ in range(turns % 8):
                await asyncio.sleep(0)
            try:
                answer = (await h.cancel(task_id)).state.value
            except TaskNotCancelable as refusal:
                answer = refusal.state
            outcomes.add(state := (await h.get(task_id)).state)
            assert answer == state.value
            await one_end(h, task_id)
    assert outcomes <= {S.CANCELED, S.COMPLETED}


async def test_cancel_answer_and_completion_race_without_harm() -> None:
    async def script(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await echo(run)

    async with house(Scripted(script)) as h:
        for turns in range(15):
            task_id = (await h.send()).head.id
            sent = asyncio.create_task(h.send("x", task_id=task_id))
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            results = await asyncio.gather(sent, h.cancel(task_id), return_exceptions=True)
            assert (await h.get(task_id)).terminal, results
            await one_end(h, task_id)


async def test_an_agent_that_does_not_stop_is_left_behind() -> None:
    """After the grace period the task is canceled; what the agent writes later is refused."""
    let_go, over = asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    async def stubborn(run: Run) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        try:
            await say(run, "too late")
        except asyncio.CancelledError as error:
            refused.append(error)
        over.set()

    async with house(Scripted(stubborn), cancel_grace_s=0.05) as h:
        task_id = await h.at_work()
        try:
            task = await asyncio.wait_for(h.cancel(task_id), 60)
            assert task.state is S.CANCELED
            await until(lambda: h.in_memory == 0)  # From Python 3.12 on `wait_for` takes no turn of the loop.
        finally:
            let_go.set()
        await over.wait()
        assert refused
        assert (await h.get(task_id)) == task
        await one_end(h, task_id)


async def test_an_agent_may_tidy_up_while_it_is_canceled() -> None:
    async def script(run: Run) -> None:
        try:
            await forever(run)
        finally:
            await asyncio.sleep(0)
            await say(run, ", ended")

    async with house(Scripted(script)) as h:
        task_id = await h.at_work()
        task, _ = await asyncio.gather(h.cancel(task_id), h.cancel(task_id))
        assert text_of(task) == "begun, ended"


async def test_an_agent_that_raises_something_else_as_it_is_canceled_is_canceled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many libraries turn a cancel into an error of their own; it is no other end that came first."""

    async def script(run: Run) -> None:
        try:
            await forever(run)
        except asyncio.CancelledError as error:
            raise ConnectionError("the model hung up") from error

    async with house(Scripted(script)) as h:
        task_id = await h.at_work()
        assert (await h.cancel(task_id)).state is S.CANCELED
        await one_end(h, task_id)
    assert "the model hung up" in caplog.text


async def test_an_agent_that_waits_for_room_is_canceled() -> None:
    """A full buffer holds nobody."""

    async def flood(run: Run) -> None:
        while True:
            await say(run, "x" * 1000)

    async with house(Scripted(flood)) as h:
        task_id = await h.at_work()
        assert (await h.cancel(task_id)).state is S.CANCELED
        await one_end(h, task_id)


async def test_a_canceler_that_leaves_cancels_nevertheless() -> None:
    """Invariant 6."""
    async with house(Scripted(forever)) as h:
        for turns in range(6):
            task_id = await h.at_work()
            canceling = asyncio.create_task(h.cancel(task_id))
            for _ in range(turns + 1):
                await asyncio.sleep(0)
            canceling.cancel()
            await asyncio.wait((canceling,))
            if turns:
                await h.reach(task_id, S.CANCELED)
            else:
                await h.cancel(task_id)


async def test_a_cancel_that_a_drain_cuts_off_is_not_answered_as_if_there_were_no_task() -> None:
    async def script(run: Run) -> None:
        while not left.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await left.wait()

    left = asyncio.Event()
    async with house(Scripted(script, restartable=True), cancel_grace_s=60.0) as h:
        task_id = await h.at_work()
        canceling = asyncio.create_task(h.cancel(task_id))
        async with asyncio.timeout(DEADLINE_S):
            while not (await h.store.load(task_id)).cancel_requested:
                await asyncio.sleep(0)
        try:
            await h.engine.drain(0.0)
            with pytest.raises(Unavailable):
                await canceling
            stored = await h.store.load(task_id)
            assert (stored.state, stored.cancel_requested) == (S.WORKING, True), "the next start carries it out"
        finally:
            left.set()


async def test_a_cancel_that_cannot_be_written_says_so_and_happens_when_there_is_space() -> None:
    async def script(run: Run) -> None:
        await run.ask((Part(text="?"),))

    async with house(Scripted(script), retry_s=0.01) as h:
        task_id = (await h.send()).head.id
        h.store.full = 3
        with pytest.raises(Unavailable):
            await h.cancel(task_id)
        await h.reach(task_id, S.CANCELED)
    async with house(Scripted(forever), retry_s=0.01) as h:
        task_id = await h.at_work()
        h.store.full = 1
        with pytest.raises(Unavailable):
            await h.cancel(task_id)
        h.store.full = 0
        assert (await h.get(task_id)).state is S.WORKING
        assert (await h.cancel(task_id)).state is S.CANCELED


async def test_no_agent_begins_anew_on_a_task_whose_end_is_being_written() -> None:
    begun: list[str] = []
    dropped = asyncio.Event()

    async def script(run: Run) -> None:
        begun.append(run.head.id)
        try:
            await run.ask((Part(text="?"),))
        except asyncio.CancelledError:
            dropped.set()
            raise

    async with house(Scripted(script), suspend_max_s=0.01) as h:
        task_id = (await h.send()).head.id
        async with asyncio.timeout(DEADLINE_S):
            await dropped.wait()
            while h.in_memory:
                await asyncio.sleep(0)
            h.store.held_reads = asyncio.Event()
            await h.send("go on", task_id=task_id, return_immediately=True)
            h.store.held_appends = asyncio.Event()
            canceling = asyncio.create_task(h.cancel(task_id))
            while h.store.appends[-1].state is not TaskState.CANCELED:
                await asyncio.sleep(0)
            h.store.held_reads.set()
            for _ in range(20):
                await asyncio.sleep(0)
            h.store.held_appends.set()
            assert (await canceling).state is TaskState.CANCELED
        assert begun == [task_id]


async def test_a_cancel_after_a_drain_is_refused() -> None:
    async def script(run: Run) -> None:
        await run.ask((Part(text="which?"),))

    async with house(Scripted(script)) as h:
        task_id = (await h.send()).head.id
        await h.engine.drain(0)
        with pytest.raises(Unavailable):
            await h.cancel(task_id)
