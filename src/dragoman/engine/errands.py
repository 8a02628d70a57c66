"""Errands: what the engine does for tasks beside their runs, as canceling them or taking them up again.

Invariant: an errand that goes wrong ends the task it was for, and nothing else: the engine's group goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dragoman.engine.endings import failed
from dragoman.engine.live import LiveTask
from dragoman.engine.registry import Registry
from dragoman.engine.writer import RETRY_S
from dragoman.model.task import TaskState
from dragoman.store.api import Refused, StoreError

log = logging.getLogger("dragoman.runs")

End = Callable[[LiveTask, TaskState, str, str], Awaitable[None]]
"""Writes the end of a task: its state, what is said to the caller, the reason for programs."""


class Errands:
    """The errands under way, in `active`. Each holds its task in memory until it is done."""

    def __init__(self, registry: Registry, end: End) -> None:
        self.active: set[asyncio.Task[None]] = set()
        self._registry = registry
        self._end = end
        self._group: asyncio.TaskGroup | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """From now on errands belong to `group`."""
        self._group = group

    def run(self, live: LiveTask, errand: Callable[[], Awaitable[None]]) -> None:
        """Do something for a task."""
        if self._group is None:
            raise RuntimeError("the engine has not been started")
        live.pins += 1  # before anybody else lets go of it
        task = self._group.create_task(self._guarded(live, errand))
        self.active.add(task)
        task.add_done_callback(lambda done: self._done(live, done))

    def broken(self, live: LiveTask, error: BaseException) -> None:
        """The engine itself was wrong about a task: end it, so that it is not `working` for ever."""
        self.run(live, lambda: self._give_up(live, error))

    def _done(self, live: LiveTask, done: "asyncio.Task[None]") -> None:
        self.active.discard(done)
        self._registry.unpin(live)

    async def _guarded(self, live: LiveTask, errand: Callable[[], Awaitable[None]]) -> None:
        try:
            await errand()
        except Exception as error:  # noqa: BLE001  else it would end the group, and the server with it
            await self._give_up(live, error)

    async def _give_up(self, live: LiveTask, error: BaseException) -> None:
        text = f"The server failed (reference {failed(live.head, 'met an error of the server', error)})."
        try:
            while not live.terminal:
                try:
                    await self._end(live, TaskState.FAILED, text, "internal_error")
                except StoreError:
                    await asyncio.sleep(RETRY_S)
        except Refused:
            return
        except Exception:
            log.exception("task %s stays as it is until the next start", live.head.id)
