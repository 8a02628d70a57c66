"""Questions and answers, in this process and across restarts."""

import asyncio
from pathlib import Path

import pytest

from dragoman.engine.api import Run
from dragoman.engine.handler import Snapshot
from dragoman.model.errors import QuestionClosed
from dragoman.model.events import ArtifactChunk
from dragoman.model.ids import new_id
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import Record, TaskState, Usage
from tests.engine.house import DEADLINE_S, House, Scripted, house, read, say, states, streaming, text_of

S = TaskState


async def trip(run: Run) -> None:
    await say(run, "[", "a")
    start = await run.ask((Part(text="From where?"),))
    await say(run, start.text, "a")
    end = await run.ask((Part(text="To where?"),))
    await say(run, "-" + end.text + "]", "a")


async def test_questions_are_asked_one_after_the_other() -> None:
    async with house(Scripted(trip)) as h:
        task = await h.send("go")
        task = await h.send("Lyon", task_id=task.head.id)
        assert task.state is S.INPUT_REQUIRED
        task = await h.send("Rome", task_id=task.head.id)
        assert [m.text for m in task.history] == ["go", "From where?", "Lyon", "To where?", "Rome"]
        assert text_of(task) == "[Lyon-Rome]"
        assert states(await h.log(task.head.id)) == [
            S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.COMPLETED,
        ]  # fmt: skip


async def test_auth_is_required_likewise() -> None:
    """A2A 1.0 §7.6."""

    async def login(run: Run) -> None:
        await run.ask((Part(text="Who are you?"),), auth=True)

    async with house(Scripted(login)) as h:
        task = await h.send()
        assert task.state is S.AUTH_REQUIRED
        assert (await h.send("me", task_id=task.head.id)).state is S.COMPLETED


async def test_the_first_answer_wins_and_the_second_is_a_message_to_a_working_task() -> None:

    async def script(run: Run) -> None:
        one = await run.ask((Part(text="one?"),))
        two = await run.ask((Part(text="two?"),))
        await say(run, f"{one.text}{two.text}")

    async with house(Scripted(script)) as h:
        for turns in range(6):
            task_id = (await h.send()).head.id
            first = asyncio.create_task(h.send("1", task_id=task_id))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(first, h.send("2", task_id=task_id))
            task = await h.reach(task_id, S.COMPLETED)
            assert text_of(task) == "12"


async def test_nothing_comes_between_a_question_and_its_answer() -> None:
    """Effects of the agent beside its question wait, as does a second question."""

    async def script(run: Run) -> None:
        async def beside() -> None:
            await asyncio.sleep(0)
            await say(run, "said ")
            await run.status((Part(text="on the way"),))

        one, _, two = await asyncio.gather(run.ask((Part(text="one?"),)), beside(), run.ask((Part(text="two?"),)))
        await say(run, f"{one.text} {two.text}")

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is S.INPUT_REQUIRED
        task = await h.send("A", task_id=task.head.id)
        assert task.state is S.INPUT_REQUIRED
        task = await h.send("B", task_id=task.head.id)
        assert task.state is S.COMPLETED
        assert text_of(task) == "said A B"


async def test_an_agent_may_stop_waiting_for_its_answer() -> None:
    """Its run holds no lease any more; the answer replays, and nothing of the old run is written."""

    gave_up = asyncio.Event()

    async def impatient(run: Run) -> None:
        try:
            async with asyncio.timeout(0.02):
                answer = (await run.ask((Part(text="?"),))).text
        except TimeoutError:
            answer = "none"
            gave_up.set()
            await asyncio.Event().wait()
        await say(run, answer)

    async with house(Scripted(impatient)) as h:
        task_id = (await h.send()).head.id
        await gave_up.wait()
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
        task = await h.send("late", task_id=task_id)
        assert task.state is S.COMPLETED
        assert text_of(task) == "late"


