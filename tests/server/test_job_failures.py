"""Jobs that meet an exception that nobody foresaw: the server goes on, says so, and starts them again."""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.agents.mcp.http import HttpLink
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.agents.model.probe import EndpointProbe
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.remote.endpoint import UpstreamEndpoint
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.attendance import Attendance
from dragoman.bindings.mcp import Sessions
from dragoman.bus.api import HintInbox
from dragoman.config import Config, Model, Upstream
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.bulk_jobs import BulkRunner
from dragoman.engine.cancellations import Cancellations
from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.effects import Effects
from dragoman.engine.handlers.usage import UsageExchange
from dragoman.engine.record_reader import RecordFeed, RecordReader
from dragoman.engine.recovery import Recovery
from dragoman.engine.switch_watch import SwitchWatch
from dragoman.server import running, serving
from dragoman.server.agent_book import AgentBook
from dragoman.server.budgets import BudgetWatch
from dragoman.server.erasures import ErasureWatch
from dragoman.server.files import ServedFiles
from dragoman.server.queues import QueueWatch
from dragoman.server.reloading import Reloading
from dragoman.server.retention import RetentionWatch
from dragoman.server.series import Series
from dragoman.server.tls import ServerTls
from dragoman.store.replicas import LocalReplicas
from dragoman.store.sql.audit import AuditTable
from dragoman.store.sql.outbox import OutboxTables
from dragoman.store.sqlite.store import SqliteStore
from dragoman.telemetry.access_log import AccessLog
from dragoman.telemetry.job_effects import EFFECTS
from dragoman.telemetry.job_group import JobGroup
from dragoman.telemetry.pulse import Pulse
from dragoman.testing.agents import echo
from tests.agents.mcp.peer import at
from tests.agents.mcp.test_http import Odd, served
from tests.certificates import Authority
from tests.kit.values import profile
from tests.systems.conftest import HOOK, site
from tests.systems.hooks import ALL, Hooked

DEADLINE_S = 60.0
Json = dict[str, Any]

PLANTS: dict[str, tuple[type, str]] = {
    "sweep": (SqliteStore, "sweep"),
    "retention": (RetentionWatch, "_note"),
    "budgets": (BudgetWatch, "run"),
    "sweep of files": (ServedFiles, "sweep"),
    "acts of commands": (AuditTable, "acts"),
    "access log": (AccessLog, "flush"),
    "queues": (QueueWatch, "check"),
    "certificates": (ServerTls, "run"),
    "pulse": (Pulse, "run"),
    "series": (Series, "run"),
    "bulk acts": (BulkRunner, "run"),
    "hints of changes": (Administration, "hear"),
    "changes": (Administration, "run"),
    "watch of deletions": (ErasureWatch, "run"),
    "operators' records": (RecordReader, "run"),
    "added agents": (RecordFeed, "next"),
    "removed agents": (AgentBook, "run"),
    "reload": (Reloading, "_run"),
    "courier": (OutboxTables, "next_due_ms"),
    "effects": (Effects, "next"),
    "lost effects": (DelegatedTasks, "enforce"),
    "sleepers": (Recovery, "_find_wake"),
    "switches": (SwitchWatch, "_take_up"),
    "replicas": (LocalReplicas, "next_event"),
    "upstream: far": (UpstreamEndpoint, "watch"),
    "endpoints: llm": (EndpointProbe, "watch"),
    "tools: tools": (HttpLink, "_listen"),
}
"""For each job of a server on SQLite, a method that it calls."""

OF_REPLICAS: dict[str, tuple[type, str]] = {
    "exchange of usage": (UsageExchange, "_count_replicas"),
    "words about calls of MCP": (Sessions, "run"),
    "attendance of workers": (Attendance, "_tick"),
    "claims": (Recovery, "_claim_some"),
    "hints": (HintInbox, "next"),
    "poll": (Cancellations, "stop_marked"),
}
"""The same for the jobs that only a replica has."""


