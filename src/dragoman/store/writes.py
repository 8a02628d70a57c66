"""Writes: new tasks and appends, encoded, which each driver turns into its own statements.

Invariant: a write holds everything it needs, so that it can be tried again.
"""

from msgspec import Struct

from dragoman.store.api import Append, Dedupe, NewTask
from dragoman.store.codec import TERMINAL_FROM
from dragoman.store.files import File
from dragoman.store.outbox import Delivery, Registration
from dragoman.store.usage import Used
from dragoman.store.worker_leases import LeaseFault


class Creation(Struct, frozen=True):
    """A task to insert, encoded. `text` begins its first message. `files` were taken out of the `page`."""

    id: str
    new: NewTask
    state: int
    page: bytes
    head: bytes
    text: str
    files: tuple[File, ...]

    @property
    def holder(self) -> str | None:
        """Who has the first lease. A task that has ended already has none, whatever its epoch."""
        return None if self.state >= TERMINAL_FROM else self.new.holder

    @property
    def epoch(self) -> int:
        """The epoch of the row."""
        return int(self.new.holder is not None)

    @property
    def parent(self) -> str | None:
        """The task that has to end this one when it ends."""
        head = self.new.head
        return None if head.detached else head.parent

    @property
    def dedupe(self) -> Dedupe | None:
        """As in NewTask."""
        return self.new.dedupe

    @property
    def push(self) -> Registration | None:
        """As in NewTask."""
        return self.new.push

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """As in NewTask."""
        return self.new.deliveries

    @property
    def size(self) -> int:
        """The bytes to write, files included."""
        return len(self.page) + len(self.head) + _bytes_of(self.files)


class Addition(Struct, frozen=True):
    """An append, encoded. `files` were taken out of the `page` and the `record`, which is the snapshot.

    `expected_seq` is the append's own, or that of its snapshot. `ends_lease` covers a release and a terminal state.
    `used` is what a task that ends has used. With a `fault` the lease of its worker was not what it should be, where
    leases are kept in memory: then the append is refused, unless it was made before.
    """

    id: str
    append: Append
    state: int
    expected_seq: int | None
    ends_lease: bool
    offered_until_ms: int | None
    page: bytes
    record: bytes | bytearray | None
    files: tuple[File, ...]
    used: tuple[Used, ...]
    fault: LeaseFault | None

    @property
    def dedupe(self) -> Dedupe | None:
        """As in Append."""
        return self.append.dedupe

    @property
    def push(self) -> Registration | None:
        """As in Append."""
        return self.append.push

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """As in Append."""
        return self.append.deliveries

    @property
    def size(self) -> int:
        """The bytes to write, files included."""
        return len(self.page) + len(self.record or b"") + _bytes_of(self.files)


def _bytes_of(files: tuple[File, ...]) -> int:
    return sum(len(file.content) for file in files)
