"""Bytes of files are stored once a task, and go with it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.store.api import Append, StoreFull
from dragoman.store.files import INLINE_BYTES, REMEMBERED_BYTES, TaskFiles, digest_of
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.schema import check
from tests.store.cases.bench import (
    START_MS,
    D,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    record,
    status,
)
from tests.store.sqlite.connections import noted, writing

CONTENT = bytes(range(256)) * 500


@pytest.fixture
async def store(tmp_path: Path, connections: list[apsw.Connection]) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", SystemClock())
    await store.open("h1")
    yield store
    await store.close()
    assert check(tmp_path / "store.db") == []


def rows(writer: apsw.Connection) -> list[int]:
    """The sizes of the files in the table."""
    found = writer.execute("SELECT length(bytes) FROM files ORDER BY file")
    return [int(size) for (size,) in found]  # type: ignore[arg-type]


def copy(content: bytes) -> bytes:
    """Equal bytes, another object."""
    return bytes(bytearray(content))


async def test_equal_bytes_of_a_task_are_one_row_through_message_artifact_and_snapshot(
    store: SqliteStore, writer: apsw.Connection
) -> None:
    part = Part(raw=CONTENT)
    await store.create(new_task("t1", said=message("f", part, Part(raw=copy(CONTENT)))))
    await store.append(by_run("t1", chunk("", part), chunk("", Part(raw=copy(CONTENT)))))
    kept = record("t1", 4, D, parts=[Part(raw=copy(CONTENT))])
    await store.append(Append(task_id="t1", events=(status(D),), state=D, status_ms=1, epoch=1, snapshot=kept))
    assert rows(writer) == [len(CONTENT)]
    await store.create(new_task("t2", said=message("f", part)))
    assert rows(writer) == [len(CONTENT)] * 2, "another task has its own, which goes with it"


async def test_appends_under_way_together_share_a_file(store: SqliteStore, writer: apsw.Connection) -> None:
    part = Part(raw=CONTENT)
    await asyncio.gather(
        store.create(new_task("t1", said=message("f", part))),
        *(store.append(by_run("t1", chunk(str(number), part))) for number in range(3)),
    )
    assert rows(writer) == [len(CONTENT)]


async def test_bytes_are_recognized_after_a_load_and_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    event = None
    for turn in range(3):
        with noted() as connections:
            store = SqliteStore(url, SystemClock())
            await store.open("h1")
        if event is None:
            await store.create(new_task("t1", said=message("f", Part(raw=CONTENT))))
            event = chunk("", Part(raw=copy(CONTENT)))
        else:
            await store.append(by_run("t1", event))
            event = (await loaded(store, "t1")).events[turn].event
        assert rows(writing(connections)) == [len(CONTENT)]
        await store.close()


async def test_bytes_that_differ_between_the_samples_are_two_files(store: SqliteStore, writer: apsw.Connection) -> None:
    content = b"x" * 1_000_000
    other = content[:10_000] + b"y" + content[10_001:]
    assert digest_of(content) == digest_of(other)
    said = message("f", Part(raw=content), Part(raw=other))
    await store.create(new_task("t1", said=said))
    assert rows(writer) == [len(content), len(other)]
    assert (await loaded(store, "t1")).events[0].event.message == said  # type: ignore[union-attr]


async def test_small_bytes_stay_in_the_log(store: SqliteStore, writer: apsw.Connection) -> None:
    await store.create(new_task("t1", said=message("f", Part(raw=b"x" * INLINE_BYTES), Part(raw=b""))))
    assert rows(writer) == []


async def test_a_deleted_task_takes_its_files_along(store: SqliteStore, writer: apsw.Connection) -> None:
    await store.create(new_task("t1", said=message("f", Part(raw=CONTENT))))
    await store.append(ending("t1", 1))
    assert await store.sweep(START_MS + 2, 1, 1, 1) > 0
    assert await store.load("t1") is None
    assert rows(writer) == []


def test_what_is_remembered_of_files_is_bounded() -> None:
    content, sought, numbers = b"x" * (REMEMBERED_BYTES // 8), list[str](), iter(range(100))

    def find_equal(task_id: str, digest: bytes, content: bytes) -> None:
        sought.append(task_id)

    files = TaskFiles(numbers)
    for turn in (range(20), range(12, 20), range(11, 12)):
        for task in turn:
            files.take_out(find_equal, f"t{task}", (chunk("", Part(raw=copy(content))),), None)
    assert sought == [f"t{task}" for task in (*range(20), 11)], "the last eight are remembered, and no others"


async def test_a_file_that_did_not_fit_leaves_nothing_behind(store: SqliteStore, writer: apsw.Connection) -> None:
    await store.create(new_task("t1"))
    writer.pragma("max_page_count", int(writer.pragma("page_count")) + 5)
    with pytest.raises(StoreFull):
        await store.append(by_run("t1", chunk("", Part(raw=CONTENT))))
    writer.pragma("max_page_count", 1 << 30)
    assert (await loaded(store, "t1")).seq == 1
    assert rows(writer) == []