async def test_an_answer_after_suspend_max_is_replayed() -> None:
    dropped = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            await trip(run)
        except asyncio.CancelledError:
            dropped.set()
            raise

    async with house(Scripted(script), suspend_max_s=0.01) as h:
        task_id = (await h.send()).head.id
        task = await h.get(task_id)
        for answer in ("Lyon", "Rome"):
            await asyncio.wait_for(dropped.wait(), DEADLINE_S)
            while h.in_memory:
                await asyncio.sleep(0)
            dropped.clear()
            # nothing but the store knows the task now
            task = await h.send(answer, task_id=task_id, return_immediately=answer == "Lyon")
            if answer == "Lyon":
                task = await h.reach(task_id, S.INPUT_REQUIRED)
        assert task.state is S.COMPLETED
        assert text_of(task) == "[Lyon-Rome]"


async def test_an_answer_after_a_restart_is_replayed(tmp_path: Path) -> None:
    """Until the last recorded answer is consumed, all that the agent yields or reports is dropped."""
    url = f"sqlite:///{tmp_path}/tasks.db"

    async def script(run: Run) -> None:
        run.usage(Usage(1, 1, 2))
        await trip(run)

    async with house(Scripted(script), url=url) as h:
        task_id = (await h.send("go")).head.id
        stream = await h.open(Subscribe(id=task_id))
        reading = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
    await reading
    assert stream.retry
    async with house(Scripted(script), url=url) as h:
        assert h.in_memory == 0
        answered = asyncio.create_task(h.send("Lyon", task_id=task_id))
        assert (await answered).state is S.INPUT_REQUIRED
    async with house(Scripted(script), url=url, crashes=True) as h:
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
    async with house(Scripted(script), url=url) as h:
        task = await h.send("Rome", task_id=task_id)
        assert task.state is S.COMPLETED
        assert text_of(task) == "[Lyon-Rome]"
        assert task.usage == Usage(1, 1, 2)
        assert [m.text for m in task.history] == ["go", "From where?", "Lyon", "To where?", "Rome"]
        log = await h.log(task_id)
        assert [item.seq for item in log] == list(range(1, len(log) + 1))
        assert len([item for item in log if isinstance(item.event, ArtifactChunk)]) == 3


async def after_restart(first: Scripted, second: Scripted, tmp_path: Path) -> Record:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with house(first, url=url) as h:
        task_id = (await h.send()).head.id
    async with house(second, url=url) as h:
        return await h.send("answer", task_id=task_id)


async def test_a_question_that_differs_from_the_recorded_one_fails_the_task(tmp_path: Path) -> None:
    """The reason is replay_mismatch, also when the agent swallows it, asks nothing, or asks again."""

    async def first(run: Run) -> None:
        await run.ask((Part(data={"where": (1, 2)}),))

    async def other(run: Run) -> None:
        await run.ask((Part(text="When?"),))

    async def swallowing(run: Run) -> None:
        try:
            await other(run)
        except Exception:  # noqa: BLE001, S110  as careless agents do
            pass
        await say(run, "as if nothing had been")

    async def silent(run: Run) -> None:
        await say(run, "no question this time")

    for number, second in enumerate((other, swallowing, silent)):
        path = tmp_path / str(number)
        path.mkdir()
        task = await after_restart(Scripted(first), Scripted(second), path)
        assert task.state is S.FAILED, second
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "replay_mismatch"}
        assert not task.artifacts
    path = tmp_path / "same"
    path.mkdir()
    task = await after_restart(Scripted(first), Scripted(first), path)
    assert task.state is S.COMPLETED


