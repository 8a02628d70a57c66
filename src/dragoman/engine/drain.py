"""Drain: the end of all work of this process, within a time.

Invariant: when it is over, no run of this process writes anything any more. What it leaves behind is in the store, and
is taken up by other replicas or at the next start.
"""

import asyncio
import logging
from contextlib import suppress

from dragoman.engine.ends import INTERRUPTED_TEXT
from dragoman.engine.runs.run import TaskRun
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.model.task import TaskState
from dragoman.store.api import Refused, StoreError

log = logging.getLogger("dragoman.runs")

LEAVE_S = 1.0
"""How long the end of a drain waits for canceled agents, and tries to write the ends of their tasks. It is half of the
time that the server keeps of its grace period for closing (`server.shutdown`)."""

CANCEL_S = 0.1
"""The least time that a canceled agent has before it counts as one that does not stop."""


async def drain(supervisor: Supervisor, tasks: Tasks, grace_s: float) -> None:
    """Let runs end within `grace_s`, then stop them. Suspended runs are dropped; their answers will be replayed.

    Streams end at once, with the hint to come back. Callers that wait for a task wait until the runs are over. Runs of
    restartable agents run again at the next start. The others fail now, with reason `interrupted`.
    """
    stopping, errands, loop = supervisor.stopping, supervisor.errands, supervisor.loop
    stopping.begin()
    supervisor.leases.close()
    for task in tasks.all():
        task.followers.wake()
    for run in supervisor.runs:
        if run.suspended:
            run.abandon()
    deadline = loop.time() + grace_s
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await errands.finish()
    errands.close()
    until = loop.time() + LEAVE_S
    await asyncio.gather(*(_cut_off(supervisor, run) for run in supervisor.runs))
    for work in tuple(errands.active):
        work.cancel()
    if errands.active:
        left_s = max(CANCEL_S, until - loop.time())
        _, left = await asyncio.wait(tuple(errands.active), timeout=left_s)
        if left:
            log.warning("%d runs ignored their cancellation: they are left behind", len(left))
    stopping.end()
    for task in tasks.all():
        task.followers.wake()


async def _cut_off(supervisor: Supervisor, run: TaskRun) -> None:
    """Stop a run that is not over in time. Its task fails, unless it goes on later."""
    task = run.log
    if task.terminal:
        return
    suspended = run.suspended
    run.abandon()
    if suspended or run.runner.traits.restartable:
        return
    try:
        async with asyncio.timeout(LEAVE_S):
            async with task.writes.turn(task):  # a step that is being written comes first
                continues = task.fold.steps > 0
            if not continues:
                await supervisor.ends.end(task, TaskState.FAILED, INTERRUPTED_TEXT, "interrupted", epoch=run.lease)
    except (StoreError, Refused, TimeoutError) as error:
        reason = str(error) or f"its end was not written within {LEAVE_S:g} s"
        log.warning("task %s stays as it is until the next start: %s", task.head.id, reason)
