"""The states of a tool call: who gets a result."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from dragoman.bindings.mcp.tool_call import ToolCallStream, Wanted
from dragoman.engine.handler import Snapshot, StreamItem
from dragoman.model.ids import SystemClock
from dragoman.model.task import Record, TaskHead
from tests.bindings.conftest import HEAD, RECORD


class Working:
    """The stream of a task that works until it is told to end."""

    head: TaskHead | None = HEAD
    base: Record | None = None
    retry = False

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._told = False

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        if not self._told:
            self._told = True
            return [Snapshot(replace(RECORD))]
        await self.over.wait()
        return None

    def close(self) -> None:
        self.over.set()


Act = Callable[[ToolCallStream], None]


@pytest.mark.parametrize(
    ("acts", "results"),
    [
        ([], 1),
        ([ToolCallStream.cancel], 0),
        ([ToolCallStream.cancel, ToolCallStream.refuse_cancel], 1),
        ([ToolCallStream.refuse_cancel], 1),
        ([ToolCallStream.decline], 1),
        ([ToolCallStream.close], 0),
        ([ToolCallStream.cancel, ToolCallStream.close], 0),
        ([ToolCallStream.close, ToolCallStream.refuse_cancel], 0),
        ([ToolCallStream.close, ToolCallStream.cancel, ToolCallStream.refuse_cancel], 0),
    ],
)
async def test_a_call_has_one_result_unless_its_caller_canceled_it_or_left(acts: Sequence[Act], results: int) -> None:
    ended: list[ToolCallStream] = []
    stream = Working()
    call = ToolCallStream(
        stream,
        Wanted(lambda record: b"{}"),
        SystemClock(),
        reopen=None,
        on_end=ended.append,
        until_terminal=False,
    )
    await call.next()
    for act in acts:
        act(call)
    stream.over.set()
    frames: list[bytes] = []
    while (batch := await call.next()) is not None:
        frames += batch
    assert len(frames) == results
    call.close()
    assert (ended, call.over) == ([call], True), "it ends once"
