"""The plans of statements whose cost matters."""

import asyncio
import json

import asyncpg
from msgspec.structs import replace

from dragoman.store.postgres.database.statements import read_statements
from dragoman.store.sql.statements import statements_for_postgres
from tests.kit.places import beside
from tests.store.cases.bench import by_run, chunk, ending, new_task
from tests.store.postgres.database import connected, nodes

FIND = "EXPLAIN (ANALYZE, FORMAT JSON) " + read_statements("tasks.sql", "dragoman")["find"]

CLAIM = read_statements("tasks.sql", "dragoman")["claim"]

CANCELS = read_statements("looks.sql", "dragoman")["cancels"]

OFFERED = read_statements("looks.sql", "dragoman")["offered"]

ORPHANS = read_statements("looks.sql", "dragoman")["orphans"]

OVERDUE = statements_for_postgres()["overdue"]


async def rows_read(connection: asyncpg.Connection, sql: str, *values: object) -> float:
    """How many rows of the table of tasks a statement has read, in a table so large that bitmaps do not pay."""
    await connection.execute("SET enable_bitmapscan = off")
    plan = json.loads(await connection.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *values))
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name") == "tasks"
    )


async def never_analyzed(connection: asyncpg.Connection) -> None:
    """Leave what the planner knows to the test. The database must be new: what was known before stays known."""
    for table in ("scopes", "tasks"):
        await connection.execute(f"ALTER TABLE dragoman.{table} SET (autovacuum_enabled = off)")


async def scanned(connection: asyncpg.Connection, *values: object) -> set[str]:
    """The tables that a look for a task has touched."""
    plan = json.loads(await connection.fetchval(FIND, *([value] for value in values)))[0]["Plan"]
    return {node["Relation Name"] for node in nodes(plan) if node.get("Relation Name") and node["Actual Loops"]}


async def test_no_more_is_read_of_a_foreign_task_than_who_owns_it(used_postgres_url: str) -> None:
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        await store.create(new_task("t1"))
        await store.append(by_run("t1", chunk("a")))
        await store.create(new_task("t2", owner="bob"))
        await store.append(ending("t2", 1))
        for _ in range(2):
            assert await scanned(connection, "t1", "ann", "ann", "echo", None) >= {"tasks", "snapshots", "pages"}
            assert await scanned(connection, "t1", "bob", "bob", "echo", None) <= {"tasks", "scopes"}
            assert await scanned(connection, "t2", "ann", "ann", "echo", None) <= {"tasks", "scopes"}
            assert await scanned(connection, "none", "ann", "ann", "echo", None) <= {"tasks", "scopes"}
            await connection.execute("ANALYZE")


async def test_a_replica_that_dies_while_it_claims_does_not_claim_from_itself(used_postgres_url: str) -> None:
    """The statement finds that it is dead, although it was alive when the store looked before."""
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        for name in ("h1", "h2"):
            await store.replicas.join(name, address="", agents=("echo",))
        await store.create(new_task("t1", holder="h1"))
        await store.replicas.leave("h1")
        assert await connection.fetch(CLAIM, "h1", 10, 0, ["echo"], 0, 300, True, False) == []
        assert len(await connection.fetch(CLAIM, "h2", 10, 0, ["echo"], 0, 300, True, False)) == 1


