"""Urls, locks, versions and files that are no stores."""

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from dragoman.model.ids import SystemClock
from dragoman.model.task import STATES
from dragoman.store.api import Appended, StoreError
from dragoman.store.open import open_store
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import SqliteMigration, migrate, migrations
from tests.kit.threads import running_threads
from tests.store.cases.bench import Bench, ending, new_task
from tests.store.sqlite.connections import noted, writing


def at(path: Path) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", SystemClock())


@pytest.mark.parametrize("url", ["sqlite://x", "sqlite:x", "sqlite:///", "sqlite:///a/", "mysql://h/d", "", "memory"])
def test_a_url_that_names_no_store_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(StoreError, match="use sqlite:///path") as refusal:
        open_store(url, SystemClock())
    assert repr(url) in str(refusal.value)


async def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    holding = (
        "import asyncio, sys\nfrom dragoman.model.ids import SystemClock\nfrom dragoman.store.open import open_store\n"
        f"asyncio.run(open_store('sqlite:///{path}', SystemClock()).open('first')); print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    first = subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match=rf"in use by another server \(process {first.pid}\)"):
            await at(path).open("second")
    finally:
        first.kill()
        first.communicate()
    store = at(path)
    await store.open("second")
    with pytest.raises(StoreError, match="in use"):
        await at(path).open("third")
    await store.close()


async def test_a_file_newer_than_the_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = at(path)
    await store.open("h")
    await store.close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()
    for _ in range(2):  # the lock is let go by one that is refused
        with pytest.raises(StoreError, match=r"version 999.*use a newer dragoman"):
            await at(path).open("h")


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database, " * 400)
    with pytest.raises(StoreError, match="no SQLite database"):
        await at(path).open("h")


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreError, match="belongs to another program"):
        await at(path).open("h")


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    location = locate(f"sqlite:///{tmp_path}/store.db")
    connection = connect(location)
    newest = migrations()[-1].version
    steps = (
        *migrations(),
        SqliteMigration(newest + 1, "9999_bad.sql", "CREATE TABLE more (x); CREATE TABLE tasks (x);"),
    )
    with pytest.raises(StoreError, match=r"9999_bad\.sql failed"):
        migrate(connection, location, steps)
    assert int(connection.pragma("user_version")) == newest
    assert connection.table_exists("main", "tasks")
    assert not connection.table_exists("main", "more")
    migrate(connection, location, migrations())
    connection.close()


async def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose a path"):
        await at(tmp_path / "file" / "store.db").open("h")


async def test_the_file_is_durable_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = at(path)
    with noted() as connections:
        await store.open("h")
    writer = writing(connections)
    assert [writer.pragma(name) for name in ("journal_mode", "synchronous", "fullfsync")] == ["wal", 2, 0]
    await store.close()
    assert not path.with_name("store.db-wal").exists(), "the log was folded into the file"


async def test_a_new_file_and_its_log_are_their_owners_only(tmp_path: Path) -> None:
    store = at(tmp_path / "store.db")
    await store.open("h")
    await store.create(new_task("t1"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.suffix != ".lock"}
    await store.close()
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


async def test_no_thread_is_left_after_close() -> None:
    before = running_threads()
    async with Bench(lambda clock: open_store("memory:", clock), durable=False).store() as store:
        await store.create(new_task("t1"))
        await store.read("t1", 0, 1)
        assert running_threads() - before
    assert running_threads() == before


async def test_a_store_that_is_not_open_says_so() -> None:
    store = SqliteStore("memory:", SystemClock())
    with pytest.raises(StoreError, match="not open"):
        await store.load("t")
    with pytest.raises(StoreError, match="not open"):
        await store.create(new_task("t"))
    await store.open("h")
    await store.close()
    await store.close()
    for write in (store.create(new_task("t")), store.append(ending("t", 1))):
        with pytest.raises(StoreError, match="not open"):
            await asyncio.wait_for(write, 60)


async def test_two_stores_in_memory_are_two() -> None:
    one, other = SqliteStore("memory:", SystemClock()), SqliteStore("memory:", SystemClock())
    await one.open("h")
    await other.open("h")
    assert isinstance(await one.create(new_task("t")), Appended)
    assert await other.load("t") is None
    await one.close()
    await other.close()


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))


def test_the_numbers_of_states_are_those_in_files_already_written() -> None:
    assert [state.value.removeprefix("TASK_STATE_") for state in STATES] == [
        "SUBMITTED",
        "WORKING",
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
        "COMPLETED",
        "FAILED",
        "CANCELED",
        "REJECTED",
    ]
