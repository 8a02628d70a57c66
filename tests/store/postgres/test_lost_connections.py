"""Connections that are cut while something is written: nothing is written twice, and nothing is lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    ListQuery,
    OutcomeUnknown,
    Repeat,
    Store,
    StoreError,
    StoreUnreachable,
)
from dragoman.store.open import open_store
from tests.drills import proxy
from tests.drills.proxy import Proxy
from tests.kit.waiting import no_hang
from tests.store.cases.bench import START_MS, by_run, chunk, ending, loaded, new_task, seqs

WHOLE = 1 << 30

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@asynccontextmanager
async def behind_proxy(postgres_url: str, *, connections: int) -> AsyncIterator[tuple[Store, Proxy]]:
    """An open store whose connections lead through a proxy."""
    parts = urlsplit(postgres_url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with proxy.before(parts.hostname, parts.port) as cutting:
        query = f"pool_size={connections}&timeout_s=20&sslmode=disable"
        url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{cutting.port}", query=query))
        store = open_store(url, SystemClock())
        await store.open("h1")
        try:
            async with no_hang():
                yield store, cutting
        finally:
            cutting.heal()
            await store.close()


async def until(connection: asyncpg.Connection, sql: str, wanted: int) -> None:
    """Wait until a query counts so many."""
    while await connection.fetchval(sql) != wanted:
        pass


async def persist(make: "Callable[[], asyncio.Future[Appended | Repeat]]") -> Appended | Repeat:
    """Repeat a write until the store says what became of it."""
    while True:
        try:
            return await make()
        except (OutcomeUnknown, StoreError):
            await asyncio.sleep(0)


def spoken(task_id: str, number: int) -> Append:
    """The append with which a log of `number` events grows."""
    return replace(by_run(task_id, chunk(str(number))), write=number, read_seq=number)


async def texts(store: Store, task_id: str) -> list[str | None]:
    """The texts in a log, which has no gaps."""
    log = await store.read(task_id, 0, WHOLE)
    assert seqs(log) == list(range(1, len(log) + 1))
    return [logged.event.artifact.parts[0].text for logged in log[1:]]  # type: ignore[union-attr]


async def prepare(store: Store, task_id: str) -> None:
    """Let the connection prepare both statements, so that the next request is the write itself."""
    await store.create(new_task(task_id))
    await store.append(spoken(task_id, 1))


async def test_a_task_whose_making_was_not_answered_is_made_once(postgres_url: str) -> None:
    async with behind_proxy(postgres_url, connections=1) as (store, cutting):
        await prepare(store, "t0")
        new = replace(new_task("t1"), write=1)
        cutting.cut_requests(1.0, random.Random(1))
        with pytest.raises(OutcomeUnknown):
            await store.create(new)
        cutting.heal()
        while await store.load("t1") is None:
            pass  # the server may still be at it
        made = await store.create(new)
        assert isinstance(made, Appended)
        assert (made.last_seq, made.epoch) == (1, 1)
        assert seqs(await store.read("t1", 0, WHOLE)) == [1]
        assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 2


async def test_an_append_that_was_not_answered_is_made_once(postgres_url: str) -> None:
    async with behind_proxy(postgres_url, connections=1) as (store, cutting):
        await prepare(store, "t1")
        cutting.cut_requests(1.0, random.Random(1))
        with pytest.raises(OutcomeUnknown):
            await store.append(spoken("t1", 2))
        cutting.heal()
        while (await loaded(store, "t1")).seq != 3:
            pass  # the server may still be at it
        repeated = await store.append(spoken("t1", 2))
        assert isinstance(repeated, Appended)
        assert repeated.last_seq == 3
        assert await texts(store, "t1") == ["1", "2"]


async def test_a_write_that_is_still_under_way_on_a_lost_connection_is_not_made_twice(postgres_url: str) -> None:
    async with behind_proxy(postgres_url, connections=1) as (store, cutting):
        await prepare(store, "t1")
        admin = await asyncpg.connect(postgres_url)
        other = await asyncpg.connect(postgres_url)
        try:
            held = admin.transaction()
            await held.start()
            await admin.execute("SELECT FROM dragoman.tasks FOR UPDATE")
            cutting.cut_requests(1.0, random.Random(1))
            with pytest.raises(OutcomeUnknown):
                await store.append(spoken("t1", 2))
            await until(other, WAITING, 1)
            cutting.heal()
            repeated = store.append(spoken("t1", 2))
            await until(other, WAITING, 2)
            await held.commit()
        finally:
            await admin.close()
            await other.close()
        outcome = await repeated
        assert isinstance(outcome, Appended)
        assert outcome.last_seq == 3
        assert await texts(store, "t1") == ["1", "2"]


async def test_what_is_written_while_connections_are_cut_is_written_once(postgres_url: str) -> None:
    async def work(store: Store, name: str) -> None:
        key = Dedupe(name.encode(), b"d", START_MS * 2)
        new = replace(new_task(name, dedupe=key), write=1)
        made = await persist(lambda: store.create(new))
        assert isinstance(made, Appended)
        for number in range(1, 20):
            appended = await persist(lambda number=number: store.append(spoken(name, number)))  # type: ignore[misc]
            assert isinstance(appended, Appended)
            assert appended.last_seq == number + 1
        await persist(lambda: store.append(replace(ending(name, 20), write=20, read_seq=20)))

    async with behind_proxy(postgres_url, connections=4) as (store, cutting):
        cutting.cut_requests(0.2, random.Random(7))
        await asyncio.gather(*(work(store, f"t{number}") for number in range(12)))
        assert cutting.cuts > 0
        cutting.heal()
        for number in range(12):
            stored = await loaded(store, f"t{number}")
            assert (stored.seq, stored.epoch) == (21, 1)
            log = await store.read(f"t{number}", 0, WHOLE)
            assert seqs(log) == list(range(1, 22))
            said = [logged.event.artifact.parts[0].text for logged in log[1:-1]]  # type: ignore[union-attr]
            assert said == [str(one) for one in range(1, 20)]
        assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 12


async def test_what_is_written_while_the_server_ends_sessions_is_written_once(postgres_url: str) -> None:
    ended = written = 0

    async def end_sessions(connection: asyncpg.Connection, done: asyncio.Event) -> None:
        nonlocal ended
        while ended < 10:
            ended += await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'"
            )
            enough = written + 2
            while written < enough:
                await asyncio.sleep(0)
        done.set()

    async def work(store: Store, name: str, done: asyncio.Event) -> int:
        nonlocal written
        await persist(lambda: store.create(replace(new_task(name), write=1)))
        number = 1
        while not done.is_set():
            appended = await persist(lambda number=number: store.append(spoken(name, number)))  # type: ignore[misc]
            assert isinstance(appended, Appended)
            assert appended.last_seq == number + 1
            number += 1
            written += 1
        return number

    async with behind_proxy(postgres_url, connections=4) as (store, _):
        admin = await asyncpg.connect(postgres_url)
        done = asyncio.Event()
        try:
            names = [f"t{number}" for number in range(8)]
            work_of_all = asyncio.gather(*(work(store, name, done) for name in names))
            await end_sessions(admin, done)
            lengths = await work_of_all
        finally:
            await admin.close()
        for name, length in zip(names, lengths, strict=True):
            assert await texts(store, name) == [str(number) for number in range(1, length)]


async def test_a_database_out_of_reach_is_an_outage_until_it_answers_again(postgres_url: str) -> None:
    async with behind_proxy(postgres_url, connections=2) as (store, cutting):
        await store.create(new_task("t0"))
        assert store.writing.outage is None
        cutting.refuse()
        with pytest.raises((OutcomeUnknown, StoreError)):  # its connection was lost when it was used
            await store.create(new_task("t1"))
        with pytest.raises(StoreError, match="does not answer"):
            await store.create(new_task("t2"))
        with pytest.raises(StoreError):
            await store.load("t0")
        assert store.writing.outage is not None
        assert store.writing.outage.reason == StoreUnreachable.reason
        assert store.writing.failed_writes == 2
        cutting.heal()
        assert isinstance(await store.create(new_task("t3")), Appended)
        assert await store.load("t1") is None
        assert await store.load("t2") is None
        while store.writing.outage is not None:
            await asyncio.sleep(0.01)
