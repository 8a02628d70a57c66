"""ServedSpace: a scope of an agent's stored state, as its worker reaches it over HTTP.

Invariant: the server holds the entries, and decides which scopes the worker's lease reaches. Nothing is kept here.
Entries expire by the server's clock: a time to live goes over the wire, and no time of day.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from dragoman.agents.worker import wire
from dragoman.engine.state_space import NO_VERSIONS, PAGE, StateSpace
from dragoman.store.api import StateChanged, StateFull
from dragoman.store.state import StateEntry, StateKind, StatePut, check_key


class TellState(Protocol):
    """The lease under which a space is reached."""

    async def tell_state(self, request: wire.StateRequest) -> wire.StateReply:
        """Make a call, repeated until it is answered. Raises CallRefused, or CancelledError if the lease is over."""
        ...


class ServedSpace(StateSpace):
    """The scope of that kind which the lease of `server` reaches."""

    def __init__(self, server: TellState, lease: str, kind: StateKind, of: wire.StateReach) -> None:
        self._server = server
        self._lease = lease
        self._kind: StateKind = kind
        self._of: wire.StateReach = of

    def now_ms(self) -> int:
        """See `StateSpace`. It is the time of this machine: what expires is told as what is left."""
        return round(time.time() * 1000)

    async def get_entries(self, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        for key in keys:
            check_key(key)
        found: list[StateEntry] = []
        left = tuple(keys)
        while left:
            reply = await self._call(get=left)
            found += self._entries(reply)
            left = reply.left
        return tuple(sorted(found, key=lambda entry: entry.key))

    async def list_entries(
        self, prefix: str = "", limit: int = PAGE, after: str | None = None, *, descending: bool = False
    ) -> tuple[StateEntry, ...]:
        """See `StateSpace`."""
        found: list[StateEntry] = []
        while len(found) < limit:
            listing = wire.StateListing(prefix, limit - len(found), after, descending)
            reply = await self._call(list=listing)
            found += self._entries(reply)
            if not reply.more:
                break
            after = found[-1].key
        return tuple(found)

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
        now_ms = self.now_ms()
        changes = wire.StateChanges(
            puts=tuple([wire.StateValue(put.key, put.value, _left(put.expires_ms, now_ms)) for put in puts]),
            deletes=tuple(deletes),
            prefixes=tuple(prefixes),
            if_versions=dict(if_versions),
            act=act,
            max_bytes=max_bytes,
        )
        reply = await self._call(write=changes)
        if (changed := reply.changed) is not None:
            raise StateChanged(changed.key, changed.version)
        if (full := reply.full) is not None:
            raise StateFull(full.max_bytes, full.needed)
        return reply.version

    async def _call(
        self,
        *,
        get: tuple[str, ...] = (),
        list: wire.StateListing | None = None,  # noqa: A002  the name on the wire
        write: wire.StateChanges | None = None,
    ) -> wire.StateReply:
        return await self._server.tell_state(wire.StateRequest(self._lease, self._kind, self._of, get, list, write))

    def _entries(self, reply: wire.StateReply) -> list[StateEntry]:
        now_ms = self.now_ms()
        return [
            StateEntry(each.key, each.value, each.version, None if each.left_ms is None else now_ms + each.left_ms)
            for each in reply.entries
        ]


def _left(expires_ms: int | None, now_ms: int) -> int | None:
    """How long an entry is kept. One that has expired already goes at once."""
    return None if expires_ms is None else max(1, expires_ms - now_ms)
