"""Feeds: streams of what changes, for operators.

Invariant: a feed holds no history. It reads changes from the store, wherever they were made, so that any replica goes
on where another one stopped, and its memory is bounded by one reading.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from dragoman.engine.handler import OpenStream, Snapshot
from dragoman.engine.inspection import StateWord, TimelineEntry, timeline_entry
from dragoman.engine.overview import (
    AgentFacts,
    Overview,
    ReplicaLine,
    ServerFacts,
    UpstreamLine,
    WorkerLine,
)
from dragoman.model.errors import InvalidParams
from dragoman.model.events import Logged
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.task import TaskState
from dragoman.store.api import Store, StoreError
from dragoman.store.audit import ACTS_MAX, AuditEntry

READ_EVERY_S = 1.0
"""How often a feed reads what has changed; several changes of a task in between are one."""

OVERLAP_MS = 5_000
"""How far back each reading goes: a write may be committed some time after the moment that its status names."""

CHANGES_MAX = 2_000
"""Most changes of one reading. After more the reader has to load its lists anew."""

GAP_MAX_MS = 600_000
"""A reader that was away for longer has to load its lists anew."""

READS = (".list", ".show", ".log", ".content", ".wire", ".tree", ".follow")
"""The ends of the names of acts that change nothing."""

_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,18})", re.ASCII)


class FeedReset(Struct, frozen=True):
    """The reader has to load its lists anew: it has just come (`start`), was away for too long or the server does not
    know its position (`gap`), or too much has changed at once (`many`)."""

    reason: Literal["start", "gap", "many"]
    at: str


class TaskChange(Struct, frozen=True, kw_only=True):
    """The status of a task changed at `at`. `seq` is the number of its last event when that was read."""

    id: str
    agent: str
    principal: str
    context: str
    state: StateWord
    at: str
    seq: int


class OperatorAct(Struct, frozen=True, kw_only=True):
    """An operator, or a command on the store, changed something: `tasks.delete`, `keys.create` …"""

    at: str
    principal: str
    action: str
    task: str = ""
    subject: str = ""


class ServedAgentFacts(Struct, frozen=True):
    """All agents that this server serves."""

    agents: tuple[AgentFacts, ...]


class WorkerFacts(Struct, frozen=True):
    """All agents of workers that this server serves."""

    workers: tuple[WorkerLine, ...]


class UpstreamFacts(Struct, frozen=True):
    """All agents of other servers that this server serves."""

    upstreams: tuple[UpstreamLine, ...]


class ReplicaFacts(Struct, frozen=True):
    """All servers that are alive on the store."""

    replicas: tuple[ReplicaLine, ...]


class LogPruned(Struct, frozen=True):
    """Events of a task up to `seq` have been deleted. `state` is that of the task."""

    seq: int
    state: StateWord


class LogEnded(Struct, frozen=True):
    """No event follows. `state` is null if the task has been deleted before its end was read."""

    state: StateWord | None


FeedData = (
    FeedReset
    | TaskChange
    | OperatorAct
    | ServedAgentFacts
    | WorkerFacts
    | UpstreamFacts
    | ReplicaFacts
    | TimelineEntry
    | LogPruned
    | LogEnded
)


class FeedItem(Struct, frozen=True):
    """An item of a feed: the name of its event, its data, and the position from which its reader may go on, if any."""

    name: str
    data: FeedData
    position: str = ""


class LogFeed:
    """The events of one task, as `TimelineEntry`: those it has, then those to come, until it ends."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream = stream
        self._state: StateWord | None = None
        self._over = False

    @property
    def retry(self) -> bool:
        """As `bindings.streams.Batches` says."""
        return self._stream.retry

    async def next(self, wait_s: float | None = None) -> Sequence[FeedItem] | None:
        """As `bindings.streams.Batches` says."""
        if self._over:
            return None
        batch = await self._stream.next(wait_s)
        if batch is None:
            self._over = True
            return None if self._stream.retry else (FeedItem("end", LogEnded(self._state)),)
        items: list[FeedItem] = []
        for item in batch:
            if isinstance(item, Logged):
                entry = timeline_entry(item)
                self._note(item.terminal, entry.state)
                items.append(FeedItem("event", entry, str(item.seq)))
            elif isinstance(item, Snapshot):
                state = _word(item.record.state)
                self._note(item.record.terminal, state)
                items.append(FeedItem("pruned", LogPruned(item.record.seq, state), str(item.record.seq)))
        return items

    def close(self) -> None:
        """As `bindings.streams.Batches` says."""
        self._stream.close()

    def ended(self, state: TaskState) -> None:
        """Note that the task had ended before the feed began."""
        self._state = _word(state)

    def _note(self, terminal: bool, state: StateWord | None) -> None:
        if terminal:
            self._state = state


