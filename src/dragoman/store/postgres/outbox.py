"""PostgresOutbox: the writes to the outbox in the database, from which every replica sends.

Invariant: a write whose outcome is not known is repeated, and says what it would have said the first time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from dragoman.model.ids import Clock
from dragoman.store.api import OutcomeUnknown, StoreError, Unknown
from dragoman.store.deliveries import DeliveryClaim
from dragoman.store.outbox import (
    Delivery,
    Due,
    QueuedAgain,
    Registration,
    Settled,
)
from dragoman.store.postgres.claims import claim
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import read_statements, to_text
from dragoman.store.postgres.deliveries import (
    change_owed,
    queue_again,
    remove_webhook,
    remove_webhooks,
    settle,
    tell,
)
from dragoman.store.postgres.writes import Told
from dragoman.store.sql.outbox import OwedChange
from dragoman.store.sql.statements import repeated

BATCH_SETTLED = 100
"""Most outcomes that one transaction writes."""


class Submit(Protocol):
    """Starts a write, which the store finishes before it closes. The future raises StoreError if it is not open.

    With the id of a task, it has its place among the writes of that task.
    """

    def __call__(self, run: Callable[[], Awaitable[Any]], task_id: str | None = None) -> "asyncio.Future[Any]":
        """See above."""
        ...


class PostgresOutbox:
    """The OutboxWrites protocol on the store's connections, for tables in `schema`.

    `claimant` returns the replica that sends from here.
    """

    shared = True

    def __init__(
        self,
        door: PostgresDoor,
        submit: Submit,
        clock: Clock,
        claimant: Callable[[], str],
        schema: str,
    ) -> None:
        self._door = door
        self._submit = submit
        self._clock = clock
        self._claimant = claimant
        self._sql = read_statements("outbox.sql", schema) | read_statements("receipts.sql", schema)
        self._settled: list[tuple[Settled, asyncio.Future[None]]] = []
        """Outcomes to write, each with the future that waits for it."""
        self._settling = False
        self._rewinds = 0

    @property
    def rewinds(self) -> int:
        """As the protocol says."""
        return self._rewinds

    def rewound(self) -> None:
        """Another server, or another history of it, is behind the address."""
        self._rewinds += 1

    # -- in the transactions of others ---------------------------------------------------------------------------------

    async def tell(self, connection: DatabaseConnection, told: Sequence[Told], now_ms: int) -> None:
        """Write webhooks and deliveries of tasks that the transaction has locked."""
        await tell(connection, self._sql, told, now_ms)

    async def remove_webhooks(self, connection: DatabaseConnection, tasks: Sequence[int]) -> None:
        """Delete the webhooks of tasks that the transaction has deleted."""
        await remove_webhooks(connection, self._sql, tasks)

    # -- webhooks ------------------------------------------------------------------------------------------------------

    def register(
        self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]
    ) -> "asyncio.Future[None]":
        """As the protocol says."""
        tries = 0

        async def run() -> None:
            nonlocal tries
            tries += 1
            owing = deliveries
            async with self._door().transaction() as connection:
                task = await connection.fetchval(self._sql["lock_task"], to_text(task_id))
                if task is None:
                    raise Unknown(task_id)
                if tries > 1:  # the first try, whose outcome is not known, may have written them
                    names = [to_text(delivery.id) for delivery in deliveries]
                    rows = await connection.fetch(self._sql["already_owed"], task, names)
                    known = {name for (name,) in rows}
                    owing = tuple(delivery for delivery in deliveries if to_text(delivery.id) not in known)
                await self.tell(connection, (Told(task, registration, owing),), self._clock.now_ms())

        return self._submit(lambda: repeated(run), task_id)

    async def settings(self, task_id: str) -> Sequence[bytes]:
        """As the protocol says."""
        return [settings for (settings,) in await self._door().read(self._sql["settings"], to_text(task_id))]

    async def remove(self, task_id: str, config_id: str) -> bool:
        """As the protocol says."""
        tries = 0

        async def run() -> bool:
            nonlocal tries
            tries += 1
            async with self._door().transaction() as connection:
                return await remove_webhook(connection, self._sql, task_id, config_id)

        removed: bool = await self._submit(lambda: repeated(run), task_id)
        return removed or tries > 1  # the first try, whose outcome is not known, may have removed it

    # -- claims and outcomes -------------------------------------------------------------------------------------------

    async def reclaim(self, now_ms: int, held: Collection[int]) -> None:
        """As the protocol says. Deliveries that others that live have in flight stay in flight."""
        values = now_ms, self._claimant(), sorted(held)
        await repeated(lambda: self._door().write(self._sql["void_claims"], *values))

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """As the protocol says. It is not repeated, because somebody else may have claimed the deliveries since."""
        try:
            await self._door().write(self._sql["release"], sorted(numbers), now_ms)
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error

    async def claim(self, ask: DeliveryClaim) -> tuple[Due, ...]:
        """As the protocol says. Looks once at each host with pending deliveries, in any lane.

        A replica that counts as dead, or is about to stop, takes none: others would void its claims.
        """
        if not (claimant := self._claimant()):
            return ()
        try:
            async with self._door().transaction() as connection:
                return await claim(connection, self._sql, ask, claimant)
        except OutcomeUnknown as error:
            raise StoreError(f"{error}: what was claimed is due again when its claim has run out") from error

    def settle(self, settled: Settled) -> "asyncio.Future[None]":
        """As the protocol says. Those of one moment are written together."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.append((settled, future))
        if not self._settling:
            self._settling = True
            self._submit(self._settle_all).add_done_callback(self._settled_all)
        return future

    async def _settle_all(self) -> None:
        """Write outcomes as long as there are any. If that fails, everybody who waits hears of it."""
        try:
            while self._settled:
                batch = self._settled[:BATCH_SETTLED]

                async def run(outcomes: Sequence[Settled] = tuple(settled for settled, _ in batch)) -> None:
                    async with self._door().transaction() as connection:
                        await settle(connection, self._sql, outcomes, self._clock.now_ms())

                await repeated(run)
                del self._settled[: len(batch)]
                for _, future in batch:
                    if not future.done():
                        future.set_result(None)
        except StoreError as error:
            self._fail_settled(error)
            raise
        finally:
            self._settling = False

    def _settled_all(self, done: "asyncio.Future[None]") -> None:
        """Pass on the error of a write that never began, because the store is closed."""
        if (error := done.exception()) is not None and self._settling:
            self._settling = False
            self._fail_settled(error)

    def _fail_settled(self, error: BaseException) -> None:
        waiting, self._settled = self._settled, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    # -- for the operator ----------------------------------------------------------------------------------------------

    async def change(self, change: OwedChange, numbers: Sequence[int], now_ms: int) -> int:
        """As the protocol says."""

        async def run() -> int:
            async with self._door().transaction() as connection:
                await connection.fetch(self._sql["lock_settling"], numbers)
                return await change_owed(connection, self._sql, change, numbers, now_ms)

        return await repeated(run)

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """As the protocol says."""
        tries = 0

        async def run() -> QueuedAgain:
            nonlocal tries
            tries += 1
            async with self._door().transaction() as connection:
                found = await queue_again(connection, self._sql, task_id, delivery, now_ms)
            # the first try, whose outcome is not known, may have written it
            return QueuedAgain.QUEUED if tries > 1 and found is QueuedAgain.THERE else found

        return await repeated(run)
