"""FileLinks: the Handler that replaces large files by links in everything that callers get.

Invariant: nothing that leaves here refers to a place in the blob store. An item with a link is encoded for one caller
only.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.engine.files import Links, LinksAt
from dragoman.engine.handler import Answered, Direct, Handler, OpenStream, Snapshot, StreamItem
from dragoman.model.events import Logged
from dragoman.model.operations import Call
from dragoman.model.task import Record, TaskHead


class FileLinks:
    """A Handler: see `engine.handler.Handler`. Links start with the base URL of the call."""

    def __init__(self, handler: Handler, links: Links) -> None:
        self._handler = handler
        self.dialect_of, self.agent_of, self.look = handler.dialect_of, handler.agent_of, handler.look  # nothing to add
        self._links = links

    async def call(self, call: Call) -> Answered:
        """See `engine.handler.Handler.call`."""
        return self._links.at(call.base).answer(await self._handler.call(call))

    async def stream(self, call: Call) -> OpenStream:
        """See `engine.handler.Handler.stream`."""
        return FileLinksStream(await self._handler.stream(call), self._links.at(call.base))


class FileLinksStream:
    """A stream with links in place of large files: see `engine.handler.Stream`.

    An item without files passes through unchanged, with the encoded frames that it shares with other streams.
    """

    __slots__ = ("_links", "_stream", "base", "close", "deleted", "head", "park", "unpark", "when_closed")

    def __init__(self, stream: OpenStream, links: LinksAt) -> None:
        self.head: TaskHead | None = stream.head
        self.base: Record | None = None if stream.base is None else links.record(stream.base)
        self.close, self.when_closed = stream.close, stream.when_closed
        self.park, self.unpark, self.deleted = stream.park, stream.unpark, stream.deleted
        self._stream = stream
        self._links = links

    @property
    def retry(self) -> bool:
        """As of the stream within."""
        return self._stream.retry

    @property
    def unheard(self) -> bool:
        """As of the stream within."""
        return self._stream.unheard

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The next batch: see `engine.handler.Stream.next`."""
        batch = await self._stream.next(wait_s)
        return [self._linked(item) for item in batch] if batch else batch

    def _linked(self, item: StreamItem) -> StreamItem:
        match item:
            case Logged():
                event = self._links.event(item.event)
                return item if event is item.event else Logged(item.seq, event, item.size)
            case Snapshot():
                record = self._links.record(item.record)
                return item if record is item.record else replace(item, record=record, own=True)
            case Direct():
                return item
