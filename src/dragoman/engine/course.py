"""The course of a run: from the first word of its agent to the commit of how it ended.

Invariant: a run never raises: whatever its agent does becomes a state of the task. How it ended is decided once; only
what cannot be written is decided anew.
"""

import asyncio
from typing import TYPE_CHECKING

from dragoman.engine.announcing import waits
from dragoman.engine.api import Ended, Reject, RunAgain
from dragoman.engine.endings import Ending, agent_error, closing, failed
from dragoman.engine.replay import ReplayMismatch
from dragoman.model.task import TaskState
from dragoman.store.api import StoreError

if TYPE_CHECKING:
    from dragoman.engine.runs import TaskRun

MISMATCH: Ending = (
    TaskState.FAILED,
    "The agent asked another question than before the restart; its recorded answers do not fit.",
    "replay_mismatch",
)
"""How a run ends that cannot be replayed (DESIGN §5)."""


async def run_to_end(run: "TaskRun") -> None:
    """Run the agent to its end, write how it ended, and wait until that is committed."""
    if run.announces and not waits(run.runner):
        run.announce()
    ended = await _kept(run, await _agents_ending(run))
    while not run.abandoned:
        now_ms = run.clock.now_ms()
        run.failure = None
        run.writer.put(closing(run.live, ended[0], now_ms, ended[1], ended[2], run.used, run.retry_after_s), now_ms)
        if (unwritten := await _committed(run)) is None:
            return
        ended, run.retry_after_s = unwritten, None


async def _committed(run: "TaskRun") -> Ending | None:
    """Wait until all is committed. A cancel does not hurry that: how the run ended is decided.

    None, or how it ended instead since it could not be written.
    """
    while True:
        try:
            await run.writer.drained()
            return run.failure
        except asyncio.CancelledError:
            if not (run.cancel_requested or run.failure) or run.abandoned:
                raise


async def _agents_ending(run: "TaskRun") -> Ending:
    """Run the agent. How its run ended, whatever it did."""
    try:
        await run.runner.run(run)
    except asyncio.CancelledError as error:
        if run.failure is not None:
            return run.failure
        if run.cancel_requested or run.abandoned:
            return TaskState.CANCELED, "", ""
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # the server is going down
        return agent_error(run.head, "canceled itself", error)
    except Reject as reject:
        return TaskState.REJECTED, str(reject), "rejected"
    except Ended as ended:
        if not run.replay.active:
            run.retry_after_s = None if run.failure else ended.retry_after_s
            return run.failure or (ended.state, ended.parts, ended.reason)
    except RunAgain:
        await run.writer.drained()
        run.again = not (run.cancel_requested or run.abandoned)
        run.abandoned = True
        run.writer.stop()
    except ReplayMismatch:
        run.failure = MISMATCH
    except GeneratorExit:
        raise  # the interpreter is going down
    except BaseException as error:  # noqa: BLE001  a user's agent may raise anything
        if run.cancel_requested and run.failure is None:
            failed(run.head, "raised as it was canceled,", error)
            return TaskState.CANCELED, "", ""
        return run.failure or agent_error(run.head, "raised", error)
    if run.replay.active and not run.abandoned:
        run.failure = MISMATCH
    return run.failure or (TaskState.COMPLETED, "", "")


async def _kept(run: "TaskRun", ended: Ending) -> Ending:
    """How the run ended, with the large files in it kept."""
    state, said, reason = ended
    if isinstance(said, str) or not run.files.large(said):
        return ended
    try:
        return state, await run.files.kept_by_run(run.head.id, said), reason
    except StoreError as error:
        return agent_error(run.head, "gave out a file that cannot be kept,", error)
    except asyncio.CancelledError:
        if run.cancel_requested or run.abandoned:
            return TaskState.CANCELED, "", ""
        raise
