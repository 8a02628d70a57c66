"""A store with 100,000 tasks: what a list command reads does not grow with them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import apsw
import msgspec
import pytest

from dragoman.model.events import Submitted
from dragoman.model.ids import SystemClock, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.task import STATES, TaskHead, TaskState
from dragoman.store.api import ListOrder, ListQuery, NewTask, Owners, TaskSearch, owner_range
from dragoman.store.codec import Codec
from dragoman.store.damage import DamageLog
from dragoman.store.open import open_store
from dragoman.store.outbox import Owed
from dragoman.store.receipts import Receipt
from dragoman.store.sql.figures import KINDS
from dragoman.store.sql.outbox import OutboxTables, OutboxWrites
from dragoman.store.sql.receipts import ReceiptTable
from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sql.tasks import TaskTable
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.listing import list_tasks
from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.schema import check, read_statements
from dragoman.store.sqlite.statements import SqliteStatements
from tests.cli.admin.site import dragoman

TASKS = 100_000
OWNERS, AGENTS = 20, 5
PAGE_STEPS = 80_000
"""The most that a page may cost: 51 rows of each of 8 states of 20 owners with an agent, at some 6 steps a row."""

START_MS = 1_800_000_000_000


HOSTS, DEAD = 50, 100

OWED = f"""
INSERT INTO push_hosts (name, due_ms)
SELECT 'https://host-' || value || ':443', {START_MS} FROM json_each('[{",".join(map(str, range(HOSTS)))}]');

INSERT INTO push_configs (task, host, id, settings, due_ms)
SELECT task, 1 + task % {HOSTS}, 'w', ?1, CASE WHEN task % {TASKS // DEAD} THEN {START_MS} END FROM tasks ORDER BY task;

INSERT INTO deliveries (config, seq, made_ms, kept, dead, id, dialect, body)
SELECT config, 2, {START_MS}, 0, due_ms IS NULL, 'd-' || config, '1.0', CAST('{{}}' AS BLOB)
FROM push_configs ORDER BY config;

INSERT INTO receipts (delivery, task, seq, part, attempts, status, took_ms, bytes, made_ms, arrived_ms, id, config_id,
    url, dialect, reason, digest)
SELECT {TASKS} + task, task, 1, 0, 0, 200, 5, 2, {START_MS}, {START_MS} + task, 'r-' || task, 'w', '', '1.0', '', x'00'
FROM tasks ORDER BY task;

UPDATE tasks SET pushed = 1;
"""
"""Each task has a webhook, which owes a delivery and has got another. A few of those that are owed are dead."""

SETTINGS = msgspec.msgpack.encode(PushConfig(id="w", url="https://host-1/"))

pytestmark = pytest.mark.slow


class LargeStore(NamedTuple):
    folder: Path
    url: str


def new_task(number: int) -> NewTask:
    """A task; those of every state, owner and agent are spread over all numbers. One in 10,000 is about a whale."""
    state, at = STATES[number % len(STATES)], timestamp(START_MS + number)
    about = "a whale" if number % 10_000 == 77 else "a ship"
    message = Message(message_id=f"m{number}", role=Role.USER, parts=(Part(text=f"Tell me of {about}, {number}"),))
    head = TaskHead(
        id=f"task-{number:06}",
        context_id=f"context-{number // 10}",
        agent=f"agent-{number % AGENTS}",
        owner=f"key:owner-{number % OWNERS}",
        dialect="0.3" if number == 5 else "1.0",
        mount="/",
        created_at=at,
    )
    holder = "h1" if state is TaskState.WORKING else None
    events = (Submitted(message, at),)
    return NewTask(head=head, events=events, state=state, status_ms=START_MS + number, holder=holder)


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> LargeStore:
    folder = tmp_path_factory.mktemp("large")
    url = f"sqlite:///{folder}/dragoman.db"

    async def fill() -> None:
        store = open_store(url, SystemClock())
        await store.open("h1")
        for first in range(0, TASKS, 10_000):
            await asyncio.gather(*(store.create(new_task(number)) for number in range(first, first + 10_000)))
        await store.close()

    asyncio.run(fill())
    connection = connect(locate(url))
    for statement in OWED.split(";")[:-1]:
        connection.execute(statement, (SETTINGS,) if "?1" in statement else ())
    connection.close()
    return LargeStore(folder, url)


@pytest.fixture(scope="module")
def reads(large_store: LargeStore) -> Iterator[SqliteReads]:
    """A reader's connection, as the store has them."""
    connection = connect(locate(large_store.url), readonly=True)
    sql = statements_for_sqlite() | read_statements() | read_statements("outbox.sql")
    yield SqliteReads(connection, sql, Codec(), Lock(), DamageLog())
    connection.close()


def steps_of(reads: SqliteReads, work: Callable[[], object]) -> int:
    """How many steps SQLite's machine takes for some work. Reading a row and looking at a column takes a few."""
    steps = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    reads.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    try:
        work()
    finally:
        reads.connection.trace_v2(0)
    return steps


def statements_over(reads: SqliteReads) -> SqliteStatements:
    """The statements that both databases share, on one connection."""
    opened = SimpleNamespace(readers=SimpleNamespace(run=lambda work: asyncio.to_thread(work, reads)))
    return SqliteStatements(cast("SqliteDoor", lambda: opened))


def test_the_store_is_whole(large_store: LargeStore) -> None:
    assert check(large_store.folder / "dragoman.db") == []


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"state": TaskState.INPUT_REQUIRED},
        {"agent": "agent-1"},
        {"owner": "key:owner-1"},
        {"context_id": "context-7"},
        {"before": (START_MS + 50_000, "")},
        {"status_after_ms": START_MS + TASKS - 1000},
        {"agent": "agent-1", "owner": "key:owner-1", "state": TaskState.FAILED},
        {"order": ListOrder.OLDEST_CHANGED},
        {"order": ListOrder.OLDEST_CHANGED, "before": (START_MS + 50_000, "")},
        {"owner": "key:nobody"},
    ],
    ids=str,
)
def test_a_page_reads_its_own_rows(reads: SqliteReads, filters: dict[str, Any]) -> None:
    query = ListQuery(**{"owner": Owners.ALL, "agent": None, "limit": 50, "history": 0, **filters})
    listed: list[Any] = []
    steps = steps_of(reads, lambda: listed.append(list_tasks(reads, query)))
    assert len(listed[0].tasks) == min(50, listed[0].total)
    assert steps < PAGE_STEPS


