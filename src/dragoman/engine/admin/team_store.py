"""TeamStore: a store as the operators of one team see it, with the tasks of the team and what belongs to them.

Invariant: this is the one place that says what these operators see. What is another team's is not there, however it is
asked for. The answers to operators are made by the same functions as for the whole server, which get this store instead
of the whole one; what none of them asks for is missing here, so that a new one fails before it tells.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from dragoman.model.events import Logged
from dragoman.model.operations import PushConfig
from dragoman.model.principal import KeyLimits
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import (
    ContextPage,
    ContextQuery,
    Listed,
    ListedRows,
    ListQuery,
    Owners,
    SearchPage,
    StatusRow,
    Store,
    Stored,
    TaskSearch,
    Whose,
    covers,
)
from dragoman.store.audit import AuditEntry, AuditFilter, AuditPage
from dragoman.store.figures import StoreFigures
from dragoman.store.keyring import StoredKey
from dragoman.store.members import TeamMembers
from dragoman.store.outage import WriteRecord
from dragoman.store.outbox import Delivery, KeyWebhook, Owed, OwedDetails, OwedGroup, PausedHost, QueuedAgain
from dragoman.store.principals import PrincipalCounts
from dragoman.store.receipts import Receipt
from dragoman.store.replicas import Replica
from dragoman.store.state import StateEntry, StateFigures, StateScope
from dragoman.store.usage import UsageDay

PAGE = 500
"""Deliveries that are read at once where all of a team are meant."""


def narrow_store(store: Store, team: str) -> Store:
    """The store of a team. It has no more than the answers to operators need."""
    return cast(Store, TeamStore(store, TeamMembers(team)))


class TeamStore:
    """The tasks of a team. Those of others are looked for, and are not found."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._store = store
        self._members = members
        self.clock = store.clock
        self.shared = store.shared
        self.writing = WriteRecord("", store.clock)
        """The writes of the process are everybody's."""
        self.outbox = TeamOutbox(store, members, self)
        self.receipts = TeamReceipts(store, members, self)
        self.keys = TeamKeys(store, members)
        self.audit = TeamAudit(store, members)
        self.usage = TeamUsage(store, members)
        self.principals = TeamPrincipals(store, members)
        self.state = TeamState(store, members)
        self.budgets = TeamBudgets(store)
        self.replicas = NoReplicas()

    async def has(self, task_id: str) -> bool:
        """Whether a task is of the team."""
        return await self.head(task_id) is not None

    async def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """See `Store`."""
        found = await self._store.head(task_id)
        return found if found is not None and found[0].team == self._members.team else None

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        """See `Store`."""
        return await self._store.load(task_id, size) if await self.has(task_id) else None

    async def load_snapshot(self, task_id: str) -> Stored | None:
        """See `Store`."""
        return await self._store.load_snapshot(task_id) if await self.has(task_id) else None

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """See `Store`."""
        return await self._store.read(task_id, after, limit_bytes) if await self.has(task_id) else ()

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        """See `Store`."""
        own = [(task_id, after) for task_id, after in seen if await self.has(task_id)]
        return await self._store.read_since(own, limit_bytes)

    async def children(self, parent_id: str) -> tuple[TaskHead, ...]:
        """See `Store`. A delegated task is of the team of its parent."""
        return await self._store.children(parent_id) if await self.has(parent_id) else ()

    async def asking(self) -> tuple[TaskHead, ...]:
        """See `Store`."""
        return tuple(head for head in await self._store.asking() if head.team == self._members.team)

    async def list(self, query: ListQuery) -> Listed:
        """See `Store`."""
        whose = self._whose(query.owner)
        return Listed((), 0, False) if whose is None else await self._store.list(replace(query, owner=whose))

    async def list_rows(self, query: ListQuery) -> ListedRows:
        """See `Store`."""
        whose = self._whose(query.owner)
        return ListedRows((), 0, False) if whose is None else await self._store.list_rows(replace(query, owner=whose))

    async def search(self, query: TaskSearch) -> SearchPage:
        """See `Store`."""
        whose = self._whose(query.owner)
        if whose is None:
            return SearchPage((), None)
        return await self._store.search(replace(query, owner=whose, team=self._members.team))

    async def contexts(self, query: ContextQuery) -> ContextPage:
        """See `Store`."""
        whose = self._whose(query.owner)
        return ContextPage((), None) if whose is None else await self._store.contexts(replace(query, owner=whose))

    async def changes(self, since_ms: int, limit: int) -> tuple[StatusRow, ...]:
        """See `Store`."""
        return await self._store.changes(since_ms, limit, self._members)

    async def figures(self) -> StoreFigures:
        """See `Store`. The size of the store, and what its retentions are about, are everybody's."""
        return StoreFigures(size_bytes=0, open_tasks=await self._store.teams.open_tasks(self._members))

    def _whose(self, owner: Whose) -> Whose | None:
        """Those of the owners that a query is about who are in the team; None if none is."""
        if owner is Owners.ALL or owner == self._members:
            return self._members
        return owner if isinstance(owner, str) and covers(self._members, owner) else None


