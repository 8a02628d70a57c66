"""A space of the state of agents, as everything that is read below a prefix."""

import pytest

from dragoman.engine.state_space import PAGE, StateSpace, StoredSpace, read_below
from dragoman.model.ids import SystemClock
from dragoman.store.api import Fenced
from dragoman.store.local_state import LocalState
from dragoman.store.state import StateEntry, StateGuard, StatePut, StateScope


class Nobody:
    def state_guard(self) -> None:
        return None

    async def settle(self) -> None:
        pass

    async def regain(self, lost: StateGuard, refused: Fenced) -> None:
        raise refused


class CountingSpace(StoredSpace):
    reads = 0

    async def list_entries(
        self, prefix: str = "", limit: int = PAGE, after: str | None = None, *, descending: bool = False
    ) -> tuple[StateEntry, ...]:
        self.reads += 1
        return await super().list_entries(prefix, limit, after, descending=descending)


def counting_space() -> CountingSpace:
    scope = StateScope("graph", "ada", "talk", "session")
    return CountingSpace(LocalState(SystemClock()), scope, Nobody(), SystemClock(), retry_s=0)  # type: ignore[arg-type]


async def keys_below(space: StateSpace, prefix: str, *, descending: bool = False) -> list[str]:
    return [entry.key async for entry in read_below(space, prefix, descending=descending)]


@pytest.mark.parametrize(
    ("count", "reads"), [(0, 1), (1, 1), (PAGE - 1, 1), (PAGE, 2), (PAGE + 1, 2), (2 * PAGE + 1, 3)]
)
async def test_everything_below_a_prefix_is_read_in_as_few_pages_as_there_are(count: int, reads: int) -> None:
    space = counting_space()
    keys = [f"p/{number:04}" for number in range(count)]
    await space.write_entries(puts=[StatePut(key, b"x") for key in ["o", *keys, "q"]])
    assert await keys_below(space, "p/") == keys
    assert space.reads == reads
    assert await keys_below(space, "p/", descending=True) == keys[::-1]
