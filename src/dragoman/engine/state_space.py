"""StateSpace: a scope of the stored state, as the run of an agent reads and writes it.

Invariant: a write carries the run's epoch, so that a run which has lost its task changes nothing. A store that is away
for a while is waited for, as for everything that a run says.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from dragoman.model.ids import Clock
from dragoman.model.task import TaskHead
from dragoman.store.api import Fenced, OutcomeUnknown, StateChanged, StoreError
from dragoman.store.state import (
    StateEntry,
    StateGuard,
    StateKind,
    StatePut,
    StateScope,
    StateStore,
    StateWrite,
)

NO_VERSIONS: Mapping[str, int] = MappingProxyType({})

PAGE = 100
"""How many entries are read at once."""


class StateSpace(Protocol):
    """An ordered space of entries. Keys and values are as in `store.state`.

    A method waits until the store is there. It raises CancelledError once the run has lost its task.
    """

    def now_ms(self) -> int:
        """The present time, by which entries expire."""
        ...

    async def get_entries(self, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """The entries that there are, by key."""
        ...

    async def list_entries(
        self, prefix: str = "", limit: int = PAGE, after: str | None = None, *, descending: bool = False
    ) -> tuple[StateEntry, ...]:
        """The next entries whose keys begin with `prefix`, in the order of keys, after the key `after`.

        `limit` of them, or fewer if there are no more.
        """
        ...

    async def write_entries(
        self,
        *,
        puts: Sequence[StatePut] = (),
        deletes: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        if_versions: Mapping[str, int] = NO_VERSIONS,
        act: str | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Change entries together: `prefixes` and `deletes` before `puts`. Returns the version that they have got.

        Raises StateChanged if an entry has another version than expected, 0 for none, and StateFull if the scope would
        have more than `max_bytes`. A write that was made although nobody heard of it is made again, so that its own
        versions may be those that it finds. One with an `act` is made once, whatever happens (see
        `store.state.StateWrite`).
        """
        ...


async def read_below(space: StateSpace, prefix: str, *, descending: bool = False) -> AsyncIterator[StateEntry]:
    """All entries whose keys begin with `prefix`, in the order of keys or the reverse, read a page at a time."""
    after: str | None = None
    while True:
        page = await space.list_entries(prefix, PAGE, after, descending=descending)
        for entry in page:
            yield entry
        if len(page) < PAGE:
            return
        after = page[-1].key


def scope_of(head: TaskHead, kind: StateKind, *, wide: bool, shared: bool) -> StateScope:
    """The scope of a task's state: its conversation's, or the `wide` one of its owner, or of all if it is `shared`."""
    if not wide:
        return StateScope(head.agent, head.owner, head.context_id, kind)
    return StateScope(head.agent, "" if shared else head.owner, "", kind)


class Speaker(Protocol):
    """The run whose right to write a space has."""

    @property
    def outdated(self) -> bool:
        """Whether a failover may have lost what the run rests on, which nobody has compared with the store yet."""
        ...

    def state_guard(self) -> StateGuard:
        """The right at present. Raises CancelledError if there is none any more."""
        ...

    async def settle(self) -> None:
        """Wait until everything is committed that the run has read and that its next write may depend on."""
        ...

    async def regain(self, lost: StateGuard, refused: Fenced) -> None:
        """Wait for the right that the answer to an open question gives.

        Raises CancelledError if `lost` is still the last one: another run has the task, and this one is over.
        """
        ...


class StoredSpace(StateSpace):
    """The space of a `scope` in a store, for one run, the `speaker`."""

    def __init__(self, store: StateStore, scope: StateScope, speaker: Speaker, clock: Clock, *, retry_s: float) -> None:
        self._store = store
        self._scope = scope
        self._speaker = speaker
        self._clock = clock
        self._retry_s = retry_s

    def now_ms(self) -> int:
        """See `StateSpace`."""
        return self._clock.now_ms()

    async def get_entries(self, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        while True:
            try:
                return await self._store.get_entries(self._scope, keys)
            except StoreError:
                await self._pause()

    async def list_entries(
        self, prefix: str = "", limit: int = PAGE, after: str | None = None, *, descending: bool = False
    ) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        while True:
            try:
                return await self._store.list_entries(self._scope, prefix, limit, after, descending=descending)
            except StoreError:
                await self._pause()

    async def write_entries(
        self,
        *,
        puts: Sequence[StatePut] = (),
        deletes: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        if_versions: Mapping[str, int] = NO_VERSIONS,
        act: str | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """See `StateSpace`."""
        await self._speaker.settle()
        while True:
            write = StateWrite(
                scope=self._scope,
                puts=tuple(puts),
                deletes=tuple(deletes),
                prefixes=tuple(prefixes),
                if_versions=if_versions,
                guard=self._speaker.state_guard(),
                act=act,
                max_bytes=max_bytes,
            )
            try:
                return await self._store.write_entries(write)
            except StateChanged:
                if not self._speaker.outdated:
                    raise
                await self._pause()  # else the agent would be told of what is lost, and the run may be over
            except Fenced as fenced:
                assert write.guard is not None
                await self._speaker.regain(write.guard, fenced)
            except (StoreError, OutcomeUnknown):
                await self._pause()

    async def _pause(self) -> None:
        """Wait before the store is asked again. Raises CancelledError if the run has lost its task meanwhile."""
        await asyncio.sleep(self._retry_s)
        self._speaker.state_guard()