class TeamOutbox:
    """The webhooks of a team's tasks. It pauses no host, since others send there, too."""

    def __init__(self, store: Store, members: TeamMembers, tasks: TeamStore) -> None:
        self._outbox = store.outbox
        self._rows = store.teams
        self._members = members
        self._tasks = tasks

    async def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """See `Outbox`."""
        return await self._outbox.configs(task_id) if await self._tasks.has(task_id) else ()

    async def made_with(self, key_id: str, limit: int) -> tuple[KeyWebhook, ...]:
        """See `Outbox`. A key that others have found here is of the team, and so are its webhooks."""
        return await self._outbox.made_with(key_id, limit)

    async def keyless(self, owner: str) -> int:
        """See `Outbox`."""
        return await self._outbox.keyless(owner) if covers(self._members, owner) else 0

    async def owed(
        self,
        *,
        dead: bool | None = None,
        limit: int = 100,
        after: int = 0,
        task_id: str | None = None,
        host: str | None = None,
    ) -> tuple[Owed, ...]:
        """See `Outbox`."""
        if task_id is None:
            return await self._rows.owed(self._members, dead=dead, limit=limit, after=after, host=host)
        if not await self._tasks.has(task_id):
            return ()
        return await self._outbox.owed(dead=dead, limit=limit, after=after, task_id=task_id)

    async def owed_groups(self, limit: int) -> tuple[OwedGroup, ...]:
        """See `Outbox`."""
        return await self._rows.owed_groups(self._members, limit)

    async def owed_count(self) -> tuple[int, int]:
        """See `Outbox`."""
        counts = await self._rows.count_owed(self._members)
        return counts.pending, counts.dead

    async def paused_count(self) -> int:
        """See `Outbox`."""
        return (await self._rows.count_owed(self._members)).paused

    async def next_due_ms(self) -> int | None:
        """See `Outbox`."""
        return (await self._rows.count_owed(self._members)).due_ms

    async def paused(self) -> tuple[PausedHost, ...]:
        """See `Outbox`. Neither who paused a host is told, nor what else waits for it."""
        return tuple(replace(host, by="", waiting=0) for host in await self._outbox.paused())

    async def find(self, wanted: int | str) -> OwedDetails | None:
        """See `Outbox`."""
        found = await self._outbox.find(wanted)
        return found if found is not None and await self._tasks.has(found.owed.task_id) else None

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """See `Outbox`."""
        return await self._outbox.revive(await self._own(numbers), now_ms)

    async def drop(self, numbers: Collection[int] | None) -> int:
        """See `Outbox`."""
        return await self._outbox.drop(await self._own(numbers))

    async def hasten(self, numbers: Collection[int], now_ms: int) -> int:
        """See `Outbox`."""
        return await self._outbox.hasten(await self._own(numbers), now_ms)

    async def drop_pending(self, numbers: Collection[int], now_ms: int) -> int:
        """See `Outbox`."""
        return await self._outbox.drop_pending(await self._own(numbers), now_ms)

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """See `Outbox`."""
        if not await self._tasks.has(task_id):
            return QueuedAgain.NO_CONFIG
        return await self._outbox.queue_again(task_id, delivery, now_ms)

    async def _own(self, numbers: Collection[int] | None) -> list[int]:
        """Those of the deliveries that are of the team; None: all that are dead."""
        found: list[int] = []
        if numbers is not None:
            for number in numbers:
                owed = await self._outbox.owed(limit=1, after=number - 1)
                if owed and owed[0].number == number and await self._tasks.has(owed[0].task_id):
                    found.append(number)
            return found
        while page := await self.owed(dead=True, limit=PAGE, after=found[-1] if found else 0):
            found += [owed.number for owed in page]
        return found


