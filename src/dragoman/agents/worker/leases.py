"""Leases: the tasks of one agent that workers may take, and those that they have.

Invariant: at most one worker has a task. A lease that ran out, was given back or was canceled never counts again. With
a `Desk` a lease is stored before its worker hears of it, and a replica that its worker calls brings the run to itself.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker.desk import Desk, FoundLease, StoredLease, task_of
from dragoman.agents.worker.roster import Roster, RosterEntry, WorkerWord, merge_rosters
from dragoman.agents.worker.words import SpokenWord
from dragoman.engine.api import Run
from dragoman.engine.runs.replay import DELIVERED, USED
from dragoman.engine.runs.task_sink import task_sink
from dragoman.engine.task_log import TaskLog
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState, Usage
from dragoman.store.api import StoreError
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

LEASE_S = 30.0
"""Seconds that a worker may be silent before its task goes to another."""

SEEN_S = 30.0
"""Seconds after the last word of a worker during which its agent counts as online."""

ENDED_KEPT = 4096
"""Most leases remembered after their task ended, to answer calls that their workers still make."""

BRING_S = 10.0
"""How long a run may take to come from another replica. It reads the task's log."""

AGAIN_S = 1.0
"""Pause before a lease is looked up again that could not be read, or a run that did not come."""

WAITS = "the task waits for its caller's message: its worker goes on when that has come"

REPORTED = ".reported"
"""The note of the newest numbered word: the lease's token and the number. It is written together with that word."""


class LeaseMoved(LeaseLost):
    """The run went to another replica, to which the worker has turned. Those who wait here look for it anew."""


class PendingWord(Struct, eq=False):
    """A worker's word on its way to the run. `taken` is done when the run has taken it; the worker waits for that."""

    word: SpokenWord
    usage: Usage | None
    number: int
    taken: "asyncio.Future[None]"


class Lost(Struct, frozen=True):
    """No worker has the task any more."""


class Unwanted(Struct, frozen=True):
    """No worker waits here for the task any more: those of another replica may."""


class LeaseExpired(Struct, frozen=True):
    """The worker has not called here for as long as its lease lasts."""


