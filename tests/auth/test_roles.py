"""What the roles of a key open on a server: a monitor the metrics alone, an admin agents and metrics, and no work."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from dragoman.cli import main
from dragoman.config import settings
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from tests.auth.issuer import AUDIENCE, issuing, token
from tests.kit import places
from tests.kit.agents import echoing, hired
from tests.kit.places import beside, server

SHARED = "a-shared-key-of-all"
RUNS_WORKERS = "may run workers"
MESSAGE = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}


class Site:
    """A server with one agent of ours and one of workers."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def ask(self, method: str, path: str, key: str, body: Any = None) -> tuple[int, str]:
        """The status and the body of an answer."""
        headers = {"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        async with self.http.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def lease(self, key: str) -> int:
        """The status of a worker's call for a task: 204 if it is let in, for there is none."""
        status, _ = await self.ask("POST", "/workers/desk/lease", key, {"worker": "w1"})
        return status


@asynccontextmanager
async def serving_at(store: str, **changes: Any) -> AsyncIterator[Site]:
    async with server(echoing("here"), hired("desk"), store=store, **changes) as http:
        yield Site(http)


async def add_key(store: str, name: str, role: AccessRole, **more: Any) -> tuple[str, str]:
    """Store a key, as the command does. Returns its id and the key itself."""
    async with beside(store) as opened:
        return await places.add_key(opened, name, role=role, **more)


async def run(*arguments: str) -> Any:
    """The JSON that a command of ours prints."""
    runner = CliRunner(env={setting.env: None for setting in settings()} | {"DRAGOMAN_CONFIG": None})
    result = await asyncio.to_thread(runner.invoke, main, list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings so far that name who may run workers."""
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [message for message in found if RUNS_WORKERS in message]


CLOSED: Mapping[str, tuple[str, str, Any]] = {
    "send": ("POST", "/agents/here/message:send", {"message": MESSAGE}),
    "send at the root": ("POST", "/message:send", {"message": MESSAGE}),
    "rpc": ("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}),
    "list": ("GET", "/agents/here/tasks", None),
    "extended card": ("GET", "/agents/here/extendedAgentCard", None),
    "models": ("GET", "/v1/models", None),
    "chat": ("POST", "/v1/chat/completions", {"model": "here", "messages": [{"role": "user", "content": "Hello"}]}),
    "mcp": ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    "work": ("POST", "/workers/desk/lease", {"worker": "w1"}),
    "admin": ("GET", "/admin/v1/tasks", None),
}


@pytest.mark.parametrize("door", CLOSED)
async def test_a_monitor_reads_metrics_and_nothing_else(tmp_path: Path, door: str) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    made = await run("keys", "create", "prometheus", "--role", "monitor", "--json", "--store", store)
    key = made["key"]
    _, caller = await add_key(store, "ann", AccessRole.CALLER)
    method, path, body = CLOSED[door]
    async with serving_at(store) as site:
        status, page = await site.ask("GET", "/metrics", key)
        assert (status, "# HELP" in page) == (200, True)
        status, said = await site.ask(method, path, key, body)
        refused = status == 403 or (status == 200 and "error" in json.loads(said))
        assert refused, (status, said)
        assert "metrics" in said or door in ("work", "admin"), said
        if door not in ("work", "admin"):
            status, said = await site.ask(method, path, caller, body)
            assert status == 200, said


async def test_a_token_of_the_role_monitor_reads_metrics_and_nothing_else(tmp_path: Path) -> None:
    async with issuing() as issuer:
        issuer.clock.ms = SystemClock().now_ms()
        sent = token(issuer.claims(dragoman={"role": "monitor"})).decode()
        async with serving_at("memory:", jwt_issuer=issuer.url, jwt_audience=AUDIENCE) as site:
            assert (await site.ask("GET", "/metrics", sent))[0] == 200
            assert (await site.ask("POST", "/message:send", sent, {"message": MESSAGE}))[0] == 403


@pytest.mark.parametrize("rotated", [False, True], ids=["as made", "rotated"])
async def test_a_new_admin_key_uses_agents_and_reads_metrics_but_runs_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, rotated: bool
) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    made = await run("keys", "create", "root", "--role", "admin", "--json", "--store", store)
    if rotated:
        made = await run("keys", "rotate", made["id"], "--json", "--store", store)
    async with serving_at(store) as site:
        assert await site.lease(made["key"]) == 403
        assert (await site.ask("GET", "/metrics", made["key"]))[0] == 200
        assert (await site.ask("POST", "/message:send", made["key"], {"message": MESSAGE}))[0] == 200
    assert warnings(caplog) == []


@pytest.mark.parametrize("rotated", [False, True], ids=["as made", "rotated"])
async def test_an_older_admin_key_runs_workers_until_the_setting_says_no_and_each_start_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, rotated: bool
) -> None:
    store = f"sqlite:///{tmp_path}/keys.db"
    key_id, key = await add_key(store, "root", AccessRole.ADMIN, rules=0)
    _, worker = await add_key(store, "desk-worker", AccessRole.AGENT)
    if rotated:
        made = await run("keys", "rotate", key_id, "--json", "--store", store)
        key_id, key = made["id"], made["key"]
    for start in (1, 2):
        async with serving_at(store) as site:
            assert await site.lease(key) == 204
        assert len(warnings(caplog)) == start
        assert f"{key_id} (root)" in warnings(caplog)[-1]
        assert "admin_runs_workers = false" in warnings(caplog)[-1]
    caplog.clear()
    async with serving_at(store, admin_runs_workers=False) as site:
        assert await site.lease(key) == 403
        assert await site.lease(worker) == 204
        assert (await site.ask("GET", "/metrics", key))[0] == 200
    await run("keys", "revoke", key_id, "--json", "--store", store)
    async with serving_at(store):
        pass
    assert warnings(caplog) == []


@pytest.mark.parametrize("runs", [True, False])
async def test_the_shared_key_runs_workers_until_the_setting_says_no(
    caplog: pytest.LogCaptureFixture, *, runs: bool
) -> None:
    async with serving_at("memory:", api_key=SHARED, admin_runs_workers=runs) as site:
        assert await site.lease(SHARED) == (204 if runs else 403)
        assert (await site.ask("GET", "/metrics", SHARED))[0] == 200
    assert ["the shared api_key" in warning for warning in warnings(caplog)] == [True] * runs
    assert SHARED not in caplog.text


@pytest.mark.parametrize("runs", [True, False])
async def test_a_token_of_the_role_admin_runs_workers_until_the_setting_says_no(
    caplog: pytest.LogCaptureFixture, *, runs: bool
) -> None:
    async with issuing() as issuer:
        issuer.clock.ms = SystemClock().now_ms()
        provider = {"jwt_issuer": issuer.url, "jwt_audience": AUDIENCE}
        async with serving_at("memory:", admin_runs_workers=runs, **provider) as site:
            assert warnings(caplog) == []
            for name in ("ann", "ben"):
                sent = token(issuer.claims(sub=name, dragoman={"role": "admin"})).decode()
                assert await site.lease(sent) == (204 if runs else 403)
    assert len(warnings(caplog)) == runs, "one of a whole run"


@pytest.mark.parametrize("runs", [True, False])
async def test_a_server_that_asks_nobody_lets_everybody_work_and_says_nothing(
    caplog: pytest.LogCaptureFixture, *, runs: bool
) -> None:
    async with serving_at("memory:", admin_runs_workers=runs) as site:
        assert await site.lease("") == 204
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("option", "why"), [("--agent", "it reaches no agent"), ("--max-open-tasks", "/metrics has none")]
)
def test_a_monitors_key_goes_without_agents_and_limits(tmp_path: Path, option: str, why: str) -> None:
    runner = CliRunner(env={"DRAGOMAN_CONFIG": None})
    words = ["keys", "create", "p", "--role", "monitor", option, "1", "--store", f"sqlite:///{tmp_path}/keys.db"]
    result = runner.invoke(main, words)
    assert (result.exit_code, why in result.output) == (2, True), result.output
