"""Tasks that workers take, hold and answer through a store, as the cases about leases of workers have them."""

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import Append, Store, Stored
from dragoman.store.worker_leases import WORKER, WorkerLease, WorkerLeaseChange
from tests.store.cases.bench import (
    START_MS,
    chunk,
    loaded,
    new_task,
    status,
)

LONG_MS = 3_600_000

S, W, Q = TaskState.SUBMITTED, TaskState.WORKING, TaskState.INPUT_REQUIRED


def lease_of(task_id: str = "t1", token: str = "t1.a", **said: object) -> WorkerLease:
    values = {"agent": "echo", "worker": "w1", "replays": False, "delivery": 1, "since": 2, **said}
    return WorkerLease(task_id=task_id, token=token, **values)  # type: ignore[arg-type]


def granting(stored: Stored, lease: WorkerLease, for_ms: int = LONG_MS) -> Append:
    """A worker takes a task as it stands."""
    return Append(
        task_id=stored.head.id,
        events=(status(W),),
        state=W,
        status_ms=START_MS,
        expected_seq=stored.seq,
        holder=WORKER,
        lease=WorkerLeaseChange(lease, granted_ms=for_ms),
    )


def told(stored: Stored, lease: WorkerLease, *, state: TaskState = W, over: bool = False) -> Append:
    """The worker says something, asks, or gives the task back."""
    return Append(
        task_id=stored.head.id,
        events=(chunk("word"),) if state is W else (status(state),),
        state=state,
        status_ms=START_MS,
        epoch=stored.epoch,
        expected_seq=stored.seq,
        release=state is Q or over,
        lease=WorkerLeaseChange(lease, over=over),
    )


def single(stored: Stored, lease: WorkerLease, number: int, confirmed: int = 0) -> Append:
    """The worker says something that depends on nothing that was told since the task was read."""
    return Append(
        task_id=stored.head.id,
        events=(chunk(f"word {number}"),),
        state=W,
        status_ms=START_MS,
        epoch=stored.epoch,
        read_seq=stored.seq,
        lease=WorkerLeaseChange(replace(lease, reports=number or lease.reports), number=number, confirmed=confirmed),
    )


def answered(stored: Stored) -> Append:
    """The caller answers: the worker of the lease goes on, if it has it still."""
    return Append(
        task_id=stored.head.id,
        events=(status(W),),
        state=W,
        status_ms=START_MS,
        expected_seq=stored.seq,
        read_seq=stored.seq,
        to_worker=True,
    )


async def leased(store: Store, task_id: str = "t1", for_ms: int = LONG_MS, **said: object) -> WorkerLease:
    """A task that a worker has taken."""
    await store.create(new_task(task_id, holder=None, state=S))
    lease = lease_of(task_id, f"{task_id}.a", **said)
    await store.append(granting(await loaded(store, task_id), lease, for_ms))
    return lease
