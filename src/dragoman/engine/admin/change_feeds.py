"""Change feeds: what changes on a server and its store, read once for all who follow it.

Invariant: nothing is read while no feed is open. Changes are read from the store, wherever they were made, so that any
replica goes on where another one stopped. A feed holds at most `BUFFER_MAX` items, which all feeds share; a reader that
is slower begins anew.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from dragoman.admin.overview import (
    DeliveryFacts,
    FeedReset,
    OperatorAct,
    ReplicaFacts,
    ServedAgentFacts,
    TaskChange,
    UpstreamFacts,
    WorkerFacts,
)
from dragoman.admin.tasks import state_word
from dragoman.engine.admin.change_hints import ChangeHints
from dragoman.engine.admin.feeds import FeedItem
from dragoman.engine.admin.overview import Overview, ServerFacts
from dragoman.engine.handlers.audit import READS
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import timestamp
from dragoman.model.task import TaskState
from dragoman.store.api import StatusRow, Store, StoreError
from dragoman.store.audit import ACTS_MAX, AuditEntry

READ_EVERY_S = 1.0
"""How often is read although no hint came: hints can be lost, and facts of the server come without one."""

APART_S = 0.05
"""The least time between two readings; several changes of a task in between are one."""

BUSY_SHARE = 20
"""While changes never end, a reading is followed by a pause of so many times its own length, up to `READ_EVERY_S`."""

OVERLAP_MS = 5_000
"""How far back each reading goes: a write may be committed some time after the moment that its status names."""

CHANGES_MAX = 2_000
"""Most changes of one reading. After more the reader has to load its lists anew."""

BUFFER_MAX = 5_000
"""Most items that wait for the reader of a feed: more than one reading has."""

GAP_MAX_MS = 600_000
"""A reader that was away for longer has to load its lists anew."""

TEAM_LISTS = ("agents", "webhooks")
"""The lists that the operators of one team are told."""

_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,18})", re.ASCII)

Statuses = Mapping[str, tuple[int, TaskState]]
"""The statuses of tasks, by id."""


class Place(Struct, frozen=True):
    """A place among the changes: `since_ms` for the statuses of tasks, and an end of the audit trail for the acts."""

    since_ms: int
    acts: int

    def __str__(self) -> str:
        return f"{self.since_ms}-{self.acts}"


class ChangeReading(Struct, frozen=True):
    """The changes after a place: the items for a feed, the place to go on from, and the statuses that were read.

    `many`: there were too many changes to list them as items.
    """

    items: tuple[FeedItem, ...]
    end: Place
    told: Statuses
    many: bool = False


class ChangeFeed:
    """The changes on the server and its store, for one reader.

    Every reader gets the same: a `reset` first, unless it goes on from an earlier place; then the lists of agents,
    workers, upstreams and replicas; then what changes.
    """

    def __init__(self, keepalive_s: float, after: Place | None, forget: "Callable[[ChangeFeed], None]") -> None:
        """`forget` is called when the feed has ended."""
        self.retry = False
        self.after = after
        self.begun = False
        """Whether the beginning has been told, so that changes may follow."""
        self._keepalive_s = keepalive_s
        self._forget = forget
        self._items: list[FeedItem] = []
        self._ready = asyncio.Event()
        self._over = False

    async def next(self, wait_s: float | None = None) -> Sequence[FeedItem] | None:
        """As `bindings.streams.Batches` says."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._keepalive_s if wait_s is None else wait_s):
                await self._ready.wait()
        if self._over:
            return None
        self._ready.clear()
        items, self._items = self._items, []
        return items

    def begin(self, items: Sequence[FeedItem]) -> None:
        """Tell the beginning, instead of all that still waits."""
        self.begun = True
        self._items = list(items)
        self._ready.set()

    def begin_anew(self) -> None:
        """Have the beginning told once more, because changes may have been missed."""
        self.begun, self.after = False, None

    def tell(self, items: Sequence[FeedItem]) -> bool:
        """Tell what follows. Returns False, and keeps nothing of it, if too much waits for the reader."""
        if len(self._items) + len(items) > BUFFER_MAX:
            return False
        if items:
            self._items += items
            self._ready.set()
        return True

    def close(self) -> None:
        """As `bindings.streams.Batches` says."""
        self._over = True
        self._items = []
        self._ready.set()
        self._forget(self)

    def stop(self) -> None:
        """End the feed because the server stops: its reader should come back."""
        self.retry = True
        self.close()


