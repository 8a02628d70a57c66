"""deadline_s: a run that takes too long is stopped, and its task fails with the reason."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from dragoman.engine.api import Delegation, Run
from dragoman.model.errors import Unavailable
from dragoman.model.message import Part
from dragoman.model.operations import ListTasks
from dragoman.model.task import Record, TaskState
from tests.engine.house import Scripted, StandingClock, echo, forever, house, sending, streaming, text_of
from tests.virtual_time import Waited, in_virtual_time

S = TaskState

SHORT_S = 0.05


def overdue(record: Record, deadline_s: float = SHORT_S) -> bool:
    said = record.status.message
    assert said is not None
    assert said.metadata == {"reason": "deadline_exceeded"}
    return (record.state, said.text) == (S.FAILED, f"The agent took longer than deadline_s = {deadline_s:g}.")


@in_virtual_time
async def test_a_run_that_takes_too_long_is_stopped_and_its_task_fails(caplog: pytest.LogCaptureFixture) -> None:
    stops: list[bool] = []

    async def script(run: Run) -> None:
        try:
            await forever(run)
        finally:
            stops.append(run.canceled)

    with caplog.at_level(logging.WARNING):
        async with house(Scripted(script, deadline_s=SHORT_S), seen_as=Waited) as h:
            record = await h.send()
    assert overdue(record)
    assert text_of(record) == "begun"
    assert stops == [True], "what it has elsewhere is to stop, too"
    (line,) = [each for each in caplog.records if "deadline_s" in each.getMessage()]
    assert line.getMessage() == f"task {record.head.id}: agent agent took longer than deadline_s = 0.05: it is stopped"
    assert line.__dict__["subject"] == "agent", "many such lines about one agent become one a minute"


@in_virtual_time
async def test_a_run_in_time_is_left_alone() -> None:
    async with house(Scripted(echo, deadline_s=60), seen_as=Waited) as h:
        assert (await h.send()).state is S.COMPLETED


@pytest.mark.parametrize("how", ["ignores", "raises", "returns"])
@in_virtual_time
async def test_the_task_fails_whatever_the_agent_does_when_it_is_stopped(how: str) -> None:
    gate = asyncio.Event()

    async def script(run: Run) -> None:
        try:
            await forever(run)
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("no") from None
            while how == "ignores" and not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()

    async with house(Scripted(script, deadline_s=SHORT_S), cancel_grace_s=SHORT_S, seen_as=Waited) as h:
        assert overdue(await h.send())
        gate.set()


@in_virtual_time
async def test_the_tasks_that_it_delegated_are_canceled() -> None:
    async def parent(run: Run) -> None:
        await run.delegate(Delegation(agent="child", parts=(Part(text="hi"),)))

    async with house(Scripted(parent, deadline_s=SHORT_S), Scripted(forever, "child"), seen_as=Waited) as h:
        assert overdue(await h.send())
        (child,) = (await h.ask(ListTasks(), agent="child")).records
        assert (await h.reach(child.head.id, S.CANCELED, agent="child")).state is S.CANCELED


@in_virtual_time
async def test_the_time_in_which_it_waits_for_an_answer_does_not_count() -> None:
    async def script(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await asyncio.Event().wait()

    async with house(Scripted(script, deadline_s=SHORT_S), seen_as=Waited) as h:
        asking = await h.send()
        assert asking.state is S.INPUT_REQUIRED
        with pytest.raises(TimeoutError):  # four times the deadline passes, and nothing happens
            async with asyncio.timeout(4 * SHORT_S):
                await asyncio.Event().wait()
        assert (await h.get(asking.head.id)).state is S.INPUT_REQUIRED
        assert overdue(await h.send("yes", task_id=asking.head.id)), "the time begins anew with the answer"


@pytest.mark.parametrize(("passed_s", "state"), [(29, S.COMPLETED), (31, S.FAILED)])
@in_virtual_time
async def test_after_a_restart_it_counts_from_the_first_run(tmp_path: Path, passed_s: int, state: TaskState) -> None:
    url, clock, gate, runs = f"sqlite:///{tmp_path}/tasks.db", StandingClock(), asyncio.Event(), list[int]()

    async def script(run: Run) -> None:
        runs.append(run.epoch)
        await gate.wait()

    agent = Scripted(script, deadline_s=30, restartable=True)
    async with house(agent, url=url, clock=clock, crashes=True, seen_as=Waited) as h:
        task_id = await h.at_work()
    clock.ms += passed_s * 1000
    async with house(agent, url=url, clock=clock, seen_as=Waited) as h:
        if state is S.COMPLETED:
            gate.set()
        record = await h.reach(task_id, S.COMPLETED, S.FAILED)
    assert record.state is state
    assert state is S.COMPLETED or overdue(record, 30)


@in_virtual_time
async def test_a_run_that_became_a_task_counts_from_its_beginning() -> None:
    agent = Scripted(forever, direct="auto", direct_wait_s=60, deadline_s=SHORT_S)
    async with house(agent, seen_as=Waited) as h:
        assert overdue(await h.send())


@in_virtual_time
async def test_a_direct_answer_that_takes_too_long_is_unavailable() -> None:
    async with house(Scripted(forever, direct=True, deadline_s=SHORT_S), seen_as=Waited) as h:
        with pytest.raises(Unavailable, match=r"did not answer within 0.05 s \(deadline_s\)"):
            await h.ask(sending())


@in_virtual_time
async def test_a_cancel_comes_first() -> None:
    async with house(Scripted(forever, deadline_s=60), seen_as=Waited) as h:
        stream = await h.open(streaming())
        assert stream.head is not None
        await h.reach(stream.head.id, S.WORKING)
        assert (await h.cancel(stream.head.id)).state is S.CANCELED
        stream.close()
