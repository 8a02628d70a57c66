"""StateTable: the state of agents in the store.

Invariant: a write holds its task, then its space, until it is committed. So nobody leases the task anew meanwhile, and
the writes of a scope are made one after the other.
"""

from collections.abc import Sequence
from typing import Any

from dragoman.model.ids import Clock
from dragoman.store.api import Fenced, OutcomeUnknown, StateFull
from dragoman.store.sql.statements import Procedure, Statements, settled
from dragoman.store.state import (
    StateEntry,
    StateFigures,
    StateGuard,
    StateScope,
    StateWrite,
    check_key,
    check_write,
    end_of_prefix,
)
from dragoman.store.state_plan import WeighedEntry, check_scope, plan_write
from dragoman.store.worker_leases import WorkerLeases

SWEPT_ROWS = 500
"""Entries that one transaction of a sweep deletes."""

SWEPT_BYTES = 8 << 20
"""About how many bytes of them, unless a single one has more."""

Space = tuple[int, int, int, int]
"""Number, revision, entries and bytes."""


class StateTable:
    """The StateStore protocol. The lease of a worker is looked at before its task is held, under its epoch."""

    def __init__(self, statements: Statements, clock: Clock, leases: WorkerLeases) -> None:
        self._statements = statements
        self._clock = clock
        self._leases = leases

    async def get_entries(self, scope: StateScope, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """As the protocol says."""
        for key in keys:
            check_key(key)
        rows = await self._statements.read("read_state", *_names(scope), tuple(keys), self._clock.now_ms())
        return tuple(StateEntry(*row) for row in rows)

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
        name, first, end = "list_state", prefix, end_of_prefix(prefix)
        if descending:
            name, end = "list_state_descending", end if after is None else min(after, end)
        elif after is not None and after >= first:
            name, first = "list_state_after", after
        rows = await self._statements.read(name, *_names(scope), first, end, self._clock.now_ms(), limit)
        return tuple(StateEntry(*row) for row in rows)

    async def write_entries(self, write: StateWrite) -> int:
        """As the protocol says. A write that may be repeated is repeated once if its outcome is unknown."""
        check_write(write)
        if write.guard is not None:
            await self._check_lease(write.guard)

        async def run() -> int:
            return await self._statements.carry_out(lambda: write_state(write, self._clock.now_ms()))

        try:
            return await run()
        except OutcomeUnknown:
            if write.act is None and write.if_versions:
                raise
        return await run()

    async def _check_lease(self, guard: StateGuard) -> None:
        """Raise Fenced unless the worker's lease of a guard runs, if it has one."""
        if guard.token is not None and not await self._leases.running([(guard.task_id, guard.token)]):
            raise Fenced(guard.task_id)

    async def count_bytes(self, scope: StateScope) -> int:
        """As the protocol says."""
        rows = await self._statements.read("count_state", *_names(scope))
        return int(rows[0][0]) if rows else 0

    async def list_scopes(self, owner: str) -> tuple[StateScope, ...]:
        """As the protocol says."""
        return tuple(StateScope(*row) for row in await self._statements.read("scopes_of_owner", owner))

    async def end_scopes(self, owner: str) -> int:
        """As the protocol says."""
        return await settled(self._statements.write(("end_scopes_of_owner", owner)))

    async def count_kinds(self) -> tuple[StateFigures, ...]:
        """As the protocol says."""
        return tuple(StateFigures(*row) for row in await self._statements.read("count_state_kinds"))

    async def sweep(self) -> int:
        """As the protocol says. It looks first, so that no writer waits for nothing."""
        now_ms = self._clock.now_ms()
        if not (await self._statements.read("old_state", now_ms))[0][0]:
            return 0
        return await settled(self._statements.carry_out(lambda: sweep_state(now_ms)))


def write_state(write: StateWrite, now_ms: int) -> Procedure[int]:
    """Make a write: see `StateStore.write_entries`."""
    guard, task = write.guard, None
    if guard is not None:
        rows = yield "hold_task", guard.task_id, guard.epoch
        if not rows:
            raise Fenced(guard.task_id)
        task, context, owner, agent = rows[0]
        check_scope(write.scope, agent, owner, context)
        if write.act is not None and (made := (yield "find_act", task, write.act)):
            return int(made[0][0])
    number, revision, entries, size = yield from _hold_space(write, now_ms)
    known = yield from _weigh(number, write)
    try:
        plan = plan_write(write, known, entries, size, now_ms)
    except StateFull:
        expired = _read_weights((yield "weigh_expired_entries", number, now_ms))
        if not expired:
            raise
        known |= expired
        plan = plan_write(write, known, entries, size, now_ms, also_drop=expired)
    revision += 1
    if plan.dropped:
        yield "drop_state", number, plan.dropped
    for put in plan.puts:
        yield "put_state", number, put.key, revision, put.expires_ms, bytes(put.value)
    yield "change_space", number, revision, plan.entries, plan.bytes
    if write.act is not None:
        yield "add_act", task, write.act, revision
    return revision


def _hold_space(write: StateWrite, now_ms: int) -> Procedure[Space]:
    """The space of a write, which is made if there is none. Raises what refuses a write to an empty one."""
    scope = _names(write.scope)
    if not (rows := (yield "hold_space", *scope)):
        plan_write(write, {}, 0, 0, now_ms)
        yield "add_space", *scope
        rows = yield "hold_space", *scope
    number, revision, entries, size = rows[0]
    return number, revision, entries, size


def _weigh(number: int, write: StateWrite) -> Procedure[dict[str, WeighedEntry]]:
    """The entries of a space that a write touches."""
    known: dict[str, WeighedEntry] = {}
    for prefix in write.prefixes:
        known |= _read_weights((yield "weigh_entries_below", number, prefix, end_of_prefix(prefix)))
    keys = {put.key for put in write.puts}.union(write.deletes, write.if_versions) - known.keys()
    if keys:
        known |= _read_weights((yield "weigh_entries", number, tuple(keys)))
    return known


def _read_weights(rows: Sequence[tuple[Any, ...]]) -> dict[str, WeighedEntry]:
    return {key: WeighedEntry(version, size, expires_ms) for key, version, size, expires_ms in rows}


def sweep_state(now_ms: int) -> Procedure[int]:
    """Delete some entries of a space that has ended, or else some that have expired. Returns how many rows."""
    if held := (yield ("hold_ended_space",)):
        return (yield from _clear_space(held[0][0]))
    expired: dict[int, list[str]] = {}
    for number, key in (yield "find_expired_state", now_ms, SWEPT_ROWS):
        expired.setdefault(number, []).append(key)
    deleted = 0
    for number in sorted(expired):
        if not (rows := (yield "hold_numbered_space", number)):
            continue
        _, revision, entries, size = rows[0]
        gone = yield "drop_expired_state", number, tuple(expired[number]), now_ms
        yield "change_space", number, revision, entries - len(gone), size - sum(each for (each,) in gone)
        deleted += len(gone)
    return deleted


def _clear_space(number: int) -> Procedure[int]:
    keys: list[str] = []
    size = 0
    first = yield "weigh_first_entries", number, SWEPT_ROWS
    for key, each in first:
        if keys and size + each > SWEPT_BYTES:
            break
        keys.append(key)
        size += each
    if keys:
        yield "drop_state", number, tuple(keys)
    if len(keys) < len(first) or len(first) == SWEPT_ROWS:
        return len(keys)
    yield "drop_space", number
    return len(keys) + 1


def _names(scope: StateScope) -> tuple[str, str, str, str]:
    return scope.agent, scope.owner, scope.context, scope.kind
