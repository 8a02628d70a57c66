"""What the cases about the state of agents are built of."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.store.api import Store
from dragoman.store.local_state import LocalState
from dragoman.store.state import StateEntry, StatePut, StateScope, StateStore, StateWrite
from tests.store.cases.bench import Bench, SetClock, new_task

TALK = StateScope("echo", "ann", "c1", "memory")
"""The conversation of the tasks that `new_task` makes."""

WIDE = StateScope("echo", "ann", "", "memory")
SHARED = StateScope("echo", "", "", "memory")
OTHERS = (
    StateScope("echo", "ann", "c2", "memory"),
    StateScope("echo", "bob", "c1", "memory"),
    StateScope("other", "ann", "c1", "memory"),
    StateScope("echo", "ann", "c1", "checkpoint"),
    WIDE,
    SHARED,
)


async def begin_conversations(store: Store, *scopes: StateScope) -> None:
    """Let each conversation have a task, without which a store has no state of it."""
    for owner, agent, context in sorted({(scope.owner, scope.agent, scope.context) for scope in scopes}):
        if context:
            task_id = f"{owner}-{agent}-{context}"
            await store.create(new_task(task_id, owner=owner, agent=agent, context_id=context))


async def read_entry(state: StateStore, scope: StateScope, key: str) -> StateEntry | None:
    """The entry of a key; None if there is none."""
    found = await state.get_entries(scope, (key,))
    return found[0] if found else None


class KeptState:
    """A state and the clock that it goes by."""

    def __init__(self, port: StateStore, clock: SetClock) -> None:
        self.port = port
        self.clock = clock

    async def put(self, *puts: StatePut, scope: StateScope = TALK) -> int:
        """Write entries without a guard."""
        return await self.port.write_entries(StateWrite(scope=scope, puts=puts))

    async def values(self, *, scope: StateScope = TALK) -> dict[str, bytes]:
        """The entries of a scope."""
        return {entry.key: entry.value for entry in await self.port.list_entries(scope, limit=1000)}

    async def sweep(self) -> int:
        """Sweep until nothing is left to do. Returns how many rows went."""
        total = 0
        while deleted := await self.port.sweep():
            total += deleted
        return total


class StateBench:
    """Opens the state of a store, or with None the one in memory without a store."""

    def __init__(self, bench: Bench | None) -> None:
        self._bench = bench

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[KeptState]:
        """A state, closed at the end."""
        if self._bench is None:
            clock = SetClock()
            yield KeptState(LocalState(clock), clock)
            return
        async with self._bench.store() as store:
            await begin_conversations(store, TALK, *OTHERS)
            yield KeptState(store.state, self._bench.clock)
