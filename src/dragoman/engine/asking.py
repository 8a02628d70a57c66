"""Questions of a run to its caller, its agent's own and those of tasks that it delegated.

Invariant: one question of a run is open at a time, and nothing that the run says comes between it and its answer.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.engine.endings import agent_message
from dragoman.engine.live import LiveTask
from dragoman.model.events import StatusChanged
from dragoman.model.ids import timestamp
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, TaskState

if TYPE_CHECKING:
    from dragoman.engine.runs import TaskRun


async def ask(run: "TaskRun", parts: Sequence[Part], *, auth: bool = False) -> Message:
    """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
    run.check()
    if run.replay.answers:
        return run.replay.answer(parts)
    parts = await run.kept(parts)
    while True:
        if run.awaited_answer is not None:
            await answered(run)
        elif run.replay.late:
            return run.replay.late.popleft()
        elif run.live.in_flight > run.writer.in_flight:  # a message that comes before the question answers it
            await run.live.wait(asyncio.get_running_loop())
            run.check()
        else:
            answer = await _asked(run, agent_message(run.live, parts), auth=auth)
            assert answer is not None  # only of what was passed on nothing may be wanted any more
            return answer


async def pass_on(run: "TaskRun", child: LiveTask, parts: Sequence[Part], *, auth: bool) -> Message | None:
    """Ask the caller what a delegated task asks. The question refers to that task, so that a replay knows it.

    None if the task does not wait for an answer any more.
    """
    run.check()
    parts = await run.kept(parts)
    while run.awaited_answer is not None:
        await answered(run)
    if child.state not in INTERRUPTED:
        return None
    question = replace(agent_message(run.live, parts), reference_task_ids=(child.head.id,))
    return await _asked(run, question, auth=auth)


async def _asked(run: "TaskRun", asked: Message, *, auth: bool) -> Message | None:
    """Put a question while none is open, and wait for its answer."""
    loop = asyncio.get_running_loop()
    state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
    now_ms = run.clock.now_ms()
    question = StatusChanged(state, timestamp(now_ms), message=asked, usage=run.used)
    run.writer.put(question, now_ms)
    answer: asyncio.Future[Message | None] = loop.create_future()
    run.awaited_answer = answer
    expiry: asyncio.TimerHandle | None = None
    try:
        await run.writer.drained()
        if run.leaving and not answer.done():
            run.abandon()
        expiry = loop.call_later(run.suspend_max_s, _expire, run)
        return await answer
    finally:
        if expiry is not None:
            expiry.cancel()
        run.awaited_answer = None


async def answered(run: "TaskRun") -> None:
    """Wait while a question is open: nothing of this run comes between it and its answer."""
    while run.awaited_answer is not None:
        await asyncio.wait((run.awaited_answer,))
        await asyncio.sleep(0)
        run.check()


def _expire(run: "TaskRun") -> None:
    if run.suspended:
        run.abandon()
