"""Every field of every value that a store keeps is read as it was written."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.model.events import ArtifactChunk, Event, StatusChanged, Submitted
from dragoman.model.message import Message
from dragoman.model.task import STATES, Record, TaskHead, TaskState
from dragoman.store.api import Append, Dedupe, ListQuery, NewTask, Repeat, Store
from dragoman.store.audit import AuditEntry
from dragoman.store.keyring import SigningKey, StoredKey
from dragoman.store.open import open_store
from dragoman.store.outbox import Arrival, Delivery, Due, Lane, Owed, Registration, Settled
from dragoman.store.receipts import Receipt
from tests.postgres import PostgresServer
from tests.soak import times
from tests.store.cases.bench import START_MS, SetClock, new_task
from tests.store.cases.deliveries import webhook
from tests.store.values import CONFIGS, TEXTS, structs

WORKING = TaskState.WORKING
FEW = settings(max_examples=times(15, 300))

LOGS = st.tuples(structs(Submitted), *(structs(kind) for kind in get_args(Event) if kind is not Submitted))
"""One event of each type."""


EVERY = 3
"""PostgreSQL is given one of so many examples: each costs it twenty times as much."""

Test = Callable[[Store], Awaitable[None]]
Trip = Callable[[Test], None]


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def with_store(request: pytest.FixtureRequest) -> Trip:
    """Runs a test on an empty store."""
    if request.param == "sqlite":
        return lambda test: _run("memory:", test)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = request.getfixturevalue("round_trip_url")

    turns = count()

    def run(test: Test) -> None:
        if next(turns) % EVERY:
            return
        tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'dragoman'", database=_name(url))
        names = ", ".join(f"dragoman.{table}" for (table,) in tables if table != "schema_version")
        if names:
            server.execute(f"TRUNCATE {names} RESTART IDENTITY", database=_name(url))
        _run(url, test)

    return run


@pytest.fixture(scope="session")
def round_trip_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for all tests here."""
    with postgres_server.database() as url:
        yield url


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _run(url: str, test: Test) -> None:
    async def run() -> None:
        store = open_store(url, SetClock())
        await store.open("h1")
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(run())


@FEW
@given(structs(TaskHead), LOGS)
def test_a_task_is_read_as_it_was_written(with_store: Trip, head: TaskHead, events: tuple[Event, ...]) -> None:
    async def test(store: Store) -> None:
        new = NewTask(head=head, events=events, state=WORKING, status_ms=START_MS, holder="dead")
        await store.create(new)
        stored = await store.load(head.id)
        assert stored is not None
        assert (stored.head, tuple(logged.event for logged in stored.events)) == (head, events)
        assert [logged.seq for logged in stored.events] == list(range(1, len(events) + 1))
        told = stored.seq, stored.epoch, stored.state, stored.status_ms, stored.holder
        assert told == (len(events), 1, WORKING, START_MS, "dead")
        read = await store.read(head.id, 0, 1 << 20)
        assert tuple(logged.event for logged in read) == events
        listed = await store.list(ListQuery(owner=head.owner, agent=head.agent))
        around = [(logged.seq, logged.event) for logged in listed.tasks[0].events]
        assert around == [
            (seq, event) for seq, event in enumerate(events, 1) if not isinstance(event, ArtifactChunk)
        ], "a list without artifacts has all other events"
        assert await store.head(head.id) == (head, len(events), WORKING)
        await store.replicas.join("h1", address="", agents=())
        (claimed,) = await store.claim("h1", 1, None, absent_s=0.0)
        assert claimed.head == head

    with_store(test)


@FEW
@given(structs(Record, head=st.just(new_task("t1").head), seq=st.just(2)), st.sampled_from(STATES))
def test_a_record_is_read_as_it_was_written(with_store: Trip, record: Record, state: TaskState) -> None:
    async def test(store: Store) -> None:
        await store.create(new_task("t1"))
        event = StatusChanged(state, record.status.timestamp)
        append = Append(task_id="t1", events=(event,), state=state, status_ms=START_MS, epoch=1, snapshot=record)
        await store.append(append)
        stored = await store.load("t1")
        assert stored is not None
        assert stored.snapshot == record
        (listed,) = await store.messages("ann", "echo", "c1", 1)
        assert listed.snapshot == record

    with_store(test)


