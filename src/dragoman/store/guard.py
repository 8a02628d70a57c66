"""The guard of appends: the reasons to refuse one, in the order in which its writer hears of them.

Invariant: pure functions. A permanent reason comes first: the task has ended; then that the writer has lost its lease;
then those after which it reads the task again and decides anew.

A database has the same conditions in the statement that writes, since another process may come in between. The
functions here predict what the statement will let through, or explain afterwards why it did not.
"""

from dragoman.model.events import StatusChanged
from dragoman.model.task import STATES
from dragoman.store.api import Append, Fenced, Moved, Refused, TaskEnded
from dragoman.store.codec import TERMINAL_FROM
from dragoman.store.worker_leases import LeaseFault


def expect_seq(append: Append) -> int | None:
    """The seq at which the task has to be: the append's own, or that of its snapshot. Raises Moved if they differ."""
    expected, snapshot = append.expected_seq, append.snapshot
    if snapshot is None:
        return expected
    before = snapshot.seq - len(append.events)
    if expected is not None and expected != before:
        raise Moved(f"{append.task_id}: the snapshot follows seq {before}, not {expected}")
    return before


def refusal(
    append: Append,
    expected_seq: int | None,
    state: int,
    seq: int,
    epoch: int,
    leased: bool | int,
    status_ms: int,
    *,
    webhooks_version: int | None = None,
    fault: LeaseFault | None = None,
) -> Refused | None:
    """Why an append is refused by a task that stands so; None if it is let through.

    `state` is a number, as the codec gives it. Without `webhooks_version` these are not compared.
    """
    task_id, change = append.task_id, append.lease
    if state >= TERMINAL_FROM:
        return TaskEnded(task_id)
    if append.epoch is not None and not (leased and append.epoch == epoch):
        return Fenced(f"{task_id}: epoch {append.epoch}, the task has {epoch if leased else 'no lease'}")
    if fault is LeaseFault.OVER:
        return Fenced(f"{task_id}: the lease of its worker is over")
    if expected_seq is not None and expected_seq != seq:
        return Moved(f"{task_id}: expected seq {expected_seq}, the task is at {seq}")
    if append.expected_epoch is not None and (append.expected_epoch, append.state) != (epoch, STATES[state]):
        return Moved(f"{task_id}: expected epoch {append.expected_epoch}, the task has {epoch} or another state")
    if webhooks_version is not None and append.webhooks_version not in (None, webhooks_version):
        return Moved(f"{task_id}: its webhooks have changed")
    single = change is not None and change.number is not None
    if single and (seq < append.read_seq or (status_ms > append.status_ms and has_status(append))):
        return Moved(f"{task_id}: the task is at {seq}, or has a later status")
    if fault is LeaseFault.CHANGED:
        return Moved(f"{task_id}: the lease of its worker is another one")
    return None


def has_status(append: Append) -> bool:
    """Whether an append writes a status, whose time must not be before that of the task."""
    return any(isinstance(event, StatusChanged) for event in append.events)
