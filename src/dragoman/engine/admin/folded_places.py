"""Folded places: tasks as they stood at some places of their logs, for operators who look at long ones.

Invariant: it only reads, and never a whole log at once: a page is folded before the next one is read, and only one log
of several pages is read at a time. The memory of places has a bound, and is never wrong, because events never change.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.engine.folding import fold_aside
from dragoman.model.errors import TaskNotFound
from dragoman.model.events import ArtifactChunk, Event, Logged, MessageReceived
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.parts import every_part
from dragoman.model.task import Record, TaskHead
from dragoman.store.api import Store, Stored
from dragoman.store.damage import bare_record

LOG_BYTES = 1 << 20
"""Most stored bytes that are read for one page of a log."""

PLACES_MAX = 32
PLACES_BYTES_MAX = 32 << 20
"""Most places in logs that are remembered with the task folded up to them, and about how many bytes these tasks take in
memory. A stream of 1,000 words a second reaches half of that after 20 minutes."""

PART_BYTES = 200
JSON_GROWTH = 8
"""About what a part takes in memory beside its content, and how many times the length of its JSON a value takes."""

Linked = Callable[[Event], Event]
"""Replaces bytes of an event that are in the blob store by URLs to get them from."""


def unlinked(event: Event) -> Event:
    """The event as it is, for readers that need no URLs."""
    return event


def nothing_known(task_id: str) -> Record | None:
    """No task is in memory."""
    return None


class FoldedPlaces:
    """Tasks as they stood at the places that were read last, so that what follows goes on from there."""

    def __init__(
        self, store: Store, linked: Linked = unlinked, known: Callable[[str], Record | None] = nothing_known
    ) -> None:
        """`linked` changes events before they are folded. `known` returns a task as far as it is in memory anyway; it
        may lack the newest events.
        """
        self.store = store
        self.linked = linked
        self._known = known
        self._records: OrderedDict[tuple[str, int], tuple[Record, int]] = OrderedDict()
        """Each with about how many bytes it takes in memory."""
        self._bytes = 0
        self._turn = asyncio.Lock()
        """Held by whoever reads more than a page of a log."""

    async def stand(self, stored: Stored) -> Record:
        """The task as it stands, at `stored.seq` or later. `stored` is as `Store.load_snapshot` gives it.

        If some of its events cannot be read, that is all the record says, beside its state.
        Raises TaskNotFound if it has been deleted since, or StoreError.
        """
        head, known, snapshot = stored.head, self._known(stored.head.id), stored.snapshot
        if known is not None and known.seq >= stored.seq:
            return self._link(known)
        if snapshot is not None and snapshot.unreadable:
            return snapshot
        fold = self.find(head, stored.seq)
        for record in (snapshot, known):
            if record is not None and record.seq > fold.seq:
                fold = Fold(head, self._link(record))
        fold = await self._extend(head, fold, stored.seq)
        if fold.seq < stored.seq:
            if await self.store.head(head.id) is None:
                raise TaskNotFound(head.id)
            return bare_record(head, stored.seq, stored.state, stored.status_ms)
        return fold.record()

    async def reach(self, head: TaskHead, after: int) -> Fold:
        """The fold of a task up to seq `after`. It is remembered.

        Nothing is folded of a pruned log whose first events are gone. Raises StoreError.
        """
        return await self._extend(head, self.find(head, after), after)

    def find(self, head: TaskHead, after: int) -> Fold:
        """The fold of a task at the last known place that is not behind `after`."""
        known = max((seq for task_id, seq in self._records if task_id == head.id and seq <= after), default=0)
        if not known:
            return Fold(head)
        self._records.move_to_end((head.id, known))
        return Fold(head, self._records[head.id, known][0])

    def keep(self, fold: Fold) -> None:
        """Remember this place. A task that takes more memory than all places may have is forgotten."""
        if not fold.seq:
            return
        record = fold.record()
        place = record.head.id, record.seq
        if place in self._records:
            self._records.move_to_end(place)
            return
        size = _weigh(record)
        if size > PLACES_BYTES_MAX:
            return
        self._records[place] = record, size
        self._bytes += size
        while len(self._records) > PLACES_MAX or self._bytes > PLACES_BYTES_MAX:
            _, (_, dropped) = self._records.popitem(last=False)
            self._bytes -= dropped

    async def _extend(self, head: TaskHead, fold: Fold, until: int) -> Fold:
        """Fold the log up to seq `until`. A reader that leaves ends it at the next page; how far it came is kept."""
        more = fold.seq < until
        try:
            if more and await self._fold_page(head, fold, until):
                async with self._turn:
                    fold = await self._nearest(head, fold, until)
                    more = fold.seq < until
                    while more:
                        more = await self._fold_page(head, fold, until)
                        await asyncio.sleep(0)  # a long log must not keep others waiting
        finally:
            self.keep(fold)
        return fold

    async def _nearest(self, head: TaskHead, fold: Fold, until: int) -> Fold:
        """The fold up to the last place that is known by now and not behind `until`: others may have come further."""
        known = self.find(head, until)
        if known.seq > fold.seq:
            fold = known
        stored = await self.store.load_snapshot(head.id)
        if stored is not None and stored.snapshot is not None and fold.seq < stored.snapshot.seq <= until:
            fold = Fold(head, self._link(stored.snapshot))
        return fold

    async def _fold_page(self, head: TaskHead, fold: Fold, until: int) -> bool:
        """Fold the next page. Returns whether there is more to fold."""
        page = await self.store.read(head.id, fold.seq, LOG_BYTES)
        if not page or page[0].seq != fold.seq + 1:
            return False  # the log has been pruned, or cannot be read here, or the task is deleted
        await fold_aside(len(page), lambda: self._add(fold, page, until))
        return fold.seq < until

    def _add(self, fold: Fold, page: Sequence[Logged], until: int) -> None:
        for logged in page:
            if logged.seq > until:
                break
            fold.add(logged.seq, self.linked(logged.event))

    def _link(self, record: Record) -> Record:
        """The task with links in place of large files, as its linked events would have been folded."""
        said = record.status.message
        return replace(
            record,
            artifacts=tuple([self._link_artifact(each) for each in record.artifacts]),
            history=tuple([self._link_message(each) for each in record.history]),
            status=record.status if said is None else replace(record.status, message=self._link_message(said)),
        )

    def _link_artifact(self, artifact: Artifact) -> Artifact:
        linked = self.linked(ArtifactChunk(artifact))  # links are made for events
        return linked.artifact if isinstance(linked, ArtifactChunk) else artifact

    def _link_message(self, message: Message) -> Message:
        linked = self.linked(MessageReceived(message, ""))
        return linked.message if isinstance(linked, MessageReceived) else message


def _weigh(record: Record) -> int:
    """About how many bytes a task takes in memory. Counting ends soon after `PLACES_BYTES_MAX`."""
    size = 0
    for part in every_part((), record):
        size += _weigh_part(part)
        if size > PLACES_BYTES_MAX:
            break
    return size


def _weigh_part(part: Part) -> int:
    size = PART_BYTES + sys.getsizeof(part.text) + sys.getsizeof(part.raw)
    if part.data is not UNSET:
        size += JSON_GROWTH * len(msgspec.json.encode(part.data))
    if part.metadata is not None:
        size += JSON_GROWTH * len(msgspec.json.encode(part.metadata))
    return size
