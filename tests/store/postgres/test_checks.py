"""A database that cannot be used is refused at start, in one line that names the fix."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.store.api import StoreError
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.opening import DatabaseFacts, open_pool, refusal
from tests.ports import kept_port
from tests.postgres import PostgresServer

ADDRESS = parse_address("postgresql://ann:secret@db.example/tasks")
GOOD = DatabaseFacts(18, "on", "read committed", "UTF8", read_only=False, apart_ms=0)


async def refused(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        await open_pool(parse_address(url))
    line = str(caught.value)
    assert "\n" not in line
    assert "secret" not in line
    return line


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        (replace(GOOD, major=14), "is of version 14: use version 15 or later"),
        (replace(GOOD, read_only=True), 'ALTER ROLE "ann" SET default_transaction_read_only = off'),
        (replace(GOOD, synchronous_commit="off"), 'ALTER ROLE "ann" SET synchronous_commit = on'),
        (replace(GOOD, isolation="serializable"), "SET default_transaction_isolation = 'read committed'"),
        (replace(GOOD, encoding="LATIN1"), "make the database with ENCODING 'UTF8'"),
        (replace(GOOD, apart_ms=-90_000), "90 s behind that of PostgreSQL at postgresql://ann:…@db.example/tasks"),
        (replace(GOOD, apart_ms=90_000), "90 s ahead of that"),
    ],
)
def test_a_server_that_cannot_work_is_refused_with_the_fix(facts: DatabaseFacts, fix: str) -> None:
    assert fix in str(refusal(facts, ADDRESS))


@pytest.mark.parametrize(
    "facts",
    [GOOD, replace(GOOD, major=15), replace(GOOD, synchronous_commit="remote_apply"), replace(GOOD, apart_ms=9)],
)
def test_a_server_that_can_work_is_taken(facts: DatabaseFacts) -> None:
    assert refusal(facts, ADDRESS) is None


async def test_a_database_that_does_not_exist_is_named(postgres_server: PostgresServer) -> None:
    assert 'CREATE DATABASE "nowhere" OWNER "postgres"' in await refused(postgres_server.url("nowhere"))


async def test_a_user_who_does_not_exist_is_named(postgres_server: PostgresServer) -> None:
    assert "refuses 'nobody': role" in await refused(postgres_server.url(user="nobody"))


async def test_nobody_listens() -> None:
    assert "cannot be reached (Connection refused)" in await refused(
        f"postgresql://ann:secret@127.0.0.1:{kept_port()}/tasks"
    )
    assert "cannot be reached" in await refused("postgresql://ann:secret@nowhere.invalid/tasks")


async def test_a_wrong_password_is_not_repeated() -> None:
    with PostgresServer(password="right-secret") as server:
        assert "refuses the password of 'postgres'" in await refused(server.url(password="wrong-secret"))
        pool = await open_pool(parse_address(server.url()))
        await pool.close()


async def test_a_query_that_nobody_knows_is_named(postgres_url: str) -> None:
    assert 'parameter "pool_sise": correct its query' in await refused(f"{postgres_url}?pool_sise=3")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "a file that its ssl… settings name is not there"),
        ("sslmode=verify-full", "root.crt"),
    ],
)
async def test_a_certificate_that_is_not_there_is_told_from_a_server_that_is_not_there(
    query: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert said in await refused(f"postgresql://ann@h.invalid/tasks?{query}")


async def test_what_the_role_sets_is_seen(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE ROLE hasty LOGIN SUPERUSER", "ALTER ROLE hasty SET synchronous_commit = off")
    try:
        assert "forgets what callers were told" in await refused(postgres_server.url(user="hasty"))
    finally:
        postgres_server.execute("DROP ROLE hasty")


async def test_a_server_that_does_not_flush_is_worth_a_warning(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dragoman.store"):
        pool = await open_pool(parse_address(postgres_url))
    await pool.close()
    assert "fsync off" in caplog.text


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        ("schema=Two", "schema must be"),
        ("schema=pg_own", "schema must be"),
        ("pool_size=0", "pool_size must be a number from 1 to 1000"),
        ("timeout_s=soon", "timeout_s must be a number"),
    ],
)
def test_a_url_with_a_wrong_setting_is_refused(query: str, fix: str) -> None:
    with pytest.raises(StoreError, match=fix):
        parse_address(f"postgresql://ann:secret@db.example/tasks?{query}")


@pytest.mark.parametrize("url", ["postgresql://", "postgresql://host", "postgresql://[bad/x", "mysql://host/db"])
def test_a_url_without_a_database_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="use postgresql://user@host:5432/database"):
        parse_address(url)


def test_the_settings_of_the_driver_are_taken_out_of_the_url() -> None:
    address = parse_address("postgresql://ann@h:1/d?sslmode=require&schema=mine&pool_size=4&statement_cache_size=0")
    assert address.dsn == "postgresql://ann@h:1/d?sslmode=require"
    assert (address.schema, address.pool_size, address.statement_cache_size) == ("mine", 4, 0)
    assert (address.user, address.database, address.shown) == ("ann", "d", "postgresql://ann@h:1/d")


def test_a_statement_may_not_take_longer_than_the_lease_of_a_replica() -> None:
    url = "postgresql://host/database?timeout_s=30"
    assert parse_address(url).timeout_s == 30
    assert parse_address(url, 30).timeout_s == 30
    assert parse_address("postgresql://host/database", 3) is not None
    with pytest.raises(StoreError, match="timeout_s must not exceed replica_lease_s, which is 20"):
        parse_address(url, 20)
