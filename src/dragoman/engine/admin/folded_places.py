"""Folded places: tasks as they stood at some places of their logs, for operators who look at long ones.

Invariant: it only reads. What is remembered has a bound, and is never wrong, because events never change.
"""

import asyncio
from collections import OrderedDict

from dragoman.engine.admin.inspection import LOG_BYTES
from dragoman.engine.admin.playback import Linked
from dragoman.model.events import Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.task import Record, TaskHead
from dragoman.store.api import Store

PLACES_MAX = 32
PLACES_BYTES_MAX = 16 << 20
"""Most places in logs that are remembered with the task folded up to them, and most stored bytes of their logs."""


class FoldedPlaces:
    """Tasks as they stood at the places that were read last, so that what follows goes on from there."""

    def __init__(self, store: Store, linked: Linked) -> None:
        self._store = store
        self._linked = linked
        self._records: OrderedDict[tuple[str, int], tuple[Record, int]] = OrderedDict()
        """Each with the number of stored bytes that were folded."""
        self._bytes = 0

    async def reach(self, head: TaskHead, after: int) -> tuple[Fold, int]:
        """The fold of a task up to seq `after`, and the bytes folded so far. It is remembered.

        Nothing is folded of a pruned log whose first events are gone. Raises StoreError.
        """
        fold, folded = self.find(head, after)
        last = fold.seq
        while last < after and (page := await self._store.read(head.id, last, LOG_BYTES)):
            for stored in page:
                last = stored.seq
                if last > after:
                    break
                if fold.seq or isinstance(stored.event, Submitted):
                    fold.add(last, self._linked(stored.event))
                    folded += stored.size
            await asyncio.sleep(0)  # a long log must not keep others waiting
        self.keep(fold, folded)
        return fold, folded

    def find(self, head: TaskHead, after: int) -> tuple[Fold, int]:
        """The fold of a task at the last known place that is not behind `after`, and the bytes folded so far."""
        known = max((seq for task_id, seq in self._records if task_id == head.id and seq <= after), default=0)
        if not known:
            return Fold(head), 0
        self._records.move_to_end((head.id, known))
        record, size = self._records[head.id, known]
        return Fold(head, record), size

    def keep(self, fold: Fold, size: int) -> None:
        """Remember this place. A task with more bytes than all places may have is read from its beginning."""
        if not fold.seq or size > PLACES_BYTES_MAX:
            return
        record = fold.record()
        place = record.head.id, record.seq
        _, known = self._records.pop(place, (record, 0))
        self._records[place] = record, size
        self._bytes += size - known
        while len(self._records) > PLACES_MAX or self._bytes > PLACES_BYTES_MAX:
            _, (_, dropped) = self._records.popitem(last=False)
            self._bytes -= dropped
