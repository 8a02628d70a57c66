"""OwedDeliveries: the half of the outbox that operators use, beside what changes deliveries.

Invariant: nothing is cached, and no delivery is changed.
"""

from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import OutcomeUnknown
from dragoman.store.codec import Unreadable, decode
from dragoman.store.outbox import HostBacklog, KeyWebhook, Lane, Owed, OwedDetails, PausedHost
from dragoman.store.sql.statements import Statements, Value, settled

BATCH_DEAD = 500
"""Most dead deliveries that one transaction revives or drops."""

PUSH_CONFIGS = msgspec.msgpack.Decoder(PushConfig)

OWED = {None: "owed", False: "owed_pending", True: "owed_dead"}


class OwedDeliveries:
    """Methods of the Outbox protocol: each does what that says."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def owed(
        self, *, dead: bool | None = None, limit: int = 100, after: int = 0, task_id: str | None = None
    ) -> tuple[Owed, ...]:
        """As the protocol says."""
        if task_id is None:
            rows = await self._statements.read(OWED[dead], after, limit)
        else:
            rows = await self._statements.read("owed_by_task", after, limit, task_id, dead)
        return tuple(_owed(*row) for row in rows)

    async def find(self, wanted: int | str) -> OwedDetails | None:
        """As the protocol says."""
        number = wanted
        if isinstance(number, str):
            rows = await self._statements.read("find_number", number)
            number = rows[0][0] if rows else 0
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
        """As the protocol says, by two indexes."""
        ((pending, dead),) = await self._statements.read("owed_count")
        return pending, dead

    async def batches(self, numbers: Collection[int] | None) -> AsyncIterator[list[int]]:
        """Yield batches of `numbers`, or (None) of the numbers of all deliveries that are dead now."""
        if numbers is not None:
            given = sorted(set(numbers))
            for start in range(0, len(given), BATCH_DEAD):
                yield given[start : start + BATCH_DEAD]
            return
        ((last,),) = await self._statements.read("last_dead")
        after = 0
        while last is not None and after < last:
            rows = await self._statements.read("next_dead", after, last, BATCH_DEAD)
            if not rows:
                return
            yield [number for (number,) in rows]
            after = rows[-1][0]

    # -- paused hosts --------------------------------------------------------------------------------------------------

    async def pause(self, host: PausedHost) -> bool:
        """As the protocol says."""
        return await self._change("pause_host", host.name, host.at_ms, host.by)

    async def resume(self, name: str) -> bool:
        """As the protocol says."""
        return await self._change("resume_host", name)

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
        ((count,),) = await self._statements.read("paused_count")
        return int(count)

    async def _change(self, name: str, *values: Value) -> bool:
        """Make a change, again if its outcome is unknown. If the second attempt finds nothing, the first made it."""
        try:
            return bool(await self._statements.write((name, *values)))
        except OutcomeUnknown:
            await settled(self._statements.write((name, *values)))
            return True

    # -- webhooks of keys ----------------------------------------------------------------------------------------------

    async def made_with(self, key_id: str, limit: int) -> tuple[KeyWebhook, ...]:
        """As the protocol says."""
        rows = await self._statements.read("webhooks_of_key", key_id, limit)
        return tuple(
            KeyWebhook(task_id=task_id, agent=agent, config_id=config_id, host=host)
            for task_id, agent, config_id, host in rows
        )

    async def keyless(self, owner: str) -> int:
        """As the protocol says."""
        ((count,),) = await self._statements.read("keyless_webhooks", owner)
        return int(count)


def _owed(
    number: int,
    name: str,
    task_id: str,
    agent: str,
    config_id: str,
    settings: bytes,
    seq: int,
    attempts: int,
    dead: Any,
    due_ms: int | None,
    made_ms: int,
    reason: str,
    host: str,
    paused: Any,
) -> Owed:
    try:
        url = decode(PUSH_CONFIGS, settings).url
    except Unreadable:
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
