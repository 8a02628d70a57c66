"""Lists over 100,000 tasks: what a page reads does not grow with them, whether PostgreSQL has statistics or not."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, NoReturn, cast

import asyncpg
import pytest

from dragoman.model.ids import SystemClock
from dragoman.model.task import STATES, TaskState
from dragoman.store.api import RUNNING, ListOrder, ListQuery, Owners, TaskSearch, owner_range
from dragoman.store.codec import Codec
from dragoman.store.damage import DamageLog
from dragoman.store.open import open_store
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import in_schema, read_statements
from dragoman.store.postgres.listing import TaskLists
from dragoman.store.postgres.reads import PostgresReads
from dragoman.store.postgres.statements import PostgresStatements
from dragoman.store.sql.figures import KINDS
from dragoman.store.sql.outbox import OutboxTables, OutboxWrites
from dragoman.store.sql.receipts import NEWEST, ReceiptTable
from dragoman.store.sql.statements import statements_for_postgres
from dragoman.store.sql.tasks import TaskTable
from tests.postgres import PostgresServer
from tests.store.postgres.database import nodes

TASKS, OWNERS, AGENTS = 100_000, 4, 5

LIMIT = 50

START_MS = 1_800_000_000_000

RUNS = 40
"""How many tasks run. All others wait for their callers or have ended."""

HOSTS, DEAD = 50, 100
"""Each task has a webhook, which owes a delivery and has got another. So many of those that are owed are dead."""

FILL = f"""
INSERT INTO dragoman.scopes (owner, agent)
SELECT 'key:owner-' || o, 'agent-' || a FROM generate_series(0, {OWNERS - 1}) o, generate_series(0, {AGENTS - 1}) a;

INSERT INTO dragoman.tasks
    (seq, status_ms, log_bytes, scope, epoch, state, files, pushed, id, context, dialect, text, head)
