"""SharedReplicas: the replicas that share a database, and the heartbeats that keep those of this process alive.

Invariant: the database's clock decides who is alive. A row that has expired is never renewed, and only one that has
expired, or whose replica has left, is marked dead. This process gives its own replicas up before others can, because it
counts the lease from the moment at which it asked for it.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.connection import DatabaseConnection, DatabaseIdentity, dial, identify
from dragoman.store.postgres.database.history import HistoryCount
from dragoman.store.postgres.database.migrations import check_version, migrations
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import read_statements
from dragoman.store.postgres.database.translation import FAILURES
from dragoman.store.replicas import Heartbeat, Replica, ReplicaBuried, ReplicaEvent, ReplicaFenced, StoreRewound

log = logging.getLogger("dragoman.store")

MARGIN = 0.1
"""The part of the lease by which a replica gives up before it runs out: clocks of two machines may differ in speed, and
agents need a moment to stop."""

AGAIN_S = 0.5
"""The time between two beats while they fail, or the usual time if that is shorter."""


class DatabaseClock:
    """The time of the database, extrapolated by this machine's monotonic clock.

    Until the first measurement it is the machine's own time. Later it agrees with every measurement of the last minutes
    to within that measurement's uncertainty.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() / 1e6 - time.monotonic() * 1000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(time.monotonic() * 1000 + self._offset_ms)

    def measured(self, database_ms: float, before_s: float, after_s: float) -> None:
        """Take in a measurement: the database's time was `database_ms` at some moment between two of the monotonic
        clock. The offset moves only as far as it must, so that the time does not jitter."""
        least, most = database_ms - after_s * 1000, database_ms - before_s * 1000
        self._offset_ms = min(max(self._offset_ms, least), most)


class BeatAnswer(Struct, frozen=True):
    """The database's answer to a beat.

    `asked_s` and `answered_s` are moments of the monotonic clock, `database_ms` is one of the database between them.
    """

    asked_s: float
    answered_s: float
    asked: tuple[str, ...]
    buried: tuple[str, ...]
    renewed: frozenset[str]
    database_ms: float
    proxied: bool
    identity: DatabaseIdentity


