"""OutboxTables: the outbox in the store.

Invariant: its tables are not cached, because other processes may change them: a command beside the server makes dead
deliveries due in a file, and any replica changes any webhook in a database.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Protocol

import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import OutcomeUnknown
from dragoman.store.codec import DamagedRow, decode
from dragoman.store.damage import DamageLog
from dragoman.store.deliveries import PUSH_CONFIGS, DeliveryClaim
from dragoman.store.outbox import (
    Delivery,
    Due,
    HostBacklog,
    KeyWebhook,
    Lane,
    Owed,
    OwedDetails,
    OwedGroup,
    PausedHost,
    QueuedAgain,
    Registration,
    Settled,
)
from dragoman.store.sql.statements import Statements, Value, settled

BATCH_CHANGED = 500
"""Most deliveries that one transaction changes for an operator."""


OWED = {None: "owed", False: "owed_pending", True: "owed_dead"}
"""The statements that read all deliveries, the pending and the dead ones."""


class OwedChange(Enum):
    """An act of an operator on deliveries: see the method of `Outbox` with this name."""

    HASTEN = auto()
    DROP_PENDING = auto()
    REVIVE = auto()
    DROP = auto()


class OutboxWrites(Protocol):
    """A driver's transactions on webhooks and deliveries. Those that share a name with `Outbox` do what it says."""

    shared: bool
    """Whether other processes change webhooks, too."""

    @property
    def rewinds(self) -> int:
        """See `Outbox`."""
        ...

    def register(self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]) -> "Future[None]":
        """See `Outbox`."""
        ...

    async def settings(self, task_id: str) -> Sequence[bytes]:
        """The webhooks of a task, oldest first, encoded. Read at once."""
        ...

    async def remove(self, task_id: str, config_id: str) -> bool:
        """See `Outbox`."""
        ...

    async def reclaim(self, now_ms: int, held: Collection[int]) -> None:
        """See `Outbox`."""
        ...

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """See `Outbox`."""
        ...

    async def claim(self, ask: DeliveryClaim) -> tuple[Due, ...]:
        """See `Outbox`."""
        ...

    def settle(self, settled: Settled) -> "Future[None]":
        """See `Outbox`."""
        ...

    async def change(self, change: OwedChange, numbers: Sequence[int], now_ms: int) -> int:
        """Change those of some deliveries to which it applies. Returns how many there were."""
        ...

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """See `Outbox`."""
        ...


