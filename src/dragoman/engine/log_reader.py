"""LogReader: reads what other engines have written to the tasks in memory.

Invariant: it reads during a turn to write, so that no write of this engine is taken for one of another.
"""

import logging
from asyncio import Task, current_task, get_running_loop, shield

from dragoman.engine.task_log import TaskLog, read_whole
from dragoman.model.lifecycle import fold
from dragoman.store.api import Store, Stored, Unknown

logger = logging.getLogger("dragoman.runs")


class LogReader:
    """Reads logs anew from the store."""

    __slots__ = ("_store", "_waiting")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[TaskLog, Task[None]] = {}
        """The reads that wait for their turn, so that they read whatever is committed by then."""

    async def catch_up(self, log: TaskLog) -> None:
        """Read what other engines wrote until now. Raises StoreError or Unknown.

        Those who ask while a read is under way share the next one.
        """
        reading = self._waiting.get(log)
        if reading is None:
            reading = self._waiting[log] = get_running_loop().create_task(self._refresh(log))
            reading.add_done_callback(_retrieve)
        await shield(reading)

    async def _refresh(self, log: TaskLog) -> None:
        try:
            async with log.writes.turn(log):
                del self._waiting[log]
                await log.refresh()
        finally:
            if self._waiting.get(log) is current_task():  # it never had its turn
                del self._waiting[log]

    async def reread(self, log: TaskLog) -> None:
        """Begin anew with what the store has, if it has lost something that the log has read.

        A run that works on the task has lost it then. Raises StoreError or Unknown.
        """
        async with log.writes.turn(log):
            stored = await self._store.load(log.head.id)
            if stored is None:
                log.rewind(None)
                raise Unknown(log.head.id)
            if await self._continues(log, stored):
                await log.catch_up_with(stored)
                return
            logger.error(
                "task %s: the store has lost committed events; the task goes on from %d", log.head.id, stored.seq
            )
            await log.renew_audience(stored)
            log.rewind(stored)

    async def _continues(self, log: TaskLog, stored: Stored) -> bool:
        """Whether what the store has begins with the log's prefix."""
        if stored.seq < log.seq or stored.epoch < log.row.epoch:
            return False
        if stored.epoch == log.row.epoch and stored.holder not in (None, log.holder):
            return False  # the lease that was known here is lost, and another one has its number
        if stored.seq == log.seq:
            return fold(stored.head, stored.snapshot, stored.events) == log.record()
        whole = await read_whole(log)
        return fold(log.head, None, (logged for logged in whole if logged.seq <= log.seq)) == log.record()


def _retrieve(done: "Task[None]") -> None:
    """Look at the error of a read, so that it is not logged when everybody who waited for it has left."""
    if not done.cancelled():
        done.exception()
