"""JobGroup: the work that goes on beside the requests of a process, each piece contained.

Invariant: no exception of a job ends the process or another job, and none goes unreported. A job that fails is started
again, after a pause that grows while it keeps failing. Only its cancellation ends it, also if it fails at that.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

from msgspec import Struct

from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.jobs")

FIRST_PAUSE_S = 1.0
"""The pause after the first failure. It doubles with each further one."""

LAST_PAUSE_S = 60.0
"""The longest pause."""

SOUND_S = 60.0
"""A job that has run for so long counts as sound again. Most jobs do all of their work once in that time."""

ONCE = "work done once"
"""Stands in the counts for work that is not started again, such as a task of an agent in the group."""


class JobFailure(Struct):
    """The failures of a job since it was last sound. `until_s` is the loop's time of its next start; None: it runs."""

    kind: type[BaseException] | None = None
    """The kind that the log has told last."""
    times: int = 0
    until_s: float | None = None


class JobFailures:
    """The jobs of a process that fail, and how often each one has failed since the start."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """By job, zeros included."""
        self._failing: dict[str, JobFailure] = {}

    def begin(self, name: str) -> None:
        """Note that there is a job of this name."""
        self.counts.setdefault(name, 0)

    def fail(self, name: str, error: BaseException, now_s: float) -> float:
        """Note a failure of a job, and return the pause until its next start. The log tells of each kind once."""
        self.count(name)
        failure = self._failing.setdefault(name, JobFailure())
        told = failure.kind is type(error)
        pause_s = min(FIRST_PAUSE_S * (1 << min(failure.times, 16)), LAST_PAUSE_S)
        failure.kind, failure.times, failure.until_s = type(error), failure.times + 1, now_s + pause_s
        if not told:
            log.error(
                "the job %s failed, it is started again in %g s: %s",
                name,
                pause_s,
                type(error).__name__,
                exc_info=error,
                extra=about(name, job=name),
            )
        return pause_s

    def fail_at_end(self, name: str, error: BaseException) -> None:
        """Note that a job failed as it was stopped, so that it is not started again."""
        self.count(name)
        log.error(
            "the job %s failed as it was stopped: %s",
            name,
            type(error).__name__,
            exc_info=error,
            extra=about(name, job=name),
        )

    def count(self, name: str) -> None:
        """Count a failure."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def resume(self, name: str) -> None:
        """Note that a job that has failed is started again. It is not known yet to be sound."""
        self._failing[name].until_s = None

    def recover(self, name: str) -> None:
        """Note that a job is sound again."""
        if self._failing.pop(name, None) is not None:
            log.info("the job %s works again", name, extra=about(name, job=name))

    def end(self, name: str) -> None:
        """Note that a job has ended for good."""
        self._failing.pop(name, None)

    def stopped(self) -> frozenset[str]:
        """The jobs that have failed and are not running at present."""
        return frozenset(name for name, failure in self._failing.items() if failure.until_s is not None)

    def describe(self) -> Mapping[str, str]:
        """The jobs that were not sound lately, each with its failures and when it goes on."""
        now_s = asyncio.get_running_loop().time()
        return {name: _describe(failure, now_s) for name, failure in self._failing.items()}


def _describe(failure: JobFailure, now_s: float) -> str:
    times = "once" if failure.times == 1 else f"{failure.times} times"
    if failure.until_s is None:
        return f"failed {times}, runs again"
    return f"failed {times}, next in {max(0.0, failure.until_s - now_s):.0f} s"


class JobGroup:
    """Runs jobs in a TaskGroup, which waits for them and never sees an exception of one."""

    def __init__(self, group: asyncio.TaskGroup, failures: JobFailures | None = None) -> None:
        self._group = group
        self._failures = JobFailures() if failures is None else failures

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Do a job until it returns or is canceled, and start it again when it fails.

        `work` must be able to begin anew. `name` is a row of the server's table of jobs; where several have the same
        row, it goes on behind a colon: `upstream: partner`.
        """
        self._failures.begin(name)
        return self._group.create_task(self._keep(name, work), name=name)

    def create_task(
        self, work: Coroutine[Any, Any, None], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[None]":
        """Do something once, as `asyncio.TaskGroup.create_task`. An exception is logged and counted, and ends nothing.

        Raises RuntimeError if the group is about to end.
        """
        contained = self._contain(name or ONCE, work)
        try:
            task = self._group.create_task(contained, name=name, context=context)
        except RuntimeError:
            contained.close()
            work.close()
            raise
        task.add_done_callback(lambda _: work.close())  # a task that is canceled before its first turn never awaits it
        return task

    async def _keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop, failures = asyncio.get_running_loop(), self._failures
        sound: asyncio.TimerHandle | None = None
        try:
            while True:
                try:
                    await work()
                except (Exception, asyncio.CancelledError) as error:
                    if _is_ending():
                        if isinstance(error, asyncio.CancelledError):
                            raise
                        failures.fail_at_end(name, error)
                        raise asyncio.CancelledError from error
                    pause_s = failures.fail(name, error, loop.time())
                else:
                    return
                finally:
                    if sound is not None:
                        sound.cancel()
                await asyncio.sleep(pause_s)
                failures.resume(name)
                sound = loop.call_later(SOUND_S, failures.recover, name)
        finally:
            failures.end(name)

    async def _contain(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_ending():
                raise
            self._failures.count(ONCE)
            log.error("%s failed: %s", name, type(error).__name__, exc_info=error)


def _is_ending() -> bool:
    """Whether this task itself was canceled. A CancelledError may also come from something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
