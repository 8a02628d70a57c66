"""Opens a database: checks it, brings its tables up to date, and returns the pool of its connections.

Invariant: nothing stays connected if it cannot be opened.
"""

from collections.abc import Callable

from dragoman.store.api import StoreError
from dragoman.store.postgres.address import Address
from dragoman.store.postgres.checks import check_server
from dragoman.store.postgres.migrations import migrate, migrated, migrations
from dragoman.store.postgres.pool import Pool

Door = Callable[[], Pool]
"""The pool that is open now. Raises StoreError if nothing is."""


async def open_pool(address: Address, *, make: bool = True) -> Pool:
    """The connections to the database at `address`, whose tables have the version of this program or a later one.

    Raises StoreError, naming the fix; also if there is no store yet, unless `make` lets it be made.
    """
    pool = Pool(address)
    try:
        await check_server(pool)
        if not make and not await migrated(pool):
            raise StoreError(
                f"there is no store in the schema {address.schema} of PostgreSQL at {address.shown}: name the one that "
                "the servers use; the first of them makes it when it starts"
            )
        await migrate(pool, migrations())
    except BaseException:
        await pool.close()
        raise
    return pool
