"""Leases: the workers of one agent, and their calls about the tasks that they have.

Invariant: at most one worker has a task. Its words are committed before it hears of them, whatever replica it calls.

A task that nobody has waits in the store's queue, and a lease is a row beside its task (`store.worker_leases`).

| Module | holds |
|---|---|
| `presence` | who the workers are, and which of them wait for work |
| `queue` | how a task that nobody has is given to a worker |
| `task_cache` | the tasks that workers have, as they are known here |
| `word_outcome` | what a word comes to: events, and the changed lease |
| `teller` | how a word is written |
| `parent` | delegations of tasks that workers have |
| `leased_state` | the stored state that workers reach |
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker.held_tasks import HeldTasks
from dragoman.agents.worker.leased_state import LeasedSpace
from dragoman.agents.worker.presence import Presence
from dragoman.agents.worker.queue import PASSED_OVER_S, TakenTask, Terms, WorkerQueue
from dragoman.agents.worker.recorded_words import shown_event
from dragoman.agents.worker.roster import RosterEntry, WorkerWord
from dragoman.agents.worker.task_cache import WORK_S, TaskCache, task_of
from dragoman.agents.worker.teller import Teller
from dragoman.agents.worker.words import SpokenWord, ToldSleep, ToldStep, word_of
from dragoman.engine.log import Log
from dragoman.engine.runs.places import NUMBERS_FROM, step_key
from dragoman.engine.runs.replay import RecordedSleep
from dragoman.engine.runs.task_sink import metadata_of
from dragoman.engine.state_space import scope_of
from dragoman.engine.words import Ask, Delegation
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated, Logged, Stepped
from dragoman.model.headers import TaskHeaders
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message
from dragoman.model.operations import NOTHING_CONFIRMED, CompleteTask, Confirmed, UpdateStatus
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskHead, TaskState, Usage
from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.state import StateKind
from dragoman.store.worker_leases import WorkerLease
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

LEASE_S = 30.0
"""Seconds that a worker may be silent before its task goes to another."""

SEEN_S = 30.0
"""Seconds after the last word of a worker during which its agent counts as online."""

SILENT_MAX = 1_000_000
"""More leases than ever run out before the next look."""

HELD_MAX = 500
"""How many tasks that workers took here are looked up at once."""

NOBODY_ASKED = "the task waits for its caller's message: then a worker gets it"


LOG_BYTES = 1_000_000
"""About how much of a log a worker gets at once that replays by itself."""


class StepStanding(Struct, frozen=True):
    """How it stands with a step. Its worker executes it, unless it is `recorded`, or was begun before: `uncertain` is
    how often it was, without anybody knowing whether it was executed."""

    key: str
    recorded: Stepped | None = None
    uncertain: int = 0


class SleepStanding(Struct, frozen=True):
    """How it stands with a sleep that ends at `wakes_ms`, or ended earlier: it goes on for `left_ms`."""

    wakes_ms: int
    left_ms: int


class Beat(Struct, frozen=True):
    """The answer to a heartbeat. `answers` are those that the worker has not seen."""

    cancel: bool
    answers: tuple[Message, ...] = ()


class Leases:
    """The workers of the agent `agent`. Satisfies `engine.api.Workers`."""

    def __init__(self, agent: str, lease_s: float = LEASE_S, seen_s: float = SEEN_S) -> None:
        self.lease_s = lease_s
        self.deadline_s: float | None = None
        """How long a worker may work on a task at a stretch."""
        self.lost = 0
        """How many leases have run out, because their workers kept silent."""
        self.presence = Presence(agent, seen_s)
        self._agent = agent
        self._held_tasks = HeldTasks()
        self._cache: TaskCache | None = None
        self._queue: WorkerQueue
        self._teller: Teller
        """These three are made when the agent is first served."""

    def limit(self, lease_s: float, deadline_s: float | None) -> None:
        """Set both times for the tasks that are taken from now on; heartbeats know the new `lease_s` at once."""
        self.lease_s, self.deadline_s = lease_s, deadline_s

    # -- for the server ------------------------------------------------------------------------------------------------

    def serve(self, tasks: WorkerTasks) -> None:
        """Give out tasks from now on."""
        if self._cache is None or self._cache.tasks is not tasks:
            self._cache = TaskCache(self._agent, tasks, self._held_tasks)
            self._queue = WorkerQueue(self._agent, self._cache, self._held_tasks, self.presence)
            self._teller = Teller(self._cache, self._held_tasks)
        self.presence.open(tasks.versions.absent_s)

    @property
    def cache(self) -> TaskCache:
        """The tasks that the workers have."""
        assert self._cache is not None, "the agent is not served yet"
        return self._cache

    @property
    def tasks(self) -> WorkerTasks:
        """The engine's side."""
        return self.cache.tasks

    @property
    def connected(self) -> int:
        """See `telemetry.counts.WorkerPool`."""
        return self.presence.connected

    @property
    def held(self) -> int:
        """How many tasks workers have taken here."""
        return len(self._held_tasks)

    async def workers(self) -> tuple[RosterEntry, ...]:
        """The workers as all replicas know them, with their leases. Raises StoreError."""
        leases: dict[str, list[tuple[str, float]]] = {}
        for held in await self.tasks.leases.of_agent(self._agent):
            leases.setdefault(held.lease.worker, []).append((held.lease.task_id, held.left_ms / 1000))
        return await self.presence.rosters(leases)

    def close(self) -> None:
        """Give out no more work, since the server is stopping."""
        self.presence.close()
        if self._cache is not None:
            self._cache.wake()

    def offer(self) -> None:
        """See `engine.api.Workers`."""
        self.presence.offer()

    def note_silent(self, lease: WorkerLease) -> None:
        """See `engine.api.Workers`."""
        self.lost += 1
        log.warning(
            "agent %s: the lease of task %s is lost: worker %.100s was silent for %g s",
            self._agent,
            lease.task_id,
            lease.worker,
            self.lease_s,
            extra=about(self._agent, agent=self._agent, worker=lease.worker[:100]),
        )
        self._held_tasks.finish(lease.task_id, "working")

    async def note_lost(self) -> None:
        """See `engine.api.Workers`."""
        held = self._held_tasks.next(HELD_MAX)
        run = await self.tasks.leases.running(held) if held else frozenset[str]()
        for task_id, token in held:
            if token not in run:
                state = await self.tasks.state(task_id)
                self._held_tasks.lose(task_id, token, SPELLED[state or TaskState.CANCELED])

    def forget_idle(self, for_s: float = WORK_S) -> None:
        """See `engine.api.Workers`."""
        if self._cache is not None:
            self._cache.forget_idle(for_s)

    def rewound(self) -> None:
        """See `engine.api.Workers`."""
        if self._cache is not None:
            self._cache.rewound()

    async def left(self) -> None:
        """See `engine.api.Workers`."""
        tasks = self.tasks
        while not self.presence.closed:
            try:
                if tasks.shared:
                    await self.note_lost()
                    if not self.held:
                        return
                elif not await self._open():
                    return
            except StoreError:
                pass
            await asyncio.sleep(min(1.0, self.lease_s / 8))

    async def _open(self) -> bool:
        """Whether a worker has a task of the agent, has lost one just now, or may take one from the queue.

        Looked at in this order, since a task goes that way.
        """
        leases = self.tasks.leases
        if await leases.of_agent(self._agent):
            return True
        silent = (await leases.due(SILENT_MAX)).silent
        return any(lease.agent == self._agent for lease in silent) or bool(
            await self.tasks.store.queued(self._agent, 1)
        )

    # -- taking tasks, and giving them back ----------------------------------------------------------------------------

    async def take(
        self, worker: str, wait_s: float, *, replays: bool = False, steps_version: str = ""
    ) -> TakenTask | None:
        """Lease the task that has waited longest; None if there is none for `wait_s`.

        A worker with a `steps_version` gets none that began with another one (`engine.code_versions`).

        Raises Unavailable when the server is stopping, or its store cannot answer.
        """
        presence = self.presence
        presence.saw_code(worker, steps_version)
        if presence.closed:
            raise Unavailable("the server is stopping: ask again in a moment", 1)
        deadline = _now() + wait_s
        terms = Terms(worker, replays, self.lease_s, self.deadline_s, steps_version)
        while True:
            offers = presence.offers
            try:
                taken = await self._queue.take(terms)
            except asyncio.CancelledError:
                presence.offer()  # this worker may be the only one that heard of the task
                raise
            if taken is not None:
                presence.offer()  # there may be more
                return taken
            if presence.closed or (rest_s := deadline - _now()) <= 0:
                return None
            if presence.offers == offers:
                if self._queue.passes_over(steps_version):  # what waits for its code in vain has to be ended
                    rest_s = min(rest_s, PASSED_OVER_S)
                await presence.wait(worker, rest_s, steps_version)

    async def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost or Unavailable."""
        self._saw(token)
        with ANSWERING:
            await self.cache.release(token)

    # -- words ---------------------------------------------------------------------------------------------------------

    async def say(
        self,
        token: str,
        word: SpokenWord,
        *,
        usage: Usage | None = None,
        number: int = 0,
        weight: int = 0,
        confirmed: Confirmed = NOTHING_CONFIRMED,
    ) -> None:
        """Take a worker's word about the task of its lease. Returns once it is committed.

        A word whose `number` is not greater than that of an earlier one of the same lease is a repetition of that word.
        `weight` is the size of a chunk as `Bounds.weigh_plain` found it; 0: it has to be checked. If the store has lost
        something that is `confirmed`, here and in the other words, the lease is lost.
        Raises InvalidParams, LeaseLost, or Unavailable if the store cannot be written now.
        """
        known = self._saw(token)
        with ANSWERING:
            await self._teller.tell(task_of(token), token, word, usage, number, weight, confirmed)
        if not known:
            self._saw(token)

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """See `engine.api.Workers`. Without a lease the report is made under the present one, or none while the task
        is queued, as long as the task was delivered once at most.
        """
        task_id, token, word = report.id, report.lease, word_of(report)
        self._saw(token)
        with ANSWERING:
            if token is None:
                held = await self.tasks.leases.get(task_id)
                if held is not None and held.runs:
                    if held.lease.delivery > 1:
                        raise InvalidParams(
                            "lease", "is needed, since the task was delivered again: send the one you got"
                        )
                    token = held.lease.token
                elif held is None and await self.tasks.state(task_id) in INTERRUPTED:
                    raise InvalidParams("id", NOBODY_ASKED)
            elif task_of(token) != task_id:
                raise LeaseLost
            number = report.number if isinstance(report, UpdateStatus) else 0
            await self._teller.tell(task_id, token, word, number=number, confirmed=report.confirmed)

    async def ask(
        self, token: str, question: Ask, number: int, wait_s: float, *, confirmed: Confirmed = NOTHING_CONFIRMED
    ) -> Message | None:
        """Ask the lease's question with that number (0: the next one), and wait for the answer.

        None if no answer comes within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
        """
        self._saw(token)
        with ANSWERING, await self.cache.get(task_of(token), token) as known:
            async with known.lock:
                await known.reread()
                self.cache.check(known, confirmed)
            answered = len(known.answers)
            number = number or answered + 1
            if number > answered + 1:
                raise InvalidParams("question", f"the next one has the number {answered + 1}")
            if number > answered:
                await self._teller.tell(task_of(token), token, replace(question, number=number), confirmed=confirmed)
            if known.task.terminal:  # it was another question than an earlier worker's
                return None
        beat = await self.beat(token, wait_s, number - 1, "report")
        if beat.cancel:
            raise LeaseLost
        return beat.answers[0] if beat.answers else None

    async def delegate(
        self, token: str, order: Delegation, wait_s: float, *, confirmed: Confirmed = NOTHING_CONFIRMED
    ) -> Delegated | None:
        """Give the lease's order with that number (0: the next one) to another agent, and wait for the outcome.

        None if there is none within `wait_s`: ask again with the same number. Raises LeaseLost.
        """
        self._saw(token)
        task_id = task_of(token)
        with ANSWERING, await self.cache.get(task_id, token) as known:
            async with known.lock:
                await known.reread()
                self.cache.check(known, confirmed)
            assert known.lease is not None
            told = known.lease.delegations
            number = order.number or told + 1
            if told + 1 < number < NUMBERS_FROM:
                raise InvalidParams("delegation", f"the next one has the number {told + 1}")
            coming = self._teller.delegating(task_id, number)
            if number > told or (coming is None and number not in known.view.delegated):
                await self._teller.tell(task_id, token, replace(order, number=number), confirmed=confirmed)
            coming, outcome = self._teller.delegating(task_id, number), known.view.delegated.get(number)
        await self.beat(token, 0, 0, "report")
        if outcome is None and coming is not None:
            await asyncio.wait((coming,), timeout=min(wait_s, self.lease_s / 2))
            if (await self.beat(token, 0, 0, "report")).cancel:
                raise LeaseLost
            outcome = coming.result() if coming.done() and not coming.cancelled() else None
        return outcome

    async def step(
        self, token: str, told: ToldStep, usage: Usage | None = None, *, confirmed: Confirmed = NOTHING_CONFIRMED
    ) -> StepStanding:
        """Find how it stands with a step, and record it if it is done.

        The same step may be told again under its lease, which changes nothing. Raises InvalidParams or LeaseLost, also
        if the step ends the task.
        """
        self._saw(token)
        task_id = task_of(token)
        with ANSWERING, await self.cache.get(task_id, token) as known:
            if known.lease is not None and known.lease.replays and not told.number:
                raise InvalidParams("number", "is missing: count the steps of the lease, from 1")
            await self._teller.tell(task_id, token, told, usage, confirmed=confirmed)
            view = known.view
            if known.task.terminal:
                raise LeaseLost
            if (recorded := view.recorded_step(told.place)) is not None:
                (logged,) = await self.tasks.files.log((Logged(view.seq, recorded),))
                assert isinstance(logged.event, Stepped)
                if told.done is None:
                    self._held_tasks.note_replay(task_id, told.step)
                return StepStanding(step_key(task_id, told.place), logged.event)
            uncertain = view.times_begun(told.place)
            asks = told.step.at_most_once and uncertain > (told.uncertain or 0)
            return StepStanding(step_key(task_id, told.place), uncertain=uncertain if asks else 0)

    async def sleep(self, token: str, told: ToldSleep, *, confirmed: Confirmed = NOTHING_CONFIRMED) -> SleepStanding:
        """Record a sleep, or find how it stands. The lease is over then, unless the sleep is, or its worker keeps it.

        Raises InvalidParams or LeaseLost, also if the sleep ends the task.
        """
        self._saw(token)
        task_id = task_of(token)
        with ANSWERING, await self.cache.get(task_id, token) as known:
            if known.lease is not None and known.lease.replays and not told.number:
                raise InvalidParams("number", "is missing: count the steps of the lease, from 1")
            await self._teller.tell(task_id, token, told, confirmed=confirmed)
            if known.task.terminal:
                raise LeaseLost
            sleep, now_ms = known.view.steps.at(told.place), self.tasks.clock.now_ms()
            assert isinstance(sleep, RecordedSleep), "it was told just now"
            return SleepStanding(sleep.wakes_ms, 0 if sleep.over else max(0, sleep.wakes_ms - now_ms))

    @asynccontextmanager
    async def open_state(
        self, token: str, kind: StateKind, *, wide: bool = False, shared: bool = False
    ) -> AsyncIterator[LeasedSpace]:
        """A scope of the stored state that the lease reaches: see `engine.state_space.scope_of`.

        Raises LeaseLost or Unavailable, also within the block.
        """
        self._saw(token)
        with ANSWERING, await self.cache.get(task_of(token), token) as known:
            scope = scope_of(known.task.head, kind, wide=wide, shared=shared)
            yield LeasedSpace(self.tasks, known, token, scope)

    async def read_log(self, token: str, after: int, *, artifacts: bool) -> tuple[tuple[Logged, ...], int]:
        """Events of the log of the lease's task after a seq, and the seq until which they were read.

        They are for a worker that replays by itself. Those that are of no use to it are left out, and those that it
        gets with its words: see `shown_event`. Raises LeaseLost or Unavailable.
        """
        self._saw(token)
        task_id, tasks = task_of(token), self.tasks
        with ANSWERING:
            if not await tasks.runs(task_id, token):
                raise LeaseLost
            page = await tasks.store.read(task_id, after, LOG_BYTES)
            events = ((logged.seq, shown_event(logged.event, artifacts=artifacts)) for logged in page)
            shown = tuple([Logged(seq, event) for seq, event in events if event is not None])
            return await tasks.files.log(shown), page[-1].seq if page else after

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def beat(self, token: str, wait_s: float, known: int, word: WorkerWord = "heartbeat") -> Beat:
        """Renew a lease, and wait up to `wait_s` for news: a cancel, or an answer beyond the `known` ones.

        `word` is the worker's word for operators. Raises LeaseLost or Unavailable.
        """
        presence, tasks = self.presence, self.tasks
        presence.saw()
        task_id, deadline = task_of(token), _now() + min(wait_s, self.lease_s / 2)
        with ANSWERING:
            lease = await tasks.renew(task_id, token, self.lease_s)
            if lease is not None:
                if lease.agent != self._agent:
                    raise LeaseLost
                presence.saw(lease.worker, word)
                if lease.questions <= known and (wait_s <= 0 or presence.closed):
                    return Beat(cancel=False)
            async with tasks.watch(task_id) as task:
                while lease is not None and task is not None and not task.terminal:
                    asked = lease.questions
                    answers = await self.cache.answers(token, known, asked) if asked > known else ()
                    if answers or presence.closed or _now() >= deadline:
                        return Beat(cancel=False, answers=answers)
                    before = _standing(task)
                    while _standing(task) == before and not presence.closed:
                        if not await task.followers.wait(task, tasks.loop, deadline):
                            break
                    lease = await tasks.renew(task_id, token, self.lease_s)
            ended = (await self.cache.held(token)).lease.ended
            state = await tasks.state(task_id)
            if ended is None and state in TERMINAL:
                self._held_tasks.finish(task_id, SPELLED[state])
                return Beat(cancel=True)
        raise LeaseLost

    # -- the task of a lease -------------------------------------------------------------------------------------------

    async def find_task(self, token: str) -> str:
        """The id of the lease's task. A lease whose worker has ended the task counts. Raises LeaseLost."""
        self._saw(token)
        with ANSWERING:
            held = await self.cache.held(token)
        self.presence.saw(held.lease.worker, "report")
        if not held.runs and held.lease.ended != "task":
            raise LeaseLost
        return task_of(token)

    async def task(self, token: str) -> tuple[TaskHead, Message]:
        """The lease's task, and the message that made it. Raises LeaseLost or Unavailable."""
        self._saw(token)
        with ANSWERING, await self.cache.get(task_of(token), token) as known:
            if not await self.tasks.runs(task_of(token), token):
                raise LeaseLost
            return known.task.head, known.view.message

    async def request_headers(self, token: str) -> TaskHeaders | None:
        """The headers of the requests with the newest messages of the lease's task; None if they are not here."""
        with ANSWERING, await self.cache.get(task_of(token), token) as known:
            return known.task.headers

    async def request_metadata(self, token: str, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought a message of the lease's task."""
        with ANSWERING, await self.cache.get(task_of(token), token) as known:
            return metadata_of(message, await self.tasks.read(known.task, 0))

    def _saw(self, token: str | None) -> bool:
        """Record that a worker has reported on the task of a lease. Returns whether it is known who that is."""
        worker = "" if token is None else self.cache.worker(token)
        self.presence.saw(worker, "report")
        return bool(worker)


class _Answering:
    """Raises Unavailable if the store fails in the block."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, StoreError | OutcomeUnknown):
            raise Unavailable("the server's store cannot answer now: try again", 5) from error


ANSWERING = _Answering()


def _standing(task: Log) -> tuple[object, ...]:
    """The facts of a task of whose change its worker has to hear."""
    return task.row.epoch, task.row.holder, task.terminal, task.state in INTERRUPTED


def _now() -> float:
    return asyncio.get_running_loop().time()
