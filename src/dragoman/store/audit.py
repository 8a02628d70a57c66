"""AuditTrail: the stored record of who did what, when, and whether it was allowed.

Invariant: an entry holds no body, no secret, and nothing that a caller wrote beyond ids.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dragoman.store.members import TeamMembers

ACTS_MAX = 2_000
"""Most administrative acts of one reading."""


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One action that was allowed or refused. `at_ms` is milliseconds since the epoch.

    `action` is an operation by its name in A2A 1.0 (`SendMessage`), an endpoint (`rpc`, `metrics`) if the request was
    refused before its operation was known, or an administrative act (`keys.create`). `reason` is the class of the error
    that refused it, empty if it was allowed. `peer` is the caller's address, without port. `subject` is the id of the
    object of an administrative act, such as a key. `key` is the id of the key that was sent, or that the session was
    begun with; empty for other credentials, and in entries from before keys were noted.
    """

    at_ms: int
    principal: str
    action: str
    agent: str = ""
    task_id: str = ""
    allowed: bool = True
    reason: str = ""
    peer: str = ""
    subject: str = ""
    key: str = ""


class AuditFilter(Struct, frozen=True, kw_only=True):
    """The entries that fit every field that is set, from `since_ms` until before `until_ms`.

    `members` selects those of a team. Entries that allowed one of the actions `without` do not fit. `action` is
    an action, or the word before the dot of administrative ones: `keys`.
    `text` is a part of any field, in whatever case of ASCII letters. No index answers it: entries are read one by one
    until the page is full, which takes 0.5 s for a million entries in SQLite and 1.5 s in PostgreSQL. An index of all
    groups of three letters would cost each audited call more than that is worth: 20 µs in SQLite (FTS5), 350 µs of the
    server's time in PostgreSQL (GIN over an array; pg_trgm is an extension that the role may not be able to create).
    """

    principal: str | None = None
    key: str | None = None
    action: str | None = None
    agent: str | None = None
    text: str | None = None
    refused: bool = False
    since_ms: int = 0
    until_ms: int | None = None
    members: TeamMembers | None = None
    without: tuple[str, ...] = ()


class AuditPage(Struct, frozen=True):
    """Entries, oldest first. `next_cursor` is where the next page begins; None if this is the last."""

    entries: tuple[AuditEntry, ...]
    next_cursor: int | None


class AuditTrail(Protocol):
    """The stored entries, in the order of their writing."""

    def write(self, entries: Sequence[AuditEntry]) -> "Future[None]":
        """Store the entries in one write, which is under way when this returns."""
        ...

    async def read(
        self,
        *,
        principal: str | None = None,
        refused_only: bool = False,
        since_ms: int = 0,
        limit: int = 100,
    ) -> tuple[AuditEntry, ...]:
        """The newest `limit` entries that match, oldest first."""
        ...

    async def page(
        self, wanted: AuditFilter, limit: int, cursor: int | None = None, *, forward: bool = False
    ) -> AuditPage:
        """The newest `limit` entries that fit and are older than those of the page before, whose cursor is given.

        With `forward` they are the oldest that are newer than those.
        """
        ...

    async def acts(self, after: int | None, members: TeamMembers | None = None) -> tuple[int, tuple[AuditEntry, ...]]:
        """Return the end of the trail, and the administrative acts after an earlier end `after`, oldest first.

        With `members` they are those of a team alone.

        If there are more than `ACTS_MAX` acts it returns the newest of them. With `after` None it returns only the end.
        """
        ...

    async def sweep(self, before_ms: int) -> int:
        """Delete one short batch of entries older than `before_ms`. Returns how many were deleted."""
        ...
