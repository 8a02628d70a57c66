"""Desk: what all replicas of a store know of the workers of all agents: their leases, and when they were last seen.

Invariant: a lease is renewed before half of its life is over, by the replica that hears of its worker. An entry that
was replaced is not touched any more.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from secrets import token_hex
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker.roster import RosterEntry
from dragoman.engine.task_log import TaskLog
from dragoman.model.errors import LeaseLost, Unavailable
from dragoman.model.task import TaskState
from dragoman.store.api import StoreError
from dragoman.store.codec import Unreadable, decode
from dragoman.store.shared import Shared
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

LEASES = "worker/lease/"
SEEN = "worker/seen/"
ROSTER = "worker/roster/"

TICK_S = 1.0
"""How often renewals are written, all in one statement, and how often the other replicas' workers are looked for."""


ROSTER_S = 2.0
"""How often the workers that this replica knows are told to the others, while any of them calls."""

ROSTER_TTL_S = 30.0
"""How long the workers of a replica that is gone are still shown."""

ROSTERS = msgspec.msgpack.Decoder(tuple[RosterEntry, ...])


class StoredLease(Struct, frozen=True):
    """A lease as it is stored.

    The caller has sent `base` messages to the task that earlier workers have dealt with. The worker has put `asked`
    questions since, and given the first `handed` delegations. `first`: nobody had a lease of the task
    before. See `Lease` for the others.
    """

    token: str
    worker: str
    replays: bool
    first: bool
    base: int = 0
    asked: int = 0
    handed: int = 0


STORED_LEASES = msgspec.msgpack.Decoder(StoredLease)


class FoundLease(Struct, frozen=True):
    """A stored lease that has not expired, with its version in the store and the seconds that are left."""

    lease: StoredLease
    version: int
    left_s: float


class WorkEngine(Protocol):
    """The engine, as far as the desk needs it."""

    async def take_over(self, task_id: str) -> TaskState | None:
        """Run a working task here, in place of whoever has its lease. Returns its state; None if there is none.

        Raises Unavailable if this replica takes no work now, because it stops, or cannot reach the store.
        """
        ...

    async def runs(self, task_id: str) -> bool:
        """Whether a run of the task is here and has its lease, as far as the store knows now."""
        ...

    def watch(self, task_id: str) -> AbstractAsyncContextManager[TaskLog | None]:
        """A task that is kept up to date in the block; None if there is none."""
        ...

    def claim_soon(self) -> None:
        """Look for queued tasks at once, because somebody wants one."""
        ...


