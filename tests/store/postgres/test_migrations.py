"""The tables: made by any number of replicas at once, never changed under a program that does not know them."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from zlib import crc32

import pytest
from msgspec.structs import replace

import dragoman.store.postgres
from dragoman.model.ids import SystemClock
from dragoman.store.api import StoreError
from dragoman.store.postgres import PostgresStore
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.migrations import MAKES, VERSION, PostgresMigration, migrate, migrations, steps_of
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.database.pool import Pool
from tests.drills import proxy
from tests.postgres import PostgresServer
from tests.processes import ENDS_WITH_US
from tests.soak import SOAK

FOLDER = Path(dragoman.store.postgres.__file__).parent
STEPS = migrations()
NEWEST = STEPS[-1].version


INDEX = "-- A comment.\nCREATE INDEX CONCURRENTLY audit_odd ON dragoman.audit (peer);\n"

INDEXES = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('dragoman.audit_odd') AND indisvalid = "
BUILDING = "SELECT EXISTS (SELECT 1 FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for%')"
WRITE = "INSERT INTO dragoman.probes VALUES ('probe', 1) ON CONFLICT (probe) DO UPDATE SET written_ms = 2"
WRITE_AUDIT = (
    "INSERT INTO dragoman.audit (at_ms, principal, action, agent, task_id, allowed, reason, peer, subject) "
    "VALUES (1, '', '', '', '', true, '', '', '')"
)
DEADLINE_S = 60.0

STRIDE = 3
"""Of how many statements `make test` kills a migration at one; `make test-soak` does at each."""


def next_step(serves: int, sql: str = "CREATE TABLE dragoman.next_things (thing int)") -> PostgresMigration:
    return PostgresMigration(NEWEST + 1, serves, sql)


async def until(pool: Pool, question: str) -> None:
    """Wait until the database answers yes."""
    async with asyncio.timeout(DEADLINE_S):
        while (await pool.read(question))[0][0] is not True:
            pass


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[Pool]:
    """A store of version 1, the first there was."""
    pool = Pool(parse_address(postgres_url))
    await migrate(pool, STEPS[:1])
    yield pool
    await pool.close()


@pytest.fixture
async def newest(pool: Pool) -> Pool:
    """A store to which all steps that there are have been applied."""
    await migrate(pool, STEPS)
    return pool


def test_the_steps_are_numbered_without_a_gap() -> None:
    assert [step.version for step in STEPS] == list(range(1, NEWEST + 1))
    assert all(step.serves <= step.version for step in STEPS)


def test_files_with_one_number_are_one_step_that_serves_whom_it_says() -> None:
    texts = {"0002_b.sql": "B;", "0001_z.sql": "Z;", "0002_a.sql": "-- serves: 1\nA;", "0001_y.sql": "Y;"}
    first, second = steps_of(texts)
    assert first == PostgresMigration(1, 1, "Y;\nZ;")
    assert second == PostgresMigration(2, 1, "-- serves: 1\nA;\nB;")


async def test_many_replicas_make_the_tables_at_once(postgres_url: str) -> None:
    address = parse_address(f"{postgres_url}?pool_size=2")
    pools = await asyncio.gather(*(open_pool(address) for _ in range(12)))
    rows = await pools[0].read("SELECT version, serves FROM dragoman.schema_version")
    assert rows == [(NEWEST, max(step.serves for step in STEPS))]
    for pool in pools:
        await pool.close()


async def test_a_program_of_version_1_that_makes_the_tables_at_the_same_moment_is_waited_for(postgres_url: str) -> None:
    old, new = Pool(parse_address(postgres_url)), Pool(parse_address(f"{postgres_url}?timeout_s=0.2"))
    async with old.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", MAKES, crc32(b"dragoman") >> 1)
        migrating = asyncio.create_task(migrate(new, STEPS))
        await until(old, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        tables = "CREATE SCHEMA dragoman;" + VERSION + STEPS[0].sql + "UPDATE dragoman.schema_version SET version = 1"
        await connection.execute(tables)
    await migrating
    assert await old.read("SELECT version FROM dragoman.schema_version") == [(NEWEST,)]
    for pool in (old, new):
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


# -- beside replicas that use the tables -------------------------------------------------------------------------------


def test_later_steps_have_a_file_each() -> None:
    numbers = [path.name[:4] for path in FOLDER.glob("migrations/*.sql")]
    assert {number for number in numbers if numbers.count(number) > 1} == {"0001"}


def test_later_steps_keep_the_rules_of_migrations() -> None:
    for step in STEPS[1:]:
        made = set(re.findall(r"CREATE TABLE (dragoman\.\w+)", step.sql))
        indexed = set(re.findall(r"CREATE (?:UNIQUE )?INDEX \w+ ON (dragoman\.\w+)", step.sql))
        assert indexed <= made, f"step {step.version}: an index of a table with rows is built CONCURRENTLY"
        assert ("CONCURRENTLY" in step.sql) is (step.index is not None), f"step {step.version}: one statement a file"
        assert not re.search(r"^(UPDATE|DELETE)|SET NOT NULL|VALIDATE|TYPE ", step.sql, re.MULTILINE), step.version


async def test_a_step_that_waits_for_a_lock_lets_writers_pass(newest: Pool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    steps = (*STEPS, next_step(1, "ALTER TABLE dragoman.probes ADD COLUMN odd text"))
    async with newest.transaction() as reader:
        await reader.fetch("SELECT * FROM dragoman.probes")  # as pg_dump does, for as long as it takes
        migrating = asyncio.create_task(migrate(newest, steps))
        await until(newest, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        await newest.write(WRITE)  # with a limit of 10 s, which the reader outlasts
        assert not migrating.done()
        async with asyncio.timeout(DEADLINE_S):
            while not caplog.messages:
                await asyncio.sleep(0)
    await migrating
    assert await newest.read("SELECT odd FROM dragoman.probes") == [(None,)]
    (said,) = caplog.messages
    assert f"step {NEWEST + 1} of the tables waits for a lock (the oldest transaction on the tables is that of" in said


async def test_an_index_is_built_while_others_write(newest: Pool) -> None:
    async with newest.transaction() as writer:
        await writer.execute(WRITE_AUDIT)
        migrating = asyncio.create_task(migrate(newest, (*STEPS, next_step(1, INDEX))))
        await until(newest, BUILDING)
        await newest.write(WRITE_AUDIT)
        assert not migrating.done()
    await migrating
    assert await newest.read(INDEXES + "true") == [(1,)]
    assert await newest.read("SELECT version FROM dragoman.schema_version") == [(NEWEST + 1,)]


async def test_a_program_that_the_tables_serve_starts_while_an_index_is_built(newest: Pool) -> None:
    async with newest.transaction() as writer:
        await writer.execute(WRITE_AUDIT)
        migrating = asyncio.create_task(migrate(newest, (*STEPS, next_step(1, INDEX))))
        await until(newest, BUILDING)
        async with asyncio.timeout(DEADLINE_S):
            await migrate(newest, STEPS)
        assert not migrating.done()
    await migrating


@pytest.mark.parametrize("server", ["goes on", "ends"])
async def test_a_build_that_was_cut_off_is_finished_at_the_next_start(newest: Pool, server: str) -> None:
    steps = (*STEPS, next_step(1, INDEX))
    async with newest.transaction() as writer:
        await writer.execute(WRITE_AUDIT)
        killed = await start(newest.address.dsn, INDEX)
        await until(newest, BUILDING)
        killed.kill()
        await killed.wait()
        if server == "ends":
            end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_progress_create_index"
            assert await newest.read(end) == [(True,)]
            assert await newest.read(INDEXES + "false") == [(1,)]
        migrating = asyncio.create_task(migrate(newest, steps))
        if server == "goes on":
            await until(newest, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted)")
            assert not migrating.done()
    async with asyncio.timeout(DEADLINE_S):
        await migrating
    assert await newest.read(INDEXES + "true") == [(1,)]
    assert await newest.read("SELECT version FROM dragoman.schema_version") == [(NEWEST + 1,)]


async def test_many_programs_build_one_index(pool: Pool) -> None:
    steps = (*STEPS, next_step(1, INDEX))
    await asyncio.gather(*(migrate(pool, steps) for _ in range(6)))
    assert await pool.read(INDEXES + "true") == [(1,)]


async def test_a_step_is_refused_while_a_replica_is_alive_that_it_does_not_serve(pool: Pool) -> None:
    await pool.write(
        "INSERT INTO dragoman.replicas (id, address, agents, beats_until) "
        "VALUES ('old/1', 'http://10.0.0.1:7870', '{}', clock_timestamp() + interval '1 min')"
    )
    contracting = (*STEPS, next_step(NEWEST, "ALTER TABLE dragoman.audit DROP COLUMN peer"))
    with pytest.raises(StoreError, match=r"the replica old/1 at http://10\.0\.0\.1:7870 is of a release .* stop it"):
        await migrate(pool, contracting)
    assert await pool.read("SELECT version, serves FROM dragoman.schema_version") == [(1, 1)]  # nothing is written
    await pool.write("UPDATE dragoman.replicas SET dead = true")
    await migrate(pool, contracting)
    assert await pool.read("SELECT version, serves FROM dragoman.schema_version") == [(NEWEST + 1, NEWEST)]


@pytest.mark.parametrize("knows", [1, 6, 7])
async def test_nothing_is_written_while_a_replica_is_alive_that_does_not_know_leases_of_workers_or_sleep(
    pool: Pool, postgres_url: str, knows: int
) -> None:
    """Such a replica would take the tasks that workers have, and those that sleep, for those of a dead one."""
    await migrate(pool, STEPS[:knows])
    await pool.write(
        "INSERT INTO dragoman.replicas (id, address, agents, beats_until) "
        "VALUES ('old/1', 'http://10.0.0.1:7870', '{}', clock_timestamp() + interval '1 min')"
    )
    if knows > 1:
        await pool.write("UPDATE dragoman.replicas SET knows = $1", knows)
    catalog = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'dragoman' ORDER BY 1, 2"
    )
    before = [await pool.read(catalog), await pool.read("SELECT * FROM dragoman.replicas")]
    store = PostgresStore(postgres_url, SystemClock())
    with pytest.raises(StoreError, match=r"the replica old/1 at http://10\.0\.0\.1:7870 is of a release .* stop it"):
        await store.open("new")
    await store.close()
    assert [await pool.read(catalog), await pool.read("SELECT * FROM dragoman.replicas")] == before
    assert await pool.read("SELECT version, serves FROM dragoman.schema_version") == [(knows, 1 if knows < 7 else 7)]
    await pool.write("UPDATE dragoman.replicas SET beats_until = clock_timestamp()")  # it beats no more
    store = PostgresStore(postgres_url, SystemClock())
    await store.open("new")
    await store.close()
    assert await pool.read("SELECT version, serves FROM dragoman.schema_version") == [(NEWEST, 8)]


async def test_a_replica_that_was_cut_off_does_not_join_tables_that_no_longer_serve_it(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, SystemClock())
    await store.open(None)
    pool = Pool(parse_address(postgres_url))
    await pool.write("UPDATE dragoman.schema_version SET version = 99, serves = 99")
    with pytest.raises(StoreError, match=f"of version 99, this program knows {NEWEST}: use a newer dragoman"):
        await store.replicas.join("late/1", address="", agents=())
    assert await pool.read("SELECT count(*) FROM dragoman.replicas") == [(0,)]
    await pool.close()
    await store.close()


@pytest.mark.parametrize(("serves", "starts"), [(1, True), (NEWEST, True), (NEWEST + 1, False)])
async def test_a_command_says_in_one_line_that_the_tables_do_not_serve_it(
    postgres_url: str, serves: int, starts: bool
) -> None:
    pool = await open_pool(parse_address(postgres_url))
    await pool.write("UPDATE dragoman.schema_version SET version = $1, serves = $2", NEWEST + 1, serves)
    command = "keys", "create", "ann", "--store", postgres_url
    done = await asyncio.to_thread(run_command, *command)
    assert (done.returncode == 0) is starts, done.stderr
    assert await pool.read("SELECT count(*) FROM dragoman.keys") == [(int(starts),)]
    if not starts:
        (line,) = done.stderr.splitlines()
        assert f"are of version {NEWEST + 1}, this program knows {NEWEST}: use a newer dragoman" in line
    await pool.close()


@pytest.mark.slow
async def test_a_migration_that_is_killed_at_any_statement_goes_on_at_the_next_start(pool: Pool) -> None:
    parts = urlsplit(pool.address.dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    async with proxy.before(parts.hostname, parts.port) as between:
        url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{between.port}", query="sslmode=disable"))
        for killed_at in count(1, 1 if SOAK else STRIDE):
            await pool.write("DROP SCHEMA dragoman CASCADE")
            await migrate(pool, STEPS[:1])
            child = await start(url)
            left = killed_at

            def kill(sent: bytes, child: asyncio.subprocess.Process = child) -> None:
                nonlocal left
                left -= sent[:1] in (b"Q", b"P", b"B")
                if left == 0:
                    child.kill()

            between.watch(kill)
            ended = await child.wait()
            assert ended in (0, -signal.SIGKILL)
            await pool.write(WRITE)  # the tables work in any case
            await pool.write(WRITE_AUDIT)
            await migrate(pool, STEPS)
            newest = await pool.read("SELECT version, serves FROM dragoman.schema_version")
            assert newest == [(NEWEST, max(step.serves for step in STEPS))]
            assert await pool.read("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
            if ended == 0:
                break
    assert killed_at > 10, "it was killed at its statements, one after the other"


@pytest.mark.slow
async def test_a_program_that_stands_still_in_a_step_keeps_no_writer_waiting(newest: Pool) -> None:
    parts = urlsplit(newest.address.dsn)
    assert parts.hostname is not None
    assert parts.port is not None
    async with proxy.before(parts.hostname, parts.port) as between:
        url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{between.port}", query="sslmode=disable"))
        child = await start(url, "ALTER TABLE dragoman.probes ADD COLUMN odd text")
        stopped = asyncio.Event()

        def stop(sent: bytes) -> None:
            if b"ADD COLUMN odd" in sent and not stopped.is_set():
                child.send_signal(signal.SIGSTOP)
                stopped.set()

        between.watch(stop)
        await stopped.wait()
        await until(newest, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted)")
        await newest.write(WRITE)  # the server ends the transaction of the one that stands still
        child.send_signal(signal.SIGCONT)
        assert await child.wait() == 0
    assert await newest.read("SELECT version FROM dragoman.schema_version") == [(NEWEST + 1,)]


# -- programs ----------------------------------------------------------------------------------------------------------

MIGRATE = """
import asyncio, sys
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.migrations import PostgresMigration, migrate, migrations
from dragoman.store.postgres.database.pool import Pool

async def main(url, *more):
    pool, steps = Pool(parse_address(url)), migrations()
    await migrate(pool, (*steps, *(PostgresMigration(len(steps) + 1, 1, sql) for sql in more)))
    await pool.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def start(url: str, *more: str) -> asyncio.subprocess.Process:
    """A program that migrates, with one more step if its SQL is given."""
    return await asyncio.create_subprocess_exec(*ENDS_WITH_US, sys.executable, "-c", MIGRATE, url, *more)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The `dragoman` command, to its end."""
    command = [*ENDS_WITH_US, str(Path(sys.executable).with_name("dragoman")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ, check=False)
