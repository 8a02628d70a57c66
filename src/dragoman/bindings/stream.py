"""Streams as Server-Sent Events: each event is encoded once per dialect and spliced into each subscriber's envelope.

Invariant: the memory for one reader is bounded by `SLICE_BYTES` and the transport's buffer, however slowly it reads.
All readers share the encoded bytes.
"""

import asyncio
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

from dragoman.bindings.http import SLICE_BYTES, Receive, Send, Streaming
from dragoman.bindings.telling import Telling
from dragoman.dialects import sse
from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Direct, Snapshot, Stream, StreamItem
from dragoman.model.events import Logged, seq_and_frame
from dragoman.model.task import TaskHead

KEEPALIVE = sse.comment("keepalive")
RETRY_MS = 1000
"""When the reader of a stream that a stopping server cut should reconnect: a restart takes about that long."""

TURNS = 16
"""Pieces sent in a row before the loop gets a turn: uvicorn's `send` to a client that left returns at once."""

FRAME_BYTES = 64
"""Roughly what SSE adds to a frame."""


def seen(after: str | None) -> tuple[int, int]:
    """The last event that the caller saw, and its last frame; (0, 0) if it saw none. Raises InvalidParams."""
    return (0, 0) if after is None else seq_and_frame(after)


class Encoded:
    """The JSON of a snapshot's frames. It lives as long as some stream is sending it."""

    __slots__ = ("__weakref__", "frames")

    def __init__(self, *frames: bytes) -> None:
        self.frames = frames


class Streams:
    """Sends streams. `open` is the number of open streams. Readers of the same snapshot at one time share its bytes."""

    def __init__(self) -> None:
        self.open = 0
        self._snapshots: WeakValueDictionary[tuple[str, int, str, int | None, bool], Encoded] = WeakValueDictionary()

    async def respond(self, answer: Streaming, receive: Receive, send: Send) -> None:
        """Send a stream until it ends or its reader leaves. The only task beside it waits for the reader to leave."""
        stream: Stream = answer.stream
        watcher = asyncio.create_task(_close_when_gone(stream, receive))
        self.open += 1
        try:
            if answer.dialect.folds:
                stream = Telling(stream, answer.dialect)
            await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
            turns, seen_seq, seen_frame = 0, *answer.seen
            while (batch := await stream.next()) is not None:
                for piece in self._pieces(answer, batch, seen_seq, seen_frame) if batch else (KEEPALIVE,):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    turns += 1
                    if turns >= TURNS:
                        turns = 0
                        await asyncio.sleep(0)
                if batch:
                    seen_frame = 0  # only the first event can have frames that the caller has seen
                batch, piece = (), b""  # hold no bytes while the stream is silent
            await send({"type": "http.response.body", "body": sse.retry(RETRY_MS) if stream.retry else b""})
        finally:
            self.open -= 1
            watcher.cancel()
            stream.close()

    def _pieces(
        self, answer: Streaming, batch: Sequence[StreamItem], seen_seq: int, seen_frame: int
    ) -> Iterator[bytes]:
        """Encode a batch as SSE, in pieces of at most about `SLICE_BYTES`."""
        dialect, prefix, suffix = answer.dialect, answer.prefix, answer.suffix
        head = answer.stream.head
        if seen_frame and not (isinstance(batch[0], Logged) and batch[0].seq == seen_seq):
            seen_frame = 0
        ready: list[tuple[str | None, bytes]] = []
        size = 0
        for item in batch:
            if isinstance(item, Logged):
                seq = item.seq
                frames = item.frames.get(dialect.key)
                if frames is None:
                    frames = _encode(dialect, head, item)
                held = None
            else:
                seq, held = self._encode_whole(dialect, item)
                frames = held.frames
            last = len(frames)
            for number, json in enumerate(frames, 1):
                if number <= seen_frame and number < last and seq == seen_seq:
                    continue
                event_id = None if not seq else str(seq) if number == last else f"{seq}.{number}"
                if len(json) > SLICE_BYTES:
                    if ready:
                        yield sse.frames(ready, prefix, suffix)
                        ready, size = [], 0
                    yield from _slice_frame(event_id, json, prefix, suffix)
                    continue
                ready.append((event_id, json))
                size += len(json) + len(prefix) + FRAME_BYTES
                if size >= SLICE_BYTES:
                    yield sse.frames(ready, prefix, suffix)
                    ready, size = [], 0
        if ready:
            yield sse.frames(ready, prefix, suffix)

    def _encode_whole(self, dialect: Dialect, item: Snapshot | Direct) -> tuple[int, Encoded]:
        if isinstance(item, Direct):
            return 0, Encoded(dialect.encode_message(item.message))
        record = item.record
        subscribed = item.subscribed and dialect.encode_subscription is not None
        key = (record.head.id, record.seq, dialect.key, item.history_length, subscribed)
        encoded = None if item.own else self._snapshots.get(key)
        if encoded is None:
            if subscribed and dialect.encode_subscription is not None:
                encoded = Encoded(*dialect.encode_subscription(record))
            else:
                encoded = Encoded(dialect.encode_snapshot(record, item.history_length))
            if not item.own:
                self._snapshots[key] = encoded
        return record.seq, encoded


def _encode(dialect: Dialect, head: TaskHead | None, item: Logged) -> tuple[bytes, ...]:
    assert head is not None  # a stream of events has a task
    frames = item.frames[dialect.key] = dialect.encode_event(head, item.event, None)
    return frames


def _slice_frame(event_id: str | None, json: bytes, prefix: bytes, suffix: bytes) -> Iterator[bytes]:
    """Cut a large frame into pieces without ever copying it as a whole: all readers share `json`."""
    around = sse.frames(((event_id, b""),), prefix, suffix)
    cut = len(around) - len(suffix) - len(b"\n\n")
    yield around[:cut]
    for start in range(0, len(json), SLICE_BYTES):
        yield json[start : start + SLICE_BYTES]
    yield around[cut:]


async def _close_when_gone(stream: Stream, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # discard the rest of the request's body
    stream.close()