class TeamReceipts:
    """The deliveries of a team that arrived."""

    def __init__(self, store: Store, members: TeamMembers, tasks: TeamStore) -> None:
        self._receipts = store.receipts
        self._rows = store.teams
        self._members = members
        self._tasks = tasks

    async def page(
        self, *, limit: int = 100, before: int | None = None, task_id: str | None = None
    ) -> tuple[Receipt, ...]:
        """See `Receipts`."""
        if task_id is None:
            return await self._rows.receipts(self._members, limit=limit, before=before)
        if not await self._tasks.has(task_id):
            return ()
        return await self._receipts.page(limit=limit, before=before, task_id=task_id)

    async def find(self, wanted: int | str) -> Receipt | None:
        """See `Receipts`."""
        found = await self._receipts.find(wanted)
        return found if found is not None and await self._tasks.has(found.task_id) else None


class TeamKeys:
    """The keys of a team."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._keys = store.keys
        self._team = members.team

    async def find(self, key_id: str) -> StoredKey | None:
        """See `KeyRing`."""
        key = await self._keys.find(key_id)
        return key if key is not None and key.team == self._team else None

    async def all(self) -> tuple[StoredKey, ...]:
        """See `KeyRing`."""
        return tuple(key for key in await self._keys.all() if key.team == self._team)

    async def add(self, key: StoredKey) -> None:
        """See `KeyRing`."""
        assert key.team == self._team  # `KeyChanges` knows no other team
        await self._keys.add(key)

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """See `KeyRing`."""
        return await self.find(key_id) is not None and await self._keys.revoke(key_id, now_ms)

    async def replace(self, key_id: str, by: StoredKey, now_ms: int, ends_ms: int) -> bool:
        """See `KeyRing`."""
        return await self.find(key_id) is not None and await self._keys.replace(key_id, by, now_ms, ends_ms)

    async def limit(self, key_id: str, limits: KeyLimits | None) -> bool:
        """See `KeyRing`."""
        return await self.find(key_id) is not None and await self._keys.limit(key_id, limits)


class TeamAudit:
    """What the members of a team have done, its operators among them."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._audit = store.audit
        self._members = members

    async def page(
        self, wanted: AuditFilter, limit: int, cursor: int | None = None, *, forward: bool = False
    ) -> AuditPage:
        """See `AuditTrail`."""
        return await self._audit.page(replace(wanted, members=self._members), limit, cursor, forward=forward)

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        """See `AuditTrail`."""
        return await self._audit.acts(after, self._members)


class TeamUsage:
    """What the members of a team have used."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._usage = store.usage
        self._members = members

    async def days(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """See `UsageBook`."""
        return await self._usage.days(first, last, self._members)


class TeamPrincipals:
    """The members of a team. There is nothing of anybody else."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._principals = store.principals
        self._members = members

    async def count(self, principal: str) -> PrincipalCounts:
        """See `PrincipalRows`."""
        return await self._principals.count(principal) if covers(self._members, principal) else PrincipalCounts()

    async def usage(self, principal: str) -> tuple[UsageDay, ...]:
        """See `PrincipalRows`."""
        return await self._principals.usage(principal) if covers(self._members, principal) else ()

    async def rename(self, principal: str, alias: str, now_ms: int) -> int:
        """See `PrincipalRows`."""
        return await self._principals.rename(principal, alias, now_ms) if covers(self._members, principal) else 0

    async def forget(self, principal: str) -> int:
        """See `PrincipalRows`."""
        return await self._principals.forget(principal) if covers(self._members, principal) else 0


class TeamState:
    """What agents keep of the members of a team."""

    def __init__(self, store: Store, members: TeamMembers) -> None:
        self._state = store.state
        self._members = members

    async def list_scopes(self, owner: str) -> tuple[StateScope, ...]:
        """See `StateStore`."""
        return await self._state.list_scopes(owner) if covers(self._members, owner) else ()

    async def list_entries(
        self, scope: StateScope, *, limit: int = 100, after: str | None = None
    ) -> tuple[StateEntry, ...]:
        """See `StateStore`."""
        if not covers(self._members, scope.owner):
            return ()
        return await self._state.list_entries(scope, limit=limit, after=after)

    async def end_scopes(self, owner: str) -> int:
        """See `StateStore`."""
        return await self._state.end_scopes(owner) if covers(self._members, owner) else 0

    async def sweep(self) -> int:
        """See `StateStore`. It deletes what nobody has any more."""
        return await self._state.sweep()

    async def count_kinds(self) -> tuple[StateFigures, ...]:
        """See `StateStore`. They are counted for all together."""
        return ()


class TeamBudgets:
    """The accounts that are asked for by their names: `report_budgets` knows those of the team."""

    def __init__(self, store: Store) -> None:
        self.accounts = store.budgets.accounts


class NoReplicas:
    """The servers on the store are everybody's."""

    shared = False

    async def all(self) -> tuple[Replica, ...]:
        """See `Replicas`."""
        return ()
