"""One task of a real engine, brought into a situation and led on word by word, in virtual time.

Invariant: nothing here looks into the engine. A row says what was committed, what the speaker was told, and what became
of the lease as the database has it, so that any engine can be held against the tables.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Struct

from dragoman.agents.kinds import worker_agents
from dragoman.engine.api import Run, Runner, Traits
from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.model import ids
from dragoman.model.card import Profile
from dragoman.model.events import ArtifactChunk, Delegated, Event, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.message import Message, Part
from dragoman.model.operations import Operation, SendMessage
from dragoman.model.task import TaskState
from dragoman.store.worker_leases import WORKER
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import call, message
from tests.simulation.database import Database
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.store import Network, Server, SimulatedStore

START_MS = 1_800_000_000_000

SETTLE_S = 0.4
"""After so long everything that follows from a word has happened, but for what waits for a longer time."""

SETTINGS = EngineSettings(cancel_grace_s=5.0, retry_s=0.1, suspend_max_s=600.0, blocking_timeout_s=600.0)

CANCEL_GRACE_S = SETTINGS.cancel_grace_s

ELSEWHERE = "another replica"


class LoopClock:
    """The wall clock of the loop's time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + int(self._loop.time() * 1000)


class Outcome(Struct):
    """The answer to a word: `said` is "taken", "waits", or the error; an answer of the worker API in full."""

    said: str = "waits"


class Speaker:
    """One run of a local agent: it says what it is told to, one word after the other, or several at a time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.over = False
        self._orders: asyncio.Queue[tuple[Callable[[Run], Awaitable[Any]], Outcome, bool, bool]] = asyncio.Queue()
        self._branches: set[asyncio.Task[None]] = set()

    def order(self, word: Callable[[Run], Awaitable[Any]], *, ends: bool = False, aside: bool = False) -> Outcome:
        """Have the agent say a word. One that `ends` leaves the agent, `aside` is said by a branch of its own."""
        outcome = Outcome()
        self._orders.put_nowait((word, outcome, ends, aside))
        return outcome

    async def serve(self) -> None:
        """Be the agent. It goes on when it is cancelled, as one that cleans up does."""
        while True:
            try:
                word, outcome, ends, aside = await self._orders.get()
            except asyncio.CancelledError:
                continue
            if aside:
                branch = asyncio.ensure_future(self._say(word, outcome, ends))
                self._branches.add(branch)
                await asyncio.sleep(0)
                continue
            await self._say(word, outcome, ends)
            if ends:
                return

    async def _say(self, word: Callable[[Run], Awaitable[Any]], outcome: Outcome, ends: bool) -> None:
        try:
            answer = await word(self.run)
        except BaseException as error:
            outcome.said = "taken" if ends else told(error)
            if ends:
                raise
        else:
            outcome.said = f"answer {answer.text!r}" if isinstance(answer, Message) else "taken"


def told(error: BaseException) -> str:
    """An error as its hearer knows it."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Actor(Runner):
    """A local agent whose runs are led by a test."""

    def __init__(self, agent_id: str = "agent", **traits: Any) -> None:
        self.profile = Profile(id=agent_id, name=agent_id, description="Led", version="1", skills=())
        self.traits = Traits(**traits)
        self.speakers: list[Speaker] = []

    async def run(self, run: Run) -> None:
        """Do what the test says."""
        speaker = Speaker(run)
        self.speakers.append(speaker)
        try:
            await speaker.serve()
        finally:
            speaker.over = True

    @property
    def speaker(self) -> Speaker:
        """The newest run."""
        return self.speakers[-1]


