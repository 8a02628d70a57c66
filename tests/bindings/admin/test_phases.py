"""Phases of tasks: the commands, the API and the metrics agree on what is queued, running and waiting."""

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman.agents.program.agent import ProgramAgent
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.config import Config
from dragoman.config.programs import Program
from dragoman.model.card import Profile
from dragoman.model.principal import AccessRole
from dragoman.server import serving
from tests.bindings.admin.test_admin import DEADLINE_S, make_keys, make_task, read, waiting_agent
from tests.bindings.admin.test_workers import call
from tests.cli.admin.site import dragoman
from tests.kit import values
from tests.kit.places import V1, sqlite_url

pytestmark = pytest.mark.slow

TASKS = 12
TAKEN = 5


def profile(agent: str) -> Profile:
    return values.profile(agent, values.skill("add"))


async def send(http: aiohttp.ClientSession, agent: str, number: int, headers: dict[str, str]) -> str:
    message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "1 + 1"}]}
    sent = {"message": message, "configuration": {"returnImmediately": True}}
    async with http.post(f"/agents/{agent}/message:send", json=sent, headers=V1 | headers) as answer:
        return str((await answer.json())["task"]["id"])


async def states(http: aiohttp.ClientSession, agent: str, headers: dict[str, str]) -> Counter[str]:
    """The states of an agent's tasks as their caller sees them."""
    async with http.get(f"/agents/{agent}/tasks", headers=V1 | headers) as answer:
        return Counter(task["status"]["state"] for task in (await answer.json())["tasks"])


def columns(text: str, name: str) -> dict[str, str]:
    """The row of an agent in a table, by the head of each column."""
    head, *rows = (line.split() for line in text.splitlines())
    row = next(row for row in rows if row[:1] == [name])
    return dict(zip(head, row, strict=False))


async def numbers(http: aiohttp.ClientSession, url: str, agent: str, keys: dict[str, Any]) -> dict[str, Any]:
    """How many tasks are queued and running, by everybody who says so."""
    ops = keys["ops"]
    found: dict[str, Any] = {}
    (_, agents), (_, workers) = await read(http, "/agents", ops), await read(http, "/workers", ops)
    for name, lines in (("agents", agents["agents"]), ("workers", workers["workers"])):
        for line in lines:
            if agent in (line.get("id"), line.get("agent")):
                found[name] = (line["queued"], line["running"])
    _, stats = await read(http, "/stats", ops)
    found["stats"] = (stats["queued"], stats["running"])
    assert stats["waiting"] == 1
    _, page = await read(http, f"/tasks?agent={agent}", ops)
    phases = Counter(line["phase"] for line in page["tasks"])
    found["list"] = (phases["queued"], phases["running"])
    shown = Counter([(await read(http, f"/tasks/{line['id']}", ops))[1]["task"]["phase"] for line in page["tasks"]])
    found["show"] = (shown["queued"], shown["running"])
    async with http.get("/metrics", headers=ops) as answer:
        samples = [each for family in text_string_to_metric_families(await answer.text()) for each in family.samples]
    open_tasks = {
        each.labels["state"]: int(each.value)
        for each in samples
        if each.name == "dragoman_open_tasks" and each.labels["agent"] == agent
    }
    found["metrics"] = (open_tasks["queued"], open_tasks["running"])
    for each in samples:
        if each.name == "dragoman_worker_queue_tasks":
            found["queue"] = (int(each.value), found["metrics"][1])
    away = {"DRAGOMAN_SERVER": url, "DRAGOMAN_OPERATOR_KEY": ops["x-api-key"]}
    for command in ("agents", "workers"):
        ran = await dragoman(Path(), "admin", command, **away)
        if agent in ran.out:
            row = columns(ran.out, agent)
            found[f"command {command}"] = (int(row["QUEUED"]), int(row["RUNNING"]))
    ran = await dragoman(Path(), "admin", "tasks", "list", "--agent", agent, **away)
    words = Counter(" ".join(line.split()[1:3]) for line in ran.out.splitlines()[1:])
    again = words["working (queued)"]
    submitted, working = (
        sum(count for word, count in words.items() if word.startswith(state)) for state in ("submitted ", "working ")
    )
    found["command list"] = (submitted + again, working - again)
    ran = await dragoman(Path(), "admin", "stats", **away)
    told = {line.rsplit(maxsplit=1)[0].strip(): line.rsplit(maxsplit=1)[1] for line in ran.out.splitlines()}
    found["command stats"] = (int(told["tasks queued"]), int(told["tasks running"]))
    return found