def test_the_longest_running_are_found_among_those_that_run(reads: SqliteReads) -> None:
    query = ListQuery(owner=Owners.ALL, agent=None, limit=50, history=0, order=ListOrder.LONGEST_RUNNING)
    listed: list[Any] = []
    steps = steps_of(reads, lambda: listed.append(list_tasks(reads, query)))
    assert listed[0].total == TASKS // len(STATES) * 2
    assert steps < 20 * listed[0].total


def test_what_agents_have_to_do_is_read_from_counters_and_the_tasks_at_work(reads: SqliteReads) -> None:
    agents: list[Any] = []
    steps = steps_of(
        reads, lambda: agents.extend(reads.connection.execute(reads.sql["open_by_agent"], owner_range(Owners.ALL)))
    )
    assert len(agents) == AGENTS
    assert steps < 8 * TASKS // len(STATES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_oldest_task_of_a_kind_is_the_first_in_an_index(reads: SqliteReads, kind: int) -> None:
    assert steps_of(reads, lambda: reads.point("oldest_kept", (kind,))) < 100


@pytest.mark.parametrize(
    ("dead", "task"),
    [(None, None), (False, None), (True, None), (None, "task-090000"), (False, "task-090000")],
    ids=str,
)
def test_what_is_owed_to_webhooks_is_read_by_the_page(reads: SqliteReads, dead: bool | None, task: str | None) -> None:
    outbox = OutboxTables(statements_over(reads), cast("OutboxWrites", None), DamageLog())
    listed: list[Owed] = []
    steps = steps_of(reads, lambda: listed.extend(asyncio.run(outbox.owed(dead=dead, limit=50, task_id=task))))
    assert len(listed) == (50 if task is None else 1)
    assert steps < 20_000


@pytest.mark.parametrize(
    ("task", "before", "rows"),
    [(None, None, 50), (None, TASKS + 5_001, 50), ("task-090000", None, 1)],
    ids=str,
)
def test_what_webhooks_got_is_read_by_the_page(
    reads: SqliteReads, task: str | None, before: int | None, rows: int
) -> None:
    receipts = ReceiptTable(statements_over(reads))
    listed: list[Receipt] = []
    page = receipts.page(limit=50, before=before, task_id=task)
    steps = steps_of(reads, lambda: listed.extend(asyncio.run(page)))
    assert len(listed) == rows
    assert steps < 5_000


def test_what_has_arrived_costs_the_queue_nothing(reads: SqliteReads) -> None:
    """Of the statements about pending deliveries, none reads receipts, of which there are 100,000."""
    about = [name for name, sql in read_statements("outbox.sql").items() if "receipts" in sql]
    assert about == []
    point: list[Any] = []
    assert steps_of(reads, lambda: point.append(reads.point("next_due"))) < 500
    assert point == [START_MS]


class Heads:
    """Decodes heads as the store does."""

    def __init__(self, reads: SqliteReads) -> None:
        self._reads = reads

    async def read_head(self, data: bytes, task: int) -> tuple[TaskHead, bool]:
        return self._reads.head_of(data, task)


def test_a_search_looks_at_so_many_rows_and_no_more(reads: SqliteReads) -> None:
    for scan_max in (1_000, 10_000):
        query = TaskSearch(owner=Owners.ALL, agent=None, text="no such words", scan_max=scan_max)
        pages: list[Any] = []
        looking = TaskTable(statements_over(reads), Heads(reads)).search(query)
        steps = steps_of(reads, lambda looking=looking, pages=pages: pages.append(asyncio.run(looking)))
        assert pages[0].rows == ()
        assert pages[0].after == TASKS - scan_max + 1
        assert scan_max < steps < 30 * scan_max, "each row is compared with every part of the search"


async def test_the_command_finds_few_among_many(large_store: LargeStore) -> None:
    async def ids(*filters: str) -> list[str]:
        listed = await dragoman(large_store.folder, "admin", "tasks", "list", *filters, DRAGOMAN_STORE=large_store.url)
        assert listed.status == 0, listed.err
        return [row.split()[0] for row in listed.out.splitlines()[1:]]

    whales = [f"task-{number:06}" for number in range(90_077, 0, -10_000)]
    assert await ids("--text", "WHALE") == whales
    assert await ids("--text", "whale", "--principal", "key:owner-17", "--limit", "3") == whales[:3]
    assert await ids("--dialect", "0.3") == ["task-000005"]
    assert await ids("--context", "context-9999", "--state", "failed") == ["task-099997"]
    assert await ids("--limit", "2") == ["task-099999", "task-099998"]
