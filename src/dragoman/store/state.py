"""State: what agents keep beside their tasks: memory, checkpoints, sessions, a framework's own store.

A `StateScope` is an ordered space of entries by key. Its entries end together: those of a conversation with its last
task, those of a caller with the owner.

Invariant: a write is atomic, and one that has a guard is made only while its run may write. That is decided in the
transaction of the write, so that a run that has lost its task changes nothing.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Literal, Protocol
from urllib.parse import quote

from msgspec import Struct

StateKind = Literal["memory", "checkpoint", "session", "store"]
"""The writer of the entries: `ctx.memory`, or a framework's checkpoints, its sessions, its long-term store."""

KEY_BYTES_MAX = 1024
"""The longest key, in UTF-8. PostgreSQL's index takes entries of some 2,700 bytes."""

VALUE_BYTES_MAX = 64 << 20
"""The largest value. It is in memory as a whole, several times while it is written."""

SEGMENT_CHARACTERS = 120
"""The longest text that a part of a key has as it is. Keys have up to five of them."""

LAST_KEY = "\U0010ffff"
"""All keys are less than this one."""


class StateScope(Struct, frozen=True):
    """A space of entries. `context` is empty for what all conversations of an owner share.

    `owner` is empty for what all owners share.
    """

    agent: str
    owner: str
    context: str
    kind: StateKind


class StateEntry(Struct, frozen=True):
    """A value under its key. `version` grows with each change of the entry, and is never used again in its scope.

    `expires_ms` is in milliseconds since the epoch, by the store's clock. From then on there is no such entry.
    """

    key: str
    value: bytes
    version: int
    expires_ms: int | None = None


class StatePut(Struct, frozen=True):
    """An entry to write, in place of one with the same key."""

    key: str
    value: bytes
    expires_ms: int | None = None


class StateGuard(Struct, frozen=True):
    """The right to write: `epoch` is the task's, and its run is at work, or waits for the caller.

    `token` is that of the worker's lease under which the write was told: that lease has to run, too. The scope has to
    be the task's: its agent, its owner or none, its context or none.
    """

    task_id: str
    epoch: int
    token: str | None = None


class StateWrite(Struct, frozen=True, kw_only=True):
    """Changes of one scope, made together: `prefixes` and `deletes` before `puts`.

    `prefixes` delete all entries whose keys begin so; an empty one deletes all. `if_versions` are the versions that
    entries must have, 0 if there must be none. `max_bytes` bounds the keys and values of the scope, after the write.

    `act` names the write among those of the guard's task. A write whose act the task has made already changes nothing,
    and has the result of that one. It is for writes that are told again, by a run that repeats.
    """

    scope: StateScope
    puts: tuple[StatePut, ...] = ()
    deletes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    if_versions: Mapping[str, int] = {}
    guard: StateGuard | None = None
    act: str | None = None
    max_bytes: int | None = None


class StateFigures(Struct, frozen=True):
    """How many scopes and entries of a kind there are, and how many bytes their keys and values have."""

    kind: StateKind
    scopes: int
    entries: int
    bytes: int


class StateStore(Protocol):
    """The stored state of agents. Reads never wait for writes. Every method raises StoreError if the store cannot do it
    now. Keys have at least one character and none that is NUL or U+10FFFF; others raise ValueError.
    """

    async def get_entries(self, scope: StateScope, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """Those of the entries that there are and that have not expired, by key."""
        ...

    async def list_entries(
        self,
        scope: StateScope,
        prefix: str = "",
        limit: int = 100,
        after: str | None = None,
        *,
        descending: bool = False,
    ) -> tuple[StateEntry, ...]:
        """The next entries whose keys begin with `prefix`, in the order of the code points of keys, or the reverse.

        They follow the key `after` in that order; None: from the first. `limit` are returned, or fewer if there are no
        more.
        """
        ...

    async def write_entries(self, write: StateWrite) -> int:
        """Make a write. Returns the version that its entries have got.

        Nothing is written if it raises: Fenced if the guard does not hold; StateChanged if an entry has another version
        than expected; StateFull if the scope would exceed `max_bytes`; ValueError if the scope is not the task's, or a
        key or a value is not allowed. OutcomeUnknown: it may have been made. Only a write with an `act` may then be
        repeated whatever it does.
        """
        ...

    async def count_bytes(self, scope: StateScope) -> int:
        """How many bytes the keys and values of a scope have. Those that have expired count until they are swept."""
        ...

    async def list_scopes(self, owner: str) -> tuple[StateScope, ...]:
        """All scopes of an owner, in no particular order."""
        ...

    async def end_scopes(self, owner: str) -> int:
        """Delete all scopes of an owner. Returns how many there were.

        At once there are no such entries for anybody. Their bytes go with the next calls of `sweep`.
        """
        ...

    async def count_kinds(self) -> tuple[StateFigures, ...]:
        """The figures of each kind that has scopes. The cost grows with the number of scopes."""
        ...

    async def sweep(self) -> int:
        """Delete one short batch of entries that have expired, or whose scope has ended. Returns how many rows."""
        ...


def check_key(key: str) -> None:
    """Raise ValueError, naming the fix, if `key` is not allowed."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        size = 0
    if not 0 < size <= KEY_BYTES_MAX or "\0" in key or LAST_KEY in key:
        raise ValueError(
            f"state key {key[:40]!r} is not allowed: use 1 to {KEY_BYTES_MAX} bytes of text, without NUL and U+10FFFF"
        )


def key_segment(text: str) -> str:
    """A text as a part of a key, without a slash. Texts of letters, digits and `-._~:|` keep their order; a long one
    becomes its digest."""
    written = quote(text, safe=":|")
    return written if len(written) <= SEGMENT_CHARACTERS else f"~{blake2b(text.encode(), digest_size=20).hexdigest()}"


def check_write(write: StateWrite) -> None:
    """Raise ValueError, naming the fix, if a key or a value of `write` is not allowed."""
    for put in write.puts:
        check_key(put.key)
        if len(put.value) > VALUE_BYTES_MAX:
            raise ValueError(
                f"state key {put.key!r}: use a value of at most {VALUE_BYTES_MAX} bytes, it has {len(put.value)}"
            )
    for key in (*write.deletes, *write.if_versions, *(prefix for prefix in write.prefixes if prefix)):
        check_key(key)
    if write.act is not None and write.guard is None:
        raise ValueError(f"state write {write.act!r}: an act needs the guard of its task")


def end_of_prefix(prefix: str) -> str:
    """The least text that is greater than everything that begins with `prefix`."""
    for place in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[place]) + 1
        if point < ord(LAST_KEY):
            return prefix[:place] + chr(0xE000 if 0xD800 <= point < 0xE000 else point)
    return LAST_KEY
