"""The figures of a store for its operator, beside its size, which each database tells in its own way."""

from dragoman.store.api import Owners, owner_range
from dragoman.store.figures import StoreFigures, read_oldest, read_open_tasks
from dragoman.store.sql.statements import Statements

KINDS = 0, 1, 2
"""The kinds of tasks that retentions delete, as the index of their ages has them: interrupted, ended, ended without
their events."""


async def read_figures(statements: Statements, size_bytes: int) -> StoreFigures:
    """Read the figures of a store that takes so many bytes. Raises StoreError."""
    open_tasks = await statements.read("open_by_agent", *owner_range(Owners.ALL))
    kept = [await statements.read("oldest_kept", kind) for kind in KINDS]
    (others,) = await statements.read("oldest_rows")
    oldest = *(rows[0][0] if rows else None for rows in kept), *others
    return StoreFigures(size_bytes=size_bytes, open_tasks=read_open_tasks(open_tasks), oldest=read_oldest(oldest))
