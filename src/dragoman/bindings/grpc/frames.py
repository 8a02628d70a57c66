"""The items of a task's stream as messages for one reader.

Invariant: each event is encoded once for all readers of a dialect.
"""

from collections.abc import Callable, Iterator, Sequence

from dragoman.bindings.streams import Streams
from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Stream, StreamItem
from dragoman.model.events import Logged


class FrameEncoder:
    """Encodes the batches of a task's stream for one reader, a message for each frame.

    `seen` is (seq, frame): the reader has the frames of the event `seq` up to that number, and the stream begins with
    the rest of them. `add_event_id` adds the id of each frame, which is that of SSE; None: frames have no ids.
    """

    __slots__ = ("_add_event_id", "_dialect", "_head", "_seen", "_streams")

    def __init__(
        self,
        stream: Stream,
        dialect: Dialect,
        streams: Streams,
        seen: tuple[int, int],
        add_event_id: Callable[[bytes, str], bytes] | None = None,
    ) -> None:
        self._add_event_id = add_event_id
        self._head = stream.head
        self._dialect = dialect
        self._streams = streams
        self._seen = seen

    def frames(self, batch: Sequence[StreamItem]) -> Iterator[bytes]:
        """Encode a batch. Each event is encoded once for all readers."""
        key, (seq, number) = self._dialect.key, self._seen
        for item in batch:
            if not isinstance(item, Logged):
                stands, whole = self._streams.encode_whole(self._dialect, item)
                yield from self._with_ids(whole.frames, stands)
                continue
            frames = item.frames.get(key)
            if frames is None:
                assert self._head is not None  # a stream of events has a task
                frames = item.frames[key] = self._dialect.encode_event(self._head, item.event, None)
            marked = self._with_ids(frames, item.seq)
            if seq == item.seq and item is batch[0] and len(frames) > 1:
                marked = marked[number:]
            yield from marked
        if batch:
            self._seen = (0, 0)  # only the first event can have frames that the reader has seen

    def _with_ids(self, frames: tuple[bytes, ...], seq: int) -> Sequence[bytes]:
        """The frames with their ids, if they have any: of several the last has the seq alone (`7.1`, `7.2`, `7`)."""
        add = self._add_event_id
        if add is None or not seq:
            return frames
        last = len(frames)
        return [add(frame, str(seq) if number == last else f"{seq}.{number}") for number, frame in enumerate(frames, 1)]
