"""The tables: made by any number of replicas at once, never changed under a program that does not know them."""

import asyncio
from zlib import crc32

import pytest
from msgspec.structs import replace

from dragoman.store.api import StoreError
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.migrations import LOCKS, Migration, migrate, migrations, steps_of
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.database.pool import Pool
from tests.postgres import PostgresServer

STEPS = migrations()
NEWEST = STEPS[-1].version


def next_step(serves: int) -> Migration:
    return Migration(NEWEST + 1, serves, "CREATE TABLE dragoman.next_things (thing int)")


def test_the_steps_are_numbered_without_a_gap() -> None:
    assert [step.version for step in STEPS] == list(range(1, NEWEST + 1))
    assert all(step.serves <= step.version for step in STEPS)


def test_files_with_one_number_are_one_step_that_serves_whom_it_says() -> None:
    texts = {"0002_b.sql": "B;", "0001_z.sql": "Z;", "0002_a.sql": "-- serves: 1\nA;", "0001_y.sql": "Y;"}
    first, second = steps_of(texts)
    assert first == Migration(1, 1, "Y;\nZ;")
    assert second == Migration(2, 1, "-- serves: 1\nA;\nB;")


async def test_many_replicas_make_the_tables_at_once(postgres_url: str) -> None:
    address = parse_address(f"{postgres_url}?pool_size=2")
    pools = await asyncio.gather(*(open_pool(address) for _ in range(12)))
    rows = await pools[0].read("SELECT version, serves FROM dragoman.schema_version")
    assert rows == [(NEWEST, max(step.serves for step in STEPS))]
    for pool in pools:
        await pool.close()


async def test_a_replica_waits_for_the_steps_of_another_longer_than_for_a_statement(postgres_url: str) -> None:
    other = Pool(parse_address(postgres_url))
    hasty = Pool(parse_address(f"{postgres_url}?timeout_s=0.2"))
    waited = "SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '0.5 s'"
    async with other.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", LOCKS, crc32(b"dragoman") >> 1)
        migrating = asyncio.create_task(migrate(hasty, STEPS))
        while not migrating.done() and await connection.fetchval(waited) == 0:
            pass
    await migrating
    assert await other.read("SELECT version FROM dragoman.schema_version") == [(NEWEST,)]
    for pool in (other, hasty):
        await pool.close()


async def test_tables_of_a_newer_program_are_refused_unless_they_serve_this_one(postgres_url: str) -> None:
    pool = await open_pool(parse_address(postgres_url))
    await migrate(pool, (*STEPS, next_step(serves=NEWEST)))
    await migrate(pool, STEPS)
    assert await pool.read("SELECT version FROM dragoman.schema_version") == [(NEWEST + 1,)]
    later = replace(next_step(serves=NEWEST + 2), version=NEWEST + 2, sql="SELECT 1")
    await migrate(pool, (*STEPS, next_step(serves=NEWEST), later))
    with pytest.raises(StoreError, match="use a newer dragoman"):
        await migrate(pool, STEPS)
    await pool.close()


async def test_a_step_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    pool = Pool(parse_address(postgres_url))
    broken = replace(next_step(serves=1), sql="CREATE TABLE dragoman.things (thing int); SELECT 1/0")
    with pytest.raises(StoreError, match="division by zero"):
        await migrate(pool, (*STEPS, broken))
    assert await pool.read("SELECT count(*) FROM pg_namespace WHERE nspname = 'dragoman'") == [(0,)]
    await migrate(pool, STEPS)
    await pool.close()


async def test_two_stores_share_a_database_in_schemas_of_their_own(postgres_url: str) -> None:
    for schema in ("one", "other"):
        pool = await open_pool(parse_address(f"{postgres_url}?schema={schema}"))
        assert await pool.read("SELECT count(*) FROM pg_tables WHERE schemaname = 'dragoman'") == [(0,)]
        assert await pool.read(f"SELECT count(*) FROM {schema}.keys") == [(0,)]
        await pool.close()


async def test_tables_of_another_program_are_left_alone(postgres_url: str) -> None:
    pool = Pool(parse_address(postgres_url))
    await pool.write("CREATE SCHEMA dragoman")
    await pool.write("CREATE TABLE dragoman.dragons (dragon int)")
    with pytest.raises(StoreError, match=r"belongs to another program: add \?schema=NAME"):
        await migrate(pool, STEPS)
    await pool.close()


async def test_a_user_without_rights_is_told_which_to_get(postgres_server: PostgresServer, postgres_url: str) -> None:
    database = parse_address(postgres_url).database
    postgres_server.execute(f"CREATE ROLE {database}_user LOGIN")
    try:
        url = postgres_server.url(database, user=f"{database}_user")
        with pytest.raises(StoreError, match=f'GRANT CREATE ON DATABASE "{database}" TO "{database}_user"'):
            await open_pool(parse_address(url))
        postgres_server.execute(f'CREATE SCHEMA dragoman AUTHORIZATION "{database}_user"', database=database)
        pool = await open_pool(parse_address(url))
        assert pool.identity is not None, "no superuser"
        await pool.close()
        postgres_server.execute("CREATE SCHEMA theirs", database=database)
        said = "the schema theirs of PostgreSQL at .* belongs to the user 'postgres' .*: name that user in the url"
        with pytest.raises(StoreError, match=said):
            await open_pool(parse_address(f"{url}?schema=theirs"))
    finally:
        postgres_server.execute(f"DROP OWNED BY {database}_user CASCADE", database=database)
        postgres_server.execute(f"DROP ROLE {database}_user")
