"""How heads, pages and snapshots are spelled in the file: MessagePack, states as small numbers.

Invariant: what is decoded equals what was encoded. JSON stands in where MessagePack cannot (integers beyond 64 bits);
the first byte tells them apart.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from dragoman.model.events import Event
from dragoman.model.message import Artifact, Message
from dragoman.model.task import Progress, Record, TaskHead, TaskState, TaskStatus, Usage

STATES = tuple(TaskState)
"""A state's number is its place here; the numbers are in files, so the order is for ever."""

TERMINAL_FROM = STATES.index(TaskState.COMPLETED)
"""The states from here on are terminal."""

T = TypeVar("T")

JSON_STARTS = b"[{"
"""No array or map of MessagePack starts with one of these."""


class Kept(Struct, frozen=True, array_like=True):
    """A record without its head, as it stands in `snapshots`."""

    seq: int
    status: TaskStatus
    artifacts: tuple[Artifact, ...]
    history: tuple[Message, ...]
    progress: Progress | None
    usage: Usage | None
    duration_ms: int | None
    open_artifacts: tuple[str, ...]
    chunked_artifacts: tuple[str, ...] = ()


LARGE_BYTES = 1 << 20
"""From here on copies of a snapshot are avoided."""


class Codec:
    """Encoders and decoders, made once."""

    def __init__(self) -> None:
        self.numbers = {state: number for number, state in enumerate(STATES)}
        self._packer = msgspec.msgpack.Encoder()
        self._heads = (msgspec.msgpack.Decoder(TaskHead), msgspec.json.Decoder(TaskHead))
        self._pages = (msgspec.msgpack.Decoder(tuple[Event, ...]), msgspec.json.Decoder(tuple[Event, ...]))
        self._snapshots = (msgspec.msgpack.Decoder(Kept), msgspec.json.Decoder(Kept))
        self._messages = (msgspec.msgpack.Decoder(Message), msgspec.json.Decoder(Message))

    def encode(self, value: TaskHead | tuple[Event, ...] | Message | Kept) -> bytes:
        """The bytes of any of them. Raises TypeError or ValueError if a value in it has no JSON form."""
        try:
            return self._packer.encode(value)
        except OverflowError:
            return msgspec.json.encode(value)

    def encode_record(self, record: Record) -> bytes | bytearray:
        """A snapshot, without its head."""
        kept = Kept(
            record.seq,
            record.status,
            record.artifacts,
            record.history,
            record.progress,
            record.usage,
            record.duration_ms,
            record.open_artifacts,
            record.chunked_artifacts,
        )
        size = sum(len(part.text or "") for artifact in record.artifacts for part in artifact.parts)
        if size < LARGE_BYTES:
            return self.encode(kept)
        roomy = bytearray(size + LARGE_BYTES // 16)  # a buffer that grew to it would be half as large again
        try:
            self._packer.encode_into(kept, roomy)
        except OverflowError:
            return self.encode(kept)
        return roomy

    def head(self, data: bytes) -> TaskHead:
        """A head again."""
        return _decode(data, *self._heads)

    def events(self, data: bytes) -> tuple[Event, ...]:
        """A page's events again."""
        return _decode(data, *self._pages)

    def message(self, data: bytes) -> Message:
        """A direct agent's answer again."""
        return _decode(data, *self._messages)

    def record(self, data: bytes, head: TaskHead) -> Record:
        """A record again."""
        kept = _decode(data, *self._snapshots)
        return Record(
            head=head,
            seq=kept.seq,
            status=kept.status,
            artifacts=kept.artifacts,
            history=kept.history,
            progress=kept.progress,
            usage=kept.usage,
            duration_ms=kept.duration_ms,
            open_artifacts=kept.open_artifacts,
            chunked_artifacts=kept.chunked_artifacts,
        )


def _decode(data: bytes, packed: msgspec.msgpack.Decoder[T], spelled: msgspec.json.Decoder[T]) -> T:
    return spelled.decode(data) if data[0] in JSON_STARTS else packed.decode(data)
