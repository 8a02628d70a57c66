"""PrincipalRows: what the store keeps of one principal beside its tasks: counts, usage, keys, and its name elsewhere.

Invariant: nothing here touches a task. Each write is short, and repeating it does no harm, so that a deletion that was
cut off goes on where it was.
"""

from typing import Protocol

from msgspec import Struct

from dragoman.model.principal import KEY_PREFIX, own_id
from dragoman.store.usage import UsageDay

RENAMED_ENTRIES = 500
"""Most entries of the audit trail that one call of `rename` changes."""


class PrincipalCounts(Struct, frozen=True, kw_only=True):
    """How much a store has of a principal. `open_tasks` are those of the tasks that have not ended.

    `calls` are remembered with its tasks. `memory` counts entries of the state of agents. `usage` counts sums of days,
    and `audit` the entries of the audit trail that name the principal.
    """

    tasks: int = 0
    open_tasks: int = 0
    webhooks: int = 0
    deliveries: int = 0
    receipts: int = 0
    calls: int = 0
    memory: int = 0
    usage: int = 0
    keys: int = 0
    audit: int = 0


class PrincipalRows(Protocol):
    """The rows of a principal beside its tasks. Every method raises StoreError."""

    async def count(self, principal: str) -> PrincipalCounts:
        """Count what there is. It reads an index entry for each task, and the audit trail as a whole."""
        ...

    async def usage(self, principal: str) -> tuple[UsageDay, ...]:
        """The usage of a principal on all days, the oldest first."""
        ...

    async def rename(self, principal: str, alias: str, now_ms: int) -> int:
        """Put `alias` in the place of the name where that has to stay: a short batch. Returns how many rows changed.

        0: nothing is left. Entries of the audit trail keep all but the name and the address; hosts that the principal
        has paused stay paused. Keys are revoked, and their digests are blanked, but their rows stay: a store that has
        ever had a key asks callers for one.
        """
        ...

    async def forget(self, principal: str) -> int:
        """Delete counts, usage and all that names the principal but tasks: a short batch. Returns how many rows.

        0: nothing is left, unless there are tasks. The principal must not make new ones meanwhile: see
        `forget_cached`.
        """
        ...

    def forget_cached(self) -> None:
        """Forget what this process has in memory of principals: another one may have deleted their rows."""
        ...


def key_name(principal: str) -> str | None:
    """The name of a principal's keys, in whatever team; None if no key could have made it."""
    own = own_id(principal)
    return own.removeprefix(KEY_PREFIX) if own.startswith(KEY_PREFIX) else None
