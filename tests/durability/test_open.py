"""The process that may open a store file, and the steps before the port is open."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from dragoman.store.sqlite.schema import migrations
from tests.durability.caller import Caller, message
from tests.durability.conftest import DEADLINE_S, Serve, Server
from tests.ports import kept_port

pytestmark = pytest.mark.slow


def version(store: Path) -> int:
    """The version of the tables in a store file."""
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


async def test_a_second_server_on_a_file_is_refused_and_the_first_goes_on(
    serve: Serve, call: Callable[[Server], Caller], store: Path
) -> None:
    first = await serve()
    second = await serve(wait=False)
    assert await second.ended() == 1
    assert f"{store} is in use by another server (process {first.pid}): stop it, or use another file" in second.said()
    task = await call(first).send("echo", message("still here"))
    await first.kill()
    third = await serve()  # the kernel took the lock back
    assert await call(third).get("echo", task["id"]) == task


async def test_a_file_of_a_newer_program_is_refused_and_not_touched(serve: Serve, store: Path) -> None:
    store.parent.mkdir()
    connection = apsw.Connection(str(store))
    connection.execute("CREATE TABLE later (x)")
    connection.pragma("user_version", 999)
    connection.close()
    server = await serve(wait=False)
    assert await server.ended() == 1
    assert f"{store} is of version 999" in server.said()
    assert "use a newer dragoman" in server.said()
    assert version(store) == 999
    store.unlink()


async def test_a_file_that_is_no_database_is_refused_and_not_touched(serve: Serve, store: Path) -> None:
    store.parent.mkdir()
    store.write_bytes(b"my diary, " * 1000)
    server = await serve(wait=False)
    assert await server.ended() == 1
    assert "is no SQLite database" in server.said()
    assert store.read_bytes() == b"my diary, " * 1000
    store.unlink()


async def test_migrations_are_done_before_the_port_is_open(serve: Serve, store: Path) -> None:
    store.parent.mkdir()
    held = apsw.Connection(str(store))
    held.pragma("journal_mode", "wal")
    held.execute("BEGIN IMMEDIATE")  # nobody can migrate
    port = kept_port()
    server = await serve(wait=False, port=port)
    async with asyncio.timeout(DEADLINE_S):
        while not (lock := store.with_name(store.name + ".lock")).exists() or str(server.pid) not in lock.read_text():
            await asyncio.sleep(0.01)
    for _ in range(20):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.01)
    held.execute("ROLLBACK")
    held.close()
    await server.listens()
    assert version(store) == migrations()[-1].version
