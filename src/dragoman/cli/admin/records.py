"""The audit trail and the outbox of a server elsewhere, in the place of those of the local store.

Invariant: they have the methods that the commands on the local store use, with the same meaning.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from dragoman.cli.admin.server import AdminClient, TaskPlace, run
from dragoman.cli.store_commands import at_store

if TYPE_CHECKING:
    from dragoman.store.audit import AuditFilter, AuditPage
    from dragoman.store.outbox import Owed

PAGE = 10_000
"""The most that the admin API answers with at once."""

T = TypeVar("T")


class AuditRecords(Protocol):
    """As `dragoman.store.audit.AuditTrail`."""

    async def page(
        self, wanted: "AuditFilter", limit: int, cursor: int | None = None, *, forward: bool = False
    ) -> "AuditPage": ...


class DeliveryRecords(Protocol):
    """As `dragoman.store.outbox.Outbox`."""

    async def owed(
        self, *, dead: bool | None = None, limit: int = 100, after: int = 0, task_id: str | None = None
    ) -> "tuple[Owed, ...]": ...

    async def owed_count(self) -> tuple[int, int]: ...


class StoredRecords(Protocol):
    """The records of a store, here or behind a server."""

    @property
    def audit(self) -> AuditRecords: ...

    @property
    def outbox(self) -> DeliveryRecords: ...


class RemoteRecords:
    """The records of a server, by its admin API."""

    def __init__(self, client: AdminClient) -> None:
        self.audit = RemoteAudit(client)
        self.outbox = RemoteOutbox(client)


class RemoteAudit:
    """The audit trail of a server."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def page(
        self, wanted: "AuditFilter", limit: int, cursor: int | None = None, *, forward: bool = False
    ) -> "AuditPage":
        """As the protocol of the store says, at most `PAGE` entries."""
        from msgspec.structs import asdict

        from dragoman.admin.audit import AuditLines
        from dragoman.model.ids import timestamp_ms
        from dragoman.store.audit import AuditEntry, AuditPage

        query = asdict(wanted) | {"limit": limit, "cursor": cursor, "forward": forward}
        spelled = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        answer = await self._client.get("/audit", spelled, AuditLines)
        entries = tuple(
            AuditEntry(
                at_ms=timestamp_ms(line.at),
                principal=line.principal,
                action=line.action,
                agent=line.agent,
                task_id=line.task,
                allowed=line.allowed,
                reason=line.reason,
                peer=line.peer,
                subject=line.subject,
                key=line.key,
            )
            for line in answer.entries
        )
        return AuditPage(entries, int(answer.next_cursor) if answer.next_cursor else None)


class RemoteOutbox:
    """The pending and dead deliveries of a server."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def owed(
        self, *, dead: bool | None = None, limit: int = 100, after: int = 0, task_id: str | None = None
    ) -> "tuple[Owed, ...]":
        """Deliveries with numbers above `after`, in order."""
        found: list[Owed] = []
        more: int | None = after
        while more is not None and len(found) < limit:
            page, more = await self._page(dead, min(PAGE, limit - len(found)), more, task_id)
            found += page
        return tuple(found)

    async def _page(
        self, dead: bool | None, limit: int, after: int, task_id: str | None
    ) -> "tuple[tuple[Owed, ...], int | None]":
        """A page of deliveries, and the number after which more follow, if any do."""
        from dragoman.admin.webhooks import DeliveryLines
        from dragoman.model.ids import timestamp_ms
        from dragoman.store.outbox import Owed

        query: dict[str, object] = {"after": after, "limit": limit, "task": task_id}
        if dead is not None:
            query["dead"] = "true" if dead else "false"
        answer = await self._client.get("/webhooks", query, DeliveryLines)
        page = tuple(
            Owed(
                number=line.number,
                id=line.id,
                task_id=line.task,
                agent=line.agent,
                config_id=line.config,
                url=line.url,
                seq=line.seq,
                attempts=line.failed,
                dead=line.dead,
                due_ms=None if line.next is None else timestamp_ms(line.next),
                made_ms=timestamp_ms(line.made),
                reason=line.reason,
                host=line.host,
                paused=line.paused,
            )
            for line in answer.deliveries
        )
        return page, answer.next_after

    async def owed_count(self) -> tuple[int, int]:
        """How many deliveries are pending, and how many are dead."""
        from dragoman.admin.webhooks import DeliveryLines

        found = await self._client.get("/webhooks", {"limit": 1}, DeliveryLines)
        return found.pending, found.dead


def at_records(place: TaskPlace, work: Callable[[StoredRecords], Awaitable[T]]) -> T:
    """Run `work` with the records of the server that is named, else of the local store.

    Ends the command if that fails.
    """
    if place.server is not None:
        return run(work(RemoteRecords(place.client())))
    return at_store(place.config, work)
