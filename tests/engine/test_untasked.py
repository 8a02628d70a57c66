"""A server that keeps no tasks: a stub for a send, nothing for anything else."""

import re

import pytest

from dragoman.engine.handlers.no_store import NoStore
from dragoman.model.errors import A2AError, PushNotificationNotSupported, TaskNotFound, UnsupportedOperation
from dragoman.model.ids import SystemClock
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListTasks,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
)
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import Record, TaskState

UNTASKED = NoStore(SystemClock())
HELLO = Message(message_id="m", role=Role.USER, parts=(Part(text="hello"),))


def call(operation: Operation) -> Call:
    return Call(operation=operation, principal=ANONYMOUS, agent="echo", dialect="kaos", mount="/")


async def test_a_send_is_answered_with_an_empty_task_that_is_completed() -> None:
    record = await UNTASKED.call(call(SendMessage(message=HELLO)))
    assert isinstance(record, Record)
    assert re.fullmatch(r"null_task_[0-9a-f]{8}", record.head.id)
    assert (record.state, record.artifacts, record.head.context_id) == (TaskState.COMPLETED, (), "null-session")
    assert await UNTASKED.dialect_of(record.head.id, ANONYMOUS, "echo", "/") is None


async def test_nothing_is_ever_listed() -> None:
    page = await UNTASKED.call(call(ListTasks()))
    assert isinstance(page, TaskPage)
    assert (page.records, page.total_size) == ((), 0)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (GetTask(id="t"), TaskNotFound),
        (CancelTask(id="t"), TaskNotFound),
        (CompleteTask(id="t"), TaskNotFound),
        (GetPushConfig(task_id="t"), PushNotificationNotSupported),
        (GetExtendedCard(), UnsupportedOperation),
    ],
)
async def test_anything_else_is_not_there(operation: Operation, error: type[A2AError]) -> None:
    with pytest.raises(error):
        await UNTASKED.call(call(operation))


async def test_there_is_nothing_to_follow() -> None:
    with pytest.raises(TaskNotFound):
        await UNTASKED.stream(call(Subscribe(id="t")))
    with pytest.raises(UnsupportedOperation):
        await UNTASKED.stream(call(StreamMessage(message=HELLO)))
