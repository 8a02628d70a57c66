"""A store that is opened beside its server: what it may do, what the server sees of it, and what it leaves alone."""

import asyncio
import sys
from pathlib import Path

import apsw
import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.api import Dedupe, StoreError
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import ProcessLock, connect, locate, translated
from dragoman.store.sqlite.schema import check, migrate, migrations
from tests.store.cases.bench import NARROW, WIDE, ending, entry, message, new_task

BESIDE = Path(__file__).with_name("beside.py")
NEWEST = migrations()[-1].version


def at(path: Path) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", SystemClock())


async def test_the_server_sees_what_is_done_beside_it_at_once(tmp_path: Path) -> None:
    server, command = at(tmp_path / "store.db"), at(tmp_path / "store.db")
    await server.open("h1")
    await server.create(new_task("t1"))
    assert not await server.keys.any()
    await command.open(None)
    await command.keys.add(WIDE)
    assert await server.keys.any()
    assert await server.keys.find(WIDE.id) == WIDE
    await command.keys.revoke(WIDE.id, 5)
    seen = await server.keys.find(WIDE.id)
    assert seen is not None
    assert seen.revoked_ms == 5
    await command.audit.write([entry(1)])
    assert await server.audit.read() == (entry(1),)
    await server.keys.add(NARROW)
    assert await command.keys.find(NARROW.id) == NARROW
    await command.close()
    await server.create(new_task("t2"))
    await server.close()
    assert check(tmp_path / "store.db") == []


@pytest.mark.slow
async def test_another_process_changes_keys_while_the_server_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    server = at(path)
    await server.open("h1")
    written = 0

    async def write(name: str, done: asyncio.Event) -> None:
        nonlocal written
        number = 0
        while not done.is_set():
            number += 1
            await server.create(new_task(f"{name}.{number}"))
            await server.append(ending(f"{name}.{number}", 1))
            written += 1

    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, BESIDE, f"sqlite:///{path}", "20", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        done = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                for name in "abcd":
                    group.create_task(write(name, done))
                for _ in range(20):
                    key_id = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
                    found = await server.keys.find(key_id)
                    assert found is not None, f"the process said {key_id!r}"
                    assert found.revoked_ms is not None
                done.set()
            assert await asyncio.wait_for(process.wait(), 60) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert written > 20
        assert len(await server.keys.all()) == len(await server.audit.read()) == 20
        assert await server.head(f"a.{1}") is not None
    finally:
        await server.close()
    assert check(path) == []


async def test_it_opens_before_the_servers_first_start(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store.db"
    command = at(path)
    await command.open(None)
    await command.keys.add(WIDE)
    server = at(path)
    await server.open("h1")  # a server may start meanwhile
    assert await server.keys.find(WIDE.id) == WIDE
    await command.close()
    await server.create(new_task("t1"))
    await server.close()


async def test_a_file_of_an_older_program_is_migrated_if_no_server_has_it(tmp_path: Path) -> None:
    path = older(tmp_path)
    command = at(path)
    await command.open(None)
    assert not await command.keys.any()
    await command.close()
    assert version(path) == NEWEST
    ProcessLock(path).release()  # nothing holds it any more


async def test_a_file_of_an_older_program_that_a_server_has_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = older(tmp_path)
    lock = ProcessLock(path)
    with pytest.raises(StoreError, match=rf"version 1, this program is for {NEWEST}.*stop it first"):
        await at(path).open(None)
    assert version(path) == 1
    lock.release()


async def test_a_file_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    path = older(tmp_path)
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()
    with pytest.raises(StoreError, match=r"version 999.*use a newer dragoman"):
        await at(path).open(None)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database, " * 400)
    with pytest.raises(StoreError, match="no SQLite database"):
        await at(path).open(None)


async def test_a_file_that_cannot_be_opened_is_refused_with_the_fix(tmp_path: Path) -> None:
    refused = apsw.ReadOnlyError("attempt to write a readonly database")
    assert str(translated(refused, locate("sqlite:///store.db"))).endswith(
        "run this as the user whose file it is, in a folder that this user can write to"
    )
    with pytest.raises(StoreError, match="is a folder: name a file in it"):
        await at(tmp_path).open(None)


async def test_tasks_are_not_written_beside_a_server(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    command = at(path)
    await command.open(None)
    for write in (
        command.create(new_task("t1")),
        command.append(ending("t1", 1)),
        command.request_cancel("t1"),
        command.remember(Dedupe(b"k", b"d", 1 << 50), message("answer")),
        command.probe(),
    ):
        with pytest.raises(StoreError, match="beside its server, for keys, outbox and audit only"):
            await write
    assert await command.head("t1") is None
    await command.close()


async def test_a_store_in_memory_has_nothing_beside_it() -> None:
    with pytest.raises(StoreError, match="'memory:' is in its server's own memory"):
        await SqliteStore("memory:", SystemClock()).open(None)


def older(folder: Path) -> Path:
    """A file as the first version left it."""
    path = folder / "store.db"
    location = locate(f"sqlite:///{path}")
    connection = connect(location)
    migrate(connection, location, migrations()[:1])
    connection.close()
    return path


def version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    found = int(connection.pragma("user_version"))
    connection.close()
    return found
