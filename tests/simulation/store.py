"""The Store protocol for one replica: a connection to the simulated database that loses, delays and cuts.

A request is received by the database, executed, and answered, each a while after the other, and each step may fail.
So a write can be committed without its writer knowing, or arrive after its writer has given it up.

Invariant: the writes of one task that one replica makes are committed, and answered, in the order of the calls.
"""

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from dragoman.model.events import Logged
from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.operations import PushConfig
from dragoman.model.task import INTERRUPTED, TaskHead, TaskState
from dragoman.store.api import (
    AGENT_ABSENT_S,
    Append,
    Appended,
    Dedupe,
    Held,
    HolderRow,
    Listed,
    ListedRows,
    ListQuery,
    NewTask,
    OutcomeUnknown,
    Refused,
    Repeat,
    Stored,
    StoreError,
    Unknown,
    Whose,
    covers,
)
from dragoman.store.outage import WriteRecord
from dragoman.store.outbox import Delivery, Due, HostBacklog, Lane, Owed, PausedHost, Registration, Settled
from dragoman.store.replicas import Replica, ReplicaBuried, ReplicaEvent, ReplicaFenced, StoreRewound
from dragoman.store.shared import SharedEntry
from dragoman.store.state import StateEntry, StateScope, StateWrite
from dragoman.store.usage import AnswerUsage
from dragoman.store.worker_leases import DueLeases, HeldLease, WorkerLease
from tests.simulation.database import Database, Moment, Row
from tests.simulation.loop import Process, SimulatedLoop

LOCK_MAX_S = 4.0
"""How long a row can be held before the database ends the transaction."""

BEATS_A_LEASE = 3
"""A replica beats so often within its lease."""

MARGIN = 0.2
"""The part of its lease that a replica leaves unused, so that it stops before others take over."""


class Network:
    """The way from one replica to the database. A perfect one takes no time."""

    def __init__(self, seed: object = 0) -> None:
        self.cut = False
        """Whether nothing gets through, in either direction."""
        self.latency_s = 0.0
        self.slow = 0.0
        """How likely a message is slow; then it takes up to `slow_s`."""
        self.slow_s = 0.0
        self.lossy = 0.0
        """How likely a request or its answer is lost, together with the connection."""
        self._random = Random(f"network {seed}").random

    def delay_s(self) -> float:
        """How long the next message takes."""
        if not self.latency_s:
            return 0.0
        if self.slow and self._random() < self.slow:
            return self._random() * self.slow_s
        return self.latency_s * (0.5 + self._random())

    def loses(self) -> bool:
        """Whether the next message is lost."""
        return bool(self.lossy) and self._random() < self.lossy

    def waits_s(self) -> float:
        """How long it takes to notice that a connection is lost."""
        return 0.05 + self._random() * 0.5