class Desk:
    """The leases in the store, by task. Everything here is for stores that several replicas share."""

    def __init__(self, shared: Shared, host: WorkEngine) -> None:
        self.host = host
        self._shared = shared
        self._agents: dict[str, Callable[[], tuple[RosterEntry, ...]]] = {}
        """The rosters of the agents that are served here."""
        self._renewed: dict[str, float] = {}
        """When the lease of a task was last written here, by the loop's clock."""
        self._heard: dict[str, float] = {}
        """The tasks whose workers were heard since, with the length of their leases in seconds."""
        self._dropped: dict[str, int] = {}
        self._seen_here: dict[str, float] = {}
        self._seen_told: dict[str, float] = {}
        self._seen: frozenset[str] = frozenset()
        self._id = token_hex(8)
        self._told: dict[str, tuple[float, tuple[RosterEntry, ...]]] = {}
        """The roster of each agent as the others were told it, and when, by the loop's clock."""
        self._tick_s = TICK_S

    # -- leases --------------------------------------------------------------------------------------------------------

    async def find(self, task_id: str) -> FoundLease | None:
        """The lease of a task, if a worker has it. Raises StoreError."""
        if task_id in self._dropped:
            return None
        entry = await self._shared.get(LEASES + task_id)
        if entry is None or task_id in self._dropped:
            return None
        try:
            lease = decode(STORED_LEASES, entry.value)
        except Unreadable as error:  # then no worker has it: its token cannot be checked
            log.error("the lease of task %s cannot be read: %s", task_id, error, extra=about("leases of workers"))
            return None
        return FoundLease(lease, entry.version, entry.left_ms / 1000)

    async def check(self, token: str) -> FoundLease:
        """The lease of a token, which any replica can check. Raises LeaseLost or Unavailable."""
        try:
            found = await self.find(task_of(token))
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        if found is None or found.lease.token != token:
            raise LeaseLost
        return found

    async def write(self, task_id: str, lease: StoredLease, lease_s: float, version: int | None = None) -> int | None:
        """Store a lease for `lease_s`, over any other one, or only over that `version`. Returns its version.

        None if there is another version. Raises StoreError.
        """
        self._dropped.pop(task_id, None)
        self._renewed[task_id] = asyncio.get_running_loop().time()
        self._tick_s = min(self._tick_s, lease_s / 8)
        value = msgspec.msgpack.encode(lease)
        return await self._shared.put(LEASES + task_id, value, _ms(lease_s), version=version)

    def hear(self, task_id: str, lease_s: float) -> None:
        """A worker has been heard: its lease is renewed before half of its life is over."""
        self._heard[task_id] = lease_s

    def drop(self, task_id: str, version: int) -> None:
        """End a lease soon. Until then nobody here finds it."""
        self._dropped[task_id] = version
        self.forget(task_id)

    async def settle(self, task_id: str) -> None:
        """End a dropped lease now, before the task goes to another replica. If the store fails, `run` tries again."""
        version = self._dropped.get(task_id)
        if version is not None:
            try:
                await self._shared.delete(LEASES + task_id, version=version)
            except StoreError as error:
                log.warning("task %s: its lease ends later: %s", task_id, error)
            else:
                self._dropped.pop(task_id, None)

    def forget(self, task_id: str) -> None:
        """Renew a lease no more: the task has ended, or another replica has it."""
        self._renewed.pop(task_id, None)
        self._heard.pop(task_id, None)

    # -- workers -------------------------------------------------------------------------------------------------------

    def serve(self, agent: str, roster: Callable[[], tuple[RosterEntry, ...]]) -> None:
        """Keep an eye on the workers of an agent from now on. `roster` lists those that are known here."""
        self._agents[agent] = roster

    async def rosters(self, agent: str) -> tuple[tuple[RosterEntry, ...], ...]:
        """The workers of an agent as each of the other replicas knows them, with their ages now. Raises StoreError."""
        own = _roster_key(agent, self._id)
        entries = await self._shared.scan(_roster_key(agent, ""))
        found: list[tuple[RosterEntry, ...]] = []
        for entry in entries:
            if entry.key == own:
                continue
            try:
                roster = decode(ROSTERS, entry.value)
            except Unreadable as error:
                log.error("a roster of agent %s cannot be read: %s", agent, error, extra=about(agent))
                continue
            found.append(tuple(_older(each, ROSTER_TTL_S - entry.left_ms / 1000) for each in roster))
        return tuple(found)

    def saw(self, agent: str, seen_s: float) -> None:
        """A worker of the agent has called; it counts as seen for `seen_s`."""
        self._seen_here[agent] = seen_s

    def sees(self, agent: str) -> bool:
        """Whether another replica has seen a worker of the agent lately."""
        return agent in self._seen

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is due, and learn what others wrote, for ever. Without agents of workers nothing is asked."""
        failing = False
        while True:
            try:
                if self._agents:
                    await self._tick()
                failing = False
            except StoreError as error:
                if not failing:
                    log.warning("leases of workers cannot be renewed: %s", error)
                failing = True
            await asyncio.sleep(self._tick_s)

    async def close(self) -> None:
        """Write what is due a last time."""
        try:
            if self._agents:
                await self._tick()
            for agent in self._told:
                await self._shared.delete(_roster_key(agent, self._id))
        except StoreError as error:
            log.warning("leases of workers cannot be renewed: %s", error)

    async def _tick(self) -> None:
        for task_id in tuple(self._dropped):
            await self.settle(task_id)
        now_s = asyncio.get_running_loop().time()
        due: dict[float, list[str]] = {}
        for task_id, lease_s in self._heard.items():
            if now_s - self._renewed.get(task_id, float("-inf")) >= lease_s / 4:
                due.setdefault(lease_s, []).append(task_id)
        for lease_s, task_ids in due.items():
            alive = await self._shared.renew([LEASES + task_id for task_id in task_ids], _ms(lease_s))
            for task_id in task_ids:
                self._heard.pop(task_id, None)
                if LEASES + task_id in alive:
                    self._renewed[task_id] = now_s
                else:
                    self._renewed.pop(task_id, None)
        for agent, seen_s in tuple(self._seen_here.items()):
            if now_s - self._seen_told.get(agent, float("-inf")) >= seen_s / 3:
                await self._shared.put(SEEN + agent, b"", _ms(seen_s))
                self._seen_told[agent] = now_s
            self._seen_here.pop(agent, None)
        for agent, roster in tuple(self._agents.items()):
            await self._tell_roster(agent, roster(), now_s)
        self._seen = frozenset(entry.key.removeprefix(SEEN) for entry in await self._shared.scan(SEEN))

    async def _tell_roster(self, agent: str, roster: tuple[RosterEntry, ...], now_s: float) -> None:
        """Tell the other replicas which workers are known here, if that has changed, or would be forgotten soon."""
        told_s, told = self._told.get(agent, (float("-inf"), ()))
        since_s = now_s - told_s
        if since_s < ROSTER_S or not (roster or told):
            return
        called = any(each.age_s is not None and each.age_s < since_s for each in roster)
        if not called and since_s < ROSTER_TTL_S / 2 and list(map(_shape, roster)) == list(map(_shape, told)):
            return
        key = _roster_key(agent, self._id)
        if roster:
            await self._shared.put(key, msgspec.msgpack.encode(roster), _ms(ROSTER_TTL_S))
        else:
            await self._shared.delete(key)
        self._told[agent] = now_s, roster


def _roster_key(agent: str, desk_id: str) -> str:
    return f"{ROSTER}{agent}/{desk_id}"


def _shape(entry: RosterEntry) -> tuple[object, ...]:
    """An entry without its ages, to compare it with another one."""
    return entry.worker, entry.word, entry.waits, tuple(task_id for task_id, _ in entry.leases)


def _older(entry: RosterEntry, by_s: float) -> RosterEntry:
    """The entry after a time."""
    by_s = max(0.0, by_s)
    return replace(
        entry,
        age_s=None if entry.age_s is None else entry.age_s + by_s,
        leases=tuple((task_id, max(0.0, left_s - by_s)) for task_id, left_s in entry.leases),
    )


def task_of(token: str) -> str:
    """The task of a token of `new_token`."""
    return token.rpartition(".")[0]


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
