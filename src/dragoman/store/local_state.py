"""LocalState: the state of agents in the memory of one process, without a store.

Invariant: it answers as the store's does. Each method is one step, so that nothing comes between.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.store.state import (
    StateEntry,
    StateFigures,
    StateGuard,
    StateScope,
    StateWrite,
    check_key,
    check_write,
)
from dragoman.store.state_plan import WeighedEntry, plan_write

Check = Callable[[StateGuard, StateScope], None]
"""Raises Fenced if a guard does not hold, ValueError if the scope is not its task's."""


class Space(Struct):
    """The entries of a scope, the version that the last write gave, and their size."""

    entries: dict[str, StateEntry] = {}
    revision: int = 0
    bytes: int = 0


class LocalState:
    """The StateStore protocol. `check` looks at guards; without it every guard holds."""

    def __init__(self, clock: Clock, check: Check | None = None) -> None:
        self._clock = clock
        self._check = check
        self._spaces: dict[StateScope, Space] = {}
        self._acts: dict[tuple[str, str], int] = {}
        """The versions that acts have given, by task and act."""

    def copy(self) -> "LocalState":
        """Everything as it stands now, apart from this."""
        copied = LocalState(self._clock, self._check)
        copied._acts = dict(self._acts)
        for scope, space in self._spaces.items():
            copied._spaces[scope] = Space(dict(space.entries), space.revision, space.bytes)
        return copied

    async def get_entries(self, scope: StateScope, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """As the protocol says."""
        for key in keys:
            check_key(key)
        return tuple(entry for entry in self.read_entries(scope) if entry.key in keys)

    async def list_entries(
        self,
        scope: StateScope,
        prefix: str = "",
        limit: int = 100,
        after: str | None = None,
        *,
        descending: bool = False,
    ) -> tuple[StateEntry, ...]:
        """As the protocol says."""
        found = [entry for entry in self.read_entries(scope) if entry.key.startswith(prefix)]
        if descending:
            return tuple([entry for entry in reversed(found) if after is None or entry.key < after][:limit])
        return tuple([entry for entry in found if after is None or entry.key > after][:limit])

    async def write_entries(self, write: StateWrite) -> int:
        """As the protocol says."""
        return self.make_write(write)

    def make_write(self, write: StateWrite) -> int:
        """As `write_entries`, at once."""
        check_write(write)
        guard, now_ms = write.guard, self._clock.now_ms()
        if guard is not None and self._check is not None:
            self._check(guard, write.scope)
        act = None if guard is None or write.act is None else (guard.task_id, write.act)
        if act in self._acts:
            return self._acts[act]
        space = self._spaces.get(write.scope) or Space()
        touched = {put.key for put in write.puts}.union(write.deletes, write.if_versions)
        expired = {key for key, entry in space.entries.items() if not _runs(entry, now_ms)}
        known = {
            key: WeighedEntry(entry.version, _bytes(entry), entry.expires_ms)
            for key, entry in space.entries.items()
            if key in touched or key in expired or key.startswith(write.prefixes)
        }
        plan = plan_write(write, known, len(space.entries), space.bytes, now_ms, also_drop=expired)
        self._spaces[write.scope] = space
        space.revision += 1
        for key in plan.dropped:
            del space.entries[key]
        for put in plan.puts:
            space.entries[put.key] = StateEntry(put.key, bytes(put.value), space.revision, put.expires_ms)
        space.bytes = plan.bytes
        if act is not None:
            self._acts[act] = space.revision
        return space.revision

    async def count_bytes(self, scope: StateScope) -> int:
        """As the protocol says."""
        space = self._spaces.get(scope)
        return 0 if space is None else space.bytes

    async def list_scopes(self, owner: str) -> tuple[StateScope, ...]:
        """As the protocol says."""
        return tuple(scope for scope in self._spaces if scope.owner == owner)

    async def end_scopes(self, owner: str) -> int:
        """As the protocol says."""
        return self._end(scope for scope in self._spaces if scope.owner == owner)

    def end_conversation(self, agent: str, owner: str, context: str) -> None:
        """Delete the scopes of a conversation, whose last task is gone."""
        self._end(
            scope for scope in self._spaces if (scope.agent, scope.owner, scope.context) == (agent, owner, context)
        )

    def forget_task(self, task_id: str) -> None:
        """Forget the acts of a task that is gone."""
        for act in [act for act in self._acts if act[0] == task_id]:
            del self._acts[act]

    async def count_kinds(self) -> tuple[StateFigures, ...]:
        """As the protocol says."""
        found: dict[str, StateFigures] = {}
        for scope, space in sorted(self._spaces.items(), key=lambda item: item[0].kind):
            last = found.get(scope.kind, StateFigures(scope.kind, 0, 0, 0))
            figures = last.scopes + 1, last.entries + len(space.entries), last.bytes + space.bytes
            found[scope.kind] = StateFigures(scope.kind, *figures)
        return tuple(found.values())

    async def sweep(self) -> int:
        """As the protocol says."""
        now_ms, deleted = self._clock.now_ms(), 0
        for space in self._spaces.values():
            for entry in [entry for entry in space.entries.values() if not _runs(entry, now_ms)]:
                del space.entries[entry.key]
                space.bytes -= _bytes(entry)
                deleted += 1
        return deleted

    def read_entries(self, scope: StateScope) -> list[StateEntry]:
        """The entries of a scope that have not expired, by key."""
        space, now_ms = self._spaces.get(scope), self._clock.now_ms()
        found = () if space is None else space.entries.values()
        return sorted((entry for entry in found if _runs(entry, now_ms)), key=lambda entry: entry.key)

    def _end(self, scopes: Iterable[StateScope]) -> int:
        ended = list(scopes)
        for scope in ended:
            del self._spaces[scope]
        return len(ended)


def _runs(entry: StateEntry, now_ms: int) -> bool:
    return entry.expires_ms is None or entry.expires_ms > now_ms


def _bytes(entry: StateEntry) -> int:
    return len(entry.key.encode()) + len(entry.value)
