"""A disk that is full, a statement that fails: who waits is told, and the store goes on."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.store.api import Appended, ListQuery, StoreError, StoreFull
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.schema import check
from tests.store.cases.bench import by_run, chunk, loaded, message, new_task


class BreakableClock(SystemClock):
    """A clock that may be broken."""

    broken = False

    def now_ms(self) -> int:
        if self.broken:
            raise ZeroDivisionError
        return super().now_ms()


@pytest.fixture
def clock() -> BreakableClock:
    return BreakableClock()


@pytest.fixture
async def store(
    tmp_path: Path, clock: BreakableClock, connections: list[apsw.Connection]
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", clock)
    await store.open("h1")
    yield store
    await store.close()
    assert check(tmp_path / "store.db") == []


async def test_a_full_file_refuses_what_does_not_fit_and_takes_it_when_there_is_space(
    store: SqliteStore, writer: apsw.Connection
) -> None:
    await store.create(new_task("small"))
    pages = int(writer.pragma("page_count"))
    writer.pragma("max_page_count", pages + 20)
    large = message("large", Part(raw=b"x" * 500_000))
    outcomes = await asyncio.gather(
        store.create(new_task("t1")),
        store.create(new_task("t2", said=large)),
        store.append(by_run("small", chunk("x"))),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], Appended)
    assert isinstance(outcomes[1], StoreFull)
    assert isinstance(outcomes[2], Appended)
    assert await store.load("t2") is None
    with pytest.raises(StoreFull, match="free some space"):
        await store.create(new_task("t3", said=large))
    writer.pragma("max_page_count", 1 << 30)
    assert isinstance(await store.create(new_task("t2", said=large)), Appended)
    assert (await loaded(store, "t2")).events[0].event.message == large  # type: ignore[union-attr]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small filesystem of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk]).returncode:
        pytest.skip("mounting a small file system needs root; the same with max_page_count is tested above")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("spare_bytes", [0, 4096, 65536], ids=["nothing", "the lock", "the lock and some tables"])
async def test_a_store_that_a_full_disk_cannot_hold_is_refused_with_the_fix(disk: Path, spare_bytes: int) -> None:
    store = SqliteStore(f"sqlite:///{disk}/store.db", SystemClock())
    for holder in ("h1", None):  # as a server and as a command open it
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            with pytest.raises(OSError, match="No space left"):
                while file.write(bytes(65536)):
                    pass
            file.truncate(file.tell() - spare_bytes)
        with pytest.raises(StoreFull, match="free some space"):
            await store.open(holder)
        ballast.unlink()
    await store.open("h1")
    await store.close()
    assert check(disk / "store.db") == []


async def test_a_full_disk_is_told_and_survived(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 2_000_000)
    store = SqliteStore(f"sqlite:///{disk}/store.db", SystemClock())
    await store.open("h1")
    written: list[str] = []
    with pytest.raises(StoreFull):
        for number in range(100):
            await store.create(new_task(f"t{number}", said=message("f", Part(raw=bytes([number]) * 200_000))))
            written.append(f"t{number}")
    with pytest.raises(StoreFull):
        await store.create(new_task("large", said=message("f", Part(raw=b"x" * 200_000))))
    assert [(await loaded(store, task_id)).seq for task_id in written] == [1] * len(written), "reads go on"
    ballast.unlink()
    assert isinstance(await store.create(new_task("after", said=message("f", Part(raw=b"x" * 200_000)))), Appended)
    await store.probe()
    await store.close()
    assert check(disk / "store.db") == []
    again = SqliteStore(f"sqlite:///{disk}/store.db", SystemClock())
    await again.open("h2")
    assert None not in [await again.load(task_id) for task_id in [*written, "after"]]
    await again.close()


async def test_a_file_whose_first_write_failed_comes_with_the_next(store: SqliteStore, writer: apsw.Connection) -> None:
    await store.create(new_task("t1"))
    pages = int(writer.pragma("page_count"))
    writer.pragma("max_page_count", pages + 20)
    event = chunk("", Part(raw=b"x" * 500_000))
    with pytest.raises(StoreFull):
        await store.append(by_run("t1", event))
    writer.pragma("max_page_count", 1 << 30)
    first, second = store.append(by_run("t1", event)), store.append(by_run("t1", event))
    await asyncio.gather(first, second)
    assert [logged.event for logged in (await loaded(store, "t1")).events[1:]] == [event, event]


async def test_a_batch_in_which_a_statement_fails_is_written_one_by_one(
    store: SqliteStore, writer: apsw.Connection
) -> None:
    writer.execute(
        "CREATE TEMP TRIGGER bad BEFORE INSERT ON main.tasks WHEN new.id = 't3' BEGIN SELECT raise(ABORT, 'no'); END"
    )
    outcomes = await asyncio.gather(*(store.create(new_task(f"t{n}")) for n in range(6)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Appended] * 3 + [StoreError] + [Appended] * 2
    assert await store.load("t3") is None
    writer.execute("DROP TRIGGER bad")


async def test_an_error_in_the_code_reaches_the_one_who_waits(store: SqliteStore, clock: BreakableClock) -> None:
    clock.broken = True
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(store.create(new_task("t1")), 60)
    clock.broken = False
    assert isinstance(await store.create(new_task("t1")), Appended)


async def test_a_file_that_was_damaged_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(f"sqlite:///{path}", SystemClock())
    await store.open("h1")
    await asyncio.gather(*(store.create(new_task(f"t{number}")) for number in range(1000)))
    await store.close()
    content = path.read_bytes()
    start, end = (
        len(content) * 6 // 10,
        len(content) * 8 // 10,
    )  # behind the pages that are read when the file is opened
    path.write_bytes(content[:start] + b"\xff" * (end - start) + content[end:])
    again = SqliteStore(f"sqlite:///{path}", SystemClock())
    await again.open("h2")
    with pytest.raises(StoreError, match="malformed"):
        for number in range(1000):
            await again.load(f"t{number}")
    with pytest.raises(StoreError, match="malformed"):
        await again.list(ListQuery(owner="ann", agent="echo", limit=1000))
    await again.close()
