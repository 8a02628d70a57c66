"""Stores of earlier versions: each opens, is migrated, and answers what it answered then; its tasks go on.

`make.py` made them, with the code of those versions.
"""

import gzip
import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, __version__
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.server import serving
from dragoman.store.postgres.database.migrations import migrations as postgres_migrations
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import check, migrations

HERE = Path(__file__).parent
VERSIONS = sorted(path.name.removesuffix(".json") for path in HERE.glob("v*.json"))
NEWEST = migrations()[-1].version

pytestmark = pytest.mark.slow


def agents() -> list[Agent]:
    """The agents that the stores have tasks of."""
    found = importlib.util.spec_from_file_location("agents_of_releases", HERE / "agents.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return [each for each in vars(module).values() if isinstance(each, Agent)]


def unpacked(version: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The store of a version, and what was noted about it."""
    path = folder / "store.db"
    path.write_bytes(gzip.decompress((HERE / f"{version}.db.gz").read_bytes()))
    return path, json.loads((HERE / f"{version}.json").read_text(encoding="utf-8"))


def tables(path: Path) -> set[tuple[str, ...]]:
    """The columns of all tables, and the names of the indexes."""
    connection = connect(locate(f"sqlite:///{path}"), readonly=True)
    try:
        found = {(kind, name) for kind, name in connection.execute("SELECT type, name FROM sqlite_schema")}
        names = [name for kind, name in found if kind == "table"]
        columns = {(name, row[1], row[2]) for name in names for row in connection.execute(f"PRAGMA table_info({name})")}
    finally:
        connection.close()
    return found | columns


def test_there_is_a_store_of_every_earlier_version() -> None:
    held = {int(version.removeprefix("v")) for version in VERSIONS}
    missing = {step.version for step in migrations()} - held - {2, 3, NEWEST}
    assert not missing, "run python -m tests.store.releases.make with the last commit of each"


def test_the_documentation_names_the_version_of_the_tables() -> None:
    page = (HERE.parents[2] / "docs" / "upgrading.md").read_text(encoding="utf-8")
    release = __version__.partition(".dev")[0]
    assert f"| SQLite | {release} | version {NEWEST} |" in page
    assert f"| PostgreSQL | {release} | version {postgres_migrations()[-1].version}" in page
    assert f"is of version {NEWEST}, this program knows 7: use a newer dragoman" in page


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_an_earlier_version_answers_as_it_did_then(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.store")
    path, noted = unpacked(version, tmp_path)
    kept = dict.fromkeys(("task_retention", "log_retention", "waiting_retention", "audit_retention"))
    config = Config(port=0, store=f"sqlite:///{path}", shutdown_grace_s=0.1, **kept)
    headers = {} if noted["key"] is None else {"X-API-Key": noted["key"]}

    async with serving(config, agents()) as url, aiohttp.ClientSession(url, headers=headers) as http:
        steps = [line.partition(": ")[2] for line in caplog.messages if "tables" in line]
        old = int(version.removeprefix("v"))
        migrating = f"migrating its tables from version {old} to {NEWEST}", f"its tables are of version {NEWEST}"
        assert steps == ([] if old == NEWEST else [*migrating])

        async def call(at: str, method: str, params: Any, more: dict[str, str]) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with http.post(at, json=body, headers=more) as answer:
                return await answer.json()

        for read in noted["reads"]:
            told = await call(read["path"], read["method"], read["params"], read["headers"])
            if version == "v04" and read["method"] == "ListTaskPushNotificationConfigs":
                del told["result"]["configs"][0]["token"]  # given back to its owner since 0.1.0
            assert told == read["answer"], f"{read['path']} {read['method']} {read['params']}"
        said = {
            "role": "ROLE_USER",
            "messageId": "later",
            "parts": [{"text": "Lyon"}],
            "taskId": noted["waiting"],
        }
        told = await call("/agents/desk", "SendMessage", {"message": said}, {"A2A-Version": "1.0"})
        assert told["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert told["result"]["task"]["artifacts"][0]["parts"] == [{"text": "To Lyon"}]
    assert check(path) == []
    fresh = SqliteStore(f"sqlite:///{tmp_path}/fresh.db", SystemClock())
    await fresh.open("h1")
    await fresh.close()
    assert tables(path) == tables(tmp_path / "fresh.db")
    connection = connect(locate(f"sqlite:///{path}"), readonly=True)
    assert connection.pragma("user_version") == NEWEST
    (pending,) = connection.execute("SELECT count(*) FROM deliveries").fetchone()  # type: ignore[misc]
    connection.close()
    assert pending == noted["pending"]
