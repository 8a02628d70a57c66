"""The audit trail: who did what, when, and whether it was allowed.

Invariant: an entry holds no body, no secret, and nothing that a caller wrote beyond ids.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One thing that was done, or refused. `at_ms` is milliseconds since the epoch.

    `action` is an operation by its name in A2A 1.0 (`SendMessage`), or the endpoint (`rpc`, `metrics`) where it was
    refused before that was known, or an administrative act (`keys.create`).
    `reason` is the kind of the error with which it was refused, empty if it was allowed. `peer` is the address it came
    from, without port. `subject` is the id of what an administrative act was done to, as of a key.
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


class AuditTrail(Protocol):
    """The entries that are kept, in the order of their writing."""

    def write(self, entries: Sequence[AuditEntry]) -> "Future[None]":
        """Keep them, in one write; under way when this returns."""
        ...

    async def read(
        self,
        *,
        principal: str | None = None,
        refused_only: bool = False,
        since_ms: int = 0,
        limit: int = 100,
    ) -> tuple[AuditEntry, ...]:
        """The newest `limit` entries that fit, oldest first."""
        ...

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        """Where the trail ends, and the administrative acts written behind `after`, such an end, oldest first.

        None: only where it ends.
        """
        ...

    async def sweep(self, before_ms: int) -> int:
        """Delete one short batch of entries older than that; how many went."""
        ...
