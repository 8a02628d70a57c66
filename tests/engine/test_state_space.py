"""A space of the state of agents, as everything that is read below a prefix."""

import asyncio

import pytest

from dragoman.engine.state_space import PAGE, StateSpace, StoredSpace, read_below
from dragoman.model.ids import SystemClock
from dragoman.store.api import Fenced, StateChanged
from dragoman.store.local_state import LocalState
from dragoman.store.state import StateEntry, StateGuard, StatePut, StateScope


class Nobody:
    outdated = False

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


class Stale(Nobody):
    """A run that a failover may have cut back, until somebody has compared it with the store."""

    outdated = True

    def __init__(self, *, lost: bool) -> None:
        self.lost = lost

    def state_guard(self) -> None:
        if self.asked and self.lost:
            raise asyncio.CancelledError
        self.outdated, self.asked = not self.asked, True

    asked = False


async def test_a_run_that_a_failover_has_cut_back_is_not_told_of_an_entry_that_is_lost() -> None:
    """It is over, and another one begins with what is left."""
    scope = StateScope("graph", "ada", "talk", "memory")
    for lost, told in ((True, asyncio.CancelledError), (False, StateChanged)):
        run = Stale(lost=lost)
        space = StoredSpace(LocalState(SystemClock()), scope, run, SystemClock(), retry_s=0)  # type: ignore[arg-type]
        with pytest.raises(told):
            await space.write_entries(puts=[StatePut("k", b"x")], if_versions={"k": 1})
        assert run.asked
