"""The Bus protocol: best-effort hints between the replicas of one store.

Invariant: the bus never holds the only copy of anything (invariant 12). A hint may be lost, come twice, late, out of
order, or before the reader of the store can see what it is about. It says where to look and proves nothing.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

PAGE_BYTES_MAX = 4096
"""The largest page that a hint carries. Readers of a larger one ask the store. With it, a NOTIFY stays below its limit
of 8,000 bytes."""

SIGNAL_BYTES_MAX = 4096
"""The largest payload of a signal."""

UNREAD_MAX = 10_000
"""Most hints that wait to be read. Beyond it the oldest are dropped, and a poll at once finds what they told of."""

Hint = tuple[str, int | None, bytes | None]
"""A task's id, the seq that its log has reached, and perhaps the bytes of its last page, as published.

The seq is None if hints about the task may have been lost: whoever follows it looks at the store once.
"""


class HintInbox:
    """The hints of other replicas to one replica, until it reads them. One reader, on the loop of the bus."""

    __slots__ = ("_arrived", "_hints", "dropped", "work")

    def __init__(self) -> None:
        self._hints: deque[Hint] = deque(maxlen=UNREAD_MAX)
        self._arrived = asyncio.Event()
        self.work = asyncio.Event()
        """Set when there may be work: a mark on one of the replica's tasks, an offer, or a queued task; and with
        `dropped`."""
        self.dropped = False
        """Whether hints were dropped unread since the reader last looked for what they told of."""

    def put(self, hint: Hint) -> None:
        """Add a hint."""
        if len(self._hints) == UNREAD_MAX:
            self.dropped = True
            self.work.set()
        self._hints.append(hint)
        self._arrived.set()

    def put_work(self) -> None:
        """Note that there may be work."""
        self.work.set()

    def take_work(self, *, looked: bool) -> None:
        """The reader sees to the work now. If it `looked` at all of its tasks, dropped hints count no more."""
        self.work.clear()
        if looked:
            self.dropped = False

    async def next(self) -> Hint:
        """Wait for the next hint, oldest first."""
        while not self._hints:
            self._arrived.clear()
            await self._arrived.wait()
        return self._hints.popleft()


class BusFigures(Struct, frozen=True):
    """Counts since the bus was made, and how long a hint takes at present.

    `published` and `received` count messages. `refused` counts those of other clusters and forged ones, `dropped` those
    that found a queue full, here or on their way. `lag_s` is how long the last message to itself took; None before the
    first has come back.
    """

    published: int = 0
    received: int = 0
    refused: int = 0
    dropped: int = 0
    lag_s: float | None = None


class Bus(Protocol):
    """Carries hints from each replica of a store to the others. Everything here runs on the loop, and returns at once.

    A replica never hears its own hints. Every hint that arrives comes from a replica of the same store:
    drivers refuse the messages of other clusters and of strangers.
    """

    async def open(self) -> None:
        """Begin to connect, and stay connected until `close`. A bus that is down is no error: it is tried for ever.

        Raises BusError if the settings cannot work, whatever the bus does.
        """
        ...

    async def close(self) -> None:
        """Send what waits, within a second, and disconnect."""
        ...

    def listen(self, inbox: HintInbox) -> None:
        """Put hints about the tasks that are followed, and word of work, into `inbox`. Only before `open`."""
        ...

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """From now on this replica has this id and serves these agents: it hears `tell` and `queued` for them."""
        ...

    def publish(self, task_id: str, seq: int, page: bytes | None = None, *, to: str | None = None) -> None:
        """Tell those who follow a task that its log has reached `seq`. Only after the commit (invariant 2).

        A `page` above `PAGE_BYTES_MAX` is left out. The replica `to` gets the hint even if it does not follow the task.
        """
        ...

    def wants(self, task_id: str) -> bool:
        """Whether another replica may follow a task. If not, a hint for all needs no page: it is kept back for a while,
        in case somebody begins to.
        """
        ...

    def follow(self, task_id: str) -> None:
        """Hear of this task from now on. A hint without a seq comes once that is certain, unless it was so before.

        Each `follow` is undone by one `unfollow`.
        """
        ...

    def unfollow(self, task_id: str) -> None:
        """Undo one `follow`. Hints of the task may still come for a while."""
        ...

    def tell(self, replica_id: str) -> None:
        """Tell a replica that it has work."""
        ...

    def queued(self, agent: str) -> None:
        """Tell the replicas that serve an agent that a task waits in its queue."""
        ...

    def signal(self, name: str, payload: bytes = b"") -> None:
        """Send `payload`, at most `SIGNAL_BYTES_MAX`, to every other replica that has asked for signals of that name.

        Raises ValueError if it is larger.
        """
        ...

    def on_signal(self, name: str, heard: asyncio.Queue[bytes]) -> None:
        """Put the payload of each signal of that name into `heard`. One queue a name; only before `open`.

        A signal that finds it full is dropped, as if it had been lost on its way.
        """
        ...

    @property
    def healthy(self) -> bool:
        """Whether this replica's own messages have come back to it recently. Without that it has to poll quickly."""
        ...

    @property
    def others(self) -> int:
        """How many other replicas were heard in the last seconds. Hints of one that is not heard do not arrive."""
        ...

    @property
    def figures(self) -> BusFigures:
        """For metrics."""
        ...


class BusError(Exception):
    """The bus cannot work with these settings. The text names the fix."""


class NoBus:
    """The bus `none`: everybody asks the store. It costs nothing, and nothing ever arrives."""

    healthy = False
    others = 0
    figures = BusFigures()

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    def listen(self, inbox: HintInbox) -> None:
        """Do nothing."""

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """Do nothing."""

    def publish(self, task_id: str, seq: int, page: bytes | None = None, *, to: str | None = None) -> None:
        """Do nothing."""

    def wants(self, task_id: str) -> bool:
        """Nobody hears anything."""
        return False

    def follow(self, task_id: str) -> None:
        """Do nothing."""

    def unfollow(self, task_id: str) -> None:
        """Do nothing."""

    def tell(self, replica_id: str) -> None:
        """Do nothing."""

    def queued(self, agent: str) -> None:
        """Do nothing."""

    def signal(self, name: str, payload: bytes = b"") -> None:
        """Do nothing."""

    def on_signal(self, name: str, heard: asyncio.Queue[bytes]) -> None:
        """Do nothing."""