async def test_messages_that_came_early_are_replayed_in_their_order(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    started, go = asyncio.Event(), asyncio.Event()

    async def script(run: Run) -> None:
        started.set()
        await go.wait()
        heard = [(await run.ask((Part(text=f"{number}?"),))).text for number in range(3)]
        await say(run, "".join(heard))

    async with house(Scripted(script), url=url) as h:
        task_id = await h.begin()
        await started.wait()
        await h.send("a", task_id=task_id, return_immediately=True)
        go.set()
        await h.reach(task_id, S.INPUT_REQUIRED)
        task = await h.send("b", task_id=task_id)
        assert task.status.message is not None
        assert task.status.message.text == "2?"
    async with house(Scripted(script), url=url) as h:
        task = await h.send("c", task_id=task_id)
        assert text_of(task) == "abc"


async def test_messages_that_come_while_a_run_is_taken_up_again_are_heard(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"

    async def script(run: Run) -> None:
        heard = [(await run.ask((Part(text=f"{number}?"),))).text for number in range(4)]
        await say(run, "".join(heard))

    for turns in range(5):
        async with house(Scripted(script), url=url) as h:
            task_id = (await h.send()).head.id
        async with house(Scripted(script), url=url) as h:
            for text in "abcd":
                await h.send(text, task_id=task_id, return_immediately=True)
                for _ in range(turns):
                    await asyncio.sleep(0)
            assert text_of(await h.reach(task_id, S.COMPLETED)) == "abcd"


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_drain_lets_a_question_on_its_way_be_asked(tmp_path: Path, turns: int) -> None:
    """The question is in the log before its run is dropped: the task waits for its caller, and is not failed."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    asking = asyncio.Event()

    async def script(run: Run) -> None:
        asking.set()
        await say(run, (await run.ask((Part(text="?"),))).text)

    async def begun(h: House) -> str:
        task_id = await h.begin()
        await asking.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        return task_id

    async with house(Scripted(script), url=url) as h:
        task_id = await begun(h)
    async with house(Scripted(script), url=url) as h:
        assert (await h.get(task_id)).state is S.INPUT_REQUIRED
        assert text_of(await h.send("yes", task_id=task_id)) == "yes"


async def test_a_word_that_waits_for_a_question_is_said_once_that_is_canceled() -> None:
    async def script(run: Run) -> None:
        asking = asyncio.create_task(run.ask((Part(text="which?"),)))
        await asyncio.sleep(0)
        reporting = asyncio.create_task(run.status((Part(text="on my way"),)))
        await asyncio.sleep(0)
        asking.cancel()
        async with asyncio.timeout(DEADLINE_S / 10):
            await reporting
        await say(run, "done")

    async with house(Scripted(script)) as h:
        task = await h.send()
        assert task.state is TaskState.COMPLETED, task.status
        assert text_of(task) == "done"


async def test_an_answer_that_names_its_question_answers_no_other_one() -> None:
    async with house(Scripted(trip)) as h:
        task = await h.send("go")
        task_id, first = task.head.id, question_of(task)
        task = await h.send("Lyon", task_id=task_id, answers=first)
        assert task.state is S.INPUT_REQUIRED
        with pytest.raises(QuestionClosed, match="does not wait for an answer to that question"):
            await h.send("Paris", task_id=task_id, answers=first)
        assert [m.text for m in (await h.get(task_id)).history] == ["go", "From where?", "Lyon"]
        task = await h.send("Rome", task_id=task_id, answers=question_of(task))
        assert text_of(task) == "[Lyon-Rome]"
        with pytest.raises(QuestionClosed):
            await h.send("Bonn", task_id=task_id, answers=first)


@pytest.mark.parametrize("dedupe_s", [600.0, 0.0])
async def test_the_same_answer_to_its_question_is_a_repeat_however_late_it_comes(dedupe_s: float) -> None:
    async with house(Scripted(trip), dedupe_s=dedupe_s) as h:
        task = await h.send("go")
        task_id, answer = task.head.id, {"answers": question_of(task), "message_id": new_id()}
        task = await h.send("Lyon", task_id=task_id, **answer)
        again = await h.send("Lyon", task_id=task_id, **answer)
        assert (question_of(again), again.state) == (question_of(task), S.INPUT_REQUIRED)
        await h.send("Rome", task_id=task_id, answers=question_of(task))
        assert text_of(await h.send("Lyon", task_id=task_id, **answer)) == "[Lyon-Rome]"
        stream = await h.open(streaming("Lyon", task_id=task_id, **answer))
        first, *_ = await read(stream)
        assert isinstance(first, Snapshot)
        assert (first.record.state, text_of(first.record)) == (S.WORKING, "[")
        assert len((await h.get(task_id)).history) == 5


async def test_a_task_that_nobody_will_answer_is_completed_by_its_first_question() -> None:
    async with house(Scripted(trip)) as h:
        task = await h.send("go", unattended=True)
        assert (task.state, text_of(task)) == (S.COMPLETED, "[")
        assert task.status.message is not None
        assert (task.status.message.text, task.status.message.metadata) == ("From where?", {"reason": "nobody_to_ask"})
        assert states(await h.log(task.head.id)) == [S.WORKING, S.COMPLETED]


def question_of(task: Record) -> str:
    assert task.status.message is not None
    return task.status.message.message_id
