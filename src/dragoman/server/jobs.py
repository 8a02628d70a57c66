"""Jobs that one replica does for all.

Invariant: a job that one replica does for all has one owner at a time, as far as the store's clock knows. Nothing
breaks if two do it for a moment.
"""

import asyncio
from typing import Protocol

from dragoman.store.api import Store

LEASE_S = 180.0
"""How long a job stays with a replica that is alive and says nothing more."""


class JobHolder(Protocol):
    """What makes this process a replica: the engine."""

    @property
    def replica_id(self) -> str:
        """The id of the replica, which is another one after it was fenced."""
        ...


class Job:
    """A job by its name. On a store that no other process writes to, it is always ours."""

    def __init__(self, store: Store, name: str, member: JobHolder, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._key = f"job/{name}"
        self._member = member
        self._lease_s = lease_s
        self._owner = ""
        """The replica that took the job here last."""
        self._until_s = float("-inf")
        """Until when, on the loop's clock, the job need not be renewed."""

    async def take(self) -> bool:
        """Whether this replica does the job now: it did before, or nobody who is alive does. Raises StoreError."""
        if not self._store.replicas.shared:
            return True
        now_s, replica = asyncio.get_running_loop().time(), self._member.replica_id
        if now_s < self._until_s and replica == self._owner:
            return True
        self._until_s = float("-inf")
        entry = await self._store.shared.get(self._key)
        owner = None if entry is None else entry.value.decode()
        if owner not in (None, replica) and await self._store.replicas.alive(owner):
            return False
        version = 0 if entry is None else entry.version
        lease_ms = int(self._lease_s * 1000)
        if await self._store.shared.put(self._key, replica.encode(), lease_ms, version=version) is None:
            return False
        self._owner, self._until_s = replica, now_s + self._lease_s / 2
        return True
