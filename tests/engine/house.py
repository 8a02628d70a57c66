"""An engine on a real store, with scripted agents, a clock that stands still, and callers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dragoman.admin.switches import RunningTasks, SwitchState
from dragoman.agents.kinds import worker_agents
from dragoman.engine.announcements import Announcer
from dragoman.engine.api import DirectMode, Run, Runner, Traits
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Snapshot, Stream, StreamItem
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.observer import Observer
from dragoman.engine.policy import EngineSettings
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.spending import NO_RULES, SpendingRules
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    GetTask,
    ListTasks,
    Manners,
    Operation,
    SendMessage,
    StreamMessage,
    Subscribe,
    TaskPage,
    UpdateStatus,
)
from dragoman.model.principal import AccessRole, Principal
from dragoman.model.task import Record, TaskState
from dragoman.store.api import Append, Appended, NewTask, Repeat, Store, StoreFull
from dragoman.store.open import open_store
from dragoman.store.replicas import ReplicaFenced
from dragoman.telemetry.job_group import JobGroup
from tests.kit.switches import put_switch
from tests.kit.waiting import no_hang
from tests.store.cases.engines import CutReplicas, Unacknowledged

DEADLINE_S = 60.0
"""Nothing here takes so long, unless it hangs."""


class StandingClock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Scripted(Runner):
    """An agent that does what a function says."""

    def __init__(
        self,
        script: Callable[[Run], Awaitable[None]],
        agent_id: str = "agent",
        *,
        direct: DirectMode = False,
        direct_wait_s: float = DEADLINE_S,
        deadline_s: float | None = None,
        restartable: bool = False,
        one_message: bool = False,
        speaks_soon: bool = False,
        steps_version: str = "",
        **profile: Any,
    ) -> None:
        skills = profile.pop("skills", (AgentSkill(id="talk", name="Talk", description="Talks", tags=()),))
        self.profile = Profile(
            id=agent_id, name=agent_id, description="A scripted agent", version="1", skills=skills, **profile
        )
        self.traits = Traits(
            direct=direct,
            direct_wait_s=direct_wait_s,
            deadline_s=deadline_s,
            restartable=restartable,
            one_message=one_message,
            speaks_soon=speaks_soon,
            steps_version=steps_version,
        )
        self.script = script

    async def run(self, run: Run) -> None:
        await self.script(run)


class Fragile:
    """The store with a seam: it can be full, lose acknowledgements, be held back, or cut off as by a crash."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.replicas = CutReplicas(store.replicas)
        self.full = 0
        self.lost = 0
        self.cut = False
        self.unreadable = False
        self.appends: list[Append] = []
        self.loaded: list[str] = []
        self.held: asyncio.Event | None = None
        self.held_appends: asyncio.Event | None = None
        self.held_reads: asyncio.Event | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, new: NewTask) -> "asyncio.Future[Appended | Repeat]":
        written = self._failing() or self._losing().create(new)
        if self.held is None:
            return written
        return asyncio.ensure_future(self._late(written, self.held))

    async def _late(self, written: "asyncio.Future[Appended | Repeat]", held: asyncio.Event) -> Appended | Repeat:
        """The write is done, but whoever asked for it does not hear of it yet."""
        outcome = await written
        await held.wait()
        return outcome

    async def load(self, task_id: str, size: int | None = None) -> Any:
        self.loaded.append(task_id)
        return await self._store.load(task_id, size)

    async def find(self, task_id: str, owner: str, agent: str, bytes_max: int | None = None) -> Any:
        found = await self._store.find(task_id, owner, agent, bytes_max)
        if found is not None:
            self.loaded.append(task_id)
        return found

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        self.appends.append(append)
        written = self._failing() or self._losing().append(append)
        return written if self.held_appends is None else asyncio.ensure_future(self._late(written, self.held_appends))

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        if self.unreadable:
            raise StoreFull("cannot be read")
        log = await self._store.read(task_id, after, limit_bytes)
        if self.held_reads is not None:
            await self.held_reads.wait()
        return log

    async def request_cancel(self, task_id: str) -> None:
        if self.full:
            raise StoreFull("no space")
        await self._store.request_cancel(task_id)

    def _losing(self) -> Any:
        if not self.lost:
            return self._store
        self.lost -= 1
        return Unacknowledged(self._store, lost=1)

    def _failing(self) -> "asyncio.Future[Appended | Repeat] | None":
        future: asyncio.Future[Appended | Repeat] = asyncio.get_running_loop().create_future()
        if self.cut:
            return future
        if not self.full:
            return None
        self.full -= 1
        asyncio.get_running_loop().call_soon(future.set_exception, StoreFull("no space"))
        return future


