"""Errands: the asyncio tasks of an engine beside its runs, such as cancels and recovery.

Invariant: an errand that goes wrong ends its own task as failed, and nothing else. An end that cannot be written is
tried again until it is. The next start does what is left at the end of a drain.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

from dragoman.engine.effects import ClaimSoon, Effects
from dragoman.engine.ends import TaskEnds
from dragoman.engine.log import Log
from dragoman.engine.stopping import Stopping
from dragoman.engine.tasks import Tasks
from dragoman.model.task import TaskState
from dragoman.store.api import Refused, StoreError, Unknown
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")


FAIL_AGAIN_S = 1.0
"""How long after a task's end could not be written it is tried again; twice as long each time, up to `FAIL_MAX_S`."""

FAIL_MAX_S = 60.0
"""The longest time between two tries."""


class Errands:
    """The work of an engine for single tasks, and beside all of them, until it is `closed` at the end of a drain.

    `active` are the asyncio tasks of this work; the supervisor adds those of its runs, and takes them out. A store that
    cannot answer is asked again after `retry_s`.
    """

    def __init__(self, tasks: Tasks, ends: TaskEnds, effects: Effects, stopping: Stopping, *, retry_s: float) -> None:
        self.active: set[asyncio.Task[None]] = set()
        self.closed = False
        self._tasks = tasks
        self._ends = ends
        self._effects = effects
        self._stopping = stopping
        self._retry_s = retry_s
        self._group: JobGroup | None = None
        self._counts: Counter[str] = Counter()
        """How many errands there are for each task."""
        self._passed_over: set[str] = set()
        """The tasks with errands for which work is said to be offered when their last errand is done."""

    def start(self, group: JobGroup) -> None:
        """Do errands in `group` from now on."""
        self._group = group

    def close(self) -> None:
        """Begin nothing more."""
        self.closed = True

    def has(self, task_id: str) -> bool:
        """Whether there is an errand for the task."""
        return self._counts[task_id] > 0

    def has_others(self, task_id: str) -> bool:
        """Whether there is another errand for the task beside the one that asks."""
        return self._counts[task_id] > 1

    def pass_over(self, task_id: str) -> None:
        """Note that a look for offered tasks must leave this one to its errands. Ask for another look after them.

        Otherwise a task that is offered while its last run is being let go would wait until the offer runs out.
        """
        if self._counts[task_id]:
            self._passed_over.add(task_id)

    def do(self, task: Log, errand: Callable[[], Awaitable[None]]) -> None:
        """Do something for a task beside its run. At the end of a drain this does nothing; the next start recovers it.

        The task stays in memory meanwhile.
        """
        if not self.closed:
            self.do_late(task, errand)

    def do_late(self, task: Log, errand: Callable[[], Awaitable[None]]) -> None:
        """As `do`, also at the end of a drain."""
        task.pin()  # now, since the errand's caller may unpin the task before the errand starts
        asyncio_task = self._begun().create_task(self._guard(task, errand))
        self._count(task.head.id, asyncio_task)
        asyncio_task.add_done_callback(lambda _: task.unpin())

    def do_on(self, task_id: str, errand: Callable[[Log], Awaitable[None]]) -> None:
        """As `do`, for a task that is loaded first. Does nothing if there is no such task."""
        if not self.closed:
            self._count(task_id, self._begun().create_task(self._load_for(task_id, errand)))

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside all tasks, until the end of a drain. An error in it is logged."""
        if self._group is None or self.closed:
            work.close()
            return
        surviving = _survive(work)
        try:
            asyncio_task = self._group.create_task(surviving)
        except RuntimeError:  # the group ends, and the server with it
            surviving.close()
            work.close()
            return
        self.active.add(asyncio_task)
        asyncio_task.add_done_callback(self.active.discard)

    # -- tasks that fail ---------------------------------------------------------------------------------------------

    def give_up_on(self, task: Log, error: BaseException) -> None:
        """End a task on which the engine itself failed, so that it is not `working` for ever."""
        self.do_late(task, lambda: self.fail(task, *self._ends.fault(task, error)))

    async def fail(self, task: Log, text: str, epoch: int | None, again_s: float = FAIL_AGAIN_S) -> None:
        """End a task as failed, because of an error of the server. An end that cannot be written is tried again."""
        try:
            while not task.terminal:
                try:
                    await self._ends.end(task, TaskState.FAILED, text, "internal_error", epoch=epoch)
                except StoreError:
                    await asyncio.sleep(self._retry_s)
                else:
                    return
        except Refused:
            return
        except Exception:  # it would end the group, and the server with it
            if again_s == FAIL_AGAIN_S:
                log.exception("task %s: its end cannot be written: it is tried again, ever less often", task.head.id)
            loop = asyncio.get_running_loop()
            loop.call_later(again_s, self._fail_again, task.head.id, text, epoch, min(2 * again_s, FAIL_MAX_S))

    def _fail_again(self, task_id: str, text: str, epoch: int | None, again_s: float) -> None:
        """Try once more to end a task whose end could not be written, unless somebody works on it by now."""

        async def fail(task: Log) -> None:
            if epoch is not None or task.row.holder is None:
                await self.fail(task, text, epoch, again_s)

        if not self._stopping.begun:
            self.do_on(task_id, fail)

    # -- the end of all ----------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Wait until all runs and errands are over, and everything that follows from their ends."""
        while True:
            await self._effects.carried_out()
            working = [task for task in self.active if not task.done()]
            if not working:
                return
            await asyncio.wait(working)  # a run may still become a task

    def _begun(self) -> JobGroup:
        if self._group is None:
            raise RuntimeError("the engine has not been started")
        return self._group

    async def _guard(self, task: Log, errand: Callable[[], Awaitable[None]]) -> None:
        try:
            await errand()
        except Unknown:
            pass  # the task has been deleted, or the store has lost it
        except Exception as error:  # noqa: BLE001  it ends its own task, and nothing else
            if not self._ends.others_work_on(task, error):
                await self.fail(task, *self._ends.fault(task, error))

    async def _load_for(self, task_id: str, errand: Callable[[Log], Awaitable[None]]) -> None:
        while True:
            try:
                task = await self._tasks.pin_known(task_id)
            except StoreError:
                await asyncio.sleep(self._retry_s)
                continue
            except Exception:  # it would end the group, and the server with it
                log.exception("task %s cannot be read", task_id)
                return
            if task is not None:
                self.do(task, partial(errand, task))
                task.unpin()
            return

    def _count(self, task_id: str, errand: "asyncio.Task[None]") -> None:
        self.active.add(errand)
        self._counts[task_id] += 1
        errand.add_done_callback(partial(self._done, task_id))

    def _done(self, task_id: str, done: "asyncio.Task[None]") -> None:
        self.active.discard(done)
        self._counts[task_id] -= 1
        if not self._counts[task_id]:
            del self._counts[task_id]
            if task_id in self._passed_over:
                self._passed_over.discard(task_id)
                self._effects.put(ClaimSoon())


async def _survive(work: Coroutine[None, None, None]) -> None:
    """Do something. An error is logged: it would end the group, and the server with it."""
    try:
        await work
    except Exception:  # it would end the group, and the server with it
        log.exception("work beside the tasks failed")
