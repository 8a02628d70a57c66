"""Work of the engine beside a task's run may go wrong; then that task ends, and nothing else does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.engine.api import Run
from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.model.message import Part
from dragoman.model.task import Record, TaskState
from dragoman.store.api import StoreFull, Unknown
from dragoman.store.open import open_store
from dragoman.store.replicas import ReplicaEvent, StoreRewound
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import House, Scripted, StandingClock, echo, house

S = TaskState


async def script(run: Run) -> None:
    if run.message.text == "ask":
        await run.ask((Part(text="?"),))
    await echo(run)


def broken(task: Record) -> bool:
    """Whether the engine gave the task up, and says nothing of why."""
    message = task.status.message
    return (
        task.state is S.FAILED
        and message is not None
        and message.metadata == {"reason": "internal_error"}
        and message.text.startswith("The server failed (reference ")
        and "secret" not in message.text
    )


async def suspended(h: House) -> str:
    """A task that waits for its caller, and whose run has been dropped."""
    task_id = (await h.send("ask")).head.id
    while h.in_memory:
        await asyncio.sleep(0)
    return task_id


def failing(times: int, error: Exception, otherwise: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """`otherwise`, but the first calls raise."""
    left = [error] * times

    async def call(*args: Any) -> Any:
        if left:
            raise left.pop()
        return await otherwise(*args)

    return call


async def test_a_task_that_cannot_be_taken_up_fails_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async with house(Scripted(script), suspend_max_s=0.01) as h:
        task_id = await suspended(h)
        h.store.read = failing(1, RuntimeError("secret"), h.store.read)  # type: ignore[attr-defined]
        assert broken(await h.send("answer", task_id=task_id))
        assert (await h.send("go on")).state is S.COMPLETED
    assert "secret" in caplog.text
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_it_fails_also_if_the_disk_is_full_just_then() -> None:
    async with house(Scripted(script), suspend_max_s=0.01, retry_s=0) as h:
        task_id = await suspended(h)

        async def read(*args: Any) -> Any:
            h.store.full = 3
            raise RuntimeError("secret")

        h.store.read = read  # type: ignore[attr-defined]
        assert broken(await h.send("answer", task_id=task_id))


async def test_a_cancel_that_goes_wrong_is_an_error_to_its_caller_and_the_end_of_the_task() -> None:
    async def forever(run: Run) -> None:
        await asyncio.Event().wait()

    async with house(Scripted(forever)) as h:
        task_id = await h.at_work()
        h.store.request_cancel = failing(1, RuntimeError("secret"), h.store.request_cancel)  # type: ignore[assignment, method-assign]
        with pytest.raises(RuntimeError):  # the binding answers it as an internal error
            await h.cancel(task_id)
        assert broken(await h.reach(task_id, S.FAILED))


async def test_work_on_a_task_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with house(Scripted(script), suspend_max_s=0.01) as h:
        task_id, read = await suspended(h), asyncio.Event()

        async def gone(*args: Any) -> Any:
            read.set()
            raise Unknown(task_id)

        h.store.read = gone  # type: ignore[attr-defined]
        await h.send("answer", task_id=task_id, return_immediately=True)
        await read.wait()
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]


async def test_a_store_that_cannot_be_read_is_waited_for() -> None:
    async with house(Scripted(script), suspend_max_s=0.01, retry_s=0) as h:
        task_id = await suspended(h)
        h.store.read = failing(3, StoreFull("no space"), h.store.read)  # type: ignore[attr-defined]
        assert (await h.send("answer", task_id=task_id)).state is S.COMPLETED


async def test_a_server_that_goes_down_begins_nothing_that_its_store_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory:", StandingClock())
    await store.open("here")
    events: asyncio.Queue[ReplicaEvent] = asyncio.Queue()
    monkeypatch.setattr(store.replicas, "next_event", events.get)
    engine = Engine(store, {}, clock=store.clock, settings=EngineSettings(), holder="here")

    async def fail() -> None:
        raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            await engine.start(JobGroup(group))
            group.create_task(fail())
            try:
                await asyncio.Event().wait()
            finally:
                events.put_nowait(StoreRewound())
                await asyncio.sleep(0)
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    await store.close()