class House:
    """An engine at work, and shorthand for its callers."""

    def __init__(
        self, engine: Engine, store: Fragile, clock: StandingClock, records: RecordReader | None = None
    ) -> None:
        self.engine = engine
        self.store = store
        self.clock = clock
        self.records = records

    @property
    def in_memory(self) -> int:
        """How many tasks the engine holds."""
        return len(self.engine.tasks)

    async def ask(self, operation: Operation, **around: Any) -> Any:
        """Call a unary operation."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.engine.operations.call(call(operation, **around))

    async def open(self, operation: Operation, **around: Any) -> Stream:
        """Open a stream."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.engine.operations.stream(call(operation, **around))

    async def send(self, text: str = "hi", *, around: dict[str, Any] | None = None, **fields: Any) -> Record:
        """SendMessage that is answered with a task."""
        answer = await self.ask(sending(text, **fields), **(around or {}))
        assert isinstance(answer, Record)
        return answer

    async def begin(self, text: str = "hi", **fields: Any) -> str:
        """SendMessage that does not wait; the id of the task."""
        return (await self.send(text, return_immediately=True, **fields)).head.id

    async def at_work(self, text: str = "hi", **fields: Any) -> str:
        """The id of a new task, on which its agent works."""
        task_id = await self.begin(text, **fields)
        await self.reach(task_id, TaskState.WORKING)
        return task_id

    async def get(self, task_id: str, **around: Any) -> Record:
        record = await self.ask(GetTask(id=task_id), **around)
        assert isinstance(record, Record)
        return record

    async def cancel(self, task_id: str, **around: Any) -> Record:
        record = await self.ask(CancelTask(id=task_id), **around)
        assert isinstance(record, Record)
        return record

    async def listed(self, operation: ListTasks | None = None, **around: Any) -> TaskPage:
        page = await self.ask(operation or ListTasks(), **around)
        assert isinstance(page, TaskPage)
        return page

    async def reach(self, task_id: str, *states: TaskState, **around: Any) -> Record:
        """Wait until the task is in one of the states."""
        async with asyncio.timeout(DEADLINE_S):
            stream = None
            while (record := await self.get(task_id, **around)).state not in states:
                if stream is None:
                    try:
                        stream = await self.engine.operations.stream(call(Subscribe(id=task_id), **around))
                    except UnsupportedOperation:  # it has ended just now
                        break
                if await stream.next() is None:
                    break
            if stream is not None:
                stream.close()
        record = await self.get(task_id, **around)
        assert record.state in states, record.status
        return record

    async def switch(self, state: SwitchState, agent: str = "agent", *, running: RunningTasks = "cancel") -> None:
        """An operator switches an agent."""
        assert self.records is not None
        await put_switch(self.records, agent, state, running=running)

    async def drain(self, grace_s: float) -> None:
        """Stop the engine as a server does that is told to stop."""
        await self.engine.drain(grace_s)

    async def log(self, task_id: str) -> list[Logged]:
        """The whole log as the store has it."""
        return list(await self.store.read(task_id, 0, 1 << 40))

    async def crash(self) -> None:
        """Nothing is written any more, and everything stops."""
        self.store.cut = True
        await self.store.replicas.say(ReplicaFenced(self.engine.replica_id))
        await self.engine.drain(0)


def message(text: str = "hi", *, parts: Sequence[Part] | None = None, **fields: Any) -> Message:
    fields.setdefault("message_id", new_id())
    fields.setdefault("role", Role.USER)
    return Message(parts=tuple(parts) if parts is not None else (Part(text=text),), **fields)


MESSAGE_FIELDS = frozenset({"message_id", "role", "context_id", "task_id", "reference_task_ids", "extensions", "parts"})


def sending(text: str = "hi", kind: type[SendMessage] = SendMessage, **fields: Any) -> SendMessage:
    """A send; fields of the message and of the request in one."""
    inner = {name: fields.pop(name) for name in tuple(fields) if name in MESSAGE_FIELDS}
    return kind(message=message(text, **inner), **fields)


