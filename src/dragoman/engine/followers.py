"""Followers: those in this process who have to hear of what is committed to a task.

Invariant: they hear of it after the commit (invariant 2), and nothing that they do changes the log.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from dragoman.engine.announcements import Audience
from dragoman.engine.newest_events import NewestEvents
from dragoman.engine.timer_wheel import Bucket, TimerWheel
from dragoman.model.message import Message
from dragoman.store.api import Append, Appended

L = TypeVar("L")
C = TypeVar("C", contravariant=True)


class Peers(Protocol[C]):
    """The other engines that write to the store."""

    def announce(self, log: C, append: Append, written: Appended) -> None:
        """Tell those that may wait for it of a commit."""
        ...

    def follow(self, log: C) -> None:
        """Hear of what they write to a task from now on, because somebody here waits for it."""
        ...


class RunKeeper(Protocol[C]):
    """Has the run that works on a task in this process, or waits for an answer."""

    def deliver(self, log: C, message: Message, answers: bool = False) -> None:
        """Hand the run a message; `answers` says that it answers the open question, and came through another engine."""
        ...

    def leased_anew(self, log: C) -> bool:
        """Take note that another engine has leased or ended the task. Returns whether the run goes on nevertheless."""
        ...

    def remembers_more(self, log: C) -> bool:
        """Whether the run, which may run again, has written state that no event of the log records yet."""
        ...


class ParkedFollower(Protocol):
    """Waits for a change without a future."""

    def wake(self) -> None:
        """Something has changed."""
        ...


class Timeout:
    """The deadline of one who waits for a change: a place in a wheel."""

    __slots__ = ("_bucket", "_followers", "_future")

    def __init__(self, followers: "Followers[Any]", future: "Future[bool]", wheel: TimerWheel, deadline: float) -> None:
        self._followers = followers
        self._future = future
        self._bucket: Bucket = wheel.add(self, deadline)

    def look(self, _: float) -> None:
        """The time is over: see `Timed`."""
        self._followers.expire(self._future)

    def cancel(self) -> None:
        """Leave the wheel."""
        self._bucket.discard(self)


class Followers(Generic[L]):
    """The followers of one task: those who wait for a change, its readers, its run, its webhooks, and other engines.

    `audience` holds the webhooks, None if there are none. There are `peers` if other engines write to the store.
    `waiters` are the futures of those who wait for a change, with the timers of their deadlines, and `parked` are those
    who wait without one; None if nobody does. `newest` holds the newest events while there are readers. `taken_on` says
    that an agent elsewhere is known to have the task, and `contact_awaited` that somebody has waited for that. The log
    comes with each call: if its followers kept it, the two would form a cycle, which waits for the garbage collector.
    """

    __slots__ = (
        "_keeper",
        "audience",
        "contact_awaited",
        "newest",
        "parked",
        "peers",
        "taken_on",
        "waiters",
    )

    def __init__(self, peers: Peers[L] | None = None) -> None:
        self.audience: Audience | None = None
        self.peers = peers
        self._keeper: RunKeeper[L] | None = None
        self.waiters: dict[Future[bool], TimerHandle | Timeout | None] | None = None
        self.parked: set[ParkedFollower] | None = None
        self.newest: NewestEvents | None = None
        self.taken_on = False
        self.contact_awaited = False

    def announce_to(self, audience: Audience) -> Audience:
        """Tell the webhooks of `audience` from now on. Returns it."""
        self.audience = audience
        return audience

    # -- what is committed -------------------------------------------------------------------------------------------

    def committed(self, log: L, append: Append, written: Appended) -> None:
        """An append of this engine is committed, which `log` has yet to take in."""
        if self.audience is not None:
            self.audience.committed(append)
        if self.peers is not None:
            self.peers.announce(log, append, written)

    # -- the run -----------------------------------------------------------------------------------------------------

    def attach(self, keeper: RunKeeper[L]) -> None:
        """Note that a run works on the task here from now on, which the keeper has."""
        self._keeper = keeper

    def detach(self) -> None:
        """Note that no run works on the task here any more."""
        self._keeper = None

    @property
    def attached(self) -> bool:
        """Whether a run works on the task here, or is suspended here."""
        return self._keeper is not None

    def hear(self, log: L, messages: Sequence[Message], *, answers: bool) -> None:
        """Others wrote messages of the caller; `answers`: the first of them answers the open question."""
        if self._keeper is not None:
            for message in messages:
                self._keeper.deliver(log, message, answers)
                answers = False

    def lease_moved(self, log: L) -> None:
        """Another engine took, offered or claimed the lease. The run has lost, unless the lease is for it."""
        if self._keeper is None or not self._keeper.leased_anew(log):
            self._keeper = None
            self.wake()  # those who wait here have to hear of the task from elsewhere now

    def remembers_more(self, log: L) -> bool:
        """See `RunKeeper`. False if there is no run here."""
        return self._keeper is not None and self._keeper.remembers_more(log)

    def lose_run(self, log: L) -> None:
        """The run, if there is one, has lost the task."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.leased_anew(log)

    # -- those who read ----------------------------------------------------------------------------------------------

    def enter(self) -> NewestEvents:
        """Count one more reader, and return the newest events: those committed from now on, for a while."""
        if self.newest is None:
            self.newest = NewestEvents()
        self.newest.enter()
        return self.newest

    def leave(self) -> None:
        """Undo one `enter`."""
        assert self.newest is not None
        self.newest.leave()
        if not self.newest.followers:
            self.newest = None

    # -- those who wait ----------------------------------------------------------------------------------------------

    def wait(
        self, log: L, loop: AbstractEventLoop, deadline: float | None = None, wheel: TimerWheel | None = None
    ) -> "Future[bool]":
        """Return a future that finishes at the next change with True, or at `deadline`, a loop time, with False.

        A deadline that hardly anybody reaches belongs into a `wheel`.
        """
        if self.peers is not None:
            self.peers.follow(log)
        future: Future[bool] = loop.create_future()
        if self.waiters is None:
            self.waiters = {}
        if deadline is None:
            self.waiters[future] = None
        elif wheel is not None:
            self.waiters[future] = Timeout(self, future, wheel, deadline)
        else:
            self.waiters[future] = loop.call_at(deadline, self.expire, future)
        return future

    @property
    def waiting(self) -> int:
        """The number of those who wait for the next change."""
        return len(self.waiters or ()) + len(self.parked or ())

    def park(self, log: L, follower: ParkedFollower) -> None:
        """Wake `follower` at the next change."""
        if self.peers is not None:
            self.peers.follow(log)
        if self.parked is None:
            self.parked = set()
        self.parked.add(follower)

    def unpark(self, follower: ParkedFollower) -> None:
        """Undo a `park`."""
        if self.parked is not None:
            self.parked.discard(follower)
            self.parked = self.parked or None

    def expire(self, future: "Future[bool]") -> None:
        """Finish a future of `wait` with False."""
        if self.waiters is not None:
            self.waiters.pop(future, None)
            self.waiters = self.waiters or None
        if not future.done():
            future.set_result(False)

    def note_contact(self) -> None:
        """An agent elsewhere has the task: those who wait for that hear of it."""
        if not self.taken_on:
            self.taken_on = True
            if self.contact_awaited:
                self.wake()

    def wake(self) -> None:
        """Wake all waiters, because something changed."""
        waiting, self.waiters = self.waiters, None
        if waiting:
            for future, timer in waiting.items():
                if timer is not None:
                    timer.cancel()
                if not future.done():
                    future.set_result(True)
        parked, self.parked = self.parked, None
        if parked:
            for follower in parked:
                follower.wake()
