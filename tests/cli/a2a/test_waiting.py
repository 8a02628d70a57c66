"""Waiting beside a stream that says nothing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from dragoman.cli.a2a.waiting import SILENT_S, send_and_wait, watch_silence
from dragoman.client.task_fold import TaskFold
from dragoman.model.message import Artifact, Message, Role
from dragoman.model.operations import SendMessage, StreamMessage
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from tests.virtual_time import in_virtual_time

NOW = "2026-11-20T07:00:00.000Z"
TASK = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED, timestamp=NOW))
WORKING = StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING, timestamp=NOW))


class Scene:
    """A stream that says one thing, is silent for `silent_s`, and ends; and an agent whose task ends at `ends_s`."""

    def __init__(self, *, silent_s: float, ends_s: float, doubted: bool = True) -> None:
        self.silent_s, self.ends_s, self.doubted = silent_s, ends_s, doubted
        self.looks: list[float] = []
        self.closed_s = 0.0

    async def stream(self) -> AsyncGenerator[Update, None]:
        try:
            yield WORKING
            await asyncio.sleep(self.silent_s)
            yield WORKING
        finally:
            self.closed_s = asyncio.get_running_loop().time()

    async def look(self) -> Task | None:
        now_s = asyncio.get_running_loop().time()
        self.looks.append(now_s)
        return TASK if now_s >= self.ends_s else None

    async def play(self) -> list[Update]:
        async with aclosing(watch_silence(self.stream(), lambda: self.doubted, self.look)) as updates:
            return [update async for update in updates]


@in_virtual_time
async def test_a_resumed_stream_that_says_nothing_ends_with_the_task() -> None:
    scene = Scene(silent_s=10_000, ends_s=SILENT_S + 1)
    assert await scene.play() == [WORKING, TASK]
    assert scene.looks == [SILENT_S, 2 * SILENT_S]
    assert scene.closed_s == 2 * SILENT_S


@in_virtual_time
async def test_a_stream_whose_task_goes_on_is_waited_for() -> None:
    scene = Scene(silent_s=3.5 * SILENT_S, ends_s=10_000)
    assert await scene.play() == [WORKING, WORKING]
    assert len(scene.looks) == 3


@in_virtual_time
async def test_a_stream_that_never_broke_is_trusted() -> None:
    scene = Scene(silent_s=100 * SILENT_S, ends_s=0, doubted=False)
    assert await scene.play() == [WORKING, WORKING]
    assert scene.looks == []


@in_virtual_time
async def test_whoever_leaves_closes_the_stream() -> None:
    scene = Scene(silent_s=10_000, ends_s=10_000)
    waiting = asyncio.ensure_future(scene.play())
    await asyncio.sleep(1.5 * SILENT_S)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert scene.closed_s == 1.5 * SILENT_S


@in_virtual_time
async def test_no_update_waits_for_an_agent_that_does_not_say_how_the_task_is() -> None:
    scene = Scene(silent_s=1.5 * SILENT_S, ends_s=0)
    answers = scene.look

    async def look() -> Task | None:
        await asyncio.sleep(100 * SILENT_S)
        return await answers()

    loop = asyncio.get_running_loop()
    async with aclosing(watch_silence(scene.stream(), lambda: True, look)) as updates:
        assert [(update, loop.time()) async for update in updates] == [(WORKING, 0), (WORKING, 1.5 * SILENT_S)]
    assert scene.looks == []


class Asker:
    """An agent that begins to answer a message to a task without a word about its state, and takes its time."""

    tongue = SimpleNamespace(streams=True)
    resumptions = 0

    def __init__(self) -> None:
        self.fold = TaskFold()
        self.state = TaskState.INPUT_REQUIRED

    def task_stream(self, _: StreamMessage) -> "Asker":
        return self

    async def updates(self) -> AsyncGenerator[Update, None]:
        yield ArtifactUpdate(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=()))
        await asyncio.sleep(2.5 * SILENT_S)
        self.state = TaskState.COMPLETED
        yield StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=self.state, timestamp=NOW))

    async def get(self, _: str) -> Task:
        return Task(id="t", context_id="c", status=TaskStatus(state=self.state, timestamp=NOW))


@in_virtual_time
async def test_a_message_to_a_task_does_not_end_with_the_question_that_it_answers() -> None:
    task = SimpleNamespace(task_id="", context_id="", state=None, announces=False)
    session: Any = SimpleNamespace(card=None, connection=Asker(), task=task)
    message = Message(message_id="m", role=Role.USER, parts=(), task_id="t")
    answer = await send_and_wait(session, SendMessage(message=message))
    assert isinstance(answer, Task)
    assert answer.status.state is TaskState.COMPLETED
