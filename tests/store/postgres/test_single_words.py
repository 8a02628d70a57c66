"""A worker's single word is appended to what other replicas wrote, if it can be; its writer gets what it has missed."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Appended, Moved, Store, Stored
from dragoman.store.open import open_store
from dragoman.store.worker_leases import WORKER, WorkerLease, WorkerLeaseChange
from tests.store.cases.bench import START_MS, chunk, new_task, refused, status

W = TaskState.WORKING

MISSED_MAX = 32
"""How many missed events the statement returns at most."""

LEASE = WorkerLease(task_id="t1", agent="echo", token="t1.a", worker="w", replays=False, delivery=1, since=2)


@pytest.fixture
async def store(used_postgres_url: str) -> AsyncIterator[Store]:
    """A store with a task that a worker has."""
    store = open_store(used_postgres_url, SystemClock())
    await store.open("h1")
    await store.create(new_task("t1", holder=None, state=TaskState.SUBMITTED))
    granted = WorkerLeaseChange(LEASE, granted_ms=3_600_000)
    taken = Append(task_id="t1", events=(status(W),), state=W, status_ms=START_MS, holder=WORKER, lease=granted)
    await store.append(taken)
    try:
        yield store
    finally:
        await store.close()


async def as_read(store: Store) -> Stored:
    stored = await store.load("t1")
    assert stored is not None
    return stored


def word(read: Stored, number: int, status_ms: int | None = None) -> Append:
    """A chunk, or a status of that time."""
    return Append(
        task_id="t1",
        events=(chunk(f"{number}") if status_ms is None else status(W),),
        state=W,
        status_ms=START_MS if status_ms is None else status_ms,
        epoch=read.epoch,
        read_seq=read.seq,
        lease=WorkerLeaseChange(replace(LEASE, reports=number), number=number),
    )


async def told(store: Store, append: Append) -> Appended:
    written = await store.append(append)
    assert isinstance(written, Appended)
    return written


async def test_the_writer_gets_the_events_that_it_has_missed_if_they_are_few(store: Store) -> None:
    read = await as_read(store)
    assert (await told(store, word(read, 1))).missed == ()
    for number in range(2, MISSED_MAX + 2):
        missed = (await told(store, word(read, number))).missed
        assert [(each.seq, each.event) for each in missed] == [
            (read.seq + earlier, chunk(f"{earlier}")) for earlier in range(1, number)
        ]
    assert (await told(store, word(read, MISSED_MAX + 2))).missed == ()
    again = await as_read(store)
    assert again.log_bytes_since == read.log_bytes_since + sum(logged.size for logged in again.events if logged.seq > 2)


async def test_a_writer_that_has_read_what_the_store_has_lost_is_refused(store: Store) -> None:
    read = await as_read(store)
    await refused(store.append(word(replace(read, seq=read.seq + 1), 1)), Moved)
    assert (await as_read(store)).seq == read.seq


async def test_a_status_from_a_clock_that_is_behind_is_refused(store: Store) -> None:
    read = await as_read(store)
    await told(store, word(read, 1, START_MS + 1_000))
    await refused(store.append(word(read, 2, START_MS + 999)), Moved)
    await told(store, word(read, 2))  # a chunk has no time
    await told(store, word(read, 3, START_MS + 1_000))
    assert (await as_read(store)).status_ms == START_MS + 1_000
