"""The plans of statements whose cost matters."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.store.postgres.statements import read_statements
from dragoman.testing.store_cases.bench import by_run, chunk, ending, new_task

FIND = "EXPLAIN (ANALYZE, FORMAT JSON) " + read_statements("tasks.sql", "dragoman")["find"]

CLAIM = read_statements("tasks.sql", "dragoman")["claim"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def scanned(connection: asyncpg.Connection, *values: object) -> set[str]:
    """The tables that a look for a task has touched."""
    plan = json.loads(await connection.fetchval(FIND, *([value] for value in values)))[0]["Plan"]
    return {node["Relation Name"] for node in nodes(plan) if node.get("Relation Name") and node["Actual Loops"]}


async def test_no_more_is_read_of_a_foreign_task_than_who_owns_it(postgres_url: str) -> None:
    store = open_store(postgres_url, SystemClock())
    await store.open("h1")
    connection = await asyncpg.connect(postgres_url)
    try:
        await store.create(new_task("t1"))
        await store.append(by_run("t1", chunk("a")))
        await store.create(new_task("t2", owner="bob"))
        await store.append(ending("t2", 1))
        for _ in range(2):
            assert await scanned(connection, "t1", "ann", "echo", None) >= {"tasks", "snapshots", "pages"}
            assert await scanned(connection, "t1", "bob", "echo", None) <= {"tasks", "scopes"}
            assert await scanned(connection, "t2", "ann", "echo", None) <= {"tasks", "scopes"}
            assert await scanned(connection, "none", "ann", "echo", None) <= {"tasks", "scopes"}
            await connection.execute("ANALYZE")
    finally:
        await connection.close()
        await store.close()


async def test_a_replica_that_dies_while_it_claims_does_not_claim_from_itself(postgres_url: str) -> None:
    """The statement finds that it is dead, although it was alive when the store looked before."""
    store = open_store(postgres_url, SystemClock())
    await store.open("h1")
    connection = await asyncpg.connect(postgres_url)
    try:
        for name in ("h1", "h2"):
            await store.replicas.join(name, address="", agents=("echo",))
        await store.create(new_task("t1", holder="h1"))
        await store.replicas.leave("h1")
        assert await connection.fetch(CLAIM, "h1", 10, 0, ["echo"], 0) == []
        assert len(await connection.fetch(CLAIM, "h2", 10, 0, ["echo"], 0)) == 1
    finally:
        await connection.close()
        await store.close()
