"""BlobStore: the bytes of large files, beside the store that has the tasks.

Invariant: bytes are durable before anything refers to them, and never change after: a place is made of the task they
belong to and of a digest of them. They go with their task.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from dragoman.store.api import StoreError

TASK_ID = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{40}", re.ASCII)

OWNER = ".store"
"""Where it is written whose the bytes are. No task is called so."""

OTHERS = "holds the files of another store, which would be deleted here: name another folder or prefix"

PIECE_BYTES = 256 * 1024
"""How much of a file is read at once."""


class BlobError(StoreError):
    """The blob store cannot do it now."""


class BlobMissing(BlobError):
    """There are no such bytes: they never were, or have gone with their task."""


class Place(Struct, frozen=True):
    """Where bytes are: the task that they belong to, and their digest. Spelled `task/digest`."""

    task_id: str
    digest: str

    def __str__(self) -> str:
        return f"{self.task_id}/{self.digest}"

    @classmethod
    def of(cls, task_id: str, content: bytes) -> "Place":
        """Where `content` of a task belongs; takes a millisecond for each megabyte."""
        return cls(task_id, blake2b(content, digest_size=20).hexdigest())

    @classmethod
    def read(cls, spelled: str) -> "Place | None":
        """The place that is spelled so, None if it is none; what is one can be part of a path."""
        task_id, _, digest = spelled.partition("/")
        return cls(task_id, digest) if TASK_ID.fullmatch(task_id) and DIGEST.fullmatch(digest) else None


class BlobStore(Protocol):
    """Bytes by their place. Every method raises BlobError if it cannot, StoreFull if there is no space left."""

    async def open(self, owner: str = "") -> None:
        """Make sure that it can be written to, and is `owner`'s, a store: whoever comes first has it.

        Empty: a store that does not last, and leaves it to whoever comes next. Raises BlobError, naming the fix.
        """
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def put(self, place: Place, content: bytes) -> None:
        """Keep bytes; when this returns they survive the loss of the machine's power. Once more is the same."""
        ...

    async def get(self, place: Place) -> bytes:
        """All of them. Raises BlobMissing."""
        ...

    async def size(self, place: Place) -> int:
        """How many there are. Raises BlobMissing."""
        ...

    def pieces(self, place: Place, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to, not including, `stop`, as they are asked for. Raises BlobMissing."""
        ...

    async def elsewhere(self, place: Place, expires_s: float) -> str | None:
        """A URL at which anybody may read them for `expires_s`, without this server; None if there is no such."""
        ...

    def tasks(self, before_ms: int) -> AsyncIterator[str]:
        """The ids of tasks that have bytes here, all of them kept before that time (milliseconds since the epoch)."""
        ...

    async def delete(self, task_id: str) -> None:
        """Forget all bytes of a task."""
        ...