class Plant:
    """A method that meets a fault: in its first `times` calls, or as long as there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, times: float = 1) -> None:
        self.calls, self.times = 0, times
        whole: Callable[..., Any] = getattr(owner, method)

        def planted(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls <= self.times:
                raise KeyError("planted")
            return whole(*given, **named)

        monkeypatch.setattr(owner, method, planted)


class Tooled(WorkerAgent):
    """An agent that uses the tools of an MCP server beside its tasks."""

    def __init__(self, url: str) -> None:
        super().__init__(profile("tooled"))
        self._tools = McpTools((McpGrant(name="tools", reach=at(url)),))

    async def open(self, group: JobGroup) -> None:
        await self._tools.open(group)
        await self._tools.list_tools()

    async def close(self) -> None:
        await self._tools.close()


async def read(http: aiohttp.ClientSession, path: str) -> tuple[int, Json]:
    async with http.get(path) as answer:
        return answer.status, await answer.json()


async def failures(http: aiohttp.ClientSession) -> dict[str, float]:
    """The failures of all jobs, by the metric."""
    async with http.get("/metrics") as answer:
        text = await answer.text()
    return {
        job: float(count) for job, count in re.findall(r'^dragoman_job_failures_total\{job="(.+)"\} (.+)$', text, re.M)
    }


async def survive(http: aiohttp.ClientSession, plants: dict[str, Plant]) -> dict[str, float]:
    """Wait until each job has failed once and gone on, and send a message. Returns the counts of failures."""
    while any(plant.calls < 2 for plant in plants.values()):
        await read(http, "/health")  # which gives the access log something to do
        await asyncio.sleep(0.05)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"}) as answer:
        assert (answer.status, (await answer.json())["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
    _, ready = await read(http, "/ready")
    told = ready["jobs"]
    counts = await failures(http)
    for name in plants:
        (job,) = [each for each in counts if each.partition(":")[0] == name.partition(":")[0]]
        assert counts[job] == 1, name
        assert told.get(job, "failed once, runs again") == "failed once, runs again", (
            "a job that is done is told no more"
        )
    return counts


def kinds(names: Any) -> set[str]:
    return {name.partition(":")[0] for name in names}


async def test_every_job_survives_what_nobody_foresaw_and_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    issued = Authority(tmp_path).issue()
    async with asyncio.timeout(DEADLINE_S), served(Odd()) as elsewhere:
        plants = {name: Plant(monkeypatch, *found) for name, found in PLANTS.items()}
        config = Config(
            port=0,
            store=f"sqlite:///{tmp_path}/store.db",
            files=f"folder:{tmp_path / 'files'}",
            access_log="text",
            access_log_file=str(tmp_path / "access.log"),
            tls_cert=str(issued.cert),
            tls_key=str(issued.key),
            queue_warn_s=1.0,
            shutdown_grace_s=0.2,
        )
        far = UpstreamAgent(profile("far"), Upstream(url="http://127.0.0.1:9"))
        model = Model(url="http://127.0.0.1:9", model="m")
        pool = ModelPool([PoolEndpoint(model, "", name=name) for name in ("eu", "us")])
        llm = ChatAgent(profile("llm"), model, pool)
        async with (
            running(config, [echo, far, llm, Tooled(elsewhere)]) as listening,
            aiohttp.ClientSession(listening.url, connector=aiohttp.TCPConnector(ssl=False)) as http,
        ):
            counts = await survive(http, plants)
    assert kinds(counts) | kinds(OF_REPLICAS) == set(EFFECTS), "each job of a server has a row, and is tried here"
    told = [record for record in caplog.records if record.name == "dragoman.jobs" and record.levelno == logging.ERROR]
    assert len(told) == len(plants)
    assert all(record.exc_info for record in told)


@pytest.mark.slow
async def test_so_does_every_job_of_a_replica(monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    plants = {name: Plant(monkeypatch, *found) for name, found in OF_REPLICAS.items()}
    config = Config(port=0, store=postgres_url, shutdown_grace_s=0.2)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [echo, WorkerAgent(profile("worked"))]) as url,
        aiohttp.ClientSession(url) as http,
    ):
        await survive(http, plants)


async def test_a_job_that_keeps_failing_is_told_once_and_waits_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Plant(monkeypatch, SqliteStore, "sweep", float("inf"))
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        while (await failures(http))["sweep"] < 3:
            await asyncio.sleep(0.05)
        status, ready = await read(http, "/ready")
        assert status == 200
        told = re.fullmatch(r"failed (\d+) times, (?:next in \d+ s|runs again)", ready["jobs"]["sweep"])
        assert told is not None, ready
        assert 3 <= int(told[1]) <= (await failures(http))["sweep"]
    assert caplog.text.count("the job sweep failed, it is started again in 1 s: KeyError") == 1
    assert caplog.text.count("KeyError: 'planted'") == 1


async def test_a_server_that_does_not_see_its_queues_takes_no_work_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant = Plant(monkeypatch, QueueWatch, "check", float("inf"))
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    async with asyncio.timeout(DEADLINE_S), serving(config, [echo]) as url, aiohttp.ClientSession(url) as http:
        while (await read(http, "/ready"))[0] == 200:
            await asyncio.sleep(0.02)
        status, ready = await read(http, "/ready")
        assert status == 503
        assert "the job 'queues' has failed" in ready["reason"]
        assert ready["jobs"]["queues"].startswith("failed ")
        plant.times = 0
        while (await read(http, "/ready"))[0] == 503:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("hooked", ALL, ids=lambda hooked: hooked.name)
async def test_no_webhook_is_registered_while_none_is_called(monkeypatch: pytest.MonkeyPatch, hooked: Hooked) -> None:
    plant = Plant(monkeypatch, OutboxTables, "next_due_ms", float("inf"))
    async with asyncio.timeout(DEADLINE_S), site() as served:
        while plant.calls == 0:
            await asyncio.sleep(0.02)
        task_id = await hooked.task(served, "hello")
        told = await hooked.registered(served, task_id, {"url": HOOK})
        assert b"webhooks cannot be registered now" in told.raw
        if hooked.name.endswith("REST"):
            assert (told.status, told.headers["retry-after"]) == (503, "5")
        plant.times = 0
        while (await hooked.registered(served, task_id, {"url": HOOK})).raw.count(b"cannot be registered now"):
            await asyncio.sleep(0.1)