@FEW
@given(structs(Message), structs(Dedupe, key=st.binary(min_size=1, max_size=32), expires_ms=st.just(START_MS + 1)))
def test_a_remembered_call_is_read_as_it_was_written(with_store: Trip, answer: Message, dedupe: Dedupe) -> None:
    async def test(store: Store) -> None:
        assert await store.remember(dedupe, answer) is None
        answered = Repeat(task_id=None, digest=dedupe.digest, seq=0, answer=answer)
        assert await store.recall(dedupe.key) == answered
        made = replace(dedupe, key=dedupe.key[:-1] + bytes([dedupe.key[-1] ^ 1]))
        await store.create(new_task("t1", dedupe=made))
        assert await store.recall(made.key) == Repeat(task_id="t1", digest=dedupe.digest, seq=1)

    with_store(test)


@FEW
@given(CONFIGS, structs(Delivery), TEXTS, TEXTS)
def test_a_webhook_and_what_is_owed_to_it_are_read_as_they_were_written(
    with_store: Trip, config: Any, delivery: Delivery, host: str, reason: str
) -> None:
    async def test(store: Store) -> None:
        await store.replicas.join("courier", address="", agents=())
        owed = replace(delivery, config_id=config.id)
        new = new_task("t1")
        await store.create(replace(new, push=Registration(config=config, host=host), deliveries=(owed,)))
        assert await store.outbox.configs("t1") == (config,)
        (due,) = await store.outbox.claim(Lane.UNKNOWN, START_MS, START_MS + 1, 1, 1)
        expected = Due(
            number=due.number,
            task_id="t1",
            agent=new.head.agent,
            config=config,
            host=host,
            delivery=owed,
            attempts=0,
            made_ms=START_MS,
            as_of=due.as_of,
        )
        assert due == expected
        settled = Settled(number=due.number, outcome="retry", due_ms=START_MS + 7, reason=reason)
        await store.outbox.settle(settled)
        (seen,) = await store.outbox.owed()
        assert seen == Owed(
            number=due.number,
            id=owed.id,
            task_id="t1",
            agent=new.head.agent,
            config_id=config.id,
            url=config.url,
            seq=owed.seq,
            attempts=1,
            dead=False,
            due_ms=START_MS + 7,
            made_ms=START_MS,
            reason=reason,
            host=host,
        )

    with_store(test)


@FEW
@given(structs(Delivery), structs(Arrival, status=st.integers(100, 599)), TEXTS)
def test_a_receipt_is_read_as_it_was_written(
    with_store: Trip, delivery: Delivery, arrival: Arrival, reason: str
) -> None:
    async def test(store: Store) -> None:
        await store.replicas.join("courier", address="", agents=())
        registration = webhook()
        new = replace(new_task("t1"), push=registration, deliveries=(replace(delivery, config_id="w"),))
        await store.create(new)
        (due,) = await store.outbox.claim(Lane.UNKNOWN, START_MS, START_MS + 1, 1, 1)
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=START_MS, reason=reason))
        there = replace(arrival, number=due.number)
        await store.outbox.settle(Settled(number=due.number, outcome="delivered", arrivals=(there,)))
        (seen,) = await store.receipts.page()
        assert seen == Receipt(
            number=due.number,
            id=delivery.id,
            task_id="t1",
            agent=new.head.agent,
            config_id="w",
            url=there.url,
            seq=delivery.seq,
            part=delivery.part,
            dialect=delivery.dialect,
            attempts=1,
            made_ms=START_MS,
            arrived_ms=there.at_ms,
            status=there.status,
            took_ms=there.took_ms,
            size_bytes=len(delivery.body),
            reason=reason,
            digest=there.digest,
        )

    with_store(test)


@FEW
@given(structs(StoredKey), structs(SigningKey))
def test_a_key_is_read_as_it_was_written(with_store: Trip, key: StoredKey, signing: SigningKey) -> None:
    async def test(store: Store) -> None:
        await store.keys.add(key)
        assert await store.keys.find(key.id) == key
        assert await store.keys.all() == (key,)
        assert await store.keys.signing_key(signing) == signing
        assert await store.keys.signing_key() == signing

    with_store(test)


@FEW
@given(structs(AuditEntry), st.booleans())
def test_an_entry_of_the_audit_trail_is_read_as_it_was_written(
    with_store: Trip, entry: AuditEntry, allowed: bool
) -> None:
    async def test(store: Store) -> None:
        written = replace(entry, allowed=allowed)
        await store.audit.write((written,))
        assert await store.audit.read() == (written,)

    with_store(test)