class Stage:
    """A database, one engine after the other, and one task."""

    def __init__(self, make: Callable[[], Sequence[Runner]]) -> None:
        self.loop = SimulatedLoop()
        self.clock = LoopClock(self.loop)
        self.database = Database(self.loop.time, self.clock.now_ms, lease_ms=None)
        self._make = make
        self._starts = 0
        self.process = Process("")
        self.agents: Mapping[str, Any] = {}
        self.engine: Engine
        self.task_id = ""
        self.start()

    # -- the process ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process with an engine. Leases of an earlier one are void."""
        self._starts += 1
        self.holder = f"holder {self._starts}"
        self.process = Process(self.holder)
        self.agents = {agent.profile.id: agent for agent in self._make()}
        started = self.loop.create_future()
        self.loop.spawn(self.process, self._serve(started))
        self.loop.run(done=started.done)

    async def _serve(self, started: "asyncio.Future[None]") -> None:
        store = SimulatedStore(Server(self.loop, self.database), self.process, Network(), self.clock)
        await store.open(self.holder)
        self.engine = Engine(store, self.agents, clock=self.clock, settings=SETTINGS, holder=self.holder)  # type: ignore[arg-type]
        for workers in worker_agents(self.agents.values()).values():
            workers.leases.serve(self.engine.worker_tasks)
        async with asyncio.TaskGroup() as group:
            await self.engine.start(JobGroup(group))
            started.set_result(None)
            await self.loop.create_future()

    def crash(self) -> None:
        """End the process at once, and start another one."""
        self.loop.kill(self.process)
        self.database.leave(self.holder)
        self.database.leases.clear()  # as those of a store in one process
        for task_id, row in self.database.rows.items():
            if row.holder == WORKER:
                self.database.change(task_id, holder=self.holder)
        self.start()
        self.settle()

    def close(self) -> None:
        """Forget everything."""
        self.loop.close()

    # -- time ----------------------------------------------------------------------------------------------------------

    def settle(self, seconds: float = SETTLE_S) -> None:
        """Let time pass."""
        self.loop.run(until_s=self.loop.time() + seconds)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begin something in the server's process."""
        return self.loop.spawn(self.process, work)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the server's process, and let everything settle."""
        task = self.spawn(work)
        self.settle()
        assert task.done(), "it waits"
        return task.result()

    # -- callers -------------------------------------------------------------------------------------------------------

    def send(self, text: str = "hi") -> None:
        """A caller makes the task, or sends it a further message."""
        operation = SendMessage(message=message(text, task_id=self.task_id or None), return_immediately=True)
        self.task_id = self.ask(operation).head.id
        self.settle()

    def ask(self, operation: Operation, **around: Any) -> Any:
        """A caller's call."""
        return self.do(self.engine.operations.call(call(operation, **around)))

    # -- what became of it ---------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[int, int]:
        """The seq and the epoch of the task."""
        row = self.database.rows[self.task_id]
        return row.seq, row.epoch

    def since(self, before: tuple[int, int]) -> dict[str, Any]:
        """What has happened to the task since then."""
        row = self.database.rows[self.task_id]
        holder = {None: "nobody", self.holder: "this replica", "worker": "a worker"}.get(row.holder, row.holder)
        return {
            "events": [spell(logged.event) for logged in row.log if logged.seq > before[0]],
            "state": name_of(row.state),
            "lease": f"{holder}, epoch +{row.epoch - before[1]}",
        }


def name_of(state: TaskState) -> str:
    """A state in short."""
    return state.value.removeprefix("TASK_STATE_").lower()


def spell(event: Event) -> str:
    """An event in short, without ids and times."""
    match event:
        case StatusChanged():
            words = [name_of(event.state)]
            if event.message is not None:
                words.append(spell_parts(event.message.parts))
                if event.message.reference_task_ids:
                    words.append("for a delegated task")
                if event.message.metadata:
                    words.append(json.dumps(event.message.metadata, sort_keys=True))
            if event.progress is not None:
                words.append(f"{event.progress.current}/{event.progress.total}")
            if event.usage is not None:
                words.append(f"{event.usage.total_tokens} tokens")
            if event.metadata:
                words.append(json.dumps(event.metadata, sort_keys=True))
            return " ".join(words)
        case ArtifactChunk(artifact, append, last_chunk):
            marks = [mark for mark, is_set in (("append", append), ("last", last_chunk)) if is_set]
            return " ".join(["artifact", artifact.artifact_id, spell_parts(artifact.parts), *marks])
        case MessageReceived(said, _):
            return f"message {spell_parts(said.parts)}"
        case Noted(note):
            return f"note {json.dumps(note, sort_keys=True)}"
        case Delegated():
            return f"delegated {event.number} {event.agent} {name_of(event.state)} {event.text!r}"
        case Submitted(said, _):
            return f"submitted {spell_parts(said.parts)}"
        case _:
            return type(event).__name__


def spell_parts(parts: Sequence[Part]) -> str:
    """Parts in short."""
    return repr("".join(part.text if part.text is not None else "?" for part in parts))


REFERENCE = re.compile(r"reference [0-9a-f]+")


@contextmanager
def determined() -> Iterator[None]:
    """Ids in the order of their making, and no logs."""
    ours, count = ids.uuid7, 0
    log = logging.getLogger("dragoman")
    level = log.level

    def numbered() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-7000-8000-000000000000"

    ids.uuid7 = numbered  # type: ignore[assignment]
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        ids.uuid7 = ours
        log.setLevel(level)


S = TypeVar("S", bound=Stage)


def after(before: Callable[[], S], *steps: Callable[[S], object]) -> Callable[[], S]:
    """The situation in which these steps lead from the one before."""

    def come_there() -> S:
        stage = before()
        for step in steps:
            step(stage)
        return stage

    return come_there


def sends(text: str) -> Callable[[Stage], object]:
    """The caller sends a message to the task."""
    return lambda stage: stage.send(text)


def waits(seconds: float) -> Callable[[Stage], object]:
    """So much time passes."""
    return lambda stage: stage.settle(seconds)
