"""Writes of one moment share a commit, whatever they are, and do each other no harm."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import Appended, Dedupe, Exists, Fenced, Moved, Quota, Store
from dragoman.store.files import File
from dragoman.store.open import open_store
from dragoman.store.postgres.ledger import BOTH, ENDS, NEW, OLD, usual_parts
from dragoman.store.usage import Used
from dragoman.store.writes import Addition, Creation
from tests.store.cases.bench import START_MS, by_run, chunk, ending, loaded, new_task


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    """A store in which the owner of the tasks is known."""
    store = open_store(postgres_url, SystemClock())
    await store.open("h1")
    await store.create(new_task("known"))
    try:
        yield store
    finally:
        await store.close()


async def commits(url: str) -> dict[str, str]:
    """The transaction that last changed each task."""
    connection = await asyncpg.connect(url)
    try:
        return dict(await connection.fetch("SELECT id, xmin::text FROM dragoman.tasks"))
    finally:
        await connection.close()


async def test_new_tasks_and_appends_of_a_moment_share_a_commit(store: Store, postgres_url: str) -> None:
    await asyncio.gather(store.create(new_task("t1")), store.create(new_task("t2")))
    await asyncio.gather(
        store.append(by_run("t1", chunk("a"))), store.create(new_task("t3")), store.append(ending("t2", 1))
    )
    by_task = await commits(postgres_url)
    assert by_task["t1"] == by_task["t2"] == by_task["t3"] != by_task["known"]
    listed = {task_id: await store.load(task_id) for task_id in ("t1", "t2", "t3")}
    assert {task_id: stored and stored.seq for task_id, stored in listed.items()} == {"t1": 2, "t2": 2, "t3": 1}


async def test_a_plain_write_does_not_wait_for_those_with_a_quota(store: Store, postgres_url: str) -> None:
    limited = msgspec.structs.replace(new_task("t1"), quota=Quota(max_open_tasks=10, max_daily_tasks=0, day=1))
    await asyncio.gather(store.create(limited), store.create(new_task("t2")))
    by_task = await commits(postgres_url)
    assert by_task["t1"] != by_task["t2"]


async def test_a_refused_write_does_no_harm_to_the_others_of_its_batch(store: Store, postgres_url: str) -> None:
    await asyncio.gather(store.create(new_task("t1")), store.create(new_task("t2")))
    outcomes = await asyncio.gather(
        store.create(new_task("t1")),
        store.append(by_run("known", chunk("a"), epoch=7)),
        store.create(new_task("t3")),
        store.append(by_run("t2", chunk("b"))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Exists, Fenced, Appended, Appended]
    by_task = await commits(postgres_url)
    assert by_task["t2"] == by_task["t3"]


async def test_a_write_that_was_decided_on_another_history_is_only_found_again(store: Store) -> None:
    """What it was decided on may be lost. If it was made before, it is whole, and others are not harmed."""
    for task_id in ("t1", "t2"):
        await store.create(new_task(task_id))
    made = replace(by_run("t1", chunk("a")), write=7, history=store.replicas.history)
    first = await store.append(made)
    again = store.append(replace(made, history="another"))
    other = store.append(replace(by_run("t2", chunk("a")), history=store.replicas.history))
    assert (await again, (await other).last_seq) == (first, 2)
    both = replace(by_run("t1", chunk("b")), history="another"), replace(by_run("t2", chunk("b")), history="")
    outcomes = await asyncio.gather(*map(store.append, both), return_exceptions=True)
    assert isinstance(outcomes[0], Moved)
    assert [(await loaded(store, task_id)).seq for task_id in ("t1", "t2")] == [2, 3]


async def test_a_repeated_call_and_a_lost_append_are_found_without_harm_to_the_others(
    store: Store, postgres_url: str
) -> None:
    call = Dedupe(key=b"k" * 32, digest=b"d" * 32, expires_ms=START_MS + 10**12)
    await store.create(new_task("t1", dedupe=call))
    first = await store.append(replace(by_run("t1", chunk("a")), write=7, read_seq=1))
    outcomes = await asyncio.gather(
        store.create(new_task("t2", dedupe=call)),
        store.append(replace(by_run("t1", chunk("a")), write=7, read_seq=1)),
        store.create(new_task("t3")),
        store.append(replace(by_run("known", chunk("a")), write=8, read_seq=1)),
    )
    assert [getattr(outcome, "task_id", None) for outcome in outcomes] == ["t1", None, None, None]
    assert outcomes[1] == first
    by_task = await commits(postgres_url)
    assert by_task["t3"] == by_task["known"] != by_task["t1"]
    assert "t2" not in by_task


def test_a_batch_with_anything_unusual_takes_the_statement_for_any_batch() -> None:
    call = Dedupe(key=b"k" * 32, digest=b"d" * 32, expires_ms=START_MS)
    new = Creation("t1", new_task("t1", dedupe=call), 1, 1, "h1", b"page", b"head", "", "", ())
    append = Addition("t2", by_run("t2", chunk("a")), 1, None, False, None, b"page", None, (), (), None, "")
    assert [usual_parts(batch) for batch in ([new], [append], [new, append])] == [NEW, OLD, BOTH]
    ends = [replace(append, record=b"record"), replace(append, used=(Used(runs=1),))]
    assert [usual_parts([each, append]) for each in ends] == [OLD | ENDS] * 2
    assert [usual_parts([new, append, each]) for each in ends] == [BOTH | ENDS] * 2
    unusual = (
        replace(new, files=(File(1, b"digest", b"content"),)),
        replace(append, files=(File(1, b"digest", b"content"),)),
        replace(new, asked=replace(new.asked, dedupe=replace(call, instead_of="t0"))),
        replace(append, asked=replace(append.asked, dedupe=call)),
        replace(append, asked=replace(append.asked, to_worker=True)),
    )
    assert [usual_parts([new, write]) for write in unusual] == [None] * len(unusual)
