"""Each check that both databases share finds its fault in both, and nothing in a store without faults."""

from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.open import check_store, open_store
from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.state import StatePut, StateWrite
from tests.store.cases.bench import new_task
from tests.store.cases.deliveries import telling, webhook
from tests.store.cases.states import TALK

FAULTS = {
    "gaps": "UPDATE pages SET first_seq = first_seq + 1",
    "ends": "UPDATE tasks SET seq = seq + 1",
    "snapshots_ahead": "INSERT INTO snapshots (task, seq, record) SELECT task, seq + 1, head FROM tasks",
    "orphans": "INSERT INTO snapshots (task, seq, record) SELECT task + 1, seq, head FROM tasks",
    "unmarked_files": "INSERT INTO files (task, file, bytes) SELECT task, 1, head FROM tasks",
    "held_by_the_dead": "UPDATE tasks SET state = 4, holder = 'h1'",
    "unmarked_webhooks": "UPDATE tasks SET pushed = NOT pushed",
    "outbox_orphans": "UPDATE push_configs SET host = host + 1",
    "forgotten_webhooks": "UPDATE push_configs SET due_ms = NULL",
    "claims_of_nothing": "UPDATE push_configs SET claimed = 1 << 30",
    "wrong_sizes": "UPDATE push_configs SET large = NOT large",
    "state_sizes": "UPDATE state_spaces SET bytes = bytes + 1",
    "state_orphans": "UPDATE state_spaces SET context = 'c2'",
}
"""A change of a store with a task, its state, and a webhook that owes a delivery, by the check that finds it."""


async def fill(url: str) -> None:
    store = open_store(url, SystemClock())
    await store.open("h1")
    await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
    await store.state.write_entries(StateWrite(scope=TALK, puts=(StatePut("k", b"v"),)))
    await store.close()
    assert await check_store(url) == []


def test_every_check_has_its_fault() -> None:
    assert FAULTS.keys() == statements_for_sqlite(checks=True).keys()


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_in_a_file_is_found(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    await fill(url)
    connection = connect(locate(url))
    # a file of this driver has a digest besides
    connection.execute(FAULTS[name].replace("bytes)", "bytes, digest)").replace("task, 1, head", "task, 1, head, head"))
    connection.close()
    assert any(line.startswith(f"{name}: ") for line in await check_store(url))


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_in_a_database_is_found(used_postgres_url: str, name: str) -> None:
    await fill(used_postgres_url)
    connection = await asyncpg.connect(used_postgres_url)
    await connection.execute(f"SET search_path TO dragoman; {FAULTS[name]}")
    await connection.close()
    assert any(line.startswith(f"{name}: ") for line in await check_store(used_postgres_url))
