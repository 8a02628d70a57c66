"""Shared parts of the store cases: a clock that is set, a bench that makes stores, and short names for values.

Invariant: nothing here knows a driver.
"""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType

from msgspec.structs import replace

from dragoman.model.events import ArtifactChunk, Event, Logged, StatusChanged, Submitted
from dragoman.model.ids import Clock, timestamp
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import AccessRole, KeyLimits, Scope
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    NewTask,
    OverQuota,
    Quota,
    Refused,
    Store,
    Stored,
)
from dragoman.store.audit import AuditEntry
from dragoman.store.keyring import StoredKey
from tests.store.cases.spoiling import Way

AGENTS = ("echo", "other")

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000

W, D = TaskState.WORKING, TaskState.COMPLETED


class SetClock:
    """A clock that stands where it is put."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """Where it was put."""
        return self.ms


Spoil = Callable[[str, str, str, Way], Awaitable[None]]
"""Changes the bytes in a column of a table, in the rows that a condition in SQL selects. Without a column it deletes
these rows. No store may be open in this process."""


class Bench:
    """Makes stores for a case: `make` gives one on the same place each time, `durable` says whether it survives.

    `shared` says that several stores may be open on that place at once, as several processes have them. `spoil` changes
    bytes there behind the back of the stores; without it the cases about damage are left out.
    """

    def __init__(
        self, make: Callable[[Clock], Store], *, durable: bool, shared: bool = False, spoil: Spoil | None = None
    ) -> None:
        self.clock = SetClock()
        self.spoil = spoil
        self.durable = durable
        self.shared = shared
        self._make = make

    @asynccontextmanager
    async def store(self, holder: str = "h1") -> AsyncIterator[Store]:
        """An open store that `holder` has joined, with the agents of the cases; closed at the end."""
        async with self.opened(holder) as store:
            await store.replicas.join(holder, address="", agents=AGENTS)
            yield store

    async def spoil_task(self, table: str, column: str, task_id: str, way: Way) -> None:
        """Spoil the bytes of a task in a column of a table."""
        assert self.spoil is not None
        of_task = f"id = '{task_id}'" if table == "tasks" else f"task = (SELECT task FROM tasks WHERE id = '{task_id}')"
        await self.spoil(table, column, of_task, way)

    @asynccontextmanager
    async def opened(self, holder: str) -> AsyncIterator[Store]:
        """An open store that nobody has joined; closed at the end."""
        store = self._make(self.clock)
        await store.open(holder)
        try:
            yield store
        finally:
            await store.close()


Case = Callable[[Bench], Awaitable[None]]


def cases_of(*modules: ModuleType) -> list[Case]:
    """The cases of these modules, to be run on a bench of another kind."""
    return [case for module in modules for name, case in vars(module).items() if name.startswith("test_")]


def message(text: str, *parts: Part, role: Role = Role.USER) -> Message:
    """A message of that text and more parts."""
    return Message(message_id=f"m-{text[:20]}", role=role, parts=(Part(text=text), *parts))


def head(task_id: str, context_id: str = "c1", agent: str = "echo", owner: str = "ann") -> TaskHead:
    """The fixed facts of a task."""
    return TaskHead(
        id=task_id,
        context_id=context_id,
        agent=agent,
        owner=owner,
        dialect="v1",
        mount="/",
        created_at=timestamp(START_MS),
        metadata={"deep": {"list": [1, 2.5, None, "ü"], "big": 10**30}},
    )


def new_task(
    task_id: str,
    *,
    at: int = START_MS,
    state: TaskState = W,
    holder: str | None = "h1",
    dedupe: Dedupe | None = None,
    said: Message | None = None,
    **facts: str,
) -> NewTask:
    """A task to be created, whose log starts with what the caller said."""
    return NewTask(
        head=head(task_id, **facts),
        events=(Submitted(said or message("hello"), timestamp(at)),),
        state=state,
        status_ms=at,
        holder=holder,
        dedupe=dedupe,
    )


def status(state: TaskState, at: int = START_MS) -> StatusChanged:
    """The task moves to `state`."""
    return StatusChanged(state, timestamp(at))


def chunk(text: str, *parts: Part, append: bool = True) -> ArtifactChunk:
    """A piece of the task's artifact."""
    return ArtifactChunk(Artifact(artifact_id="a", parts=(Part(text=text), *parts)), append, False)


