"""LeasedSpace: a scope of an agent's stored state, as the server lets a worker reach it.

Invariant: a write is made while the worker's lease runs, under the present epoch of its task, and in no other case.
"""

from collections.abc import Mapping, Sequence

from dragoman.agents.worker.task_cache import CachedTask
from dragoman.engine.state_space import NO_VERSIONS, PAGE, StateSpace
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.model.errors import LeaseLost
from dragoman.store.api import Fenced
from dragoman.store.state import StateEntry, StateGuard, StatePut, StateScope, StateWrite

ANSWER_BYTES = 1_000_000
"""About how many bytes of values a worker gets at once, unless a single value has more."""

READ_AT_ONCE = 20
"""How many entries are read at once for a worker: they may be large, and are then too many for one answer."""


class LeasedSpace(StateSpace):
    """The scope `scope` for the worker that has the task `known` by the lease `token`.

    Methods raise LeaseLost once the lease is over, and StoreError or OutcomeUnknown if the store cannot answer. Its
    worker calls again then, so that a write may find its own versions: see `StateSpace`.
    """

    def __init__(self, tasks: WorkerTasks, known: CachedTask, token: str, scope: StateScope) -> None:
        self._tasks = tasks
        self._known = known
        self._token = token
        self._scope = scope

    def now_ms(self) -> int:
        """See `StateSpace`."""
        return self._tasks.clock.now_ms()

    async def get_entries(self, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        await self._check()
        return await self._tasks.state_store.get_entries(self._scope, keys)

    async def list_entries(
        self, prefix: str = "", limit: int = PAGE, after: str | None = None, *, descending: bool = False
    ) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        await self._check()
        return await self._tasks.state_store.list_entries(self._scope, prefix, limit, after, descending=descending)

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
        """See `StateSpace`. The answer to a question gives the task a new epoch, under the same lease."""
        known = self._known
        while True:
            guard = StateGuard(known.task.head.id, known.task.row.epoch, self._token)
            write = StateWrite(
                scope=self._scope,
                puts=tuple(puts),
                deletes=tuple(deletes),
                prefixes=tuple(prefixes),
                if_versions=if_versions,
                guard=guard,
                act=act,
                max_bytes=max_bytes,
            )
            try:
                return await self._tasks.state_store.write_entries(write)
            except Fenced as fenced:
                async with known.lock:
                    await known.reread()
                if known.task.row.epoch == guard.epoch:
                    raise LeaseLost from fenced

    async def _check(self) -> None:
        """Raise LeaseLost unless the lease runs."""
        if not await self._tasks.runs(self._known.task.head.id, self._token):
            raise LeaseLost

    # -- as much as one answer holds -----------------------------------------------------------------------------------

    async def get_some(self, keys: Sequence[str]) -> tuple[tuple[StateEntry, ...], tuple[str, ...]]:
        """The first of the entries with these keys, and the keys that were not looked at."""
        found: list[StateEntry] = []
        size = done = 0
        while done < len(keys) and size < ANSWER_BYTES:
            some = await self.get_entries(keys[done : done + READ_AT_ONCE])
            found += some
            size += sum(len(entry.value) for entry in some)
            done += READ_AT_ONCE
        return tuple(found), tuple(keys[done:])

    async def list_some(
        self, prefix: str, limit: int, after: str | None, *, descending: bool
    ) -> tuple[tuple[StateEntry, ...], bool]:
        """As `list_entries`, or fewer, and whether those that are missing may be there."""
        found: list[StateEntry] = []
        size = 0
        while (left := min(READ_AT_ONCE, limit - len(found))) > 0:
            if size >= ANSWER_BYTES:
                return tuple(found), True
            some = await self.list_entries(prefix, left, found[-1].key if found else after, descending=descending)
            found += some
            size += sum(len(entry.value) for entry in some)
            if len(some) < left:
                break
        return tuple(found), False
