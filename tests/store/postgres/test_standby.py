"""A primary with a standby that receives its log: the standby is refused, takes over, and nothing is lost."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from dragoman.engine.engine import Engine
from dragoman.engine.policy import EngineSettings
from dragoman.model.errors import Unavailable
from dragoman.model.ids import SystemClock
from dragoman.model.task import Record, TaskState
from dragoman.store.api import StoreError
from dragoman.store.open import open_store
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.replicas import Heartbeat
from dragoman.telemetry.job_group import JobGroup
from tests.engine.house import Fragile, House, StandingClock, text_of
from tests.engine.replicas import Stage
from tests.kit.waiting import no_hang
from tests.ports import kept_port
from tests.postgres import END_SESSIONS, PostgresServer

DEADLINE_S = 60


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary whose commits wait for its standby."""
    with PostgresServer() as primary, PostgresServer(follows=primary) as standby:
        primary.wait_for_standby()
        yield primary, standby


def both(*servers: PostgresServer) -> str:
    """The URL that names several servers."""
    return f"postgresql://postgres@{','.join(f'127.0.0.1:{server.port}' for server in servers)}/postgres"


@asynccontextmanager
async def serving(url: str, stage: Stage) -> AsyncIterator[House]:
    """An engine on the store at a URL, whose lease outlasts everything here."""
    agent = stage.agent()
    store = open_store(url, SystemClock(), Heartbeat(lease_s=600, beat_s=0.2))
    await store.open("h1")
    settings = EngineSettings(poll_s=0.2, claim_s=0.2, retry_s=0.05)
    engine = Engine(store, {agent.profile.id: agent}, clock=store.clock, settings=settings, holder="h1")
    try:
        async with no_hang(), asyncio.TaskGroup() as group:
            await engine.start(JobGroup(group))
            yield House(engine, Fragile(store), StandingClock())
            await engine.drain(1)
    finally:
        await store.close()


async def send_until_taken(house: House, text: str) -> str:
    """Send a message as a client does that repeats what fails; the id of the task."""
    while True:
        try:
            return await house.begin(text)
        except (Unavailable, StoreError):
            await asyncio.sleep(0.05)


async def reached(house: House, task_id: str, state: TaskState) -> Record:
    """The task, once it is in a state."""
    async with asyncio.timeout(DEADLINE_S):
        while (record := await house.get(task_id)).state is not state:
            await asyncio.sleep(0.02)
    return record


async def refusal_of(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        await open_pool(parse_address(url))
    line = str(caught.value)
    assert "\n" not in line
    return line


async def test_a_standby_is_refused_at_start(pair: tuple[PostgresServer, PostgresServer]) -> None:
    primary, standby = pair
    assert "is a standby, which takes no writes: name the primary in the url" in await refusal_of(standby.url())
    assert f"{standby.port}/postgres is a primary now: promote one" in await refusal_of(both(standby, standby))
    nobody = f"postgresql://postgres@127.0.0.1:{kept_port()},127.0.0.1:{kept_port()}/postgres"
    assert "cannot be reached (Connection refused)" in await refusal_of(nobody)
    for url in (both(standby, primary), both(primary, standby)):
        pool = await open_pool(parse_address(url))
        assert await pool.read("SELECT pg_is_in_recovery()") == [(False,)]
        await pool.close()


async def test_a_host_that_does_not_answer_keeps_nobody_waiting(postgres_server: PostgresServer) -> None:
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    (place,) = silent.sockets
    hosts = f"127.0.0.1:{place.getsockname()[1]},127.0.0.1:{postgres_server.port}"
    pool = Pool(parse_address(f"postgresql://postgres@{hosts}/postgres?connect_s=600&timeout_s={DEADLINE_S}"))
    assert await pool.read("SELECT 1") == [(1,)]
    await pool.close()
    held.set()
    silent.close()
    await silent.wait_closed()


async def test_every_answer_holds_after_a_failover(pair: tuple[PostgresServer, PostgresServer]) -> None:
    """The run goes on under its lease, since it lost nothing, and so does what was asked meanwhile."""
    primary, standby = pair
    stage = Stage()
    async with serving(both(primary, standby), stage) as house:
        running = await house.begin()
        await stage.begun.wait()
        made = [await house.begin("ask") for _ in range(20)]
        sending = asyncio.create_task(send_until_taken(house, "ask"))
        primary.stop(signal.SIGQUIT)
        standby.promote()
        made.append(await sending)
        made.append(await send_until_taken(house, "ask"))
        for task_id in made:
            await reached(house, task_id, TaskState.INPUT_REQUIRED)
        stage.pieces.put_nowait("done")
        stage.pieces.put_nowait(None)
        done = await reached(house, running, TaskState.COMPLETED)
        assert text_of(done) == "done"
        assert not stage.canceled.is_set()


async def test_a_database_that_takes_no_writes_for_a_while_loses_nothing() -> None:
    """Some services do that when a disk is nearly full. Callers are told to come back, and runs wait."""
    stage = Stage()
    with PostgresServer() as server:
        async with serving(server.url(), stage) as house:
            task_id = await house.begin()
            await reached(house, task_id, TaskState.WORKING)
            _read_only(server, "on")
            stage.pieces.put_nowait("done")
            stage.pieces.put_nowait(None)
            with pytest.raises(Unavailable):
                await house.begin("ask")
            async with asyncio.timeout(DEADLINE_S):
                while (
                    house.store.writing.outage is None
                    or house.store.writing.outage.reason != "its database takes no writes"
                ):
                    await asyncio.sleep(0.01)
            assert (await house.get(task_id)).state is TaskState.WORKING
            assert "has default_transaction_read_only on" in await refusal_of(server.url())
            _read_only(server, "off")
            asked = await send_until_taken(house, "ask")
            await reached(house, asked, TaskState.INPUT_REQUIRED)
            assert text_of(await reached(house, task_id, TaskState.COMPLETED)) == "done"
            assert not stage.canceled.is_set()


def _read_only(server: PostgresServer, value: str) -> None:
    """Let no session take writes, or let them again. Those that are open end, since they keep what they began with."""
    server.execute(
        "SET default_transaction_read_only = off",
        f"ALTER DATABASE postgres SET default_transaction_read_only = {value}",
        END_SESSIONS,
    )