async def agree(
    http: aiohttp.ClientSession, url: str, agent: str, keys: dict[str, Any], wanted: tuple[int, int]
) -> int:
    """Wait until everybody says these numbers. Returns how many were asked."""
    found: dict[str, Any] = {}
    try:
        async with asyncio.timeout(DEADLINE_S):
            while set(found.values()) != {wanted}:
                found = await numbers(http, url, agent, keys)
    except TimeoutError:
        pytest.fail(f"not {wanted}: {found}")
    return len(found)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_everybody_agrees_on_the_tasks_of_workers(
    tmp_path: Path, request: pytest.FixtureRequest, replicas: int
) -> None:
    store = sqlite_url(tmp_path) if replicas == 1 else request.getfixturevalue("postgres_url")
    keys = await make_keys(store, ops=(AccessRole.OPERATOR, None), boss=(AccessRole.AGENT, None))
    boss = keys["boss"]
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(
                serving(config, [WorkerAgent(profile("sum"), queues=True, lease_s=1.0), waiting_agent("echo")])
            )
            for _ in range(replicas)
        ]
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        https = [await stack.enter_async_context(aiohttp.ClientSession(url, timeout=timeout)) for url in urls]
        http, url = https[0], urls[0]
        await make_task(http, "echo", "which?", boss)
        for number in range(TASKS):
            await send(http, "sum", number, boss)
        assert await agree(http, url, "sum", keys, (TASKS, 0)) == 11
        assert await states(http, "sum", boss) == {"TASK_STATE_SUBMITTED": TASKS}

        leases: list[str] = []
        while len(leases) < TAKEN:
            leased = await call(https[-1], "lease", boss, worker="w", wait_s=20)
            leases += [leased["lease"]] if leased else []

        async def work() -> None:
            while True:  # a lease lasts for a second
                for lease in leases:
                    await call(https[-1], "heartbeat", boss, lease=lease)
                await asyncio.sleep(0.1)

        works = asyncio.create_task(work())
        await agree(http, url, "sum", keys, (TASKS - TAKEN, TAKEN))
        works.cancel()
        await asyncio.wait([works])
        assert works.cancelled(), works.exception()

        await agree(http, url, "sum", keys, (TASKS, 0))  # the worker keeps silent
        open_states = {"TASK_STATE_SUBMITTED": TASKS - TAKEN, "TASK_STATE_WORKING": TAKEN}
        assert await states(http, "sum", boss) == open_states
        leased = await call(https[-1], "lease", boss, worker="w", wait_s=20)
        await call(https[-1], "complete", boss, lease=leased["lease"])
        found = await numbers(http, url, "sum", keys)
        assert (found["agents"], found["workers"]) == ((TASKS - 1, 0),) * 2


async def test_a_task_that_finds_no_room_for_its_program_is_queued(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    keys = await make_keys(store, ops=(AccessRole.OPERATOR, None), boss=(AccessRole.AGENT, None))
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\nprint('done')"
    program = Program(command=(sys.executable, "-c", waits), concurrency=2)
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with (
        serving(config, [ProgramAgent(profile("run"), program, {}), waiting_agent("echo")]) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        await make_task(http, "echo", "which?", keys["boss"])
        for number in range(TAKEN):
            await send(http, "run", number, keys["boss"])
        await agree(http, url, "run", keys, (TAKEN - 2, 2))
        gate.touch()
        await agree(http, url, "run", keys, (0, 0))
