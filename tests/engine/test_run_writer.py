"""The effects of a run on their way to the log: questions that have their answer already."""

import asyncio
from typing import cast

import pytest

from dragoman.engine.log import Log
from dragoman.engine.runs.execution import OVER
from dragoman.engine.runs.questions import Questions
from dragoman.engine.runs.run_writer import BUFFER_BYTES_MAX, RunWriter
from dragoman.model.events import Noted, StatusChanged
from dragoman.model.message import Message, Role
from dragoman.model.task import TaskState
from tests.engine.house import Fragile, message
from tests.engine.test_log_turns import AT, CLOCK, Listening, a_task, in_time, loaded, said

NOW_MS = CLOCK.ms


class Asked:
    """The questions of a run, which may have been answered already."""

    taken: Message | None = None

    def __init__(self, *, answered: bool) -> None:
        self._answered = answered

    def overtaken(self) -> bool:
        return self._answered


def writer_of(log: Log) -> RunWriter:
    return RunWriter(log, asyncio.get_running_loop(), OVER, retry_s=0.01)


def ask(writer: RunWriter, text: str = "?", *, answered: bool = False) -> bool:
    """Put a question. Returns whether the buffer is full."""
    return writer.put_question(question(text), NOW_MS, cast(Questions, Asked(answered=answered)))


def question(text: str = "?") -> StatusChanged:
    return StatusChanged(TaskState.INPUT_REQUIRED, AT, message=message(text, role=Role.AGENT))


async def test_a_note_behind_a_question_does_not_get_it_asked_that_has_its_answer() -> None:
    async with a_task() as (log, store):
        writer = writer_of(log)
        writer.put(StatusChanged(TaskState.WORKING, AT), NOW_MS)
        ask(writer, answered=True)
        writer.put(Noted({"place": "Rome"}), NOW_MS)
        await in_time(writer.drained())
        written = await store.read(log.head.id, 1, 1 << 20)
        assert [type(logged.event) for logged in written] == [StatusChanged, Noted]
        assert log.state is writer.state is TaskState.WORKING


async def test_a_question_that_is_not_asked_takes_no_room() -> None:
    async with a_task() as (log, _):
        writer = writer_of(log)
        full = ask(writer, "?" * BUFFER_BYTES_MAX, answered=True)
        await in_time(writer.drained())
        still_full = writer.put(Noted({"place": "Rome"}))
        assert (full, still_full) == (True, False)
        assert log.seq == 1


async def test_a_question_that_needs_its_answer_is_asked_with_what_was_noted() -> None:
    async with a_task() as (log, _):
        writer = writer_of(log)
        ask(writer)
        writer.put(Noted({"place": "Rome"}), NOW_MS)
        await in_time(writer.drained())
        assert (log.state, log.seq) == (TaskState.INPUT_REQUIRED, 3)


async def test_a_question_that_is_not_written_before_its_run_ends_is_left_out() -> None:
    async with a_task() as (log, store):
        writer = writer_of(log)
        writer.put(StatusChanged(TaskState.WORKING, AT), NOW_MS)
        ask(writer)
        writer.put(StatusChanged(TaskState.CANCELED, AT), NOW_MS)
        await in_time(writer.drained())
        written = [logged.event for logged in await store.read(log.head.id, 1, 1 << 20)]
        states = [event.state for event in written if isinstance(event, StatusChanged)]
        assert states == [TaskState.WORKING, TaskState.CANCELED]


@pytest.mark.parametrize("full", [False, True])
async def test_a_question_that_is_refused_while_its_run_ends_is_left_out(full: bool) -> None:
    async with a_task() as (other, store):
        fragile = Fragile(store)
        log = await loaded(other.head.id, fragile)
        writer = writer_of(log)
        if full:
            fragile.full = 1
        else:
            await other.writes.append(other, lambda _: said("meanwhile"))
        ask(writer)
        while not fragile.appends:
            await asyncio.sleep(0)
        writer.put(StatusChanged(TaskState.CANCELED, AT), NOW_MS)
        await in_time(writer.drained())
        written = [logged.event for logged in await store.read(log.head.id, 1, 1 << 20)]
        assert [event.state for event in written if isinstance(event, StatusChanged)] == [TaskState.CANCELED]


async def test_a_run_that_is_lost_while_its_write_is_being_refused_writes_nothing_more() -> None:
    async with a_task() as (log, store):
        writer = writer_of(log)
        other = await loaded(log.head.id, store)
        await other.writes.append(other, lambda _: said("meanwhile"))
        # It is lost when it learns why it was refused.
        log.followers.attach(Listening(lambda *_: writer.stop(), lambda: bool(writer.stop())))
        ask(writer)
        await in_time(writer.drained())
        await in_time(log.writes.append(log, lambda _: None))
        assert (writer.pending, log.state) == ([], TaskState.SUBMITTED)
        assert len(await store.read(log.head.id, 0, 1 << 20)) == 2
