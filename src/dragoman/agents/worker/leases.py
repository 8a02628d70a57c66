"""Offers and leases: which worker has which of an agent's tasks, and for how long.

Invariant: at most one worker has a task. A lease that ran out, was given back or was canceled never counts again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from dragoman.engine.api import Delegation, Run
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import TaskState, Usage

LEASE_S = 30.0
"""Seconds that a worker may be silent before its task goes to another."""

SEEN_S = 30.0
"""Seconds after the last word of a worker during which its agent counts as online (DESIGN §6)."""

ENDED_KEPT = 4096
"""Most leases remembered after their task ended, to answer calls that their workers still make."""


class Say(Struct, frozen=True):
    """A report while `working`; an empty one only carries the usage."""

    parts: tuple[Part, ...] = ()
    progress: tuple[int, int] | None = None
    metadata: dict[str, Any] | None = None


class Give(Struct, frozen=True):
    """An artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


class Ask(Struct, frozen=True):
    """A question to the caller. `number` counts those of a lease, 0: a new one. `note` is stored with it."""

    parts: tuple[Part, ...]
    auth: bool = False
    number: int = 0
    note: dict[str, str] | None = None


class Hand(Struct, frozen=True):
    """A task for another agent of the server. Its number is that of the order."""

    order: Delegation


