"""Jobs: work beside the requests. The table says what depends on each; some are done by one replica for all.

Invariant: a job that one replica does for all has one owner at a time, as far as the store's clock knows. Nothing
breaks if two do it for a moment.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum, auto

from dragoman.store.api import Store
from dragoman.telemetry.job_group import JobFailures

LEASE_S = 180.0
"""How long a job stays with a replica that says nothing more."""


class JobEffect(Enum):
    """The requests that are refused while a job is not running: they would wait for it, or go wrong without it."""

    NOTHING = auto()
    UNREADY = auto()
    """`/ready` answers 503, so that work goes to another replica."""
    NO_WEBHOOKS = auto()
    """The registration of a webhook answers 503."""


EFFECTS: Mapping[str, tuple[JobEffect, str]] = {
    "sweep": (JobEffect.NOTHING, "what has outlived its retention stays in the store"),
    "retention": (JobEffect.NOTHING, "nobody says how far behind the sweep is"),
    "sweep of files": (JobEffect.NOTHING, "the files of deleted tasks stay"),
    "acts of commands": (JobEffect.NOTHING, "the log tells later of commands on the store"),
    "exchange of usage": (JobEffect.NOTHING, "rates and numbers of streams are limited on each replica alone"),
    "words about calls of MCP": (JobEffect.NOTHING, "a call of MCP is not canceled by way of another replica"),
    "leases of workers": (JobEffect.UNREADY, "the leases of workers run out"),
    "access log": (JobEffect.NOTHING, "lines of the access log wait, and the oldest of too many are dropped"),
    "queues": (JobEffect.UNREADY, "it is not known how long tasks wait to be run"),
    "certificates": (JobEffect.NOTHING, "the certificate of before stays in use"),
    "pulse": (JobEffect.NOTHING, "the console's graphs have a gap"),
    "changes": (JobEffect.NOTHING, "consoles show changes late"),
    "watch of stopped keys": (JobEffect.NOTHING, "streams of a key that an operator stops go on"),
    "stops of keys": (JobEffect.NOTHING, "webhooks and tasks of a key that an operator stops go on"),
    "reload": (JobEffect.NOTHING, "the agents stay as they are"),
    "courier": (JobEffect.NO_WEBHOOKS, "webhooks are not called"),
    "claims": (JobEffect.UNREADY, "the tasks of dead replicas, and those that wait to be run, are not taken on"),
    "effects": (JobEffect.UNREADY, "agents' delegations do not begin, and those of ended tasks do not end"),
    "poll": (JobEffect.UNREADY, "it is not seen what other replicas write to tasks of this one"),
    "tools": (JobEffect.NOTHING, "it is not heard that the tools of an MCP server have changed"),
    "upstream": (JobEffect.NOTHING, "the card of an agent elsewhere is not read again"),
}
"""The jobs of a server, with what depends on each and what happens while it is not running."""


def refusal(failures: JobFailures, dependent: JobEffect) -> str | None:
    """Why `dependent` is refused at present: the job that is not running; None if it is not refused."""
    for name in sorted(failures.stopped()):
        refused, why = EFFECTS[name.partition(":")[0]]
        if refused is dependent:
            return f"the job {name!r} has failed and is about to be started again: {why} until then"
    return None


class Job:
    """A job by its name, for the replica `replica`. On a store that no other process writes to, it is always ours."""

    def __init__(self, store: Store, name: str, replica: str, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._key = f"job/{name}"
        self._replica = replica.encode()
        self._lease_s = lease_s
        self._until_s = float("-inf")
        """Until when, on the loop's clock, the job need not be renewed."""

    async def take(self) -> bool:
        """Whether this replica does the job now: it did before, or nobody does. Raises StoreError."""
        if not self._store.replicas.shared:
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s < self._until_s:
            return True
        self._until_s = float("-inf")
        entry = await self._store.shared.get(self._key)
        if entry is not None and entry.value != self._replica:
            return False
        version = 0 if entry is None else entry.version
        lease_ms = int(self._lease_s * 1000)
        if await self._store.shared.put(self._key, self._replica, lease_ms, version=version) is None:
            return False
        self._until_s = now_s + self._lease_s / 2
        return True
