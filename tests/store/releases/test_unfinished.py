"""Stores of versions that were killed at work: this version ends what they began, once.

`unfinished.py` made them: SQLite's tables of version 17, the last whose workers' leases were no rows of their own, and
PostgreSQL's of version 1.
"""

import asyncio
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.config import Config
from dragoman.model.card import Profile
from dragoman.server import serving
from dragoman.store.postgres.database.migrations import migrations as postgres_migrations
from dragoman.store.sqlite.schema import migrations as sqlite_migrations
from tests.kit.waiting import no_hang
from tests.postgres import PostgresServer
from tests.store.releases.unfinished_agents import desk, lead

HERE = Path(__file__).parent

KEPT: dict[str, Any] = dict.fromkeys(("task_retention", "log_retention", "waiting_retention", "audit_retention"))
ATTEMPTS = "SELECT count(*), sum(attempts) FROM {}deliveries"

Json = dict[str, Any]

pytestmark = pytest.mark.slow


class Site:
    """A server with the agents of the stores."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def post(self, path: str, body: Json) -> tuple[int, Json]:
        async with self._http.post(path, json=body) as answer:
            return answer.status, json.loads(await answer.read() or b"{}")

    async def task(self, agent: str, task_id: str) -> Json:
        async with self._http.get(f"/agents/{agent}/tasks/{task_id}") as answer:
            found: Json = await answer.json()
        return found

    async def ended(self, agent: str, task_id: str) -> list[str]:
        """The texts of the artifacts of a task, once it is completed."""
        while (task := await self.task(agent, task_id))["status"]["state"] != "TASK_STATE_COMPLETED":
            assert task["status"]["state"] != "TASK_STATE_FAILED", task
            await asyncio.sleep(0.02)
        return [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]]


@asynccontextmanager
async def served(store: str) -> AsyncIterator[Site]:
    config = Config(port=0, store=store, shutdown_grace_s=0.1, push_allowed_hosts=("127.0.0.1",), **KEPT)
    profile = Profile(id="hands", name="hands", description="Works", version="1", skills=())
    async with (
        no_hang(),
        serving(config, [WorkerAgent(profile, queues=True), desk, lead]) as url,
        aiohttp.ClientSession(url, headers={"A2A-Version": "1.0"}) as http,
    ):
        yield Site(http)


def noted(name: str) -> Json:
    found: Json = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return found


async def end_all(site: Site, made: Json, attempts: Callable[[], Awaitable[tuple[int, int]]]) -> None:
    """End every task of the store as its caller and its workers would."""
    tasks = made["tasks"]
    owed, tried = await attempts()
    assert owed == made["pending"]
    for action in ({"message": "late"}, {"artifacts": []}):
        path = f"/workers/hands/{'update' if 'message' in action else 'complete'}"
        status, _ = await site.post(path, {"lease": made["lease"], **action})
        assert status == 409, "a worker's lease ended with its server"
    waiting = {tasks["leased"], tasks["queued"], tasks["child"]}
    while waiting:
        status, given = await site.post("/workers/hands/lease", {"worker": "w2", "wait_s": 20})
        assert status == 200
        waiting.remove(given["task"]["id"])  # each is offered once
        text = given["message"]["parts"][0]["text"]
        whole = {"artifactId": "whole", "parts": [{"text": f"did {text}"}]}
        status, _ = await site.post("/workers/hands/complete", {"lease": given["lease"], "artifacts": [whole]})
        assert status == 200
    assert (await site.ended("hands", tasks["queued"])) == ["did queued"]
    assert "did leased" in await site.ended("hands", tasks["leased"])
    assert (await site.ended("hands", tasks["child"])) == ["did delegated"]
    assert (await site.ended("lead", tasks["delegates"])) == ["The worker says: did delegated"]
    said = {"role": "ROLE_USER", "messageId": "later", "parts": [{"text": "Lyon"}], "taskId": tasks["asks"]}
    status, _ = await site.post("/agents/desk/message:send", {"message": said})
    assert status == 200
    assert (await site.ended("desk", tasks["asks"])) == ["To Lyon"]
    assert (await site.task("desk", tasks["told"]))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    while (found := await attempts())[1] <= tried:
        await asyncio.sleep(0.02)
    assert found[0] == 2, "behind a call that has failed, only the newest stays"


async def test_this_version_ends_what_a_killed_server_on_sqlite_began(tmp_path: Path) -> None:
    name = "unfinished-sqlite-17"
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((HERE / f"{name}.db.gz").read_bytes()))

    async def attempts() -> tuple[int, int]:
        file = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            found: tuple[int, int] = file.execute(ATTEMPTS.format("")).fetchone()
        finally:
            file.close()
        return found

    async with served(f"sqlite:///{path}") as site:
        await end_all(site, noted(name), attempts)
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA user_version").fetchone() == (sqlite_migrations()[-1].version,)
    file.close()


async def test_this_version_ends_what_a_killed_server_on_postgresql_began(postgres_server: PostgresServer) -> None:
    name = "unfinished-postgres-01"
    tables = gzip.decompress((HERE / f"{name}.sql.gz").read_bytes()).decode()
    with postgres_server.database() as url:
        database = urlsplit(url).path[1:]
        postgres_server.execute(tables, "SELECT 1", database=database)

        async def attempts() -> tuple[int, int]:
            ((count, tried),) = postgres_server.execute(ATTEMPTS.format("dragoman."), database=database)
            assert isinstance(count, int)
            assert isinstance(tried, int)
            return count, tried

        async with served(url) as site:
            await end_all(site, noted(name), attempts)
        (version,) = postgres_server.execute("SELECT version FROM dragoman.schema_version", database=database)
        assert version == (postgres_migrations()[-1].version,)