class SharedReplicas:
    """The Replicas protocol on rows that every process of the database sees. Used on one loop."""

    shared = True

    def __init__(
        self, door: PostgresDoor, address: Address, clock: Clock, heartbeat: Heartbeat, history: HistoryCount
    ) -> None:
        self._door = door
        self._history = history
        self._clock = clock
        self._heartbeat = heartbeat
        self._address = address
        self._sql = read_statements("replicas.sql", address.schema)
        self._knows = migrations()[-1].version
        self._proven: dict[str, float] = {}
        """Until when, by the monotonic clock, each replica that joined here can prove that it is alive."""
        self._lost: list[str] = []
        """Replicas that were given up, since the database last answered."""
        self._events: asyncio.Queue[ReplicaEvent] = asyncio.Queue()
        self._holder: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heart: Heart | None = None
        self._beaten_s = 0.0

    # -- the protocol --------------------------------------------------------------------------------------------------

    async def join(self, replica_id: str, *, address: str, agents: Collection[str]) -> None:
        """As the protocol says; the beats begin with it."""
        lease_s = self._heartbeat.lease_s
        asked_s = time.monotonic()
        rows = await self._write("join", replica_id, address, sorted(agents), lease_s, self._knows)
        if not rows:
            ((version, serves),) = await self._door().read(self._sql["tables_version"])
            check_version(self._address, version, serves, self._knows)
            raise StoreError(f"the replica {replica_id} is dead, and may not join again")
        self._beaten_s = asked_s
        self._measure(rows[0][0], asked_s, time.monotonic())
        self._prove((replica_id,), asked_s)
        if self._heart is None:
            self._heart = Heart(self._address, self._heartbeat, self._sql["beat"], self._hear)
        self._tell()

    async def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        await self._write("serve", replica_id, sorted(agents))

    async def leave(self, replica_id: str) -> None:
        """As the protocol says."""
        self._give_up(replica_id)
        await self._write("leave", [replica_id])

    async def alive(self, replica_id: str) -> bool:
        """A point read."""
        return bool(await self._door().read(self._sql["alive"], replica_id))

    async def all(self) -> tuple[Replica, ...]:
        """As the protocol says."""
        silent_ms = self._clock.now_ms() + self._heartbeat.lease_s * 500
        return tuple(
            Replica(
                id=name,
                address=address,
                agents=tuple(agents),
                started_ms=started_ms,
                beats_until_ms=until_ms,
                silent=until_ms < silent_ms,
            )
            for name, address, agents, started_ms, until_ms in await self._door().read(self._sql["all"])
        )

    async def served_of_late(self, within_s: float) -> frozenset[str]:
        """As the protocol says, by the clock of the database."""
        return frozenset(agent for (agent,) in await self._door().read(self._sql["served_of_late"], within_s))

    async def next_event(self) -> ReplicaEvent:
        """As the protocol says."""
        return await self._events.get()

    @property
    def history(self) -> str:
        """That of the newest connection."""
        return self._history.name

    @property
    def beat_age_s(self) -> float | None:
        """From the moment in which the beat was sent."""
        return time.monotonic() - self._beaten_s if self._beaten_s else None

    # -- for the store -------------------------------------------------------------------------------------------------

    def open(self, holder: str | None) -> None:
        """Note the name under which this process has the store open."""
        self._holder = holder

    def own_id(self) -> str:
        """A name for the counters that no other process has: that of the replica, which is another after a fence."""
        return self.current() or self._holder or ""

    def current(self) -> str:
        """The replica that joined here last and has not been given up; empty if there is none."""
        return next(reversed(self._proven), "")

    def rewound(self) -> None:
        """Another server, or another history of it, is behind the address."""
        self._events.put_nowait(StoreRewound())

    async def bury(self) -> None:
        """Declare replicas dead that have not beaten in time. Only the tasks of the dead may be claimed.

        The webhook calls that they had in flight are due at once.
        """
        await self._write("bury", self._clock.now_ms())

    async def close(self) -> None:
        """Every replica that joined here is dead then. Raises nothing: without an answer, their leases run out."""
        mine = [*self._proven, *self._lost]
        for replica_id in mine:
            self._give_up(replica_id)
        if self._heart is not None:
            await self._heart.end()
            self._heart = None
        if mine:
            try:
                await self._write("leave", mine)
            except StoreError as error:
                log.warning("others take over in %g s: %s", self._heartbeat.lease_s, error)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _prove(self, renewed: Collection[str], asked_s: float) -> None:
        """Note that these were alive when the database answered, so they are for one lease after it was asked."""
        until_s = asked_s + self._heartbeat.lease_s * (1 - MARGIN)
        for replica_id in renewed:
            self._proven[replica_id] = max(until_s, self._proven.get(replica_id, 0.0))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._proven:
            loop = asyncio.get_running_loop()
            left_s = min(self._proven.values()) - time.monotonic()
            self._timer = loop.call_later(max(0.0, left_s), self._expire)

    def _expire(self) -> None:
        """Give up the replicas that can no longer prove that they are alive."""
        self._hear()  # a loop that was busy may come here first
        now_s = time.monotonic()
        silent = [replica_id for replica_id, until_s in self._proven.items() if until_s <= now_s]
        self._lose(silent, "its heartbeats are not answered")
        self._set_timer()

    def _hear(self) -> None:
        """Take in the answers to the beats so far."""
        while self._heart is not None and self._heart.answers:
            self._answered(self._heart.answers.popleft())

    def _answered(self, answer: BeatAnswer) -> None:
        self._beaten_s = max(self._beaten_s, answer.asked_s)
        self._measure(answer.database_ms, answer.asked_s, answer.answered_s)
        self._door().identified(answer.proxied, answer.identity)
        refused = [one for one in answer.asked if one in self._proven and one not in answer.renewed]
        self._lose(refused, "others have declared it dead")
        self._prove([one for one in answer.renewed if one in self._proven], answer.asked_s)
        back = [one for one in self._lost if one in answer.buried]
        self._lost = [one for one in self._lost if one not in answer.buried]
        self._tell()
        for replica_id in back:
            self._events.put_nowait(ReplicaBuried(replica_id))

    def _measure(self, database_ms: float, asked_s: float, answered_s: float) -> None:
        if isinstance(self._clock, DatabaseClock):
            self._clock.measured(database_ms, asked_s, answered_s)

    def _lose(self, lost: Collection[str], why: str) -> None:
        for replica_id in lost:
            log.error(
                "this replica (%s) counts as dead: %s. It stops its agents and joins under another id", replica_id, why
            )
            self._give_up(replica_id)
            self._lost.append(replica_id)
            self._events.put_nowait(ReplicaFenced(replica_id))
        if lost:
            self._tell(at_once=True)

    def _give_up(self, replica_id: str) -> None:
        """Stop beating for this replica."""
        self._proven.pop(replica_id, None)
        self._set_timer()
        self._tell()

    def _tell(self, *, at_once: bool = False) -> None:
        """Tell the heart which replicas it beats for."""
        if self._heart is not None:
            self._heart.keep(tuple(self._proven), tuple(self._lost), at_once=at_once)

    async def _write(self, name: str, *values: object) -> list[Any]:
        """Run a statement that may be repeated without harm. Raises StoreError."""
        try:
            return await self._door().write(self._sql[name], *values)
        except OutcomeUnknown:
            pass
        try:
            return await self._door().write(self._sql[name], *values)
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error


