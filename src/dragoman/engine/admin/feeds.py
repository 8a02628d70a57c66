"""Feeds: what the streams of operators carry, and the log of one task as such a stream.

Invariant: an item of a feed is encoded once, however many read it.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from dragoman.admin.logs import LogEnded, LogPruned
from dragoman.admin.tasks import StateWord, state_word
from dragoman.engine.admin.playback import timeline_entry
from dragoman.engine.handler import OpenStream, Snapshot
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.model.events import Logged
from dragoman.model.task import TERMINAL, TaskState
from dragoman.store.api import Store


class FeedItem(Struct, frozen=True, eq=False):
    """An item of a feed: the name of its event, its data, and the position from which its reader may go on, if any.

    The first feed that encodes it keeps the bytes in `encoded` for the others.
    """

    name: str
    data: Struct
    position: str = ""
    encoded: list[bytes] = field(default_factory=list)


class LogFeed:
    """The events of one task, as `TimelineEntry`: those it has, then those to come, until it ends."""

    def __init__(self, stream: OpenStream, ended: TaskState | None) -> None:
        """`ended` is the state of a task that had ended before."""
        self._stream = stream
        self._state = None if ended is None else state_word(ended)
        self._over = False

    @property
    def retry(self) -> bool:
        """As `bindings.streams.Batches` says."""
        return self._stream.retry

    async def next(self, wait_s: float | None = None) -> Sequence[FeedItem] | None:
        """As `bindings.streams.Batches` says."""
        if self._over:
            return None
        batch = await self._stream.next(wait_s)
        if batch is None:
            self._over = True
            return None if self._stream.retry else (FeedItem("end", LogEnded(self._state)),)
        items: list[FeedItem] = []
        for item in batch:
            if isinstance(item, Logged):
                entry = timeline_entry(item)
                self._note(item.terminal, entry.state)
                items.append(FeedItem("event", entry, str(item.seq)))
            elif isinstance(item, Snapshot):
                state = state_word(item.record.state)
                self._note(item.record.terminal, state)
                items.append(FeedItem("pruned", LogPruned(item.record.seq, state), str(item.record.seq)))
        return items

    def close(self) -> None:
        """As `bindings.streams.Batches` says."""
        self._stream.close()

    def _note(self, terminal: bool, state: StateWord | None) -> None:
        if terminal:
            self._state = state


async def follow_log(store: Store, operated: OperatedTasks, task_id: str, after: str) -> LogFeed:
    """The events of a task after the id `after`, and those to come. Raises A2AError or StoreError."""
    known = await store.head(task_id)
    return LogFeed(
        await operated.follow(task_id, after), known[2] if known is not None and known[2] in TERMINAL else None
    )
