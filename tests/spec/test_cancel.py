"""CancelTask (A2A 1.0 §3.1.5, §3.3.1)."""

import asyncio

import pytest

from tests.spec.caller import Caller
from tests.spec.conftest import House
from tests.spec.lanes import over_grpc, over_grpc_1

AT_ONCE = {"returnImmediately": True}


@pytest.mark.parametrize(("text", "state"), [("say", "completed"), ("fail", "failed"), ("reject", "rejected")])
@over_grpc
async def test_a_task_that_has_ended_otherwise_is_not_cancelable(caller: Caller, text: str, state: str) -> None:
    """§3.1.5: TaskNotCancelableError, and the task stays as it is."""
    task = (await caller.send(text)).task
    assert task.state == state
    (await caller.cancel(task.id)).refused("TaskNotCancelable")
    assert (await caller.get(task.id)).task == task


@over_grpc
async def test_canceling_again_gives_the_task_in_1_0_and_is_refused_in_0_3(caller: Caller, served: House) -> None:
    """§3.3.1: cancel is idempotent; 0.3 §8.2: a canceled task is one that cannot be canceled."""
    task_id = await served.working(caller, f"twice {caller.lane.name}")
    first = (await caller.cancel(task_id)).task
    assert first.state == "canceled"
    again = await caller.cancel(task_id)
    if caller.lane.version == "1.0":
        assert again.task == first
    else:
        again.refused("TaskNotCancelable")
    assert (await caller.get(task_id)).task == first


@over_grpc
async def test_canceling_at_the_same_time_gives_every_caller_the_same_task(caller: Caller, served: House) -> None:
    """§3.3.1: several requests have the effect of one."""
    task_id = await served.working(caller, f"together {caller.lane.name}")
    answers = await asyncio.gather(*(caller.cancel(task_id) for _ in range(5)))
    if caller.lane.version == "0.3":  # one that came when the others had done it is refused
        for late in [answer for answer in answers if answer.failed is not None]:
            late.refused("TaskNotCancelable")
        answers = [answer for answer in answers if answer.failed is None]
    assert len({str(answer.task) for answer in answers}) == 1


@pytest.mark.parametrize("text", ["ask", "login"])
@over_grpc
async def test_a_task_that_waits_for_its_caller_is_canceled(caller: Caller, text: str) -> None:
    """§3.1.5: an interrupted task is not a terminal one."""
    task = (await caller.send(text)).task
    assert (await caller.cancel(task.id)).task.state == "canceled"
    (await caller.send("late", taskId=task.id)).refused("UnsupportedOperation")


@over_grpc
async def test_an_unknown_task_is_not_found(caller: Caller) -> None:
    """§3.1.5: TaskNotFoundError."""
    (await caller.cancel("unknown")).refused("TaskNotFound")


@over_grpc
async def test_a_task_can_be_canceled_from_the_first_moment(caller: Caller) -> None:
    """The task row is written before any agent code runs."""
    for _ in range(5):
        task = (await caller.send("wait for ever", configuration=AT_ONCE)).task
        assert (await caller.cancel(task.id)).task.state == "canceled"


@over_grpc_1
async def test_a_blocking_send_and_a_stream_learn_of_the_cancel(caller: Caller, served: House) -> None:
    """§3.1.2: the stream ends with the terminal state, and so does the wait."""
    name = f"learn {caller.lane.name}"
    sending = asyncio.create_task(caller.send(f"wait {name}", contextId=name))
    await served.gates.reached[name].wait()
    (task,) = (await caller.list(contextId=name)).tasks
    async with caller.subscribe(task.id) as stream:
        await stream.next()
        await caller.cancel(task.id)
        assert (await stream.rest())[-1].state == "canceled"
    assert (await sending).task.state == "canceled"


@over_grpc
async def test_a_cancel_that_races_the_end_has_one_outcome_for_all(caller: Caller, served: House) -> None:
    """§3.1.5: whichever is written first; the loser of a race is told TaskNotCancelableError, nobody both."""
    outcomes = set()
    for number in range(12):
        name = f"race {number} {caller.lane.name}"
        task_id = await served.working(caller, name)
        async with caller.subscribe(task_id) as stream:
            await stream.next()
            if number % 2:
                served.gates.open[name].set()
                told = await caller.cancel(task_id)
            else:
                told, _ = await asyncio.gather(caller.cancel(task_id), _opened(served, name))
            ended = [frame.state for frame in await stream.rest() if frame.kind == "status"]
        state = (await caller.get(task_id)).task.state
        if told.failed is None:
            assert told.task.state == state == "canceled"
        else:
            told.refused("TaskNotCancelable")
            assert state == "completed"
        assert [each for each in ended if each in ("completed", "canceled")] == [state]
        outcomes.add(state)
    assert outcomes <= {"canceled", "completed"}


async def _opened(served: House, name: str) -> None:
    await asyncio.sleep(0)
    served.gates.open[name].set()
