"""BlobStore: the bytes of large files, beside the store of the tasks.

Invariant: bytes are durable before anything refers to them, and never change: a place consists of their task and their
digest. They are deleted with their task.
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
"""The entry that names the owner of the blob store. No task has this id."""

OTHERS = "holds the files of another store, which would be deleted here: name another folder or prefix"

PIECE_BYTES = 256 * 1024
"""How many bytes of a file are read at once."""


class BlobError(StoreError):
    """The blob store cannot do it now."""


class BlobMissing(BlobError):
    """There are no such bytes: they never existed, or were deleted with their task."""


class BlobAddress(Struct, frozen=True):
    """The address of bytes: the task that they belong to, and their digest. Spelled `task/digest`."""

    task_id: str
    digest: str

    def __str__(self) -> str:
        return f"{self.task_id}/{self.digest}"

    @classmethod
    def of(cls, task_id: str, content: bytes) -> "BlobAddress":
        """The place of `content` of a task. Takes a millisecond for each megabyte."""
        return cls(task_id, blake2b(content, digest_size=20).hexdigest())

    @classmethod
    def read(cls, spelled: str) -> "BlobAddress | None":
        """Parse a place; None if `spelled` is not one. A valid place is safe as part of a path."""
        task_id, _, digest = spelled.partition("/")
        return cls(task_id, digest) if TASK_ID.fullmatch(task_id) and DIGEST.fullmatch(digest) else None


class BlobStore(Protocol):
    """Bytes by their place. Every method raises BlobError if it fails, StoreFull if there is no space left."""

    async def open(self, owner: str = "") -> None:
        """Check that the blob store can be written, and claim it for the task store `owner`; the first one gets it.

        An empty `owner` is a task store that does not last, and claims nothing. Raises BlobError, naming the fix.
        """
        ...

    async def close(self) -> None:
        """Release what the blob store holds."""
        ...

    async def put(self, place: BlobAddress, content: bytes) -> None:
        """Store bytes. When this returns they survive a power loss. Idempotent."""
        ...

    async def get(self, place: BlobAddress) -> bytes:
        """Return all bytes. Raises BlobMissing."""
        ...

    async def size(self, place: BlobAddress) -> int:
        """How many bytes there are. Raises BlobMissing."""
        ...

    def pieces(self, place: BlobAddress, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes from `start` up to, not including, `stop`, read on demand. Raises BlobMissing."""
        ...

    async def elsewhere(self, place: BlobAddress, expires_s: float) -> str | None:
        """A URL at which anybody may read the bytes for `expires_s`, without this server; None if there is none."""
        ...

    def tasks(self, before_ms: int) -> AsyncIterator[str]:
        """The ids of tasks whose bytes here were all stored before `before_ms` (milliseconds since the epoch)."""
        ...

    async def delete(self, task_id: str) -> None:
        """Delete all bytes of a task."""
        ...