class Lease(Struct, eq=False):
    """One delivery of a task. `reported` is the number of the newest word; `answers` are those to its questions.

    `stored` is the lease as the store has it, in a `version`; None without a desk. Once a lease is `over`, `moved` says
    that it goes on elsewhere.
    """

    token: str
    worker: str
    expiry: asyncio.TimerHandle | None = None
    reported: int = 0
    answers: list[Message] = []  # msgspec creates an empty default anew for each instance
    waiting: list["asyncio.Future[None]"] = []
    over: bool = False
    moved: bool = False
    stored: StoredLease | None = None
    version: int = 0

    def wake(self) -> None:
        """Answer the waiting heartbeats, because there is news."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class WorkItem:
    """A run that workers may take: its lease, if a worker has it, and the worker's words.

    `first`: nobody has worked on the task before. `leased`: a worker has had it since the run began.
    """

    __slots__ = ("asked", "first", "handed", "inbox", "lease", "leased", "replays", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.first = run.epoch <= 1
        self.leased = False
        self.replays = False
        """Whether the worker repeats its questions in the same order, as `dragoman worker` does."""
        self.lease: Lease | None = None
        self.asked: Sequence[Part] | None = None
        """The open question."""
        self.handed: dict[int, asyncio.Task[Delegated | None]] = {}
        """The tasks given to other agents, by number. A result of None: the order differs from the recorded one."""
        self.inbox: asyncio.Queue[PendingWord | Lost | Unwanted | LeaseExpired | Exception] = (
            asyncio.Queue()
        )  # a worker waits for each of its words


class Beat(Struct, frozen=True):
    """The answer to a heartbeat. `answers` are those that the worker has not seen."""

    cancel: bool
    answers: tuple[Message, ...] = ()


class Leases:
    """The work items of the agent `agent`, and the workers that wait for them."""

    def __init__(self, agent: str, lease_s: float = LEASE_S, seen_s: float = SEEN_S) -> None:
        self.lease_s = lease_s
        self.lost = 0
        """How many leases have run out, because their workers kept silent."""
        self.desk: Desk | None = None
        """The state that all replicas share; None if there is only one replica."""
        self._agent = agent
        self._seen_s = seen_s
        self._seen_at: float | None = None
        self._silent = False
        """Whether the log has said that no worker calls any more."""
        self._watching: asyncio.TimerHandle | None = None
        self._roster = Roster(seen_s)
        self._items: dict[str, WorkItem] = {}
        self._waiting: deque[WorkItem] = deque()
        self._leases: dict[str, tuple[WorkItem, Lease]] = {}
        self._ended: dict[str, tuple[str, bool]] = {}
        self._idle: dict[asyncio.Future[None], str] = {}
        """The workers that wait for work, by name."""
        self._arriving: dict[str, list[asyncio.Future[None]]] = {}
        """Those who wait for the run of a task that comes from another replica."""
        self._closed = False

    @property
    def seen(self) -> bool:
        """Whether a worker waits for work, or has called lately, here or on another replica."""
        if self._idle or (self._seen_at is not None and _now() - self._seen_at <= self._seen_s):
            return True
        return self.desk is not None and self.desk.sees(self._agent)

    @property
    def connected(self) -> int:
        """How many workers, by the names that they give, wait for work here or have called lately."""
        return len({*self._roster.lately(_now()), *self._idle.values()})

    def roster(self) -> tuple[RosterEntry, ...]:
        """The workers as this process knows them."""
        now_s = _now()
        leases: dict[str, list[tuple[str, float]]] = {}
        for item, lease in self._leases.values():
            left_s = 0.0 if lease.expiry is None else max(0.0, lease.expiry.when() - now_s)
            leases.setdefault(lease.worker, []).append((item.run.head.id, left_s))
        return self._roster.entries(frozenset(self._idle.values()), leases, now_s)

    async def workers(self) -> tuple[RosterEntry, ...]:
        """The workers as all replicas know them. Raises StoreError."""
        others = () if self.desk is None else await self.desk.rosters(self._agent)
        return merge_rosters((self.roster(), *others))

    @property
    def held(self) -> int:
        """How many tasks workers have."""
        return len(self._leases)

    def saw(self, worker: str = "", word: WorkerWord = "poll") -> None:
        """Record that a worker has called, by its name if that is known."""
        self._seen_at = _now()
        if worker:
            self._roster.note(worker, word, self._seen_at)
        if self.desk is not None:
            self.desk.saw(self._agent, self._seen_s)
        if self._watching is None and not self._closed:
            self._watch()

    def _watch(self) -> None:
        """A worker is there: look from time to time whether one still is."""
        if self._silent:
            self._silent = False
            log.info("agent %s: a worker calls again", self._agent, extra=about(self._agent, agent=self._agent))
        self._watching = asyncio.get_running_loop().call_later(self._seen_s, self._look)

    def _look(self) -> None:
        """Log that no worker has called for long, unless one has, or one still waits for work."""
        self._watching = None
        if self._closed:
            return
        if self.seen:
            self._roster.forget(_now())
            left_s = self._seen_s if self._seen_at is None else self._seen_at + self._seen_s - _now()
            self._watching = asyncio.get_running_loop().call_later(max(left_s, self._seen_s / 10), self._look)
            return
        self._silent = True
        log.warning(
            "agent %s: no worker has called for %g s: nobody does its tasks",
            self._agent,
            self._seen_s,
            extra=about(self._agent, agent=self._agent),
        )

    def open(self, desk: Desk | None = None) -> None:
        """Give out work from now on, with a `desk` also to workers that call other replicas."""
        self.desk = desk
        self._closed = False
        if desk is not None:
            desk.serve(self._agent, self.roster)

    def close(self) -> None:
        """Give out no more work, since the server is stopping. Tasks without a worker are left to the next start."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for item in tuple(self._waiting):
            item.inbox.put_nowait(Lost())
        self._waiting.clear()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        for _, lease in self._leases.values():
            lease.wake()

    # -- for the agent -----------------------------------------------------------------------------------------------

    @property
    def wants(self) -> int:
        """How many more tasks workers wait for here."""
        return max(0, len(self._idle) - len(self._waiting))

    def add(self, item: WorkItem) -> None:
        """Offer a run to the first worker that asks."""
        self._enter(item)
        if self._closed:
            item.inbox.put_nowait(Lost())
            return
        self._waiting.append(item)
        self._wake_one()

    def attach(self, item: WorkItem, found: FoundLease) -> None:
        """Let a run go on with the lease that a worker has already. It may have begun on another replica."""
        stored, run = found.lease, item.run
        said = task_sink(run).known(stored.base + stored.asked, replays=stored.replays)
        task_sink(run).carries_on(stored.handed)
        token, _, number = (run.record.note or {}).get(REPORTED, "").rpartition(":")
        lease = Lease(
            stored.token,
            stored.worker,
            answers=list(said[stored.base :]),
            reported=int(number) if token == stored.token else 0,
            stored=stored,
            version=found.version,
        )
        item.lease, item.leased, item.first, item.replays = lease, True, stored.first, stored.replays
        self._leases[lease.token] = item, lease
        run.working()
        self._renew(item, lease, found.left_s)
        self._enter(item)

    def _enter(self, item: WorkItem) -> None:
        task_id = item.run.head.id
        self._items[task_id] = item
        for arrived in self._arriving.pop(task_id, ()):
            if not arrived.done():
                arrived.set_result(None)

    def remove(self, item: WorkItem, *, canceled: bool, moved: bool = False) -> None:
        """Withdraw the work item of a run that is over. With `canceled`, its worker learns of it at its next heartbeat.

        With `moved` the lease goes on, with a run on another replica.
        """
        task_id = item.run.head.id
        if self._items.get(task_id) is item:
            del self._items[task_id]
        if item in self._waiting:
            self._waiting.remove(item)
        lease = self._end_lease(item)
        if lease is not None:
            lease.moved = moved
            if not moved:
                self._ended[lease.token] = task_id, canceled
                while len(self._ended) > ENDED_KEPT:
                    del self._ended[next(iter(self._ended))]
            if self.desk is not None:
                self.desk.forget(task_id)
        while not item.inbox.empty():
            if isinstance(told := item.inbox.get_nowait(), PendingWord) and not told.taken.done():
                told.taken.set_exception(LeaseMoved() if moved else LeaseLost())
        if lease is not None:
            lease.wake()

    async def check_expiry(self, item: WorkItem) -> None:
        """Take the task away from a worker that has not called here in time, unless it has called another replica."""
        lease, desk = item.lease, self.desk
        if lease is None or desk is None:
            return
        try:
            found = await desk.find(item.run.head.id)
        except StoreError:
            self._renew(item, lease, AGAIN_S)
            return
        if item.lease is lease:
            if found is not None and found.lease.token == lease.token:
                self._renew(item, lease, found.left_s)
            else:
                self._expire(item)

    async def asks(self, item: WorkItem) -> None:
        """Store that the worker puts its next question, so that the answer finds it on any replica.

        Raises Unavailable. A replica that did not know of the question would refuse the next one.
        """
        lease = item.lease
        if lease is not None and lease.stored is not None:
            await self._note(item, lease, replace(lease.stored, asked=len(lease.answers) + 1))

    async def hands(self, item: WorkItem, number: int) -> None:
        """Store that the worker gives its delegation of that number. Raises Unavailable.

        A replica that did not know of it would take what the worker says next for a repetition.
        """
        lease = item.lease
        if lease is not None and lease.stored is not None and number > lease.stored.handed:
            await self._note(item, lease, replace(lease.stored, handed=number))

    def answered(self, lease: Lease, answer: Message) -> None:
        """Give an answer to the worker that asked."""
        lease.answers.append(answer)
        lease.wake()

    async def number_order(self, item: WorkItem) -> int:
        """The number of the lease's next delegation, also if earlier ones were given on another replica.

        Raises Unavailable.
        """
        lease = item.lease
        number = max(item.handed, default=0) + 1
        if lease is not None and lease.stored is not None:
            number = max(number, lease.stored.handed + 1)
            await self._note(item, lease, replace(lease.stored, handed=number))
        return number

    async def _note(self, item: WorkItem, lease: Lease, stored: StoredLease) -> None:
        """Change a lease in the store, and then here. Raises Unavailable."""
        if self.desk is not None:
            try:
                stored = await self._store(self.desk, item.run.head.id, lease, stored)
            except StoreError as error:
                raise Unavailable("the server's store cannot answer now: try again", 5) from error
        lease.stored = stored

    async def _store(self, desk: Desk, task_id: str, lease: Lease, stored: StoredLease) -> StoredLease:
        """Replace the stored lease, unless another worker has the task by now, and return it as it is stored.

        Another replica may have had the run meanwhile: what it has counted still counts. Raises StoreError.
        """
        while (version := await desk.write(task_id, stored, self.lease_s, lease.version)) is None:
            found = await desk.find(task_id)
            if found is None or found.lease.token != lease.token:
                return stored
            asked, handed = max(stored.asked, found.lease.asked), max(stored.handed, found.lease.handed)
            stored, lease.version = replace(stored, asked=asked, handed=handed), found.version
        lease.version = version
        return stored

    # -- for workers -------------------------------------------------------------------------------------------------

    async def take(self, worker: str, wait_s: float, *, replays: bool = False) -> WorkItem | None:
        """Lease the task that has waited longest; None if there is none for `wait_s`.

        Raises Unavailable when the server is stopping.
        """
        self.saw(worker)
        if self._closed:
            raise Unavailable("the server is stopping: ask again in a moment", 1)
        deadline = _now() + wait_s
        try:
            while True:
                while (item := self._next()) is None and not self._closed and (rest := deadline - _now()) > 0:
                    await self._wait(worker, rest)
                if item is None or await self._lease(item, worker, replays=replays):
                    return item
        finally:
            self._return_surplus()

    async def _wait(self, worker: str, rest_s: float) -> None:
        """Wait for an item."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle[idle] = worker
        if self.desk is not None:
            self.desk.host.claim_soon()
        try:
            async with asyncio.timeout(rest_s):
                await idle
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._idle.pop(idle, None)
            self._wake_one()
            raise
        finally:
            self._idle.pop(idle, None)
            self.saw(worker)

    async def _lease(self, item: WorkItem, worker: str, *, replays: bool) -> bool:
        """Give a task to a worker. Returns False if it is over meanwhile. Raises Unavailable."""
        run, desk = item.run, self.desk
        lease = Lease(f"{run.head.id}.{secrets.token_urlsafe(12)}", worker)
        if desk is not None:
            item.first = DELIVERED not in (run.record.note or {})
            base = 0 if replays else len(task_sink(run).known(0, replays=False))
            lease.stored = StoredLease(lease.token, worker, replays, item.first, base)
            try:
                lease.version = await desk.write(run.head.id, lease.stored, self.lease_s) or 0
            except StoreError as error:
                self._put_back(item)
                raise Unavailable("the server's store cannot answer now: ask again", 1) from error
            except asyncio.CancelledError:  # the worker has gone
                self._put_back(item)
                raise
            if not await self._deliver(item, desk, lease):
                return False
        item.lease, item.leased, item.replays = lease, True, replays
        self._leases[lease.token] = item, lease
        run.working()
        self._renew(item, lease)
        return True

    async def _deliver(self, item: WorkItem, desk: Desk, lease: Lease) -> bool:
        """Write down that a worker begins with the task. Returns False if the task is over meanwhile.

        The mark is committed before the worker knows its lease. With its first call the run may move to a replica that
        knows only the log, and there the mark tells what this worker wrote from what earlier ones did.
        """
        run, task = item.run, asyncio.current_task()
        try:
            if self._items.get(run.head.id) is item:
                run.note(**{DELIVERED: "yes", USED: ""})
                await run.written()
            if self._items.get(run.head.id) is item:
                return True
        except asyncio.CancelledError:  # the run's, which is over, unless the worker has gone
            if task is not None and task.cancelling():
                desk.drop(run.head.id, lease.version)
                self._put_back(item)
                raise
        desk.drop(run.head.id, lease.version)
        return False

    def _put_back(self, item: WorkItem) -> None:
        """Offer a run, unless it is over, to the next worker that asks, since this one does not get it."""
        if self._closed:
            item.inbox.put_nowait(Lost())
        elif self._items.get(item.run.head.id) is item:
            self._waiting.appendleft(item)
            self._wake_one()

    def _return_surplus(self) -> None:
        """Give back what no worker waits for here, if workers of other replicas may."""
        while self.desk is not None and len(self._waiting) > len(self._idle):
            self._waiting.pop().inbox.put_nowait(Unwanted())

    async def beat(self, token: str, wait_s: float, known: int) -> Beat:
        """Renew a lease, and wait up to `wait_s` for news: a cancel, or an answer beyond the `known` ones.

        Raises LeaseLost.
        """
        self.saw()
        deadline = _now() + min(wait_s, self.lease_s / 2)
        while True:
            if self._was_canceled(token):
                return Beat(cancel=True)
            try:
                if token in self._leases or self.desk is None:
                    return await self._beat_here(token, deadline, known)
                if (beat := await self._beat_elsewhere(self.desk, token, deadline, known)) is not None:
                    return beat
            except LeaseMoved:
                continue

    async def _beat_here(self, token: str, deadline: float, known: int) -> Beat:
        item, lease = self._find(token)
        self.saw(lease.worker, "heartbeat")
        self._renew(item, lease)
        wait_s = deadline - _now()
        if not lease.over and len(lease.answers) <= known and wait_s > 0 and not self._closed:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lease.waiting.append(news)
            try:
                async with asyncio.timeout(wait_s):
                    await news
            except TimeoutError:
                pass
            finally:
                if news in lease.waiting:
                    lease.waiting.remove(news)
        if lease.over:
            if self._was_canceled(token):
                return Beat(cancel=True)
            raise LeaseMoved if lease.moved else LeaseLost
        self._renew(item, lease)
        return Beat(cancel=False, answers=tuple(lease.answers[known:]))

    async def _beat_elsewhere(self, desk: Desk, token: str, deadline: float, known: int) -> Beat | None:
        """As `beat`, while the run is on another replica; None once it is here. An answer brings it here."""
        loop, task_id = asyncio.get_running_loop(), task_of(token)
        stored = (await desk.check(token)).lease
        self.saw(stored.worker, "heartbeat")
        desk.hear(task_id, self.lease_s)
        async with _watch(desk, task_id) as log:
            while log is not None:
                if token in self._leases:
                    return None
                if log.state is TaskState.CANCELED:
                    return Beat(cancel=True)
                if log.terminal:
                    break
                said = sum(message.role is Role.USER for message in log.record().history) - 1
                if log.state not in INTERRUPTED and said - stored.base > known:
                    await self.hold(token)
                    return None
                if self._closed or _now() >= deadline:
                    return Beat(cancel=False)
                await log.followers.wait(log, loop, deadline)
        raise LeaseLost

    async def wait_for_answer(self, token: str, wait_s: float) -> bool:
        """Wait until the question of a lease whose run is on another replica is answered. Returns False if it is not.

        Raises LeaseLost.
        """
        desk = self.desk
        if desk is None or token in self._leases:
            return True
        loop, task_id = asyncio.get_running_loop(), task_of(token)
        deadline = _now() + min(wait_s, self.lease_s / 2)
        await desk.check(token)
        desk.hear(task_id, self.lease_s)
        async with _watch(desk, task_id) as log:
            while log is not None and log.state in INTERRUPTED:
                if self._closed or _now() >= deadline:
                    return False
                await log.followers.wait(log, loop, deadline)
        return True

    async def hold(self, token: str, *, confirmed: bool = False) -> WorkItem:
        """The work item that a lease belongs to. A run on another replica is brought here.

        A run that is here may have gone to another replica a moment ago, so that what is written for it is refused.
        With `confirmed` the store has been asked. Raises LeaseLost, Unavailable, or InvalidParams while a question of
        the task is open.
        """
        self._saw_report(token)
        while confirmed and token in self._leases and not await self.confirm(token):
            pass
        if token in self._leases or self.desk is None or token in self._ended:
            return self._find(token)[0]
        await self.desk.check(token)
        await self.bring(task_of(token), token)
        return self._find(token)[0]

    def has(self, token: str) -> bool:
        """Whether the run of a lease is here, or was a moment ago."""
        return token in self._leases

    async def confirm(self, token: str) -> bool:
        """Whether the run that is here is still the one of the lease, so that what it refuses is refused.

        Raises Unavailable.
        """
        if self.desk is None:
            return True
        try:
            present = await self.desk.host.runs(task_of(token))
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        if not present:
            await asyncio.sleep(0)  # lets the former run leave
        return present

    async def bring(self, task_id: str, token: str | None = None) -> None:
        """Bring the run of a task here, with the lease of the `token` if one is given.

        Raises LeaseLost if the task has ended, Unavailable, or InvalidParams as `hold`.
        """
        desk, loop = self.desk, asyncio.get_running_loop()
        if desk is None:
            return
        until = _now() + BRING_S
        try:
            while token not in self._leases if token is not None else not await desk.host.runs(task_id):
                if self._closed:
                    raise Unavailable("the server is stopping: call again in a moment", 1)
                if _now() > until:
                    raise Unavailable("the task is on its way from another server: try again", 1)
                arrived: asyncio.Future[None] = loop.create_future()
                self._arriving.setdefault(task_id, []).append(arrived)
                try:
                    state = await desk.host.take_over(task_id)
                    if state is None or state in TERMINAL:
                        raise LeaseLost
                    if state in INTERRUPTED:
                        raise InvalidParams("id", WAITS)
                    await asyncio.wait((arrived,), timeout=AGAIN_S)
                finally:
                    self._stop_waiting(task_id, arrived)
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error

    def _stop_waiting(self, task_id: str, arrived: "asyncio.Future[None]") -> None:
        """Forget somebody who waited for a run. It has arrived if nobody waits for it any more."""
        waiting = self._arriving.get(task_id, [])
        if arrived in waiting:
            waiting.remove(arrived)
            if not waiting:
                del self._arriving[task_id]

    def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost."""
        self._saw_report(token)
        item, _ = self._find(token)
        self._lose(item)

    async def find_task(self, token: str) -> str:
        """The id of the lease's task. An ended lease counts if its worker was the last. Raises LeaseLost."""
        self._saw_report(token)
        if token in self._ended and not self._was_canceled(token):
            return self._ended[token][0]
        if token not in self._leases and self.desk is not None and token not in self._ended:
            await self.desk.check(token)
            return task_of(token)
        return self._find(token)[0].run.head.id

    def find_item(self, task_id: str, token: str | None) -> WorkItem | None:
        """The work item that a report belongs to; None if the task is not offered now.

        A report may omit the lease only while at most one worker can have it. Raises LeaseLost, or InvalidParams.
        """
        self._saw_report(token)
        if token is not None:
            item, _ = self._find(token)
            if item.run.head.id != task_id:
                raise LeaseLost
            return item
        item_or_none = self._items.get(task_id)
        if item_or_none is not None and item_or_none.leased and not item_or_none.first:
            raise InvalidParams("lease", "is needed, since the task was delivered again: send the one you got")
        return item_or_none

    # -- inside ------------------------------------------------------------------------------------------------------

    def _saw_report(self, token: str | None) -> None:
        """Record that a worker has called about the task of a lease."""
        held = None if token is None else self._leases.get(token)
        self.saw("" if held is None else held[1].worker, "report")

    def _was_canceled(self, token: str) -> bool:
        return token in self._ended and self._ended[token][1]

    def _next(self) -> WorkItem | None:
        return self._waiting.popleft() if self._waiting and not self._closed else None

    def _wake_one(self) -> None:
        if not self._waiting:
            return
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
                return

    def _find(self, token: str) -> tuple[WorkItem, Lease]:
        held = self._leases.get(token)
        if held is None:
            raise LeaseLost
        return held

    def _renew(self, item: WorkItem, lease: Lease, left_s: float | None = None) -> None:
        """Let a lease last for as long as leases do, or for `left_s`, because that is what the store says."""
        if lease.over:
            return
        if lease.expiry is not None:
            lease.expiry.cancel()
        loop = asyncio.get_running_loop()
        if self.desk is None:
            lease.expiry = loop.call_later(self.lease_s, self._expire, item)
            return
        if left_s is None:
            self.desk.hear(item.run.head.id, self.lease_s)
        lease.expiry = loop.call_later(left_s or self.lease_s, item.inbox.put_nowait, LeaseExpired())

    def _expire(self, item: WorkItem) -> None:
        """Take the task away from a worker that has kept silent for as long as its lease lasts.

        It may do so while a question is open; then nothing is lost.
        """
        if item.lease is not None and item.asked is None:
            self.lost += 1
            log.warning(
                "agent %s: the lease of task %s is lost: worker %.100s was silent for %g s",
                self._agent,
                item.run.head.id,
                item.lease.worker,
                self.lease_s,
                extra=about(self._agent, agent=self._agent, worker=item.lease.worker[:100]),
            )
        self._lose(item)

    def _lose(self, item: WorkItem) -> None:
        """Take the task away from its worker. While a question is open, no other worker is needed."""
        lease = self._end_lease(item)
        if lease is not None:
            if self.desk is not None:
                self.desk.drop(item.run.head.id, lease.version)
            lease.wake()
        if item.asked is None:
            item.inbox.put_nowait(Lost())

    def _end_lease(self, item: WorkItem) -> Lease | None:
        lease, item.lease = item.lease, None
        if lease is not None:
            lease.over = True
            if lease.expiry is not None:
                lease.expiry.cancel()
            del self._leases[lease.token]
        return lease


@asynccontextmanager
async def _watch(desk: Desk, task_id: str) -> AsyncIterator[TaskLog | None]:
    """A task that is kept up to date in the block; None if there is none. Raises Unavailable."""
    try:
        async with desk.host.watch(task_id) as log:
            yield log
    except StoreError as error:
        raise Unavailable("the server's store cannot answer now: try again", 5) from error


def _now() -> float:
    return asyncio.get_running_loop().time()
