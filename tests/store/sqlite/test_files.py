"""Bytes of files are stored once a task, and go with it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.store.api import Append, StoreFull
from dragoman.store.files import INLINE_BYTES, REMEMBERED_BYTES, digest_of
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.schema import check
from dragoman.testing.store_cases.bench import (
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

CONTENT = bytes(range(256)) * 500


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{tmp_path}/store.db", SystemClock())
    await store.open("h1")
    yield store
    await store.close()
    assert check(tmp_path / "store.db") == []


def rows(store: SqliteStore) -> list[int]:
    """The sizes of the files in the table."""
    found = store._writer._tables.connection.execute("SELECT length(bytes) FROM files ORDER BY file")
    return [int(size) for (size,) in found]  # type: ignore[arg-type]


def copy(content: bytes) -> bytes:
    """Equal bytes, another object."""
    return bytes(bytearray(content))


async def test_equal_bytes_of_a_task_are_one_row_through_message_artifact_and_snapshot(store: SqliteStore) -> None:
    part = Part(raw=CONTENT)
    await store.create(new_task("t1", said=message("f", part, Part(raw=copy(CONTENT)))))
    await store.append(by_run("t1", chunk("", part), chunk("", Part(raw=copy(CONTENT)))))
    kept = record("t1", 4, D, parts=[Part(raw=copy(CONTENT))])
    await store.append(Append(task_id="t1", events=(status(D),), state=D, status_ms=1, epoch=1, snapshot=kept))
    assert rows(store) == [len(CONTENT)]
    await store.create(new_task("t2", said=message("f", part)))
    assert rows(store) == [len(CONTENT)] * 2, "another task has its own, which goes with it"


async def test_appends_under_way_together_share_a_file(store: SqliteStore) -> None:
    part = Part(raw=CONTENT)
    await asyncio.gather(
        store.create(new_task("t1", said=message("f", part))),
        *(store.append(by_run("t1", chunk(str(number), part))) for number in range(3)),
    )
    assert rows(store) == [len(CONTENT)]


async def test_bytes_are_recognized_after_a_load_and_after_they_were_forgotten(store: SqliteStore) -> None:
    await store.create(new_task("t1", said=message("f", Part(raw=CONTENT))))
    store._files.forget("t1")
    await store.append(by_run("t1", chunk("", Part(raw=copy(CONTENT)))))
    store._files.forget("t1")
    event = (await loaded(store, "t1")).events[1].event
    await store.append(by_run("t1", event))
    assert rows(store) == [len(CONTENT)]


async def test_bytes_that_differ_between_the_samples_are_two_files(store: SqliteStore) -> None:
    content = b"x" * 1_000_000
    other = content[:10_000] + b"y" + content[10_001:]
    assert digest_of(content) == digest_of(other)
    said = message("f", Part(raw=content), Part(raw=other))
    await store.create(new_task("t1", said=said))
    assert rows(store) == [len(content), len(other)]
    assert (await loaded(store, "t1")).events[0].event.message == said  # type: ignore[union-attr]


async def test_small_bytes_stay_in_the_log(store: SqliteStore) -> None:
    await store.create(new_task("t1", said=message("f", Part(raw=b"x" * INLINE_BYTES), Part(raw=b""))))
    assert rows(store) == []


async def test_a_deleted_task_takes_its_files_along(store: SqliteStore) -> None:
    await store.create(new_task("t1", said=message("f", Part(raw=CONTENT))))
    await store.append(ending("t1", 1))
    assert await store.sweep(START_MS + 2, 1, 1, 1) > 0
    assert await store.load("t1") is None
    assert rows(store) == []


async def test_what_is_remembered_of_files_is_bounded(store: SqliteStore) -> None:
    content = b"x" * (REMEMBERED_BYTES // 8)
    for number in range(20):
        await store.create(new_task(f"t{number}", said=message("f", Part(raw=content))))
    assert store._files._bytes <= REMEMBERED_BYTES
    assert (
        sum(len(one.file.content) for task in store._files._tasks.values() for one in task.values())
        == store._files._bytes
    )


async def test_a_file_that_did_not_fit_leaves_nothing_behind(store: SqliteStore) -> None:
    await store.create(new_task("t1"))
    writing = store._writer._tables.connection
    writing.pragma("max_page_count", int(writing.pragma("page_count")) + 5)
    with pytest.raises(StoreFull):
        await store.append(by_run("t1", chunk("", Part(raw=CONTENT))))
    writing.pragma("max_page_count", 1 << 30)
    assert (await loaded(store, "t1")).seq == 1
    assert rows(store) == []
