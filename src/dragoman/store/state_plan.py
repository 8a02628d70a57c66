"""StatePlan: the changes that a write of state makes, worked out from the entries that it touches.

Invariant: a plan is made, or refused, before anything is changed.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from dragoman.store.api import StateChanged, StateFull
from dragoman.store.state import StatePut, StateScope, StateWrite


class WeighedEntry(Struct, frozen=True):
    """The facts of an entry that a plan needs. `bytes` are those of its key and its value."""

    version: int
    bytes: int
    expires_ms: int | None

    def runs(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or self.expires_ms > now_ms


class StatePlan(Struct, frozen=True):
    """The changes of a scope: the keys that go, the entries that come, and what the scope has afterwards."""

    dropped: tuple[str, ...]
    puts: tuple[StatePut, ...]
    entries: int
    bytes: int


def check_scope(scope: StateScope, agent: str, owner: str, context: str) -> None:
    """Raise ValueError unless `scope` is one that a task of this agent, owner and context may write."""
    if scope.agent != agent or scope.owner not in ("", owner) or scope.context not in ("", context):
        raise ValueError(f"{scope} is not the task's own")


def plan_write(
    write: StateWrite,
    known: Mapping[str, WeighedEntry],
    entries: int,
    size: int,
    now_ms: int,
    also_drop: Collection[str] = (),
) -> StatePlan:
    """Plan a write to a scope that has so many entries and bytes.

    `known` are the entries, expired or not, that have a key of the write, begin with one of its prefixes, or are in
    `also_drop`. Raises StateChanged or StateFull.
    """
    for key, version in write.if_versions.items():
        found = known.get(key)
        present = found.version if found is not None and found.runs(now_ms) else 0
        if present != version:
            raise StateChanged(key, present)
    puts = {put.key: put for put in write.puts}
    gone = known.keys() & {*write.deletes, *also_drop, *(key for key in known if key.startswith(write.prefixes))}
    dropped = tuple(sorted(gone - puts.keys()))
    replaced = gone | (puts.keys() & known.keys())
    left = size - sum(known[key].bytes for key in replaced)
    after = left + sum(len(key.encode()) + len(put.value) for key, put in puts.items())
    if write.max_bytes is not None and after > write.max_bytes and after > size:
        raise StateFull(write.max_bytes, after)
    return StatePlan(dropped, tuple(puts.values()), entries - len(replaced) + len(puts), after)
