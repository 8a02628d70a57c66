"""Codec: encodes heads, pages and snapshots for the tables, as MessagePack with states as small numbers.

Invariant: decoding returns the value that was encoded. JSON replaces MessagePack where that cannot encode a value
(integers beyond 64 bits); the first byte tells them apart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.message import Artifact, Message
from dragoman.model.parts import beginning
from dragoman.model.task import STATES, Progress, Record, TaskHead, TaskState, TaskStatus, Usage
from dragoman.store.api import Repeat
from dragoman.store.budgets import Charge, charge_task

TERMINAL_FROM = STATES.index(TaskState.COMPLETED)
"""A state's number is its index in STATES. The states from this number on are terminal."""

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)


class Decoder(Protocol[Result]):
    """Makes a value of bytes."""

    def decode(self, data: bytes, /) -> Result:
        """The value. Raises ValueError or MsgspecError for bytes that are none."""
        ...


class DamagedRow(Exception):
    """The bytes of a row are no value that this program knows: they are damaged, or parts of the row are missing."""


UNDECODABLE = (msgspec.MsgspecError, ValueError, IndexError, RecursionError)
"""The errors of decoders for bytes that are none of their values. Text that is no UTF-8 is a ValueError."""

JSON_STARTS = b"[{"
"""No array or map of MessagePack starts with one of these."""


class Kept(Struct, frozen=True, array_like=True):
    """A record without its head, as the table `snapshots` holds it.

    New fields go to the end and have a default, because the file may hold rows of an earlier program. `note` is `UNSET`
    in a snapshot that was written before the field existed: then only the log has the note.
    """

    seq: int
    status: TaskStatus
    artifacts: tuple[Artifact, ...]
    history: tuple[Message, ...]
    progress: Progress | None
    usage: Usage | None
    duration_ms: int | None
    open_artifacts: tuple[str, ...]
    chunked_artifacts: tuple[str, ...] = ()
    note: dict[str, str] | UnsetType | None = UNSET
    unreadable: bool = False
    wakes_on_message: bool = False
    steps: int = 0
    revised: bool = False
    waited_ms: int = 0


class SkippedChunk(Struct, frozen=True, array_like=True, tag="a", gc=False):
    """A chunk of an artifact of which nothing was decoded."""


EventAround = (
    Submitted | MessageReceived | StatusChanged | SkippedChunk | Delegated | Noted | StepBegun | Stepped | Intervened
)
"""An event of a page that was decoded without artifacts."""

Page = tuple[int, int, Sequence[EventAround | ArtifactChunk]]
"""A decoded page: the seq of its first event, the mean size of its events in bytes, and the events."""

NO_EVENTS = "a page has no events"

NOTE_MARKS = (b"\x92\xa1n", b'["n",')
"""How a `Noted` event begins in a page: in MessagePack, and in JSON. Other content may hold the same bytes."""

LARGE_BYTES = 1 << 20
"""From this size on, copies of a snapshot are avoided."""


def check_state(number: int) -> None:
    """Raises Unreadable if no state has this number."""
    if not 0 <= number < len(STATES):
        raise DamagedRow(f"its state has the number {number}")