SELECT 1, {START_MS} + n, 100, s.scope, 1, CASE WHEN n % {TASKS // RUNS} = 1 THEN 1 ELSE 2 + n % 6 END, false, false,
    'task-' || lpad(n::text, 6, '0'), 'context-' || n / 10, '1.0', 'Tell me of a ship, ' || n, ''
FROM generate_series(0, {TASKS - 1}) n
JOIN dragoman.scopes s ON s.owner = 'key:owner-' || n % {OWNERS} AND s.agent = 'agent-' || n / {OWNERS} % {AGENTS};

INSERT INTO dragoman.counts (scope, context, replica, lane, n0, n1, n2, n3, n4, n5, n6, n7)
SELECT scope, 0, '', 0, {", ".join(f"count(*) FILTER (WHERE state = {state})" for state in range(8))}
FROM dragoman.tasks GROUP BY scope;

INSERT INTO dragoman.push_hosts (name) SELECT 'https://host-' || h || ':443' FROM generate_series(1, {HOSTS}) h;

INSERT INTO dragoman.push_configs (task, host, id, settings)
SELECT task, 1 + task % {HOSTS}, 'w', '' FROM dragoman.tasks ORDER BY task;

INSERT INTO dragoman.deliveries (config, seq, made_ms, part, kept, dead, id, dialect, body)
SELECT config, 2, {START_MS}, 0, false, config % {TASKS // DEAD} = 0, 'd-' || config, '1.0', ''
FROM dragoman.push_configs;

INSERT INTO dragoman.receipts (delivery, task, seq, part, attempts, status, took_ms, bytes, made_ms,
    arrived_ms, id, config_id, url, dialect, reason, digest)
SELECT {TASKS} + config, task, 1, 0, 0, 200, 5, 2, {START_MS}, {START_MS} + config, 'r-' || config, 'w', '', '1.0', '',
    ''
FROM dragoman.push_configs;
"""
"""Rows as the store would have written them, without their logs."""

LARGE = ("tasks", "push_configs", "deliveries", "receipts")
"""The tables that have a row for each task."""


class Large(NamedTuple):
    connection: asyncpg.Connection
    has_statistics: bool


class Explained(Exception):
    """The plan of a page is known; the page itself is not read."""


class Explaining:
    """Stands where a store has its pool, and explains the statements that it is given while they run."""

    def __init__(self, connection: asyncpg.Connection, *, reads_on: bool) -> None:
        """With `reads_on` the rows of a statement are returned."""
        self.rows = 0
        self.whole: list[str] = []
        self._connection = connection
        self._reads_on = reads_on

    async def read(self, text: str, *values: object) -> list[Any]:
        """Explain a statement: how many rows of the large tables it reads, and which of them it reads whole."""
        explained = await self._connection.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) " + text, *values)
        for node in nodes(json.loads(explained)[0]["Plan"]):
            if (table := node.get("Relation Name")) in LARGE:
                self.rows += node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                if node["Node Type"] == "Seq Scan":
                    self.whole.append(table)
        if not self._reads_on:
            raise Explained
        return cast("list[Any]", await self._connection.fetch(text, *values))


def door_of(explaining: Explaining) -> PostgresDoor:
    return cast("PostgresDoor", lambda: explaining)


def statements_over(explaining: Explaining) -> PostgresStatements:
    """The statements that both databases share."""
    return PostgresStatements(door_of(explaining), "dragoman")


def never(work: object) -> NoReturn:
    raise AssertionError("no context gets counters here")


@pytest.fixture(scope="module")
async def filled(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The name of a database with the rows, to which nobody is connected."""
    with postgres_server.database() as url:
        store = open_store(url, SystemClock())
        await store.open("h1")
        await store.close()
        connection = await asyncpg.connect(url)
        for table in LARGE:
            await connection.execute(f"ALTER TABLE dragoman.{table} SET (autovacuum_enabled = false)")
        await connection.execute(FILL)
        await connection.close()
        yield url.rpartition("/")[2]


@pytest.fixture(scope="module", params=[False, True], ids=["without statistics", "with statistics"])
async def large(request: pytest.FixtureRequest, postgres_server: PostgresServer, filled: str) -> AsyncIterator[Large]:
    with postgres_server.database(template=filled) as url:
        connection = await asyncpg.connect(url)
        if request.param:
            await connection.execute("ANALYZE")
        yield Large(connection, request.param)
        await connection.close()


def query(**filters: Any) -> ListQuery:
    return ListQuery(**{"owner": Owners.ALL, "agent": None, "limit": LIMIT, "history": 0, **filters})


def rows_of(scopes: int, states: int) -> int:
    """The most rows that a page may read: one more than it needs of each state of each scope, then its own twice."""
    return (LIMIT + 1) * scopes * states + 3 * (LIMIT + 1)


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({}, rows_of(OWNERS * AGENTS, len(STATES))),
        ({"order": ListOrder.OLDEST_CHANGED}, rows_of(OWNERS * AGENTS, len(STATES))),
        ({"order": ListOrder.LONGEST_RUNNING}, rows_of(0, 0) + RUNS),
        ({"state": TaskState.INPUT_REQUIRED}, rows_of(OWNERS * AGENTS, 1)),
        ({"agent": "agent-1"}, rows_of(OWNERS, len(STATES))),
        ({"owner": "key:owner-1"}, rows_of(AGENTS, len(STATES))),
        ({"agent": "agent-1", "owner": "key:owner-1", "state": TaskState.FAILED}, rows_of(1, 1)),
        ({"agent": "agent-1", "owner": "key:owner-1"}, rows_of(1, len(STATES))),
        ({"context_id": "context-7"}, rows_of(1, 1)),
        ({"before": (START_MS + 50_000, "")}, rows_of(OWNERS * AGENTS, len(STATES))),
        ({"owner": "key:nobody"}, 0),
        # the total is counted in an index, so that the tasks of this time are read once more
        ({"status_after_ms": START_MS + TASKS - 1000}, rows_of(0, 0) + 2 * 1000),
    ],
    ids=str,
)
async def test_a_page_reads_its_own_rows(large: Large, filters: dict[str, Any], rows: int) -> None:
    for name in ("page", "rows"):
        explaining = Explaining(large.connection, reads_on=False)
        lists = TaskLists(
            door_of(explaining),
            cast("PostgresReads", explaining),
            read_statements("lists.sql", "dragoman"),
            never,
        )
        with pytest.raises(Explained):
            await getattr(lists, name)(query(**filters))
        assert explaining.whole == []
        assert explaining.rows <= rows