class OutboxTables:
    """The Outbox protocol."""

    def __init__(self, statements: Statements, writes: OutboxWrites, damage: DamageLog) -> None:
        self._statements = statements
        self._writes = writes
        self._damage = damage
        self._changes = 0
        """How often this process has changed webhooks or pauses."""

    # -- webhooks ------------------------------------------------------------------------------------------------------

    def register(self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]) -> "Future[None]":
        """As the protocol says."""
        self._changes += 1
        return self._writes.register(task_id, registration, deliveries)

    async def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """As the protocol says. One that cannot be read is left out."""
        found: list[PushConfig] = []
        for settings in await self._writes.settings(task_id):
            try:
                found.append(decode(PUSH_CONFIGS, settings))
            except DamagedRow as error:
                self._damage.name("a webhook of task", task_id, error)
        return tuple(found)

    async def made_with(self, key_id: str, limit: int) -> tuple[KeyWebhook, ...]:
        """As the protocol says."""
        rows = await self._statements.read("webhooks_of_key", key_id, limit)
        return tuple(
            KeyWebhook(task_id=task_id, agent=agent, config_id=config_id, host=host)
            for task_id, agent, config_id, host in rows
        )

    async def keyless(self, owner: str) -> int:
        """As the protocol says."""
        return await self._number("keyless_webhooks", owner) or 0

    async def remove(self, task_id: str, config_id: str) -> bool:
        """As the protocol says."""
        self._changes += 1
        return await self._writes.remove(task_id, config_id)

    # -- claims and outcomes -------------------------------------------------------------------------------------------

    @property
    def rewinds(self) -> int:
        """As the protocol says."""
        return self._writes.rewinds

    async def reclaim(self, now_ms: int, held: Collection[int] = ()) -> None:
        """As the protocol says."""
        await self._writes.reclaim(now_ms, held)

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """As the protocol says."""
        await self._writes.release(numbers, now_ms)

    async def claim(
        self,
        lane: Lane,
        now_ms: int,
        until_ms: int,
        limit: int,
        per_host: int,
        busy: Collection[str] = (),
        *,
        bytes_max: int | None = None,
        alone: bool = False,
        with_behind: bool = False,
    ) -> tuple[Due, ...]:
        """As the protocol says."""
        bounds = limit, per_host, tuple(busy), bytes_max, alone, with_behind
        return await self._writes.claim(DeliveryClaim(lane, now_ms, until_ms, *bounds, as_of=self._changes))

    async def next_due_ms(self) -> int | None:
        """As the protocol says, from the front of an index."""
        found: int | None = await self._statements.point("next_due")
        return found

    async def owes(self, due: Due) -> bool:
        """As the protocol says. Reads nothing if nobody can have changed a configuration since the claim."""
        if due.as_of == self._changes and not self._writes.shared:
            return True
        return bool(await self._statements.point("owes", due.number) == msgspec.msgpack.encode(due.config))

    def settle(self, settled: Settled) -> "Future[None]":
        """As the protocol says. Those of one moment are written together."""
        return self._writes.settle(settled)

    # -- for the operator ----------------------------------------------------------------------------------------------

    async def owed(
        self,
        *,
        dead: bool | None = None,
        limit: int = 100,
        after: int = 0,
        task_id: str | None = None,
        host: str | None = None,
    ) -> tuple[Owed, ...]:
        """As the protocol says."""
        if task_id is None:
            rows = await self._statements.read(OWED[dead], after, limit, host)
        else:
            rows = await self._statements.read("owed_by_task", after, limit, task_id, dead)
        return tuple(read_owed(*row) for row in rows)

    async def owed_groups(self, limit: int) -> tuple[OwedGroup, ...]:
        """As the protocol says."""
        return tuple(map(read_group, await self._statements.read("owed_groups", None, limit)))

    async def find(self, wanted: int | str) -> OwedDetails | None:
        """As the protocol says."""
        number = wanted
        if isinstance(number, str):
            numbers = await self._statements.read("find_number", number)
            number = numbers[0][0] if numbers else 0
        found = await self.owed(limit=1, after=number - 1)
        rows = await self._statements.read("delivery_standing", number)
        if not rows or not found or found[0].number != number:
            return None
        part, kept, dialect, size, lane, until_ms, before, behind = rows[0]
        return OwedDetails(
            owed=found[0],
            part=part,
            kept=bool(kept),
            dialect=dialect,
            size_bytes=size,
            lane=Lane(lane),
            claimed_until_ms=until_ms,
            before=before,
            behind=behind,
        )

    async def owed_count(self) -> tuple[int, int]:
        """As the protocol says."""
        ((pending, dead),) = await self._statements.read("owed_count")
        return pending, dead

    async def pause(self, host: PausedHost) -> bool:
        """As the protocol says."""
        self._changes += 1
        return await self._write("pause_host", host.name, host.at_ms, host.by)

    async def resume(self, name: str) -> bool:
        """As the protocol says."""
        return await self._write("resume_host", name)

    async def paused(self) -> tuple[PausedHost, ...]:
        """As the protocol says. Costs as much as there are hosts, if any is paused, and deliveries to paused ones."""
        rows = await self._statements.read("paused_hosts")
        return tuple(PausedHost(name=name, at_ms=at_ms, by=by, waiting=waiting) for name, at_ms, by, waiting in rows)

    async def backlog(self, name: str, now_ms: int) -> HostBacklog:
        """As `paused`."""
        ((waiting, held, later, next_ms),) = await self._statements.read("host_backlog", name, now_ms)
        return HostBacklog(waiting=waiting, held=held, later=later, next_ms=next_ms)

    async def paused_count(self) -> int:
        """As `paused`."""
        return await self._number("paused_count") or 0

    async def hasten(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        return await self._change(OwedChange.HASTEN, numbers, now_ms)

    async def drop_pending(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        self._changes += 1
        return await self._change(OwedChange.DROP_PENDING, numbers, now_ms)

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """In batches, each a transaction."""
        return await self._change(OwedChange.REVIVE, numbers, now_ms)

    async def drop(self, numbers: Collection[int] | None) -> int:
        """In batches, each a transaction."""
        return await self._change(OwedChange.DROP, numbers, 0)

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """As the protocol says."""
        return await self._writes.queue_again(task_id, delivery, now_ms)

    async def _change(self, change: OwedChange, numbers: Collection[int] | None, now_ms: int) -> int:
        done = 0
        async for some in self._batches(numbers):
            done += await self._writes.change(change, some, now_ms)
        return done

    async def _batches(self, numbers: Collection[int] | None) -> AsyncIterator[list[int]]:
        """Yield batches of `numbers`, or (None) of the numbers of all deliveries that are dead now."""
        if numbers is not None:
            for some in _split(sorted(set(numbers))):
                yield some
            return
        last, after = await self._number("last_dead"), 0
        while last is not None and after < last:
            rows = await self._statements.read("next_dead", after, last, BATCH_CHANGED)
            if not rows:
                return
            yield [number for (number,) in rows]
            after = rows[-1][0]

    async def _write(self, *statement: Value) -> bool:
        """Run a statement, and whether it has changed something. If its outcome is not known, it is run again."""
        try:
            return bool(await self._statements.write(statement))
        except OutcomeUnknown:
            await settled(self._statements.write(statement))
            return True  # one of the two has

    async def _number(self, name: str, *values: Value) -> int | None:
        ((number,),) = await self._statements.read(name, *values)
        return None if number is None else int(number)


def _split(numbers: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), BATCH_CHANGED):
        yield numbers[start : start + BATCH_CHANGED]


def read_group(row: tuple[Any, ...]) -> OwedGroup:
    """The group of a row of `owed_groups`."""
    host, dead, cause, calls, webhooks, made_ms, paused = row
    return OwedGroup(host, bool(dead), cause, calls, webhooks, made_ms, bool(paused))


def read_owed(
    number: int,
    name: str,
    task_id: str,
    agent: str,
    config_id: str,
    settings: bytes,
    seq: int,
    attempts: int,
    dead: bool,
    due_ms: int | None,
    made_ms: int,
    reason: str,
    host: str,
    paused: bool,
) -> Owed:
    """The delivery of a row of `owed_columns`."""
    try:
        url = decode(PUSH_CONFIGS, settings).url
    except DamagedRow:
        url = ""
    return Owed(
        number=number,
        id=name,
        task_id=task_id,
        agent=agent,
        config_id=config_id,
        url=url,
        seq=seq,
        attempts=attempts,
        dead=bool(dead),
        due_ms=due_ms,
        made_ms=made_ms,
        reason=reason,
        host=host,
        paused=bool(paused),
    )
