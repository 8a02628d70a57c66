"""Deletes tasks of a store that no server has open: one of them may be why none starts.

Invariant: as with a server, only tasks that have ended are deleted, and an open one ends in its log before that.
"""

from dragoman.engine.admin.playback import find_head
from dragoman.engine.admin.task_changes import still_open
from dragoman.engine.runs.endings import closing
from dragoman.model.errors import TaskNotFound
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TERMINAL, TaskState
from dragoman.store.api import Append, Store
from dragoman.store.audit import AuditEntry

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


async def _cancel(store: Store, task_id: str) -> None:
    stored = await store.load(task_id)
    if stored is None:
        raise TaskNotFound(task_id)
    fold = Fold(stored.head, stored.snapshot)
    for logged in stored.events:
        fold.add(logged.seq, logged.event)
    now_ms = max(store.clock.now_ms(), stored.status_ms)
    end = closing(stored.head, TaskState.CANCELED, now_ms, usage=fold.usage)
    await store.append(
        Append(
            task_id=task_id,
            events=(end,),
            state=end.state,
            status_ms=now_ms,
            expected_seq=stored.seq,
            snapshot=fold.ahead((end,)).record(),
        )
    )
