"""Deletes tasks, and all data of principals, in a store that no server has open.

One of the tasks may be why no server starts.

Invariant: as with a server, only tasks that have ended are deleted, and an open one ends in its log before that.
"""

from collections.abc import Collection

from dragoman.admin.principals import DELETE_PRINCIPAL, PrincipalDeletion, PrincipalReport
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.playback import find_head
from dragoman.engine.admin.principal_deletion import PrincipalEraser
from dragoman.engine.admin.task_changes import still_open
from dragoman.engine.erasures import Erasures
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.runs.endings import closing
from dragoman.engine.spending import TaskSpending
from dragoman.model.errors import TaskNotFound
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TERMINAL, TaskState
from dragoman.store.api import Append, Store
from dragoman.store.audit import AuditEntry
from dragoman.store.blobs.api import BlobStore

ACTION = "tasks.delete"


async def delete_idle(store: Store, operator: str, task_id: str, *, force: bool) -> None:
    """Delete a task for good, in the name of an operator. With `force` an open one is canceled first.

    Its files in a blob store go when a server next sweeps it. Raises A2AError or StoreError.
    """
    entry = AuditEntry(at_ms=store.clock.now_ms(), principal=operator, action=ACTION, task_id=task_id)
    await store.audit.write([entry])
    _, _, state = await find_head(store, task_id)
    if state not in TERMINAL:
        if not force:
            raise still_open(task_id, state)
        await _cancel(store, task_id)
    await store.delete((task_id,))


class IdleTasks:
    """Ends and deletes tasks for a `PrincipalEraser`. `blobs` has the large files, if they are kept elsewhere."""

    def __init__(self, store: Store, blobs: BlobStore | None) -> None:
        self._store = store
        self._blobs = blobs

    async def cancel(self, operator: Operator, task_id: str, reason: str) -> None:
        """End a task in its log. Its agent does not run."""
        await _cancel(self._store, task_id)

    async def delete_ended(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended, with their files."""
        deleted = await self._store.delete(task_ids)
        if self._blobs is not None:
            for task_id in deleted:
                await self._blobs.delete(task_id)
        return deleted


async def delete_principal_idle(
    store: Store, blobs: BlobStore | None, operator: str, wanted: PrincipalDeletion
) -> PrincipalReport:
    """Delete all data of a principal in the name of an operator, or count it. Raises A2AError or StoreError."""
    stops, erasures = KeyStops(store.shared, store.clock), Erasures(store.shared, store.clock)
    eraser = PrincipalEraser(store, IdleTasks(store, blobs), erasures, stops, alone=True)
    report = await eraser.delete(Asked(Operator(operator), wanted))
    entry = AuditEntry(
        at_ms=store.clock.now_ms(),
        principal=operator,
        action=DELETE_PRINCIPAL.action_of(wanted),
        subject=DELETE_PRINCIPAL.subject_of("", wanted, report),
    )
    await store.audit.write([entry])
    return report


async def _cancel(store: Store, task_id: str) -> None:
    stored = await store.load(task_id)
    if stored is None:
        raise TaskNotFound(task_id)
    fold = Fold(stored.head, stored.snapshot)
    for logged in stored.events:
        fold.add(logged.seq, logged.event)
    now_ms = max(store.clock.now_ms(), stored.status_ms)
    end = closing(stored.head, TaskState.CANCELED, now_ms, usage=fold.usage)
    ended = fold.ahead((end,)).record()
    await store.append(
        Append(
            task_id=task_id,
            events=(end,),
            state=end.state,
            status_ms=now_ms,
            expected_seq=stored.seq,
            snapshot=ended,
            charges=TaskSpending(store).charges(ended),
        )
    )
