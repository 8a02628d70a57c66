"""LocalTaskManager over the real engine and store: states, sessions, cancel, waiting, room, and a clean end."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Reject
from dragoman.kaos import LocalTaskManager, Task, TaskManager, TaskState
from tests.kit.threads import running_threads
from tests.kit.waiting import no_hang


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No thread and no asyncio task survives a test's managers."""
    threads = running_threads()
    async with no_hang():
        yield
    assert {task for task in asyncio.all_tasks() if task.get_name() == "kaos tasks"} == set()
    assert running_threads() <= threads


class Gate:
    """A function that waits until it is let go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.free = asyncio.Event()
        self.canceled = False

    async def __call__(self, text: str) -> str:
        self.entered.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.canceled = True
            raise
        return text.upper()


async def shout(text: str) -> str:
    return text.upper()


async def test_a_message_becomes_a_completed_task() -> None:
    async with LocalTaskManager(shout) as manager:
        task = await manager.send_message("hi", metadata={"a": [1]})
        assert isinstance(manager, TaskManager)
        assert task.status.state is TaskState.COMPLETED
        assert task.status.message == "Done"
        assert [(said.role, said.text) for said in task.history] == [("user", "hi"), ("agent", "HI")]
        assert (task.output, task.metadata) == ("HI", {"a": [1]})
        assert await manager.get_task(task.id) == task


async def test_a_session_is_the_callers_or_a_new_one() -> None:
    async with LocalTaskManager(shout) as manager:
        assert (await manager.send_message("hi", "s1")).session_id == "s1"
        assert (await manager.send_message("hi", context_id="s2")).session_id == "s2"
        one, two = await manager.send_message("hi"), await manager.send_message("hi")
        assert one.session_id != two.session_id
        with pytest.raises(ValueError, match="are the same thing"):
            await manager.send_message("hi", "s1", context_id="s2")


async def pair(message: str, session_id: str) -> tuple[str, int]:
    return f"{session_id}: {message}", 3


async def pieces(message: str, session_id: str = "", stream: bool = True) -> AsyncIterator[str]:
    assert stream is False
    for piece in (session_id, ": ", message):
        yield piece


def plain(text: str, session: str) -> str:
    assert threading.current_thread() is not threading.main_thread()
    return f"{session}: {text}"


@pytest.mark.parametrize("function", [pair, pieces, plain, lambda text, session: pair(text, session)])
async def test_every_kind_of_function_is_called_as_it_wants_and_its_answer_taken(function: Any) -> None:
    async with LocalTaskManager(function) as manager:
        task = await manager.send_message("hi", "s")
        assert (task.status.state, task.output, task.history[-1].text) == ("completed", "s: hi", "s: hi")


async def test_a_function_that_answers_nothing_completes_with_an_empty_answer() -> None:
    async def silent(text: str) -> None:
        return None

    async with LocalTaskManager(silent) as manager:
        task = await manager.send_message("hi")
        assert (task.status.state, task.output, len(task.history)) == ("completed", "", 1)


async def test_a_function_that_raises_fails_the_task_with_the_text_and_the_log_has_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(text: str) -> str:
        raise ValueError("no such model")

    async with LocalTaskManager(broken) as manager:
        with caplog.at_level(logging.ERROR):
            task = await manager.send_message("hi")
        assert (task.status.state, task.status.message) == (TaskState.FAILED, "no such model")
        assert [said.role for said in task.history] == ["user"]
        assert task.id in caplog.text


async def test_an_exception_without_a_text_is_named() -> None:
    async def broken(text: str) -> str:
        raise KeyError

    async with LocalTaskManager(broken) as manager:
        assert (await manager.send_message("hi")).status.message == "KeyError"


async def test_a_rejection_is_a_failure_with_its_reason() -> None:
    async def choosy(text: str) -> str:
        raise Reject("Not today")

    async with LocalTaskManager(choosy) as manager:
        assert (await manager.send_message("hi")).status.message == "Not today"


async def test_a_function_that_gives_no_text_fails_naming_what_was_expected() -> None:
    async with LocalTaskManager(lambda text: 42) as manager:
        task = await manager.send_message("hi")
        assert task.status.state == "failed"
        assert "gave int, expected text" in (task.status.message or "")


@pytest.mark.parametrize("function", [lambda: "x", lambda text, session, more: "x", "text", lambda *, text: "x"])
async def test_a_function_that_cannot_be_called_with_a_text_is_refused_at_once(function: Any) -> None:
    with pytest.raises(TypeError, match="process_fn"):
        LocalTaskManager(function)


async def test_a_task_is_there_while_it_works_and_can_be_waited_for() -> None:
    gate = Gate()
    async with LocalTaskManager(gate) as manager, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(manager.send_message("hi", "s"))
        await gate.entered.wait()
        (task_id,) = [task.id for task in await manager.unfinished()]
        early = await manager.wait_for_completion(task_id, timeout=0.01)
        while early is not None and early.status.state == "submitted":
            early = await manager.wait_for_completion(task_id, timeout=0.01)
        assert early is not None
        assert (early.status.state, early.status.message) == ("working", "Processing")
        assert await manager.get_task(task_id) == early
        waiting = tasks.create_task(manager.wait_for_completion(task_id))
        gate.free.set()
        assert await waiting == await sending
        assert (await manager.wait_for_completion(task_id)) == await sending


async def test_cancel_stops_the_function_and_whoever_waits_gets_the_canceled_task() -> None:
    gate = Gate()
    async with LocalTaskManager(gate) as manager, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(manager.send_message("hi"))
        await gate.entered.wait()
        (task_id,) = [task.id for task in await manager.unfinished()]
        canceled = await manager.cancel_task(task_id)
        assert canceled is not None
        assert (canceled.status.state, canceled.status.message) == ("canceled", "Canceled by request")
        assert gate.canceled
        assert await sending == canceled
        assert await manager.unfinished() == []


async def test_cancel_of_a_task_that_has_ended_changes_nothing() -> None:
    async with LocalTaskManager(shout) as manager:
        task = await manager.send_message("hi")
        assert await manager.cancel_task(task.id) == task


async def test_a_caller_that_leaves_does_not_stop_the_task() -> None:
    gate = Gate()
    async with LocalTaskManager(gate) as manager:
        sending = asyncio.create_task(manager.send_message("hi"))
        await gate.entered.wait()
        sending.cancel()
        await asyncio.wait((sending,))
        (task_id,) = [task.id for task in await manager.unfinished()]
        gate.free.set()
        task = await manager.wait_for_completion(task_id)
        assert task is not None
        assert task.output == "HI"


async def test_a_task_that_is_not_there_is_none() -> None:
    async with LocalTaskManager(shout) as manager:
        for _ in range(2):  # before the first message, and after it
            assert await manager.get_task("nope") is None
            assert await manager.unfinished() == []
            assert await manager.cancel_task("nope") is None
            assert await manager.wait_for_completion("nope", timeout=0.01) is None
            await manager.send_message("hi")


async def test_no_more_tasks_are_kept_than_allowed_and_the_newest_are() -> None:
    async with LocalTaskManager(shout, max_tasks=10) as manager:
        tasks = [await manager.send_message(str(number)) for number in range(30)]
        kept = [task for task in tasks if await manager.get_task(task.id) is not None]
        assert 1 <= len(kept) <= 10
        assert kept == tasks[-len(kept) :]


@pytest.mark.parametrize("number", [0, 10_001])
async def test_how_many_tasks_are_kept_has_bounds(number: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 10000"):
        LocalTaskManager(shout, number)


async def test_many_messages_at_once_are_worked_on_at_once() -> None:
    together = asyncio.Barrier(20)

    async def meet(text: str) -> str:
        await together.wait()
        return text

    async with LocalTaskManager(meet) as manager:
        tasks = await asyncio.gather(*(manager.send_message(str(number)) for number in range(20)))
        assert [task.output for task in tasks] == [str(number) for number in range(20)]


async def test_shutdown_cancels_what_runs_and_may_be_called_again() -> None:
    gate = Gate()
    manager = LocalTaskManager(gate)
    sending = asyncio.create_task(manager.send_message("hi"))
    await gate.entered.wait()
    await asyncio.gather(manager.shutdown(), manager.shutdown())
    await manager.shutdown()
    assert gate.canceled
    task: Task = await sending
    assert task.status.state == "canceled"
    with pytest.raises(RuntimeError, match="has been shut down"):
        await manager.send_message("hi")


async def test_shutdown_of_a_manager_that_never_ran_does_nothing() -> None:
    await LocalTaskManager(shout).shutdown()


@pytest.mark.parametrize("metadata", [{"a": object()}, {"a": {1, object()}}])
async def test_metadata_without_a_json_form_is_refused(metadata: dict[str, Any]) -> None:
    async with LocalTaskManager(shout) as manager:
        with pytest.raises(TypeError):
            await manager.send_message("hi", metadata=metadata)


async def test_a_message_that_is_no_text_is_refused() -> None:
    async with LocalTaskManager(shout) as manager:
        with pytest.raises(TypeError, match="a message is text, not bytes"):
            await manager.send_message(b"hi")  # type: ignore[arg-type]
