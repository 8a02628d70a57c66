"""LogReader: reads what other engines have written to the tasks in memory.

Invariant: it reads during a turn to write, so that no write of this engine is taken for one of another.
"""

from asyncio import Semaphore, Task, current_task, get_running_loop, shield

from dragoman.engine.log import Log, reread

REREADS_MAX = 16
"""How many tasks are compared with the store at once, so that callers find room among its connections."""


class LogReader:
    """Reads logs anew from the store."""

    def __init__(self) -> None:
        self._rereads = Semaphore(REREADS_MAX)
        self._waiting: dict[Log, Task[None]] = {}
        """The reads that wait for their turn, so that they read whatever is committed by then."""

    async def catch_up(self, log: Log) -> None:
        """Read what other engines wrote until now. Raises StoreError or Unknown.

        Those who ask while a read is under way share the next one.
        """
        reading = self._waiting.get(log)
        if reading is None:
            reading = self._waiting[log] = get_running_loop().create_task(self._refresh(log))
            reading.add_done_callback(_retrieve)
        await shield(reading)

    async def _refresh(self, log: Log) -> None:
        try:
            async with log.writes.turn(log):
                del self._waiting[log]
                await log.refresh()
        finally:
            if self._waiting.get(log) is current_task():  # it never had its turn
                del self._waiting[log]

    async def reread(self, log: Log) -> None:
        """Begin anew with what the store has, if it has lost something that the log has read.

        A run that works on the task has lost it then. Raises StoreError or Unknown.
        """
        async with log.writes.turn(log), self._rereads:
            await reread(log)


def _retrieve(done: "Task[None]") -> None:
    """Look at the error of a read, so that it is not logged when everybody who waited for it has left."""
    if not done.cancelled():
        done.exception()
