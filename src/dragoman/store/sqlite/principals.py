"""The scopes of principals that are deleted, in the file.

Invariant: the writer remembers no scope whose row is gone, and no balance of an account that went before.
"""

from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act


class FileScopes:
    """The ScopeRows protocol."""

    def __init__(self, door: SqliteDoor) -> None:
        self._door = door

    async def drop_scopes(self, owner: str) -> int:
        """As the protocol says. The contexts went with the tasks."""

        def run(tables: Tables, _: int) -> int:
            tables.scopes.clear()
            tables.balances.clear()  # else a caller that comes back would have used what it had used before
            return len(tables.cursor.execute(tables.sql["forget_scopes"], (owner,)).fetchall())

        return int(await self._door().writer.submit(Act(run)))

    def forget_scopes(self) -> None:
        """As the protocol says: nobody else writes to the file."""
