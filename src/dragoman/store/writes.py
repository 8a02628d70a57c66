"""Writes: new tasks and appends, encoded, which each driver turns into its own statements.

Invariant: a write holds everything it needs, so that it can be tried again.
"""

from msgspec import Struct

from dragoman.store.api import Append, NewTask
from dragoman.store.files import File
from dragoman.store.usage import Used
from dragoman.store.worker_leases import LeaseFault


class Creation(Struct, frozen=True):
    """A task to insert, encoded. `text` begins its first message, `title` is empty if none was given. `files` were
    taken out of the `page`.

    `holder` has the first lease: nobody, if the task has ended already, whatever its `epoch`.
    """

    id: str
    asked: NewTask
    state: int
    epoch: int
    holder: str | None
    page: bytes
    head: bytes
    text: str
    title: str
    files: tuple[File, ...]


class Addition(Struct, frozen=True):
    """An append, encoded. `files` were taken out of the `page` and the `record`, which is the snapshot.

    `expected_seq` is the append's own, or that of its snapshot. `ends_lease` covers a release and a terminal state.
    `used` is what a task that ends has used. With a `fault` the lease of its worker was not what it should be, where
    leases are kept in memory: then the append is refused, unless it was made before. `title` is the one that the agent
    gives with it; empty for none.
    """

    id: str
    asked: Append
    state: int
    expected_seq: int | None
    ends_lease: bool
    offered_until_ms: int | None
    page: bytes
    record: bytes | bytearray | None
    files: tuple[File, ...]
    used: tuple[Used, ...]
    fault: LeaseFault | None
    title: str
