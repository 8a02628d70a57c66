"""What is handed to the writer: each write as a value, encoded already.

Invariant: a write holds all it needs, so that it can be tried again.
"""

from msgspec import Struct

from dragoman.store.api import Appended, Dedupe, Refused, Repeat
from dragoman.store.sqlite.files import File


class Creation(Struct, frozen=True):
    """A task to be written, encoded."""

    id: str
    owner: str
    agent: str
    context: str
    state: int
    status_ms: int
    holder: str | None
    head: bytes
    events: int
    page: bytes
    files: tuple[File, ...]
    dedupe: Dedupe | None


class Addition(Struct, frozen=True):
    """An append, encoded. `ends_lease` covers both a release and a terminal state."""

    id: str
    state: int
    status_ms: int
    epoch: int | None
    expected_seq: int | None
    holder: str | None
    ends_lease: bool
    events: int
    page: bytes
    snapshot: bytes | bytearray | None
    files: tuple[File, ...]
    dedupe: Dedupe | None


class Stop(Struct, frozen=True):
    """A request to cancel."""

    id: str


class Remembrance(Struct, frozen=True):
    """A direct agent's answer, encoded, to be kept."""

    dedupe: Dedupe
    answer: bytes


class Probe(Struct, frozen=True):
    """A write of no meaning."""


class Victim(Struct, frozen=True):
    """A task that was too old, as it was."""

    task: int
    scope: int
    context: str
    state: int
    status_ms: int
    seq: int


class Sweep(Struct, frozen=True):
    """A batch of what is too old: tasks that go whole, tasks whose log goes, calls by number."""

    whole: tuple[Victim, ...]
    logs: tuple[Victim, ...]
    calls: tuple[int, ...]
    now_ms: int


Write = Creation | Addition | Stop | Remembrance | Probe | Sweep
Outcome = Appended | Repeat | Refused | int | None
"""What became of a write; of a sweep, how many rows went."""