class End(Struct, frozen=True):
    """The end of the task, with its last artifacts."""

    state: TaskState
    parts: tuple[Part, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class Lost(Struct, frozen=True):
    """No worker has the task any more."""


Word = Say | Give | Ask | Hand | End


class Told(Struct, eq=False):
    """A worker's word on its way to the run. `taken` is done when the run has taken it; the worker waits for that."""

    word: Word
    usage: Usage | None
    number: int
    taken: "asyncio.Future[None]"


class Lease(Struct, eq=False):
    """One delivery of a task. `reported` is the number of the newest word; `answers` are those to its questions."""

    token: str
    worker: str
    expiry: asyncio.TimerHandle | None = None
    reported: int = 0
    answers: list[Message] = []  # msgspec creates an empty default anew for each instance
    waiting: list["asyncio.Future[None]"] = []
    over: bool = False

    def wake(self) -> None:
        """Answer the waiting heartbeats, because there is news."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Offer:
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
        self.inbox: asyncio.Queue[Told | Lost | Exception] = asyncio.Queue()  # a worker waits for each of its words


class Beat(Struct, frozen=True):
    """The answer to a heartbeat. `answers` are those that the worker has not seen."""

    cancel: bool
    answers: tuple[Message, ...] = ()


class Leases:
    """The offers of one agent, and the workers that wait for them."""

    def __init__(self, lease_s: float = LEASE_S, seen_s: float = SEEN_S) -> None:
        self.lease_s = lease_s
        self._seen_s = seen_s
        self._seen_at: float | None = None
        self._offers: dict[str, Offer] = {}
        self._waiting: deque[Offer] = deque()
        self._leases: dict[str, tuple[Offer, Lease]] = {}
        self._ended: dict[str, tuple[str, bool]] = {}
        self._idle: dict[asyncio.Future[None], None] = {}
        self._closed = False

    @property
    def seen(self) -> bool:
        """Whether a worker waits for work, or has called lately."""
        if self._idle:
            return True
        return self._seen_at is not None and _now() - self._seen_at <= self._seen_s

    def saw(self) -> None:
        """Record that a worker has called."""
        self._seen_at = _now()

    def open(self) -> None:
        """Give out work from now on."""
        self._closed = False

    def close(self) -> None:
        """Give out no more work, since the server is stopping. Tasks without a worker are left to the next start."""
        self._closed = True
        for offer in tuple(self._waiting):
            offer.inbox.put_nowait(Lost())
        self._waiting.clear()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        for _, lease in self._leases.values():
            lease.wake()

    # -- for the agent -----------------------------------------------------------------------------------------------

    def add(self, offer: Offer) -> None:
        """Offer a run to the first worker that asks."""
        self._offers[offer.run.head.id] = offer
        if self._closed:
            offer.inbox.put_nowait(Lost())
            return
        self._waiting.append(offer)
        self._wake_one()

    def remove(self, offer: Offer, *, canceled: bool) -> None:
        """Withdraw the offer of a run that is over. With `canceled`, its worker learns of it at its next heartbeat."""
        if self._offers.get(offer.run.head.id) is offer:
            del self._offers[offer.run.head.id]
        if offer in self._waiting:
            self._waiting.remove(offer)
        lease = self._end_lease(offer)
        if lease is not None:
            self._ended[lease.token] = offer.run.head.id, canceled
            while len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]
        while not offer.inbox.empty():
            if isinstance(told := offer.inbox.get_nowait(), Told) and not told.taken.done():
                told.taken.set_exception(LeaseLost())
        if lease is not None:
            lease.wake()

    # -- for workers -------------------------------------------------------------------------------------------------

    async def take(self, worker: str, wait_s: float, *, replays: bool = False) -> Offer | None:
        """Lease the task that has waited longest; None if there is none for `wait_s`.

        Raises Unavailable when the server is stopping.
        """
        self.saw()
        if self._closed:
            raise Unavailable("the server is stopping: ask again in a moment", 1)
        deadline = _now() + wait_s
        while (offer := self._next()) is None and not self._closed and (rest := deadline - _now()) > 0:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle[idle] = None
            try:
                async with asyncio.timeout(rest):
                    await idle
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                self._idle.pop(idle, None)
                self._wake_one()
                raise
            finally:
                self._idle.pop(idle, None)
                self.saw()
        if offer is not None:
            lease = offer.lease = Lease(f"{offer.run.epoch}.{secrets.token_urlsafe(12)}", worker)
            offer.leased = True
            offer.replays = replays
            self._leases[lease.token] = offer, lease
            self._renew(offer, lease)
        return offer

    async def beat(self, token: str, wait_s: float, known: int) -> Beat:
        """Renew a lease, and wait up to `wait_s` for news: a cancel, or an answer beyond the `known` ones.

        Raises LeaseLost.
        """
        self.saw()
        if self._was_canceled(token):
            return Beat(cancel=True)
        offer, lease = self._find(token)
        self._renew(offer, lease)
        if not lease.over and len(lease.answers) <= known and wait_s > 0 and not self._closed:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lease.waiting.append(news)
            try:
                async with asyncio.timeout(min(wait_s, self.lease_s / 2)):
                    await news
            except TimeoutError:
                pass
            finally:
                if news in lease.waiting:
                    lease.waiting.remove(news)
        if lease.over:
            if self._was_canceled(token):
                return Beat(cancel=True)
            raise LeaseLost
        self._renew(offer, lease)
        return Beat(cancel=False, answers=tuple(lease.answers[known:]))

    def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost."""
        self.saw()
        offer, _ = self._find(token)
        self._lose(offer)

    def held(self, token: str) -> Offer:
        """The offer that a lease belongs to. Raises LeaseLost."""
        self.saw()
        return self._find(token)[0]

    def holds(self, token: str) -> bool:
        """Whether the lease is in force."""
        return token in self._leases

    def task_of(self, token: str) -> str:
        """The id of the lease's task. An ended lease counts if its worker was the last. Raises LeaseLost."""
        self.saw()
        if token in self._ended and not self._was_canceled(token):
            return self._ended[token][0]
        return self._find(token)[0].run.head.id

    def offered(self, task_id: str, token: str | None) -> Offer | None:
        """The offer that a report belongs to; None if the task is not offered now.

        A report may omit the lease only while at most one worker can have it. Raises LeaseLost, or InvalidParams.
        """
        self.saw()
        if token is not None:
            offer, _ = self._find(token)
            if offer.run.head.id != task_id:
                raise LeaseLost
            return offer
        offer_or_none = self._offers.get(task_id)
        if offer_or_none is not None and offer_or_none.leased and not offer_or_none.first:
            raise InvalidParams("lease", "is needed, since the task was delivered again: send the one you got")
        return offer_or_none

    # -- inside ------------------------------------------------------------------------------------------------------

    def _was_canceled(self, token: str) -> bool:
        return token in self._ended and self._ended[token][1]

    def _next(self) -> Offer | None:
        return self._waiting.popleft() if self._waiting and not self._closed else None

    def _wake_one(self) -> None:
        if not self._waiting:
            return
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
                return

    def _find(self, token: str) -> tuple[Offer, Lease]:
        held = self._leases.get(token)
        if held is None:
            raise LeaseLost
        return held

    def _renew(self, offer: Offer, lease: Lease) -> None:
        if lease.over:
            return
        if lease.expiry is not None:
            lease.expiry.cancel()
        lease.expiry = asyncio.get_running_loop().call_later(self.lease_s, self._lose, offer)

    def _lose(self, offer: Offer) -> None:
        """Take the task away from its worker. While a question is open, no other worker is needed."""
        lease = self._end_lease(offer)
        if lease is not None:
            lease.wake()
        if offer.asked is None:
            offer.inbox.put_nowait(Lost())

    def _end_lease(self, offer: Offer) -> Lease | None:
        lease, offer.lease = offer.lease, None
        if lease is not None:
            lease.over = True
            if lease.expiry is not None:
                lease.expiry.cancel()
            del self._leases[lease.token]
        return lease


def _now() -> float:
    return asyncio.get_running_loop().time()