def record(task_id: str, seq: int, state: TaskState, *, at: int = START_MS, parts: Sequence[Part] = ()) -> Record:
    """A snapshot. The store does not care about its content."""
    return Record(
        head=head(task_id),
        seq=seq,
        status=TaskStatus(state=state, timestamp=timestamp(at)),
        history=(message("hello"),),
        artifacts=(Artifact(artifact_id="a", parts=tuple(parts)),) if parts else (),
    )


def ending(task_id: str, seq: int, *, epoch: int | None = 1, state: TaskState = D, at: int = START_MS) -> Append:
    """The append that ends a task whose log has `seq` events."""
    return Append(
        task_id=task_id,
        events=(status(state, at),),
        state=state,
        status_ms=at,
        epoch=epoch,
        snapshot=record(task_id, seq + 1, state, at=at),
    )


def by_run(task_id: str, *events: Event, epoch: int = 1, state: TaskState = W) -> Append:
    """An append by a run."""
    return Append(task_id=task_id, events=events, state=state, status_ms=START_MS, epoch=epoch)


async def refused(waiting: Awaitable[object], why: type[Refused]) -> None:
    """Check that `waiting` is refused with `why`, and no other error."""
    outcome: object
    try:
        outcome = await waiting
    except Refused as refusal:
        outcome = refusal
    assert type(outcome) is why, f"{outcome!r} instead of {why.__name__}"


async def loaded(store: Store, task_id: str) -> Stored:
    """The task, which is there."""
    found = await store.load(task_id)
    assert found is not None, f"{task_id} is not there"
    return found


def seqs(events: Sequence[Logged]) -> list[int]:
    """The numbers of events."""
    return [logged.seq for logged in events]


def said_event(said: Message) -> Submitted:
    """The first event of a task."""
    return Submitted(said, timestamp(START_MS))


async def peak_bytes(work: Callable[[], Awaitable[object]]) -> int:
    """How many bytes of memory were in use at once, beside those in use before."""
    tracemalloc.start()
    try:
        await work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def entry(number: int, principal: str = "key:ann", reason: str = "") -> AuditEntry:
    """An act of somebody at second `number`, or was refused for `reason`."""
    return AuditEntry(
        at_ms=START_MS + number * 1000,
        principal=principal,
        action="SendMessage",
        agent="echo",
        task_id=f"t{number}",
        allowed=not reason,
        reason=reason,
        peer="127.0.0.1",
        subject=f"s{number}",
    )


WIDE = StoredKey(
    id="aaaaaaaaaaaa",
    name="ann",
    role=AccessRole.ADMIN,
    agents=None,
    scopes=None,
    digest=bytes(range(32)),
    made_ms=START_MS,
    one_person=True,
)
NARROW = StoredKey(
    id="bbbbbbbbbbbb",
    name="bob ü",
    role=AccessRole.CALLER,
    agents=("echo", "weather"),
    scopes=(Scope.READ, Scope.SEND),
    digest=b"\0" * 32,
    made_ms=START_MS + 1,
    expires_ms=START_MS + 5,
    limits=KeyLimits(max_open_tasks=3, max_daily_tokens=1 << 40),
    rules=0,
)

TODAY = START_MS // DAY_MS


def limited(
    task_id: str,
    *,
    most: int = 0,
    daily: int = 0,
    day: int = TODAY,
    owner: str = "ann",
    agent: str = "echo",
    context_id: str = "c1",
) -> NewTask:
    """A task of an owner with a quota."""
    new = new_task(task_id, owner=owner, agent=agent, context_id=context_id)
    return replace(new, quota=Quota(most, daily, day))


def admitted(outcomes: Sequence[object]) -> list[str]:
    """The outcome of each: `yes`, or the limit that was reached."""
    words = []
    for outcome in outcomes:
        assert isinstance(outcome, Appended | OverQuota), outcome
        words.append(outcome.limit if isinstance(outcome, OverQuota) else "yes")
    return words
