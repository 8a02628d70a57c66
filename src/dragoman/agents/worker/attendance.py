"""Attendance: what the replicas of a store know of the workers of all agents: who they are, and when they called.

Invariant: what is told of a worker expires by itself, so that nobody counts a worker whose replica is gone.
"""

import asyncio
import logging
from secrets import token_hex
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dragoman.agents.worker.roster import RosterEntry
from dragoman.store.api import StoreError
from dragoman.store.codec import DamagedRow, decode
from dragoman.store.shared import Shared
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

SEEN = "worker/seen/"
ROSTER = "worker/roster/"

TICK_S = 1.0
"""How often the other replicas are told of the workers here, and asked for theirs."""


ROSTER_S = 2.0
"""How often the workers that this replica knows are told to the others, while any of them calls."""

ROSTER_TTL_S = 30.0
"""How long the workers of a replica that is gone are still shown."""

ROSTERS = msgspec.msgpack.Decoder(tuple[RosterEntry, ...])


class OwnWorkers(Protocol):
    """The workers of an agent that call this replica."""

    def roster(self) -> tuple[RosterEntry, ...]:
        """The workers as this process knows them, without their leases."""
        ...


class Attendance:
    """The workers of a store that several replicas share."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._agents: dict[str, OwnWorkers] = {}
        """By the agent that is served here."""
        self._seen_here: dict[str, tuple[float, float]] = {}
        """By name, how long what was seen here counts, and how often it is told."""
        self._seen_told: dict[str, float] = {}
        self._seen: frozenset[str] = frozenset()
        self._id = token_hex(8)
        self._told: dict[str, tuple[float, tuple[RosterEntry, ...]]] = {}
        """The roster of each agent as the others were told it, and when, by the loop's clock."""

    # -- workers -------------------------------------------------------------------------------------------------------

    def serve(self, agent: str, workers: OwnWorkers) -> None:
        """Tell other replicas of an agent's workers from now on."""
        self._agents[agent] = workers

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
            except DamagedRow as error:
                log.error("a roster of agent %s cannot be read: %s", agent, error, extra=about(agent))
                continue
            found.append(tuple(_older(each, ROSTER_TTL_S - entry.left_ms / 1000) for each in roster))
        return tuple(found)

    def saw(self, name: str, seen_s: float, every_s: float | None = None) -> None:
        """A worker of the agent has called, or of a version of its code (`version_name`).

        It counts as seen for `seen_s`. The others are told at most every `every_s`; without it, every third of that.
        """
        self._seen_here[name] = seen_s, seen_s / 3 if every_s is None else every_s

    def sees(self, name: str) -> bool:
        """Whether any replica has seen a worker of the agent lately, or one with a version of its code."""
        return name in self._seen

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
                    log.warning("the workers here cannot be told to other servers: %s", error)
                failing = True
            await asyncio.sleep(TICK_S)

    async def close(self) -> None:
        """Write what is due a last time."""
        try:
            if self._agents:
                await self._tick()
            for agent in self._told:
                await self._shared.delete(_roster_key(agent, self._id))
        except StoreError as error:
            log.warning("the workers here cannot be told to other servers: %s", error)

    async def _tick(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for name, (seen_s, every_s) in tuple(self._seen_here.items()):
            if now_s - self._seen_told.get(name, float("-inf")) >= every_s:
                await self._shared.put(SEEN + name, b"", _ms(seen_s))
                self._seen_told[name] = now_s
            self._seen_here.pop(name, None)
        for agent, workers in tuple(self._agents.items()):
            await self._tell_roster(agent, workers.roster(), now_s)
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


def _roster_key(agent: str, replica_id: str) -> str:
    return f"{ROSTER}{agent}/{replica_id}"


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


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