def streaming(text: str = "hi", **fields: Any) -> SendMessage:
    return sending(text, StreamMessage, **fields)


MANNERS = {
    "1.0": Manners(),
    "0.3": Manners(subscribed_until_terminal=False),
    "beeos": Manners(late_is_error=True),
    "kaos": Manners(answers_with_message=False, subscribed_until_terminal=False),
    "protoagent": Manners(answers_with_message=False, subscribed_until_terminal=False, subscribes_to_ended=True),
}


def call(
    operation: Operation,
    owner: str = "anna",
    agent: str = "agent",
    dialect: str = "1.0",
    role: AccessRole | None = None,
    **around: Any,
) -> Call:
    """A call by somebody who may do that: who reports on tasks is a worker."""
    standing = AccessRole.AGENT if isinstance(operation, CompleteTask | UpdateStatus) else AccessRole.CALLER
    return Call(
        operation=operation,
        principal=Principal(owner, role or standing),
        agent=agent,
        dialect=dialect,
        mount="/",
        manners=MANNERS[dialect],
        **around,
    )


async def read(stream: Stream, *, until: Callable[[list[Any]], bool] | None = None) -> list[Any]:
    """All items of a stream to its end, or until they suffice."""
    items: list[Any] = []
    async with asyncio.timeout(DEADLINE_S):
        while until is None or not until(items):
            batch = await stream.next()
            if batch is None:
                break
            items.extend(batch)
    return items


def seqs(items: Sequence[StreamItem]) -> list[int]:
    """The seq of each item, a snapshot's too."""
    return [
        item.record.seq if isinstance(item, Snapshot) else item.seq for item in items if not hasattr(item, "message")
    ]


def states(items: Sequence[StreamItem]) -> list[TaskState]:
    return [item.event.state for item in items if isinstance(item, Logged) and isinstance(item.event, StatusChanged)]


def text_of(record: Record, artifact: int = 0) -> str:
    return "".join(part.text or "" for part in record.artifacts[artifact].parts)


async def say(run: Run, text: str, artifact_id: str = "a", *, append: bool = True, last: bool = False) -> None:
    """Give out a chunk of text."""
    await run.artifact(Artifact(artifact_id=artifact_id, parts=(Part(text=text),)), append=append, last_chunk=last)


async def echo(run: Run) -> None:
    await say(run, run.message.text, append=False, last=True)


async def forever(run: Run) -> None:
    """Say that it has begun, and work until it is stopped."""
    await say(run, "begun")
    await asyncio.Event().wait()


async def silence(run: Run) -> None:
    """Work until it is stopped, and say nothing."""
    await asyncio.Event().wait()


@asynccontextmanager
async def house(
    *agents: Scripted,
    url: str = "memory:",
    clock: StandingClock | None = None,
    crashes: bool = False,
    grace_s: float = 1.0,
    announcer: Announcer | None = None,
    identified: Callable[[str], bool] | None = None,
    trail: Trail | None = None,
    observer: Observer | None = None,
    seen_as: Callable[[Store], Store] = lambda store: store,
    spending: SpendingRules = NO_RULES,
    **settings: Any,
) -> AsyncIterator[House]:
    """An engine with these agents (default: one that echoes), drained at the end; then it must hold nothing.

    With `crashes` the block ends it with `crash`. `seen_as` gives the store as the engine has it.
    """
    clock = clock or StandingClock()
    store = Fragile(seen_as(open_store(url, clock)))
    holder = new_id()
    await store.open(holder)
    records = RecordReader(store, shared=False)
    await records.refresh()
    try:
        engine = Engine(
            store,
            {agent.profile.id: agent for agent in agents or (Scripted(echo),)},
            clock=clock,
            settings=EngineSettings(**settings),
            holder=holder,
            announcer=announcer,
            identified=identified,
            trail=trail,
            observer=observer,
            records=records,
            spending=spending,
        )
        for workers in worker_agents(agents).values():
            workers.leases.serve(engine.worker_tasks)
        here = House(engine, store, clock, records)
        async with no_hang(), asyncio.TaskGroup() as group:
            await engine.start(JobGroup(group))
            try:
                yield here
            finally:
                if crashes:
                    await here.crash()
                else:
                    await engine.drain(grace_s)
        assert crashes or here.in_memory == 0, "tasks that nothing holds stay in memory"
    finally:
        await store.close()