class ChangeReader:
    """Reads what changes for all open feeds, as soon as a hint comes. `serve` comes before the first feed.

    `readings` counts how often the store was read. With `of_team` the store is that of a team, whose operators are told
    of its tasks, its acts, its webhooks and its agents, and not of what the whole server has.
    """

    def __init__(self, store: Store, hints: ChangeHints, keepalive_s: float, *, of_team: bool = False) -> None:
        self.readings = 0
        self._store = store
        self._clock = store.clock
        self._facts: ServerFacts
        self._hints = hints
        self._keepalive_s = keepalive_s
        self._overview = Overview(store)
        self._of_team = of_team
        self._feeds: set[ChangeFeed] = set()
        self._news = asyncio.Event()
        self._stopped = False
        self._at: Place | None = None
        self._told: Statuses = {}
        self._lists: dict[str, object] = {}
        self._many = False
        """Whether the last reading found too many changes to tell."""

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, at the start and after a reload."""
        self._facts = facts

    def open(self, position: str | None) -> ChangeFeed:
        """Open a feed of the changes from now on, or from a position in an earlier feed.

        Raises InvalidParams if no server made `position`.
        """
        feed = ChangeFeed(self._keepalive_s, _read_position(position), self._forget)
        self._feeds.add(feed)
        self._news.set()
        if self._stopped:
            feed.stop()
        return feed

    def stop(self) -> None:
        """End all feeds, present and future, because the server stops."""
        self._stopped = True
        for feed in tuple(self._feeds):
            feed.stop()

    async def run(self) -> None:
        """Read for ever, while feeds are open."""
        while True:
            await self._news.wait()
            self._news.clear()
            if not self._feeds:
                continue
            self._hints.watch(self._news)
            try:
                await self._follow()
            finally:
                self._hints.rest(self._news)
                self._at, self._told, self._lists = None, {}, {}
                for feed in self._feeds:  # the reading failed: what changed since the last one is not known
                    feed.begin_anew()
                    self._news.set()

    def _forget(self, feed: ChangeFeed) -> None:
        self._feeds.discard(feed)
        if not self._feeds:
            self._news.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while self._feeds:
            began_s = loop.time()
            self._news.clear()
            with suppress(StoreError):  # the next reading begins at the same place
                await self._read()
            often_s = READ_EVERY_S if self._many else APART_S
            pause_s = min(max(often_s, BUSY_SHARE * (loop.time() - began_s)), READ_EVERY_S)
            await asyncio.sleep(pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_EVERY_S - pause_s):
                    await self._news.wait()

    async def _read(self) -> None:
        """Read what has changed, and tell it. A reading that fails tells nothing, and changes nothing here."""
        now_ms = self._clock.now_ms()
        coming = {feed: feed.after for feed in self._feeds if not feed.begun}
        self.readings += 1
        shared = await self._read_after(self._at, self._told, now_ms)
        returning = {
            feed: await self._read_after(place, {}, now_ms) for feed, place in coming.items() if place is not None
        }
        lists, changed = await self._read_lists()
        self._at, self._told, self._many = shared.end, shared.told, shared.many
        news = _placed([*shared.items, *changed], shared.end)
        for feed in tuple(self._feeds):
            if feed.begun:
                if not feed.tell(news):
                    feed.begin(_placed([_reset("slow", now_ms), *lists], shared.end))
            elif feed in returning:
                feed.begin(_placed([*returning[feed].items, *lists], shared.end))
            elif feed in coming:  # others have come during the reading
                feed.begin(_placed([_reset("start", now_ms), *lists], shared.end))

    async def _read_after(self, place: Place | None, told: Statuses, now_ms: int) -> ChangeReading:
        """Read what changed after a place, but for the statuses that were told. From None on nothing has changed."""
        if place is None:
            acts, _ = await self._store.audit.acts(None)
            return ChangeReading((), Place(max(0, now_ms - OVERLAP_MS), acts), {})
        if not now_ms - GAP_MAX_MS <= place.since_ms <= now_ms:
            acts, _ = await self._store.audit.acts(None)
            return ChangeReading((_reset("gap", now_ms),), Place(max(0, now_ms - OVERLAP_MS), acts), {})
        acts, entries = await self._store.audit.acts(place.acts)
        rows = await self._store.changes(place.since_ms, CHANGES_MAX + 1)
        items: list[FeedItem] = []
        if many := len(rows) > CHANGES_MAX or len(entries) >= ACTS_MAX:
            items.append(_reset("many", now_ms))
        else:
            items += [_change(row) for row in rows if told.get(row.id) != (row.status_ms, row.state)]
        items += [_act(entry) for entry in entries if _changes(entry)]
        return ChangeReading(
            tuple(items),
            Place(max(place.since_ms, now_ms - OVERLAP_MS), acts),
            {row.id: (row.status_ms, row.state) for row in rows[:CHANGES_MAX]},
            many,
        )

    async def _read_lists(self) -> tuple[list[FeedItem], list[FeedItem]]:
        """All lists, and those that are not as they were told last. The numbers of an upstream's calls do not count."""
        facts = self._facts
        upstreams = facts.upstreams()
        replicas = (await self._overview.replicas()).replicas
        pending, dead = await self._store.outbox.owed_count()
        due_ms = await self._store.outbox.next_due_ms() if pending else None
        due = None if due_ms is None else timestamp(due_ms)
        lists: tuple[tuple[str, object, Struct], ...] = (
            ("agents", agents := facts.agents(), ServedAgentFacts(agents)),
            ("workers", workers := facts.workers(), WorkerFacts(workers)),
            (
                "upstreams",
                tuple((each.agent, each.member, each.breaker, each.fault) for each in upstreams),
                UpstreamFacts(upstreams),
            ),
            ("webhooks", (pending, dead, due), DeliveryFacts(pending, dead, due)),
            ("replicas", replicas, ReplicaFacts(replicas)),
        )
        if self._of_team:
            lists = tuple(each for each in lists if each[0] in TEAM_LISTS)
        items = [FeedItem(name, data) for name, _, data in lists]
        changed = [item for item, (name, key, _) in zip(items, lists, strict=True) if self._lists.get(name) != key]
        self._lists = {name: key for name, key, _ in lists}
        return items, changed


