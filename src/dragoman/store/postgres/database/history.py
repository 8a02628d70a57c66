"""HistoryCount: how often another server, or another history of one, has come behind the address of a database.

Invariant: it is counted before a statement runs there, so that whoever looks at the number beforehand uses nothing that
was read from an earlier history.
"""

import asyncio


class HistoryChanged(Exception):
    """Another history of the database has come since a statement was prepared, which has not run."""


class HistoryCount:
    """The number of the present history, from 0. Rows that were read during an earlier one may be gone.

    `name` is the same in all processes, empty before the first connection.
    """

    __slots__ = ("_changed", "name", "number")

    def __init__(self) -> None:
        self.number = 0
        self.name = ""
        self._changed = asyncio.Event()

    def see(self, name: str) -> None:
        """Note which history a connection leads to, and count it if it is another one."""
        known, self.name = self.name, name
        if known not in ("", name):
            self.number += 1
            self._changed.set()

    async def changed(self) -> None:
        """Wait until another history is counted, if none was since the last call. For one caller at a time."""
        await self._changed.wait()
        self._changed.clear()
