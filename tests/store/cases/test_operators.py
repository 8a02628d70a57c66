"""Store cases: what an operator changes on one of two engines.

Invariant: as in `engines`, the two share nothing but the store.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_bytes
from typing import Any

from dragoman.admin.tasks import AnswerPart, TaskAnswer
from dragoman.auth.keys import make_key
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.administration import Administration
from dragoman.engine.handler import Snapshot
from dragoman.engine.handlers.audit import Keeping, Trail
from dragoman.model.errors import TaskNotCancelable, TaskNotFound, UnsupportedOperation
from dragoman.model.events import Event, Intervened, Logged, MessageReceived, StatusChanged
from dragoman.model.task import TaskState
from tests.store.cases.bench import Bench
from tests.store.cases.engines import EngineCaller, Engines, two_engines

OPERATOR = Operator("key:ops", "203.0.113.7")


@asynccontextmanager
async def _operated(
    bench: Bench, **settings: Any
) -> AsyncIterator[tuple[Engines, EngineCaller, EngineCaller, Administration]]:
    """Two engines, a caller of each, and the administration of the second."""
    async with two_engines(bench, **settings) as (engines, one, other):
        trail = Trail(engines.store.audit, Keeping.ALL)
        try:
            mint = partial(make_key, token_bytes)
            engine = other.engine
            yield (
                engines,
                one,
                other,
                Administration(engine.operations, engine.operated, engines.store, trail, mint),
            )
        finally:
            await trail.stop()


async def _events(engines: Engines, task_id: str) -> list[Event]:
    return [logged.event for logged in await engines.log(task_id)]


async def test_an_operators_answer_resumes_the_run_of_the_other_engine(bench: Bench) -> None:
    """It goes to the run that is kept, and the log names the operator before the answer."""
    async with _operated(bench) as (engines, one, _, administration):
        task = await one.send("ask")
        answer = TaskAnswer(parts=(AnswerPart(text="blue"),), reason="ann is away")
        changed = await administration.tasks.answer(OPERATOR, task.head.id, answer)
        assert changed.id == task.head.id
        done = await one.reach(task.head.id, TaskState.COMPLETED)
        assert [part.text for artifact in done.artifacts for part in artifact.parts] == ["blue "]
        assert engines.stage.runs == 1
        events = await _events(engines, task.head.id)
        at = next(index for index, event in enumerate(events) if isinstance(event, Intervened))
        word, said = events[at : at + 2]
        assert isinstance(word, Intervened)
        assert (word.operator, word.action, word.reason) == ("key:ops", "answer", "ann is away")
        assert isinstance(said, MessageReceived)
        assert said.message.text == "blue"
        assert all("key:ops" not in message.text for message in done.history)


async def test_an_operator_answers_only_tasks_that_wait(bench: Bench) -> None:
    """A task at work gets no word, and neither does one that has ended."""
    async with _operated(bench) as (engines, one, _, administration):
        task = await one.send("wait", wait=False)
        await one.reach(task.head.id, TaskState.WORKING)  # the last word of its run until the gate opens
        approval = TaskAnswer(approve=True)
        for _ in range(2):
            before = await _events(engines, task.head.id)
            try:
                await administration.tasks.answer(OPERATOR, task.head.id, approval)
            except UnsupportedOperation:
                assert await _events(engines, task.head.id) == before
            else:
                raise AssertionError("it was answered")
            engines.stage.gate.set()
            await one.reach(task.head.id, TaskState.COMPLETED)


async def test_an_operators_cancel_is_told_in_the_log(bench: Bench) -> None:
    """The log names the operator and the reason before the end, wherever the run is. A late cancel leaves no word."""
    async with _operated(bench) as (engines, one, _, administration):
        running = await one.send("wait", wait=False)
        await engines.stage.begun.wait()
        waiting = await one.send("ask")
        for task in (running, waiting):
            changed = await administration.tasks.cancel(OPERATOR, task.head.id, "it costs too much")
            assert changed.state == "canceled"
            *_, word, end = await _events(engines, task.head.id)
            assert isinstance(word, Intervened)
            assert (word.operator, word.action, word.reason) == ("key:ops", "cancel", "it costs too much")
            assert isinstance(end, StatusChanged)
            assert end.state is TaskState.CANCELED
        ended = await one.send("count")
        before = await _events(engines, ended.head.id)
        try:
            await administration.tasks.cancel(OPERATOR, ended.head.id)
        except TaskNotCancelable:
            assert await _events(engines, ended.head.id) == before
        else:
            raise AssertionError("it was canceled")


async def test_a_task_is_deleted_at_the_other_engine(bench: Bench) -> None:
    """It is gone everywhere. A stream that has not read its end yet gets the task as it ended, and closes."""
    async with _operated(bench, keepalive_s=0.1) as (_, one, other, administration):
        task = await one.send("ask")
        behind = await one.follow(task.head.id)
        deleted = await administration.tasks.delete(OPERATOR, task.head.id, force=True)
        assert deleted.id == task.head.id
        states: list[TaskState] = []
        while (batch := await behind.next()) is not None:
            for item in batch:
                if isinstance(item, Snapshot):
                    states.append(item.record.state)
                elif isinstance(item, Logged) and isinstance(item.event, StatusChanged):
                    states.append(item.event.state)
        assert not behind.retry
        assert set(states) <= {TaskState.INPUT_REQUIRED, TaskState.CANCELED}
        for caller in (one, other):
            try:
                await caller.get(task.head.id)
            except TaskNotFound:
                continue
            raise AssertionError("it is still there")
