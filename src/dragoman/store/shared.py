"""Shared: small values that all replicas of a store see, each with an expiry: sessions, rates, jobs, deletions.

Invariant: the store's own clock decides what has expired. An entry that has expired is gone for everybody at once.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

T = TypeVar("T")

CONSOLE_SESSIONS = "console-session:"
"""The beginning of the keys of the console's sessions, whose values name their principals in JSON."""


class SharedEntry(Struct, frozen=True):
    """A value under its key. `version` grows with each change of the value; `left_ms` is how long it stays."""

    key: str
    value: bytes
    version: int
    left_ms: int


class Spending(Struct, frozen=True):
    """Use of a bucket that refills with time: `cost_us` is how many microseconds it takes to refill."""

    key: str
    cost_us: int


class Shared(Protocol):
    """Entries by key, beside the tasks. A key is short text; whoever writes it begins it with a word of its own.

    Every method raises StoreError if the store cannot do it now. If the connection was lost meanwhile, the change may
    have been made nevertheless.
    """

    async def get(self, key: str) -> SharedEntry | None:
        """The entry, unless there is none or it has expired."""
        ...

    async def scan(self, prefix: str) -> tuple[SharedEntry, ...]:
        """The entries whose keys begin with `prefix`, by key."""
        ...

    async def put(self, key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
        """Write an entry that expires after `ttl_ms`, and return its version.

        With `version` it is written only if the present one has that version, with 0 only if there is none. Otherwise
        nothing is written, and the result is None.
        """
        ...

    async def renew(self, keys: Collection[str], ttl_ms: int) -> frozenset[str]:
        """Let entries expire `ttl_ms` from now at the earliest. Returns the keys of those that have not expired yet."""
        ...

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        """Delete an entry, with `version` only that version. Returns whether there was one."""
        ...

    async def spend(self, spendings: Sequence[Spending]) -> tuple[int, ...]:
        """Use buckets, one spending a key. Returns in how many microseconds each is full again.

        A bucket that nobody has used is full. Nothing bounds the use: a bucket may be in debt.
        """
        ...

    async def tally(self, counter: str, counts: Mapping[str, int], ttl_ms: int) -> Mapping[str, int]:
        """Set the counts of `counter` under each key, for `ttl_ms`. Returns the sums of the other counters.

        A count of 0 takes no room.
        """
        ...

    async def sweep(self) -> int:
        """Delete one short batch of expired entries. Returns how many."""
        ...


def decode_entry(entry: SharedEntry, kind: type[T]) -> T | None:
    """The value of an entry in MessagePack; None if its bytes are damaged, which costs that entry alone."""
    try:
        return msgspec.msgpack.decode(entry.value, type=kind)
    except msgspec.MsgspecError as error:
        log.warning("the entry %s of the store cannot be read: %s", entry.key, error, extra=about(entry.key))
        return None
