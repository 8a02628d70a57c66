"""PrincipalTable: what the store keeps of one principal beside its tasks.

Invariant: an entry of the audit trail is looked for by a reader, and a write looks at `SPAN_ENTRIES` rows at most, so
that no other writer waits for a long trail.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from dragoman.model.principal import team_of
from dragoman.store.principals import RENAMED_ENTRIES, PrincipalCounts, key_name
from dragoman.store.sql.budgets import delete_accounts
from dragoman.store.sql.statements import Statements, repeated
from dragoman.store.usage import UsageDay, read_sum

SPAN_ENTRIES = 5_000
"""Most entries of the audit trail that one statement of a `rename` reads: some milliseconds."""


class ScopeRows(Protocol):
    """The scopes of a driver: an owner with an agent each, and what its writer remembers of them."""

    async def drop_scopes(self, owner: str) -> int:
        """Delete those of an owner that have neither tasks nor usage, with their counters. Returns how many rows."""
        ...

    def forget_scopes(self) -> None:
        """Forget what is remembered: another process may have deleted it."""
        ...


class PrincipalTable:
    """The PrincipalRows protocol."""

    def __init__(self, statements: Statements, scopes: ScopeRows) -> None:
        self._statements = statements
        self._scopes = scopes

    def forget_cached(self) -> None:
        """As the protocol says."""
        self._scopes.forget_scopes()

    async def count(self, principal: str) -> PrincipalCounts:
        """As the protocol says."""
        (row,) = await self._statements.read("principal_counts", principal, key_name(principal), team_of(principal))
        return PrincipalCounts(**dict(zip(PrincipalCounts.__struct_fields__, row, strict=True)))

    async def usage(self, principal: str) -> tuple[UsageDay, ...]:
        """As the protocol says."""
        rows = await self._statements.read("principal_usage", principal)
        return tuple(read_sum(name, numbers, day, principal, agent) for name, *numbers, day, agent in rows)

    async def rename(self, principal: str, alias: str, now_ms: int) -> int:
        """As the protocol says. The keys and the pauses go first, all at once: they are few."""
        changed = await self._change("rename_pauses", principal, alias)
        if (name := key_name(principal)) is not None:
            changed += await self._change("rename_keys", name, alias, b"", now_ms, team_of(principal))
        found = await self._statements.read("principal_audit", principal, RENAMED_ENTRIES)
        for first, last in _spans([entry for (entry,) in found]):
            changed += await self._change("rename_audit", principal, alias, first, last)
        return changed

    async def forget(self, principal: str) -> int:
        """As the protocol says: the usage of a day, or what is left when there is none."""
        ((day,),) = await self._statements.read("principal_day", principal)
        if day is not None:
            return await self._change("forget_usage", principal, day)
        counted = await self._change("forget_quotas", principal)
        counted += await delete_accounts(self._statements, await self._statements.read("owned_budgets", principal))
        return counted + await self._change("forget_shares", principal) + await self._scopes.drop_scopes(principal)

    async def _change(self, name: str, *values: str | int | bytes) -> int:
        return await repeated(lambda: self._statements.write((name, *values)))


def _spans(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of entries in their order, so that a span has `SPAN_ENTRIES` rows at most."""
    first = last = 0
    for entry in entries:
        if first and entry - first >= SPAN_ENTRIES:
            yield first, last
            first = 0
        first, last = first or entry, entry
    if first:
        yield first, last