class Lock:
    """A row that somebody holds. Requests of others wait."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.waiting: list[Callable[[], None]] = []


class Server:
    """The process of the database. While it is `down` it executes nothing."""

    def __init__(self, loop: SimulatedLoop, database: Database) -> None:
        self.loop = loop
        self.database = database
        self.process = Process("database")
        self.down = False
        self.history = 0
        """How often a standby has taken over that lacked the last commits. Connections end with the server."""
        self._locks: dict[str, Lock] = {}

    def take_over(self, moment: Moment) -> None:
        """Let a standby take over that has received nothing after a moment. Every transaction is gone."""
        locks, self._locks = self._locks, {}
        self.history += 1
        self.database.go_back(moment)
        for lock in locks.values():
            for request in lock.waiting:
                request()

    def lock(self, task_id: str, owner: object, then: Callable[[], None]) -> None:
        """Hold a row for `owner`, and call `then` when it is held."""
        lock = self._locks.get(task_id)
        if lock is not None:
            lock.waiting.append(partial(self.lock, task_id, owner, then))
            return
        self._locks[task_id] = Lock(owner)
        self.loop.post(self.process, LOCK_MAX_S, self.unlock, task_id, owner)
        then()

    def unlock(self, task_id: str, owner: object) -> None:
        """Let a row go, unless `owner` has lost it already."""
        lock = self._locks.get(task_id)
        if lock is not None and lock.owner is owner:
            del self._locks[task_id]
            for request in lock.waiting:
                request()

    def when_free(self, task_id: str | None, owner: object, then: Callable[[], None]) -> None:
        """Call `then` as soon as nobody but `owner` holds the row."""
        lock = None if task_id is None else self._locks.get(task_id)
        if lock is not None and lock.owner is not owner:
            lock.waiting.append(partial(self.when_free, task_id, owner, then))
        else:
            then()

    def holds(self, task_id: str, owner: object) -> bool:
        """Whether `owner` holds the row."""
        lock = self._locks.get(task_id)
        return lock is not None and lock.owner is owner


class SimulatedStore:
    """A replica's store: see `dragoman.store.api.Store`. `name` is the replica's process, for the history."""

    def __init__(self, server: Server, process: Process, network: Network, clock: Clock, name: str = "") -> None:
        self.clock = clock
        self.process = process
        self.network = network
        self.name = name or process.name
        self.server = server
        self.database = server.database
        self.loop = server.loop
        self.replicas = SimulatedReplicas(self)
        self.outbox = SimulatedOutbox(self)
        self.shared: Any = SimulatedShared(self)
        self.worker_leases = SimulatedLeases(self)
        self.state: Any = SimulatedState(self)
        self.keys: Any = None
        self.audit: Any = None
        self.usage: Any = SimulatedUsage()
        self.writing = WriteRecord("", clock)
        self.alter: Callable[[Append], Append] = _unaltered
        """The append as it is sent. Only mutations change it."""
        self._open = False
        self.history = server.history
        self._arrivals: dict[str, float] = {}
        self._answers: dict[str, float] = {}

    async def open(self, holder: str | None) -> None:
        """Connect. Raises StoreError if the database cannot be reached."""
        self._open = True
        try:
            await self.request(_nothing)
        except StoreError:
            self._open = False
            raise

    async def close(self) -> None:
        """Finish the writes under way; every replica that joined here is dead then."""
        if self._open:
            try:
                await self.replicas.leave(self.replicas.joined)
            except StoreError:
                pass  # its heartbeat expires
            self._open = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def request(
        self,
        act: Callable[[], Any],
        *,
        task_id: str | None = None,
        owner: object = None,
        lost: type[Exception] = StoreError,
    ) -> "Future[Any]":
        """Have the database execute `act`. A returned Refused is raised, and `lost` if the connection is lost.

        Requests with a `task_id` keep their order, and wait while anybody but `owner` holds the row.
        """
        loop, network = self.loop, self.network
        future: Future[Any] = loop.create_future()
        if network.cut or not self._open:
            refused = StoreError("the database cannot be reached")
            loop.post(self.process, network.waits_s() if self._open else 0.0, _fail, future, refused)
            return future
        if self.history != self.server.history and not self.server.down:  # the new connection says so
            self.history = self.server.history
            self.replicas.rewound()
        delay_s = network.delay_s()
        if task_id is not None:
            arrives_s = max(loop.time() + delay_s, self._arrivals.get(task_id, 0.0))
            self._arrivals[task_id] = arrives_s
            delay_s = arrives_s - loop.time()
        if network.loses():
            self._lose(future, lost)
            if network.loses() or network.slow == 0.0:
                return future  # else it arrives later, though its sender has given it up
        arrive = partial(self._arrive, future, act, task_id, lost, self.history)
        loop.post(self.server.process, delay_s, self.server.when_free, task_id, owner, arrive)
        return future

    def _arrive(
        self, future: "Future[Any]", act: Callable[[], Any], task_id: str | None, lost: type[Exception], history: int
    ) -> None:
        """The request has reached the database. Its effect there happens, whatever becomes of the answer."""
        if self.server.down or self.network.cut or history != self.server.history:
            self._lose(future, lost)
            return
        self.database.seen_s = 0.0
        try:
            outcome = act()
        except StoreError as error:
            outcome = error
        if self.network.loses():
            self._lose(future, lost)
            return
        loop = self.loop
        answers_s = max(loop.time(), self.database.seen_s) + self.network.delay_s()
        if task_id is not None:
            answers_s = self._answers[task_id] = max(answers_s, self._answers.get(task_id, 0.0))
        loop.post(self.process, answers_s - loop.time(), self._answer, future, outcome, lost, history)

    def _answer(self, future: "Future[Any]", outcome: Any, lost: type[Exception], history: int) -> None:
        if self.network.cut or history != self.server.history:
            self._lose(future, lost)
        elif not future.done():
            if isinstance(outcome, Refused | StoreError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _lose(self, future: "Future[Any]", lost: type[Exception]) -> None:
        self.loop.post(self.process, self.network.waits_s(), _fail, future, lost("the connection was lost"))

    # -- writes --------------------------------------------------------------------------------------------------------

    def create(self, new: NewTask) -> "Future[Appended | Repeat]":
        self.writing.writes += 1
        act = partial(self.database.create, self.name, new)
        return self.request(act, task_id=new.head.id, lost=OutcomeUnknown)

    def append(self, append: Append) -> "Future[Appended | Repeat]":
        self.writing.writes += 1
        return self.request(partial(self.execute, self.alter(append)), task_id=append.task_id, lost=OutcomeUnknown)

    def execute(self, append: Append) -> Appended | Repeat | Refused:
        """The write, when it has reached the database: one that was decided on another history only finds itself."""
        return self.database.append(self.name, append, outdated=append.history not in ("", str(self.server.history)))

    @asynccontextmanager
    async def hold(self, task_id: str) -> AsyncIterator[Held]:
        """Hold the row for as long as the database allows."""
        hold = Hold(self, task_id)
        try:
            hold.stored = await hold.begin()
            yield hold
        finally:
            hold.end()

    async def request_cancel(self, task_id: str) -> None:
        await self.request(partial(self.database.request_cancel, task_id), task_id=task_id)

    async def remember(self, dedupe: Dedupe, answer: Message, usage: AnswerUsage | None = None) -> Repeat | None:
        repeat: Repeat | None = await self.request(partial(self.database.remember, dedupe, answer, usage))
        return repeat

    async def claim(
        self,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float = AGENT_ABSENT_S,
        *,
        queued: bool = True,
    ) -> tuple[Stored, ...]:
        act = partial(self.database.claim, self.name, holder, limit, agents, absent_s, queued)
        claimed: tuple[Stored, ...] = await self.request(act)
        return claimed

    async def claim_woken(
        self, holder: str, limit: int, agents: Collection[str] | None, absent_s: float = AGENT_ABSENT_S
    ) -> tuple[Stored, ...]:
        act = partial(self.database.claim, self.name, holder, limit, agents, absent_s, False, True)
        claimed: tuple[Stored, ...] = await self.request(act)
        return claimed

    async def next_wake(self, after_ms: int) -> int | None:
        wakes_ms: int | None = await self.request(partial(self.database.next_wake, after_ms))
        return wakes_ms

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        act = partial(self.database.sweep, now_ms, task_age_ms, log_age_ms, waiting_age_ms)
        deleted: int = await self.request(act)
        return deleted

    async def probe(self) -> None:
        await self.request(_nothing)

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def recall(self, key: bytes) -> Repeat | None:
        repeat: Repeat | None = await self.request(partial(self.database.recall, key))
        return repeat

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        stored: Stored | None = await self.request(partial(self.database.load, task_id))
        return stored

    async def load_after(self, task_id: str, after: int) -> Stored | None:
        """As the store of several replicas: without what its reader knows."""
        stored = await self.load(task_id)
        if stored is None or stored.snapshot is not None or stored.seq < after:
            return stored
        return replace(stored, events=tuple(logged for logged in stored.events if logged.seq > after), after=after)

    async def load_snapshot(self, task_id: str) -> Stored | None:
        stored = await self.load(task_id)
        return None if stored is None else replace(stored, events=())

    async def find(self, task_id: str, owner: Whose, agent: str, bytes_max: int | None = None) -> Stored | int | None:
        """Nothing is large here."""
        stored = await self.load(task_id)
        return (
            stored if stored is not None and covers(owner, stored.head.owner) and stored.head.agent == agent else None
        )

    async def size(self, task_id: str) -> int:
        """Nothing is large here."""
        return 0

    async def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        found: tuple[TaskHead, int, TaskState] | None = await self.request(partial(self.database.head, task_id))
        return found

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        events: tuple[Logged, ...] = await self.request(partial(self.database.read, task_id, after, limit_bytes))
        return events

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        found: dict[str, tuple[Logged, ...]] = await self.request(
            partial(self.database.read_since, tuple(seen), limit_bytes)
        )
        return found

    async def messages(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        found: tuple[Stored, ...] = await self.request(partial(self.database.messages, owner, agent, context_id, limit))
        return found

    async def list(self, query: ListQuery) -> Listed:
        listed: Listed = await self.request(partial(self.database.list, query))
        return listed

    async def list_rows(self, query: ListQuery) -> ListedRows:
        listed: ListedRows = await self.request(partial(self.database.list_rows, query))
        return listed

    async def missing(self, task_ids: Collection[str]) -> frozenset[str]:
        missing: frozenset[str] = await self.request(partial(self.database.missing, tuple(task_ids)))
        return missing

    async def queued(self, agent: str, limit: int) -> tuple[str, ...]:
        waiting: tuple[str, ...] = await self.request(partial(self.database.queued, agent, limit))
        return waiting

    async def leased(self, holder: str, *, offered: bool = False) -> tuple[str, ...]:
        leased: tuple[str, ...] = await self.request(partial(self.database.leased, holder, offered=offered))
        return leased

    async def leased_of(self, agents: Collection[str], limit: int) -> tuple[HolderRow, ...]:
        held: tuple[HolderRow, ...] = await self.request(partial(self.database.leased_of, agents, limit))
        return held

    async def cancels(self, holder: str) -> tuple[str, ...]:
        marked: tuple[str, ...] = await self.request(partial(self.database.cancels, holder))
        return marked

    async def children(self, parent_id: str) -> tuple[TaskHead, ...]:
        return await self._heads(lambda row: row.head.parent == parent_id)

    async def asking(self) -> tuple[TaskHead, ...]:
        return await self._heads(lambda row: row.state in INTERRUPTED)

    async def orphans(self, after: str, limit: int) -> tuple[tuple[TaskHead, ...], str]:
        open_heads = await self._heads(lambda row: (row.head.parent or "") > after)
        parents = sorted({head.parent or "" for head in open_heads})[:limit]
        orphans = await self._heads(lambda row: row.head.parent in parents and self.database.orphaned(row))
        return orphans, parents[-1] if len(parents) == limit else ""

    async def overdue(self, now_ms: int, limit: int) -> tuple[TaskHead, ...]:
        found = await self._heads(lambda row: row.head.deadline_ms is not None and row.head.deadline_ms <= now_ms)
        return found[:limit]

    async def _heads(self, wanted: Callable[[Row], bool]) -> tuple[TaskHead, ...]:
        heads: tuple[TaskHead, ...] = await self.request(partial(self.database.heads, wanted))
        return heads


class Hold:
    """A row that is held: see `store.api.Held`."""

    stored: Stored

    def __init__(self, store: SimulatedStore, task_id: str) -> None:
        self._store = store
        self._task_id = task_id

    async def begin(self) -> Stored:
        """Hold the row and read it. Raises Unknown or StoreError."""
        store = self._store
        server, locked = store.server, store.loop.create_future()

        def held() -> None:
            store.loop.post(store.process, store.network.delay_s(), _set, locked, None)

        await store.request(partial(server.lock, self._task_id, self, held))
        async with asyncio.timeout(LOCK_MAX_S):
            await locked
        stored: Stored | None = await store.request(partial(store.database.newest, self._task_id))
        if stored is None:
            raise Unknown(self._task_id)
        return stored

    def append(self, append: Append) -> "Future[Appended | Repeat]":
        """Write while the row is held; StoreError if it is not any more."""

        def act() -> Appended | Repeat | Refused:
            if not self._store.server.holds(self._task_id, self):
                raise StoreError("the transaction took too long")
            return self._store.execute(altered)

        altered = self._store.alter(append)
        return self._store.request(act, task_id=self._task_id, owner=self, lost=OutcomeUnknown)

    def end(self) -> None:
        """Let the row go. A lost message makes no difference, because the database ends the transaction itself."""
        self._store.request(partial(self._store.server.unlock, self._task_id, self)).add_done_callback(_forget)


class SimulatedReplicas:
    """The Replicas protocol: heartbeats, until they fail for too long or one is refused."""

    shared = True

    def __init__(self, store: SimulatedStore) -> None:
        self.joined = ""
        self._store = store
        self._events: asyncio.Queue[ReplicaEvent] = asyncio.Queue()
        self._proven_s = 0.0

    @property
    def history(self) -> str:
        return str(self._store.history)

    async def next_event(self) -> ReplicaEvent:
        return await self._events.get()

    def rewound(self) -> None:
        """A server is behind the address that may lack what was read before."""
        self._store.outbox.rewinds += 1
        self._events.put_nowait(StoreRewound())

    async def join(self, replica_id: str, *, address: str, agents: Collection[str]) -> None:
        store, anew = self._store, self.joined != replica_id
        asked_s = store.loop.time()
        await store.request(partial(store.database.join, replica_id, address, tuple(agents)))
        if anew:
            self.joined, self._proven_s = replica_id, asked_s
            if store.database.lease_ms is not None:
                self._beat(replica_id)
                self._watch(replica_id)

    @property
    def _lease_s(self) -> float:
        return (self._store.database.lease_ms or 0) / 1000

    def _beat(self, replica_id: str) -> None:
        store = self._store
        if self.joined == replica_id:
            asked_s = store.loop.time()
            beating = store.request(partial(store.database.beat, replica_id))
            beating.add_done_callback(partial(self._has_beaten, replica_id, asked_s))
            store.loop.post(store.process, self._lease_s / BEATS_A_LEASE, self._beat, replica_id)

    def _has_beaten(self, replica_id: str, asked_s: float, done: "Future[bool]") -> None:
        if self.joined != replica_id or done.exception() is not None:
            return
        if done.result():
            self._proven_s = max(self._proven_s, asked_s)
        else:
            self._fence(replica_id)

    def _watch(self, replica_id: str) -> None:
        """Wait until the last proof of life is too old."""
        if self.joined == replica_id:
            loop = self._store.loop
            left_s = self._proven_s + self._lease_s * (1 - MARGIN) - loop.time()
            if left_s <= 0:
                self._fence(replica_id)
            else:
                loop.post(self._store.process, left_s, self._watch, replica_id)

    def _fence(self, replica_id: str) -> None:
        self.joined = ""
        self._events.put_nowait(ReplicaFenced(replica_id))
        self._try_again(replica_id)

    def _try_again(self, replica_id: str) -> None:
        """Ask the database whether it is there, until it is."""
        store = self._store

        def asked(done: "Future[None]") -> None:
            if done.exception() is None:
                self._events.put_nowait(ReplicaBuried(replica_id))
            else:
                store.loop.post(store.process, self._lease_s / BEATS_A_LEASE, self._try_again, replica_id)

        store.request(partial(store.database.leave, replica_id)).add_done_callback(asked)

    async def serve(self, replica_id: str, agents: Collection[str]) -> None:
        await self._store.request(partial(self._store.database.serve, replica_id, tuple(agents)))

    async def leave(self, replica_id: str) -> None:
        if self.joined == replica_id:
            self.joined = ""
        await self._store.request(partial(self._store.database.leave, replica_id))

    async def alive(self, replica_id: str) -> bool:
        found: bool = await self._store.request(partial(self._store.database.is_alive, replica_id))
        return found

    async def all(self) -> tuple[Replica, ...]:
        found: tuple[Replica, ...] = await self._store.request(self._store.database.living)
        return found

    async def served_of_late(self, within_s: float) -> frozenset[str]:
        found: frozenset[str] = await self._store.request(partial(self._store.database.served_of_late, within_s))
        return found


class SimulatedShared:
    """The part of the Shared protocol that the leases of workers use, by requests."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._database = store.database

    async def get(self, key: str) -> SharedEntry | None:
        entry: SharedEntry | None = await self._store.request(partial(self._database.entry, key))
        return entry

    async def scan(self, prefix: str) -> tuple[SharedEntry, ...]:
        entries: tuple[SharedEntry, ...] = await self._store.request(partial(self._database.entries, prefix))
        return entries

    async def put(self, key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
        written: int | None = await self._store.request(partial(self._database.put_entry, key, value, ttl_ms, version))
        return written

    async def renew(self, keys: Collection[str], ttl_ms: int) -> frozenset[str]:
        alive: frozenset[str] = await self._store.request(partial(self._database.renew_entries, tuple(keys), ttl_ms))
        return alive

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        deleted: bool = await self._store.request(partial(self._database.delete_entry, key, version))
        return deleted


class SimulatedState:
    """The StateStore protocol, by requests."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._database = store.database

    async def get_entries(self, scope: StateScope, keys: Sequence[str]) -> tuple[StateEntry, ...]:
        act = partial(self._read, lambda entry: entry.key in keys, scope)
        found: tuple[StateEntry, ...] = await self._store.request(act)
        return found

    def _read(self, wanted: Callable[[StateEntry], bool], scope: StateScope) -> tuple[StateEntry, ...]:
        return tuple(filter(wanted, self._database.state.read_entries(scope)))

    async def write_entries(self, write: StateWrite) -> int:
        task_id = None if write.guard is None else write.guard.task_id
        act = partial(self._database.write_state, self._store.name, write)
        version: int = await self._store.request(act, task_id=task_id, lost=OutcomeUnknown)
        return version


class SimulatedLeases:
    """The WorkerLeases protocol, by requests."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._database = store.database

    async def get(self, task_id: str) -> HeldLease | None:
        found: HeldLease | None = await self._store.request(lambda: self._database.leases.get(task_id))
        return found

    async def renew(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        given = tuple(tokens)
        renewed: Mapping[str, WorkerLease] = await self._store.request(
            lambda: self._database.renew_leases(given, ttl_ms)
        )
        return renewed

    async def note(self, lease: WorkerLease) -> bool:
        noted: bool = await self._store.request(lambda: self._database.leases.note(lease))
        return noted

    async def of_agent(self, agent: str) -> tuple[HeldLease, ...]:
        found: tuple[HeldLease, ...] = await self._store.request(lambda: self._database.leases.of_agent(agent))
        return found

    async def running(self, tokens: Collection[tuple[str, str]]) -> frozenset[str]:
        given = tuple(tokens)
        found: frozenset[str] = await self._store.request(lambda: self._database.leases.running(given))
        return found

    async def due(self, limit: int) -> DueLeases:
        found: DueLeases = await self._store.request(lambda: self._database.leases.due(limit))
        return found


class SimulatedUsage:
    """The part of the Usage protocol that a run uses. Nobody reads it."""

    def gather(self, used: AnswerUsage) -> None:
        pass


class SimulatedOutbox:
    """The Outbox protocol, by requests."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._rows = store.database.outbox
        self.rewinds = 0

    def register(self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]) -> "Future[None]":
        act = partial(self._rows.register, task_id, registration, deliveries)
        return self._store.request(act, task_id=task_id)

    async def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        found: tuple[PushConfig, ...] = await self._store.request(partial(self._rows.configs, task_id))
        return found

    async def remove(self, task_id: str, config_id: str) -> bool:
        removed: bool = await self._store.request(partial(self._rows.remove, task_id, config_id), task_id=task_id)
        return removed

    async def reclaim(self, now_ms: int, held: Collection[int] = ()) -> None:
        await self._store.request(partial(self._rows.reclaim, self._store.replicas.joined, now_ms, held))

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        await self._store.request(partial(self._rows.release, numbers, now_ms))

    async def claim(
        self,
        lane: Lane,
        now_ms: int,
        until_ms: int,
        limit: int,
        per_host: int,
        busy: Collection[str] = (),
        *,
        bytes_max: int | None = None,
        alone: bool = False,
        with_behind: bool = False,
    ) -> tuple[Due, ...]:
        claimant = self._store.replicas.joined
        act = partial(self._rows.claim, claimant, lane, now_ms, until_ms, limit, per_host, tuple(busy))
        taken: tuple[Due, ...] = await self._store.request(act)
        return taken

    async def next_due_ms(self) -> int | None:
        due_ms: int | None = await self._store.request(self._rows.next_due_ms)
        return due_ms

    async def owes(self, due: Due) -> bool:
        owes: bool = await self._store.request(partial(self._rows.owes, due))
        return owes

    def settle(self, settled: Settled) -> "Future[None]":
        return self._store.request(partial(self._rows.settle, settled))

    async def owed(self, *, dead: bool | None = None, limit: int = 100, after: int = 0) -> tuple[Owed, ...]:
        found: tuple[Owed, ...] = await self._store.request(partial(self._rows.owed, dead, limit, after))
        return found

    async def owed_count(self) -> tuple[int, int]:
        found: tuple[int, int] = await self._store.request(self._rows.owed_count)
        return found

    async def paused(self) -> tuple[PausedHost, ...]:
        return ()

    async def backlog(self, name: str, now_ms: int) -> HostBacklog:
        return HostBacklog()


def _unaltered(append: Append) -> Append:
    return append


def _nothing() -> None:
    """Execute nothing, to see whether the database is there."""


def _fail(future: "Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _set(future: "Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _forget(done: "Future[Any]") -> None:
    """Take note of the outcome, so that nobody warns of it."""
    if not done.cancelled():
        done.exception()