def _placed(items: list[FeedItem], place: Place) -> list[FeedItem]:
    """The items, the last of which carries the place after all of them."""
    if items:
        last = items[-1]
        items[-1] = FeedItem(last.name, last.data, str(place))
    return items


def _reset(reason: Literal["start", "gap", "many", "slow"], now_ms: int) -> FeedItem:
    return FeedItem("reset", FeedReset(reason, timestamp(now_ms)))


def _read_position(position: str | None) -> Place | None:
    if position is None:
        return None
    found = _POSITION.fullmatch(position)
    if found is None:
        raise InvalidParams("Last-Event-ID", "not an id that this server gave: leave it out to begin anew")
    return Place(int(found[1]), int(found[2]))


def _change(row: StatusRow) -> FeedItem:
    return FeedItem(
        "task",
        TaskChange(
            id=row.id,
            agent=row.agent,
            principal=row.owner,
            context=row.context_id,
            state=state_word(row.state),
            at=timestamp(row.status_ms),
            seq=row.seq,
        ),
    )


def _changes(entry: AuditEntry) -> bool:
    return entry.allowed and not entry.action.endswith(READS)


def _act(entry: AuditEntry) -> FeedItem:
    return FeedItem(
        "act",
        OperatorAct(
            at=timestamp(entry.at_ms),
            principal=entry.principal,
            action=entry.action,
            task=entry.task_id,
            subject=entry.subject,
        ),
    )