async def test_a_claim_reads_as_much_as_it_may_take_however_much_waits_elsewhere(postgres_url: str) -> None:
    """Thousands of tasks wait for an agent that this replica does not serve, and as many were left by a dead one.

    Nothing is read of those that it may not take, nor of those that have ended.
    """
    async with beside(postgres_url, "h1") as store, connected(postgres_url) as connection:
        await never_analyzed(connection)
        await store.replicas.join("h1", address="", agents=("echo",))
        await store.create(new_task("t1", holder="h1"))
        await connection.execute("ANALYZE")
        await connection.execute(
            """INSERT INTO dragoman.scopes (owner, agent)
            SELECT 'o' || number, CASE WHEN number % 2 = 0 THEN 'echo' ELSE 'elsewhere' END
            FROM generate_series(1, 1000) AS number"""
        )
        await connection.execute(
            """INSERT INTO dragoman.tasks
                (seq, status_ms, log_bytes, scope, agent, epoch, state, files, pushed, id, context, holder, dialect,
                text, head)
            SELECT 1, 1, 1, o.scope, o.agent, 1, CASE number % 10 WHEN 4 THEN 0 WHEN 5 THEN 1 ELSE 4 END, false, false,
                'w' || number, 'c', CASE WHEN number % 10 = 5 THEN 'gone' END, '', '', ''
            FROM generate_series(1, 20000) AS number JOIN dragoman.scopes o ON o.owner = 'o' || (1 + number % 1000)"""
        )
        for known in ("a store with one task", "the tables"):
            read = await rows_read(connection, CLAIM, "h1", 20, 0, ["echo"], 0, 300, True, False)
            assert 20 <= read < 20 * 4 * 4, f"the planner knows {known}"
            await connection.execute("ANALYZE")


async def test_a_look_for_canceled_tasks_reads_no_others(used_postgres_url: str) -> None:
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        for number in range(200):
            store.create(new_task(f"t{number}", holder="h1"))
        await store.create(new_task("last", holder="h1"))
        await store.request_cancel("last")
        await connection.execute("ANALYZE")
        assert await store.cancels("h1") == ("last",)
        assert await rows_read(connection, CANCELS, "h1") == 1


async def test_a_look_for_what_was_offered_or_is_late_reads_no_others(used_postgres_url: str) -> None:
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        made = [store.create(new_task("last", holder="h1"))]
        for number in range(200):
            new = new_task(f"t{number}", holder="h1")
            deadline_ms = 10 if number == 7 else 1 << 50
            made.append(
                store.create(replace(new, head=replace(new.head, parent=f"p{number}", deadline_ms=deadline_ms)))
            )
        await asyncio.gather(*made)
        await connection.execute("UPDATE dragoman.tasks SET offered_until_ms = 1 WHERE id = 'last'")
        for _ in range(2):
            assert await store.leased("h1", offered=True) == ("last",)
            assert [head.id for head in await store.overdue(10, 5)] == ["t7"]
            await connection.execute("ANALYZE")
        assert await rows_read(connection, OFFERED, "h1") == 1
        assert await rows_read(connection, OVERDUE, 10, 5) == 1


async def test_a_look_for_orphans_reads_one_task_for_each_parent_that_it_looks_at(postgres_url: str) -> None:
    """2,000 parents wait for five tasks each, and the last one has ended."""
    async with beside(postgres_url, "h1") as store, connected(postgres_url) as connection:
        await never_analyzed(connection)
        new = new_task("last", holder="h1")
        await store.create(replace(new, head=replace(new.head, parent="p1999")))
        await connection.execute(
            """INSERT INTO dragoman.tasks
                (seq, status_ms, log_bytes, scope, epoch, state, files, pushed, id, context, parent, dialect, text,
                head)
            SELECT 1, 1, 1, 1, 1, CASE number WHEN 11999 THEN 4 ELSE 1 END, false, false,
                CASE WHEN number < 10000 THEN 'c' ELSE 'p' END || number % 10000, 'c',
                CASE WHEN number < 10000 THEN 'p' || number / 5 END, '', '', ''
            FROM generate_series(0, 11999) AS number WHERE number NOT BETWEEN 9995 AND 9999"""
        )
        for known in ("nothing", "the tables"):
            assert await rows_read(connection, ORPHANS, "p1", 50) == 2 * 50, f"the planner knows {known}"
            await connection.execute("ANALYZE")
        found: list[str] = []
        last, looks = "", 0
        while looks == 0 or last:
            heads, last = await store.orphans(last, 50)
            found += [head.id for head in heads]
            looks += 1
        assert (found, looks) == (["last"], 41)
