"""When it is said that somebody works on a task whose agent speaks soon: with its first word, or moments later."""

import asyncio

import pytest

from dragoman.engine.api import Run
from dragoman.engine.runs import run_writer
from dragoman.model.events import StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from tests.engine.house import (
    DEADLINE_S,
    House,
    Scripted,
    house,
    message,
    read,
    say,
    sending,
    silence,
    states,
    streaming,
)

S = TaskState


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remark by the way waits for ever, unless something follows or somebody waits."""
    monkeypatch.setattr(run_writer, "QUIET_S", 3600.0)


def written(h: House) -> list[list[TaskState]]:
    """The states that each append after the first tells of."""
    return [[event.state for event in append.events if isinstance(event, StatusChanged)] for append in h.store.appends]


@pytest.mark.usefixtures("never")
async def test_it_is_written_with_the_first_word() -> None:
    async def script(run: Run) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await say(run, "word", append=False)

    async with house(Scripted(script, speaks_soon=True)) as h:
        assert states(await read(await h.open(streaming()))) == [S.WORKING, S.COMPLETED]
        assert written(h)[0][0] is S.WORKING
        assert h.store.appends[0].events[1:], "with nothing else it would have cost a commit"


async def test_of_an_agent_that_is_silent_it_is_written_anyway() -> None:
    async with house(Scripted(silence, speaks_soon=True)) as h:
        task_id = await h.at_work()
        await h.cancel(task_id)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("landing", [False, True])
async def test_who_waits_until_all_is_written_does_not_wait_for_more(landing: bool) -> None:
    async def script(run: Run) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_S):
            if landing:
                done = asyncio.get_running_loop().create_future()
                run.landing(done)
                await done
            else:
                await run.written()

    async with house(Scripted(script, speaks_soon=True)) as h:
        assert (await h.send()).state is S.COMPLETED
        assert written(h) == [[S.WORKING], [S.COMPLETED]]


@pytest.mark.usefixtures("never")
async def test_a_question_and_its_answer_are_not_put_off() -> None:
    async def script(run: Run) -> None:
        await say(run, (await run.ask((Part(text="Which?"),))).text, append=False)

    async with house(Scripted(script, speaks_soon=True)) as h:
        task = await h.send()
        assert task.state is S.INPUT_REQUIRED
        answered = await h.ask(sending(parts=message("this").parts, task_id=task.head.id))
        assert answered.state is S.COMPLETED
        assert written(h)[0] == [S.WORKING, S.INPUT_REQUIRED]


@pytest.mark.usefixtures("never")
async def test_a_task_is_canceled_before_it_was_written() -> None:
    async with house(Scripted(silence, speaks_soon=True)) as h:
        task_id = await h.begin()
        assert (await h.cancel(task_id)).state is S.CANCELED
        assert [state for states_ in written(h) for state in states_] == [S.WORKING, S.CANCELED]
