"""Retention: what is overdue is known, in the log and in the metrics, whether or not the sweep can delete it."""

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import retention, serving
from dragoman.store.sqlite.schema import check
from dragoman.store.sqlite.store import SqliteStore
from dragoman.testing.agents import echo

DEADLINE_S = 60.0
DAY_MS = 86_400_000
KINDS = {"tasks", "logs", "waiting", "audit", "deliveries", "usage"}


class Blocked:
    """The sweep of tasks fails as long as it is `shut`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shut = True
        whole: Callable[..., Any] = SqliteStore.sweep

        async def sweep(store: SqliteStore, *ages: int) -> int:
            if self.shut:
                raise KeyError("planted")
            deleted: int = await whole(store, *ages)
            return deleted

        monkeypatch.setattr(SqliteStore, "sweep", sweep)


async def behind(http: aiohttp.ClientSession) -> dict[str, float]:
    """How far behind the sweep is, by the metric."""
    async with http.get("/metrics") as answer:
        found = re.findall(r'^dragoman_sweep_behind_seconds\{kind="(\w+)"\} (.+)$', await answer.text(), re.M)
    return {kind: float(seconds) for kind, seconds in found}


@pytest.fixture
async def store(tmp_path: Path) -> str:
    """A store with a task, an audit entry and a sum of usage that are 500 days old."""
    url = f"sqlite:///{tmp_path}/store.db"
    config = Config(port=0, store=url, shutdown_grace_s=0.1, audit="all")
    async with serving(config, [echo]) as at, aiohttp.ClientSession(at) as http:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        async with http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}) as answer:
            assert answer.status == 200
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute(
        f"UPDATE tasks SET status_ms = status_ms - {500 * DAY_MS}; UPDATE audit SET at_ms = at_ms - {500 * DAY_MS};"
        "UPDATE usage_days SET day = day - 500"
    )
    connection.close()
    return url


async def test_what_is_overdue_is_told_until_it_is_deleted_and_keeps_nothing_else(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.server.retention")
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.1)
    monkeypatch.setattr(retention, "LOOK_AGAIN_S", 0.1)
    blocked = Blocked(monkeypatch)
    config = Config(port=0, store=store, shutdown_grace_s=0.1, audit="all")
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        while (found := await behind(http)).get("audit", 1) > 0 or found["usage"] > 0:
            await asyncio.sleep(0.05)
        assert set(found) == KINDS
        assert found["tasks"] == pytest.approx(470 * 86_400, rel=0.01)
        assert found["logs"] == pytest.approx(493 * 86_400, rel=0.01)
        assert (found["waiting"], found["deliveries"]) == (0, 0)
        told = r"the sweep is 112\d\d\.\d h behind with tasks: what task_retention lets go stays"
        while re.search(told, caplog.text) is None:  # it is told at the second look
            await asyncio.sleep(0.05)
        blocked.shut = False
        while max((await behind(http)).values()) > 0:
            await asyncio.sleep(0.05)
    assert "the sweep has caught up with tasks" in caplog.text


async def test_what_is_kept_forever_is_not_overdue(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Blocked(monkeypatch)
    config = Config(
        port=0,
        store=store,
        shutdown_grace_s=0.1,
        task_retention=None,
        log_retention=None,
        usage_retention=None,
        audit_retention=None,
    )
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        while not (found := await behind(http)):
            await asyncio.sleep(0.05)
        assert found == {"waiting": 0, "deliveries": 0}


async def test_a_server_that_was_down_for_long_says_nothing_if_it_sweeps(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first look comes before the first sweep can have done anything."""
    caplog.set_level("INFO", "dragoman.server.retention")
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.5)
    monkeypatch.setattr(retention, "LOOK_AGAIN_S", 0.5)
    config = Config(port=0, store=store, shutdown_grace_s=0.1, audit="all")
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        while not (found := await behind(http)) or max(found.values()) > 0:
            await asyncio.sleep(0.05)
    assert "the sweep" not in caplog.text


def rows_of_state(path: Path) -> tuple[int, int]:
    """How many scopes and entries a store file has, those that have ended included."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        counted = "SELECT (SELECT count(*) FROM state_spaces), (SELECT count(*) FROM state_entries)"
        scopes, entries = connection.execute(counted).fetchall()[0]
        return int(scopes), int(entries)
    finally:
        connection.close()


async def test_what_an_agent_remembers_of_a_conversation_goes_with_its_last_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.1)
    agent, path = Agent("agent"), tmp_path / "store.db"

    @agent.skill
    async def remember(ctx: Context) -> None:
        await ctx.memory.set("a", 1)
        await ctx.memory.set("b", 2)
        await ctx.memory.caller.set("c", 3)

    config = Config(port=0, store=f"sqlite:///{path}", shutdown_grace_s=0.1, task_retention=timedelta(seconds=2))
    async with asyncio.timeout(DEADLINE_S), serving(config, [agent]) as at, aiohttp.ClientSession(at) as http:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        async with http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}) as answer:
            assert answer.status == 200
        assert rows_of_state(path) == (2, 3)
        while rows_of_state(path) != (1, 1):
            await asyncio.sleep(0.05)
    assert check(path) == []
