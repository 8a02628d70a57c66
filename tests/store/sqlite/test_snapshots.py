"""Snapshots in files that an earlier program wrote."""

from pathlib import Path

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from dragoman.model.events import Noted, StatusChanged
from dragoman.model.lifecycle import fold
from dragoman.model.task import Record, TaskState
from dragoman.store.sqlite import SqliteStore
from tests.store.cases.bench import SetClock, by_run, chunk, ending, new_task, record

HUGE = 10**30
"""An integer that MessagePack cannot hold: its page is written as JSON."""


def at(path: Path) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", SetClock())


def without_notes(path: Path) -> None:
    """Make the snapshots those of a program whose snapshots held no note."""
    connection = apsw.Connection(str(path))
    for task, kept in connection.execute("SELECT task, record FROM snapshots").fetchall():
        fields = msgspec.msgpack.decode(kept)
        connection.execute(
            "UPDATE snapshots SET record = ? WHERE task = ?", (msgspec.msgpack.encode(fields[:-1]), task)
        )
    connection.close()


async def noted(store: SqliteStore, task_id: str) -> Record:
    stored = await store.load(task_id)
    assert stored is not None
    return fold(stored.head, stored.snapshot, stored.events)


@pytest.mark.parametrize("state", [TaskState.WORKING, TaskState.COMPLETED])
async def test_a_note_that_an_old_snapshot_lacks_is_read_from_the_log(tmp_path: Path, state: TaskState) -> None:
    path = tmp_path / "store.db"
    store = at(path)
    await store.open("h1")
    await store.create(new_task("t1"))
    await store.append(by_run("t1", Noted({"place": "1", "sent": "1"}), chunk("Hello. ")))
    odd = StatusChanged(TaskState.WORKING, "2026-11-20T07:00:00.000Z", metadata={"huge": HUGE})
    await store.append(by_run("t1", odd, Noted({"place": "2"})))
    kept = replace(record("t1", 6, state), note={"place": "2", "sent": "1"})
    last = ending("t1", 5, state=state)
    await store.append(replace(last, snapshot=kept))
    if state is TaskState.WORKING:
        await store.append(by_run("t1", Noted({"sent": "2"})))
    await store.close()

    without_notes(path)
    store = at(path)
    await store.open("h2")
    sent = "2" if state is TaskState.WORKING else "1"
    assert (await noted(store, "t1")).note == {"place": "2", "sent": sent}
    (listed,) = await store.messages("ann", "echo", "c1", 1)
    assert listed.snapshot == kept
    await store.close()


async def test_an_old_snapshot_of_a_task_without_notes_has_none(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = at(path)
    await store.open("h1")
    await store.create(new_task("t1"))
    await store.append(by_run("t1", chunk("n\x92\xa1n")))
    await store.append(ending("t1", 2))
    await store.close()
    without_notes(path)
    store = at(path)
    await store.open("h2")
    assert (await noted(store, "t1")).note is None
    await store.close()
