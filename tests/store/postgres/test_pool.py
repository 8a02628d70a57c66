"""The pool of connections: its bound, its transactions, and what becomes of a server that goes away."""

import asyncio
import signal
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dragoman.store.api import OutcomeUnknown, StoreError, StoreFull, StoreReadOnly, StoreStandby, StoreUnreachable
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.translation import translate
from tests.postgres import PostgresServer

PATIENCE_S = 60


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[Pool]:
    opened = Pool(parse_address(f"{postgres_url}?pool_size=3&timeout_s=20"))
    yield opened
    await opened.close()


async def test_no_more_connections_than_the_bound_are_made_and_everybody_gets_a_turn(pool: Pool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        pids = await asyncio.gather(*(pool.read("SELECT pg_backend_pid() FROM pg_sleep(0.01)") for _ in range(40)))
    assert 1 <= len({row[0][0] for row in pids}) <= 3
    assert pool.counts == (3, 3)


async def test_a_wait_for_a_connection_has_an_end(postgres_url: str) -> None:
    pool = Pool(parse_address(f"{postgres_url}?pool_size=1&timeout_s=1"))
    taken = await pool.take()
    try:
        with pytest.raises(StoreUnreachable, match="raise pool_size"):
            await pool.read("SELECT 1")
    finally:
        pool.release(taken)
    assert await pool.read("SELECT 1") == [(1,)]
    await pool.close()


async def test_a_server_that_gives_no_connection_is_told_from_a_pool_that_is_busy() -> None:
    """A proxy whose pool is used up lets new clients wait."""
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    full = await asyncio.start_server(hold, "127.0.0.1", 0)
    (place,) = full.sockets
    port = place.getsockname()[1]
    pool = Pool(parse_address(f"postgresql://ann@127.0.0.1:{port}/tasks?pool_size=1&connect_s=600&timeout_s=0.3"))
    with pytest.raises(
        StoreUnreachable, match=r"gave no connection for 0\.3 s: raise its max_connections, or the pool"
    ):
        await pool.read("SELECT 1")
    await pool.close()
    held.set()
    full.close()
    await full.wait_closed()


def test_a_proxy_that_pools_statements_is_named() -> None:
    error = asyncpg.ProtocolViolationError("transaction blocks not allowed in statement pooling mode")
    assert "set its pool_mode to transaction or session" in str(translate(error, "postgresql://ann@proxy/tasks"))


async def test_a_statement_that_takes_too_long_is_given_up_and_its_connection_with_it(postgres_url: str) -> None:
    pool = Pool(parse_address(f"{postgres_url}?pool_size=1&timeout_s=1"))
    with pytest.raises(StoreUnreachable):
        await pool.read("SELECT pg_sleep(60)")
    with pytest.raises(OutcomeUnknown):
        await pool.write("SELECT pg_sleep(60)")
    assert pool.counts == (0, 0)
    assert await pool.read("SELECT 1") == [(1,)]
    await pool.close()


async def test_a_connection_that_was_idle_for_long_is_not_used_again(postgres_url: str, pool: Pool) -> None:
    short = Pool(parse_address(f"{postgres_url}?idle_s=0.2"))
    pid = "SELECT pg_backend_pid()"
    first = await short.read(pid)
    await pool.read("SELECT pg_sleep(0.3)")
    assert await short.read(pid) != first
    assert short.counts == (1, 1)
    await short.close()


async def test_those_who_stop_waiting_lose_no_connection(pool: Pool) -> None:
    taken = [await pool.take() for _ in range(3)]
    waiting = [asyncio.create_task(pool.read("SELECT 1")) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting[:3]:
        task.cancel()
    for connection in taken:
        pool.release(connection)
    waiting[3].cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting, return_exceptions=True)
        assert waiting[4].result() == [(1,)]
        await asyncio.gather(*(pool.read("SELECT 1") for _ in range(10)))
    assert pool.counts == (3, 3)


async def test_a_transaction_is_undone_by_an_exception_and_its_connection_is_used_again(pool: Pool) -> None:
    await pool.write("CREATE TABLE things (thing int PRIMARY KEY)")
    with pytest.raises(ZeroDivisionError):
        async with pool.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES (1)")
            raise ZeroDivisionError
    with pytest.raises(StoreError, match="duplicate key"):
        async with pool.transaction() as connection:
            await connection.execute("INSERT INTO things VALUES (1), (1)")
    assert pool.counts == (1, 1)
    async with pool.transaction() as connection:
        await connection.execute("INSERT INTO things VALUES (2)")
    assert await pool.read("SELECT thing FROM things") == [(2,)]


async def test_a_transaction_that_hides_an_error_is_not_taken_for_committed(pool: Pool) -> None:
    with pytest.raises(StoreError, match="undid"):
        async with pool.transaction() as connection:
            try:
                await connection.execute("SELECT 1/0")
            except Exception:  # noqa: BLE001, S110
                pass


async def test_a_transaction_leaves_no_setting_behind(pool: Pool) -> None:
    async with pool.transaction() as connection:
        assert await connection.fetchval("SHOW statement_timeout") == "20s"
        assert await connection.fetchval("SHOW transaction_isolation") == "read committed"
    assert await pool.read("SHOW statement_timeout") == [("0",)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("53100", StoreFull), ("25006", StoreStandby), ("42501", StoreReadOnly), ("53300", StoreUnreachable)],
)
async def test_an_error_of_the_server_says_that_nothing_was_written(pool: Pool, code: str, kind: type) -> None:
    with pytest.raises(kind):
        await pool.write(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")
    assert pool.counts == (1, 1)


async def test_a_write_whose_connection_ends_has_an_unknown_outcome(pool: Pool) -> None:
    with pytest.raises(OutcomeUnknown):
        await pool.write("SELECT pg_terminate_backend(pg_backend_pid())")
    assert await pool.read("SELECT 1") == [(1,)]


async def test_a_server_that_was_started_again_is_read_at_once() -> None:
    with PostgresServer() as server:
        pool = Pool(parse_address(f"{server.url()}?pool_size=3"))
        await asyncio.gather(*(pool.read("SELECT 1 FROM pg_sleep(0.01)") for _ in range(3)))
        server.stop(signal.SIGQUIT)
        with pytest.raises(StoreUnreachable):
            await pool.read("SELECT 1")
        with pytest.raises(StoreUnreachable):
            await pool.write("SELECT 1")
        server.start()
        assert await pool.read("SELECT 1") == [(1,)]
        assert await pool.write("SELECT 1") == [(1,)]
        assert pool.history.number == 0, "the same history goes on"
        await pool.close()


async def test_another_server_behind_the_address_is_noticed() -> None:
    with PostgresServer() as first, PostgresServer() as second:
        pool = Pool(parse_address(f"{first.url()}"))
        await pool.read("SELECT 1")
        first.stop()
        second.stop()
        first.data, second.data = second.data, first.data
        conf = first.data / "postgresql.conf"
        conf.write_text(conf.read_text() + f"port = {first.port}\n")
        first.start()
        await pool.read("SELECT 1")
        assert pool.history.number == 1
        await pool.close()


async def test_a_closed_pool_says_so(pool: Pool) -> None:
    taken = await pool.take()
    await pool.close()
    pool.release(taken)
    assert taken.is_closed()
    with pytest.raises(StoreError, match="not open"):
        await pool.read("SELECT 1")