class Codec:
    """Encoders and decoders, made once. A decoder raises Unreadable and nothing else."""

    def __init__(self) -> None:
        self.numbers = {state: number for number, state in enumerate(STATES)}
        self._packer = msgspec.msgpack.Encoder()
        self._heads = _decoders(TaskHead)
        self._pages = _decoders(tuple[Event, ...])
        self._pages_around = _decoders(tuple[EventAround, ...])
        self._snapshots = _decoders(Kept)
        self._messages = _decoders(Message)

    def encode(self, value: TaskHead | tuple[Event, ...] | Message | Kept) -> bytes:
        """Encode one of these. Raises TypeError or ValueError if a value in it has no JSON form."""
        try:
            return self._packer.encode(value)
        except OverflowError:
            return msgspec.json.encode(value)

    def encode_record(self, record: Record) -> bytes | bytearray:
        """Encode a snapshot, without its head."""
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
            record.note,
            record.unreadable,
            record.wakes_on_message,
            record.steps,
            record.revised,
            record.waited_ms,
        )
        size = 0
        for artifact in record.artifacts:
            for part in artifact.parts:
                size += len(part.text or "")
        if size < LARGE_BYTES:
            return self.encode(kept)
        roomy = bytearray(size + LARGE_BYTES // 16)  # a buffer that grew to it would be half as large again
        try:
            self._packer.encode_into(kept, roomy)
        except OverflowError:
            return self.encode(kept)
        return roomy

    def repeat(self, found: tuple[str | None, bytes, int, bytes | None]) -> Repeat:
        """Decode an earlier call from its row."""
        task_id, digest, seq, answer = found
        try:
            return Repeat(task_id, digest, seq, None if answer is None else self.message(answer))
        except DamagedRow:
            return Repeat(task_id, digest, seq, unreadable=True)

    def head(self, data: bytes) -> TaskHead:
        """Decode a head."""
        return _decode(data, *self._heads)

    def charges(self, head: bytes) -> tuple[Charge, ...]:
        """The charges of a task that is deleted before its end: what it has reserved, by its head.

        A head that cannot be decoded gives none: its reservations stay until the periods of their budgets end.
        """
        try:
            decoded = self.head(head)
        except DamagedRow:
            return ()
        return charge_task(decoded.reservations, decoded.agent, {})

    def events(self, data: bytes) -> tuple[Event, ...]:
        """Decode the events of a page."""
        return _some(_decode(data, *self._pages))

    def log(self, pages: Iterable[tuple[int, bytes]], after: int, until: int, *, chunks: bool = True) -> list[Page]:
        """Decode the pages of a log behind seq `after`, as far as `until`, perhaps without the chunks of artifacts.

        A page that is missing makes the log unreadable, too.
        """
        decoders: Any = self._pages if chunks else self._pages_around
        decoded: list[Page] = []
        end = after
        for first, page in pages:
            if first != end + 1:
                raise DamagedRow(f"its events {end + 1} to {first - 1} are missing")
            events: Sequence[EventAround | ArtifactChunk] = _decode(page, *decoders)
            if not events:
                raise DamagedRow(NO_EVENTS)
            decoded.append((first, len(page) // len(events), events))
            end += len(events)
        if end != until:
            raise DamagedRow(f"its events {end + 1} to {until} are missing")
        if not after and not isinstance(decoded[0][2][0], Submitted):
            raise DamagedRow("its log does not begin with a message")
        return decoded

    def text_of_page(self, data: bytes) -> str:
        """How the text of the first message begins, by the first page of a log."""
        first = first_message(self.events(data))
        return "" if first is None else beginning(first.parts)

    def text_of_record(self, data: bytes) -> str:
        """The same, by a snapshot."""
        history = _decode(data, *self._snapshots).history
        return beginning(history[0].parts) if history else ""

    def message(self, data: bytes) -> Message:
        """Decode a direct agent's answer."""
        return _decode(data, *self._messages)

    def record(self, data: bytes, head: TaskHead, logged_note: Callable[[int], dict[str, str] | None]) -> Record:
        """Decode a record. `logged_note` returns the note as of a seq, for a snapshot that was written without one."""
        kept = _decode(data, *self._snapshots)
        note = logged_note(kept.seq) if kept.note is UNSET else kept.note
        record = Record(
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
            unreadable=kept.unreadable,
            wakes_on_message=kept.wakes_on_message,
            steps=kept.steps,
            revised=kept.revised,
            waited_ms=kept.waited_ms,
        )  # of more than 15 named arguments CPython makes a dict first
        return record if note is None else replace(record, note=note)

    def note(self, pages: Iterable[bytes]) -> dict[str, str] | None:
        """The note in the pages of a log; later words replace earlier ones."""
        notes = [event.note for page in pages for event in self.events(page) if isinstance(event, Noted)]
        return {name: text for note in notes for name, text in note.items()} if notes else None


def first_message(events: Sequence[Event]) -> Message | None:
    """The message that made a task, by the first events of its log."""
    first = events[0]
    return first.message if isinstance(first, Submitted) else None


def _decoders(kind: type[T]) -> tuple[msgspec.msgpack.Decoder[T], msgspec.json.Decoder[T]]:
    return msgspec.msgpack.Decoder(kind, ext_hook=_refuse_extension), msgspec.json.Decoder(kind)


def _refuse_extension(code: int, data: memoryview) -> None:
    """Raises ValueError: no value of ours has extended types, which no JSON could show."""
    raise ValueError(f"it has a value of the extended type {code}")


def _some(events: tuple[T, ...]) -> tuple[T, ...]:
    if not events:
        raise DamagedRow(NO_EVENTS)
    return events


def _decode(data: bytes, packed: msgspec.msgpack.Decoder[T], spelled: msgspec.json.Decoder[T]) -> T:
    try:
        return spelled.decode(data) if data[0] in JSON_STARTS else packed.decode(data)
    except UNDECODABLE as error:
        raise DamagedRow(str(error)) from error


def decode(decoder: "Decoder[T]", data: bytes) -> T:
    """Decode bytes of a row. Raises Unreadable and nothing else."""
    try:
        return decoder.decode(data)
    except UNDECODABLE as error:
        raise DamagedRow(str(error)) from error