class ChangeFeed:
    """The changes on the server and its store. `facts` returns what the server knows at present.

    Every reader gets the same: a `reset` first, unless it goes on from a `position`; then the lists of agents, workers,
    upstreams and replicas; then what changes.
    """

    def __init__(
        self, store: Store, clock: Clock, facts: Callable[[], ServerFacts], keepalive_s: float, position: str | None
    ) -> None:
        """Raises InvalidParams if this server did not make `position`."""
        self.retry = False
        self._store = store
        self._clock = clock
        self._facts = facts
        self._overview = Overview(store, clock)
        self._keepalive_s = keepalive_s
        self._since_ms, self._acts = _read_position(position)
        self._told: dict[str, tuple[int, TaskState]] = {}
        self._lists: dict[str, object] = {}
        self._closed = asyncio.Event()
        self._begun = False

    async def next(self, wait_s: float | None = None) -> Sequence[FeedItem] | None:
        """As `bindings.streams.Batches` says."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (self._keepalive_s if wait_s is None else wait_s)
        while True:
            if self._begun:
                try:
                    await asyncio.wait_for(self._closed.wait(), READ_EVERY_S)
                except TimeoutError:
                    pass  # it is time to read again
            self._begun = True
            if self._closed.is_set():
                return None
            try:
                items = await self._read()
            except StoreError:
                items = []  # the next reading begins at the same place
            if items:
                return items
            if loop.time() >= until_s:
                return ()

    def close(self) -> None:
        """As `bindings.streams.Batches` says."""
        self._closed.set()

    def stop(self) -> None:
        """End the feed because the server stops: its reader should come back."""
        self.retry = True
        self._closed.set()

    async def _read(self) -> list[FeedItem]:
        now_ms = self._clock.now_ms()
        items: list[FeedItem] = []
        told: dict[str, tuple[int, TaskState]] = {}
        since_ms, acts = self._since_ms, self._acts
        if since_ms is None or acts is None:
            items.append(_reset("start", now_ms))
        elif not now_ms - GAP_MAX_MS <= since_ms <= now_ms:
            items.append(_reset("gap", now_ms))
            since_ms = acts = None
        end, entries = await self._store.audit.acts(acts)
        if since_ms is not None:
            rows = await self._store.changes(since_ms, CHANGES_MAX + 1)
            if len(rows) > CHANGES_MAX or len(entries) >= ACTS_MAX:
                items.append(_reset("many", now_ms))
            else:
                for row in rows:
                    status = row.status_ms, row.state
                    if self._told.get(row.id) != status:
                        items.append(
                            FeedItem(
                                "task",
                                TaskChange(
                                    id=row.id,
                                    agent=row.agent,
                                    principal=row.owner,
                                    context=row.context_id,
                                    state=_word(row.state),
                                    at=timestamp(row.status_ms),
                                    seq=row.seq,
                                ),
                            )
                        )
            told = {row.id: (row.status_ms, row.state) for row in rows[:CHANGES_MAX]}
        items += [FeedItem("act", _act(entry)) for entry in entries if _changes(entry)]
        items += await self._changed_lists()
        self._told = told  # only now: a reading that fails before is repeated
        self._since_ms = max(since_ms or 0, now_ms - OVERLAP_MS)
        self._acts = end
        if items:
            last = items[-1]
            items[-1] = FeedItem(last.name, last.data, f"{self._since_ms}-{end}")
        return items

    async def _changed_lists(self) -> list[FeedItem]:
        """The lists that are not as they were told last. The numbers of an upstream's calls do not count."""
        facts = self._facts()
        upstreams = facts.upstreams()
        replicas = (await self._overview.replicas()).replicas
        lists: tuple[tuple[str, object, FeedData], ...] = (
            ("agents", agents := facts.agents(), ServedAgentFacts(agents)),
            ("workers", workers := facts.workers(), WorkerFacts(workers)),
            ("upstreams", tuple((each.agent, each.breaker) for each in upstreams), UpstreamFacts(upstreams)),
            ("replicas", replicas, ReplicaFacts(replicas)),
        )
        changed = [FeedItem(name, data) for name, key, data in lists if self._lists.get(name) != key]
        self._lists = {name: key for name, key, _ in lists}
        return changed


def _reset(reason: Literal["start", "gap", "many"], now_ms: int) -> FeedItem:
    return FeedItem("reset", FeedReset(reason, timestamp(now_ms)))


def _read_position(position: str | None) -> tuple[int | None, int | None]:
    if position is None:
        return None, None
    found = _POSITION.fullmatch(position)
    if found is None:
        raise InvalidParams("Last-Event-ID", "not an id that this server gave: leave it out to begin anew")
    return int(found[1]), int(found[2])


def _changes(entry: AuditEntry) -> bool:
    return entry.allowed and not entry.action.endswith(READS)


def _act(entry: AuditEntry) -> OperatorAct:
    return OperatorAct(
        at=timestamp(entry.at_ms),
        principal=entry.principal,
        action=entry.action,
        task=entry.task_id,
        subject=entry.subject,
    )


def _word(state: TaskState) -> StateWord:
    return SPELLED[state]  # type: ignore[return-value]  # the words of StateWord
