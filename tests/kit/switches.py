"""An operator's switches on a store in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from dragoman.admin.switches import KIND, RunningTasks, Switch, SwitchState
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.switches import Switches
from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store


async def put_switch(
    records: RecordReader, switched: str, state: SwitchState, *, running: RunningTasks = "cancel"
) -> None:
    """Switch an agent, or `AGENT/MEMBER`."""
    switch = Switch(state=state, running=running, reason="why", by="operator:root", at="2026-01-01T00:00:00.000Z")
    await records.put_record(KIND, switched, msgspec.json.encode(switch))


class Board:
    """The switches, and the operator's hand."""

    def __init__(self, records: RecordReader) -> None:
        self.switches = Switches(records)
        self._records = records

    async def set(self, switched: str, state: SwitchState) -> None:
        """Switch an agent, or `AGENT/MEMBER`."""
        await put_switch(self._records, switched, state)


@asynccontextmanager
async def board() -> AsyncIterator[Board]:
    """Switches that are all on at first."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    records = RecordReader(store, shared=False)
    await records.refresh()
    try:
        yield Board(records)
    finally:
        await store.close()
