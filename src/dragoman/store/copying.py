"""Copying: copies all rows of one store to another one, in steps that can be resumed.

Invariant: the target takes its place only when every row of it has been compared with the source by digests. A step is
one transaction, so that a copy that was killed resumes after its last step.
"""

from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.transfer import OF_TASKS, WHOLE, Row, Table, TransferSource, TransferTarget, digest

STEP_BYTES = 16 << 20
"""About how much one step reads, unless a single task is larger."""

STEP_TASKS = 500
STEP_ROWS = 2000


class CopyProgress(Struct, frozen=True):
    """The progress of a copy: `stage` is "copied" or "compared", and `done` of `tasks` tasks have reached it."""

    stage: str
    done: int
    tasks: int


class Copied(Struct, frozen=True):
    """The result of a copy: how many tasks, and how many rows of each table. `again`: it had to start over."""

    tasks: int
    rows: dict[str, int]
    again: bool = False


async def copy(source: TransferSource, target: TransferTarget, show: Callable[[CopyProgress], None]) -> Copied:
    """Copy the missing rows to `target`, compare all rows, and put the target in its place.

    If the rows of an earlier copy differ from the source, which was written to after that copy was killed, it starts
    over. Raises StoreError if the stores differ even so.
    """
    tasks = await source.count()
    await _copy(source, target, tasks, show)
    found = await _compare(source, target, tasks, show)
    again = isinstance(found, str)
    if isinstance(found, str):
        await target.clear()
        await _copy(source, target, tasks, show)
        found = await _compare(source, target, tasks, show)
    if isinstance(found, str):
        raise StoreError(f"the copy differs from the source in its {found}: the source is being written to, or damaged")
    await target.finish(await source.numbers())
    return Copied(tasks, found, again)


async def _copy(
    source: TransferSource, target: TransferTarget, tasks: int, show: Callable[[CopyProgress], None]
) -> None:
    for table in WHOLE:
        after = await target.last_key(table)
        while rows := await source.rows(table, after, await _step_rows(source, table, after)):
            await target.write([(table, rows)])
            after = rows[-1][: table.keys]
    last = await target.last_task()
    done = await target.count()
    show(CopyProgress("copied", done, tasks))
    async for first, end, some in steps(source, last):
        await target.write([(table, await source.rows_of(table, (first, end))) for table in OF_TASKS])
        done += some
        show(CopyProgress("copied", done, tasks))


async def _compare(
    source: TransferSource, target: TransferTarget, tasks: int, show: Callable[[CopyProgress], None]
) -> dict[str, int] | str:
    """The numbers of rows by table, or the name of the first table in which the stores differ."""
    counts: dict[str, int] = {}
    for table in WHOLE:
        counts[table.name] = 0
        after: Row | None = None
        while rows := await source.rows(table, after, limit := await _step_rows(source, table, after)):
            if digest(rows) != digest(await target.rows(table, after, limit)):
                return table.name
            counts[table.name] += len(rows)
            after = rows[-1][: table.keys]
        if await target.rows(table, after, 1):
            return table.name
    counts |= {table.name: 0 for table in OF_TASKS}
    done, last = 0, 0
    async for _, end, some in steps(source, 0):
        for table in OF_TASKS:
            rows = await source.rows_of(table, (last + 1, end))
            if digest(rows) != digest(await target.rows_of(table, (last + 1, end))):
                return table.name
            counts[table.name] += len(rows)
        done, last = done + some, end
        show(CopyProgress("compared", done, tasks))
    if await target.last_task() > last:
        return "tasks"
    return counts


async def _step_rows(source: TransferSource, table: Table, after: Row | None) -> int:
    """How many of the next rows of a whole table one step reads."""
    if not table.heavy:
        return STEP_ROWS
    rows, size = 0, 0
    for row_bytes in await source.weigh(table, after, STEP_ROWS):
        if rows and size + row_bytes > STEP_BYTES:
            break
        rows, size = rows + 1, size + row_bytes
    return max(1, rows)


async def steps(source: TransferSource, after: int) -> AsyncIterator[tuple[int, int, int]]:
    """The first and the last number of the tasks of each step, and how many they are."""
    first, some, size = 0, 0, 0
    while sizes := await source.sizes(after, STEP_TASKS):
        for task, task_bytes in sizes:
            if some and size + task_bytes > STEP_BYTES:
                yield first, after, some
                some, size = 0, 0
            first = first if some else task
            some, size, after = some + 1, size + task_bytes, task
        if some:
            yield first, after, some
            some, size = 0, 0
