"""HistoryCount: how often another server, or another history of one, has come behind the address of a database.

Invariant: it is counted before a statement runs there, so that whoever looks at the number beforehand uses nothing that
was read from an earlier history.
"""

import asyncio


class HistoryCount:
    """The number of the present history, from 0. Rows that were read during an earlier one may be gone."""

    __slots__ = ("_changed", "number")

    def __init__(self) -> None:
        self.number = 0
        self._changed = asyncio.Event()

    def change(self) -> None:
        """Count another history."""
        self.number += 1
        self._changed.set()

    async def changed(self) -> None:
        """Wait until another history is counted, if none was since the last call. For one caller at a time."""
        await self._changed.wait()
        self._changed.clear()