class Heart:
    """The heartbeat thread. It has a loop and a connection of its own, so that nothing busy delays it.

    Answers are put in `answers`, oldest first, and `hear` is called on the loop of the heart's maker for each.
    """

    def __init__(self, address: Address, heartbeat: Heartbeat, statement: str, hear: Callable[[], None]) -> None:
        self.answers: deque[BeatAnswer] = deque()
        self._address = address
        self._heartbeat = heartbeat
        self._statement = statement
        self._hear = hear
        self._kept: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._now = asyncio.Event()
        self._beating = self._loop.create_task(self._beat_on())
        self._thread = threading.Thread(target=self._run, name="store-heart", daemon=True)
        self._thread.start()

    def keep(self, mine: tuple[str, ...], lost: tuple[str, ...], *, at_once: bool) -> None:
        """Beat for `mine`, and declare `lost` dead, from the next beat on, which comes at once or on schedule."""
        self._kept = mine, lost
        if at_once:
            self._loop.call_soon_threadsafe(self._now.set)

    async def end(self) -> None:
        """Stop beating. A beat under way is given up."""
        self._loop.call_soon_threadsafe(self._beating.cancel)
        await self._home.run_in_executor(None, self._thread.join)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._beating)
        except asyncio.CancelledError:
            pass  # `end` has asked for it
        finally:
            self._loop.close()

    async def _beat_on(self) -> None:
        beat_s = self._heartbeat.beat_s
        connection: DatabaseConnection | None = None
        failing = False
        try:
            while not self._home.is_closed():
                self._now.clear()
                try:
                    async with asyncio.timeout(beat_s):
                        if connection is None or connection.is_closed():
                            connection = await dial(self._address, prepares=False)
                        answer = await self._beat(connection)
                except FAILURES as error:
                    if not failing:
                        log.warning("a heartbeat of this replica failed: %s", str(error) or type(error).__name__)
                    failing = True
                    if connection is not None:
                        connection.terminate()
                except Exception:  # it would end the thread, and nobody would beat for this process any more
                    if not failing:
                        log.exception("a heartbeat of this replica met an error of this program")
                    failing = True
                    if connection is not None:
                        connection.terminate()
                else:
                    failing = False
                    self.answers.append(answer)
                    self._home.call_soon_threadsafe(self._hear)
                try:
                    async with asyncio.timeout(min(AGAIN_S, beat_s) if failing else beat_s):
                        await self._now.wait()
                except TimeoutError:
                    pass
        finally:
            if connection is not None:
                connection.terminate()

    async def _beat(self, connection: DatabaseConnection) -> BeatAnswer:
        mine, lost = self._kept
        asked_s = time.monotonic()
        renewed, database_ms = await connection.fetchrow(self._statement, mine, self._heartbeat.lease_s, lost)
        answered_s = time.monotonic()
        proxied, identity = await identify(connection)
        if identity is None:
            raise ConnectionError("the server has become a standby")
        return BeatAnswer(asked_s, answered_s, mine, lost, frozenset(renewed), database_ms, proxied, identity)