@pytest.mark.parametrize("filters", [{}, {"agent": "agent-1"}, {"agent": "agent-1", "owner": "key:owner-1"}], ids=str)
@pytest.mark.parametrize("scan_max", [1_000, 10_000])
async def test_a_search_looks_at_so_many_rows_and_no_more(large: Large, scan_max: int, filters: dict[str, str]) -> None:
    explaining = Explaining(large.connection, reads_on=True)
    wanted = TaskSearch(
        **{"owner": Owners.ALL, "agent": None, "text": "no such words", "scan_max": scan_max, **filters}
    )
    reads = PostgresReads(door_of(explaining), {"find": ""}, Codec(), DamageLog())
    found = await TaskTable(statements_over(explaining), reads).search(wanted)
    assert found.rows == ()
    assert explaining.whole == []
    # without statistics, the index that says where to stop is read whole
    assert explaining.rows <= 2 * scan_max + (0 if large.has_statistics else TASKS)


@pytest.mark.parametrize(
    ("dead", "task", "rows"),
    [(None, None, 5 * LIMIT), (False, None, 5 * LIMIT + DEAD), (True, None, 5 * LIMIT), (None, "task-090000", 5)],
    ids=str,
)
async def test_what_is_owed_to_webhooks_is_read_by_the_page(
    large: Large, dead: bool | None, task: str | None, rows: int
) -> None:
    explaining = Explaining(large.connection, reads_on=True)
    found = await OutboxTables(statements_over(explaining), cast("OutboxWrites", None), DamageLog()).owed(
        dead=dead, limit=LIMIT, task_id=task
    )
    assert len(found) == (LIMIT if task is None else 1)
    assert explaining.whole == []
    assert explaining.rows <= rows


@pytest.mark.parametrize("before", [NEWEST, TASKS + 5_001], ids=str)
async def test_what_webhooks_got_is_read_by_the_page(large: Large, before: int) -> None:
    explaining = Explaining(large.connection, reads_on=True)
    receipts = ReceiptTable(statements_over(explaining))
    assert len(await receipts.page(limit=LIMIT, before=before)) == LIMIT
    assert len(await receipts.page(limit=LIMIT, task_id="task-090000")) == 1
    assert explaining.whole == []
    assert explaining.rows <= 5 * LIMIT


async def test_what_arrives_reads_no_receipt_of_another_task(large: Large) -> None:
    statements = read_statements("receipts.sql", "dragoman")
    explaining = Explaining(large.connection, reads_on=False)
    arriving = [1, 2], [START_MS, START_MS], [200, 200], [5, 5], ["", ""], [b"", b""]
    undone = large.connection.transaction()
    await undone.start()
    with pytest.raises(Explained):
        await explaining.read(statements["keep_receipts"], *arriving, 1)
    await undone.rollback()
    assert explaining.whole == []
    assert explaining.rows <= 20


async def test_old_receipts_are_found_by_their_age(large: Large) -> None:
    explaining = Explaining(large.connection, reads_on=False)
    undone = large.connection.transaction()
    await undone.start()
    with pytest.raises(Explained):
        await explaining.read(in_schema(statements_for_postgres()["sweep_receipts"], "dragoman"), START_MS + 50, LIMIT)
    await undone.rollback()
    assert explaining.whole == []
    assert explaining.rows <= 5 * LIMIT


async def test_what_agents_have_to_do_is_read_from_counters(large: Large) -> None:
    explaining = Explaining(large.connection, reads_on=True)
    agents = await statements_over(explaining).read("open_by_agent", *owner_range(Owners.ALL))
    assert [agent for agent, *_ in agents] == [f"agent-{number}" for number in range(AGENTS)]
    assert explaining.whole == []
    assert explaining.rows <= 5 * OWNERS * AGENTS


@pytest.mark.parametrize("kind", KINDS)
async def test_the_oldest_task_of_a_kind_is_the_first_in_an_index(large: Large, kind: int) -> None:
    explaining = Explaining(large.connection, reads_on=True)
    assert len(await statements_over(explaining).read("oldest_kept", kind)) == (kind < 2)
    assert explaining.whole == []
    assert explaining.rows <= 2


def test_the_states_that_run_are_the_first_two() -> None:
    assert [STATES.index(state) for state in RUNNING] == [0, 1]
