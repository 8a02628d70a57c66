"""Replicas as servers: settings that cannot work are refused with the fix, and restarts cost no task."""

import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman.client import Task, connect
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.model.operations import PushConfig
from dragoman.model.task import TERMINAL, TaskState
from dragoman.server import StartError, serving
from dragoman.server.replicas import check_replicas
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.testing.agents import echo
from tests.drills.proxy import before
from tests.kit.processes import ServerProcess, serving_process
from tests.push.receiver import receiving

DEADLINE_S = 60.0
DRAGOMAN = str(Path(sys.executable).with_name("dragoman"))
SHARED = "postgresql://user:secret@db.example/tasks"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"store": SHARED, "replica_beat_s": 8.0}, "set replica_beat_s to 6.67 or less"),
        ({"store": SHARED, "bus": "none", "bus_listen_url": SHARED}, "bus_listen_url is for bus = 'postgres'"),
        ({"store": "memory:", "bus": "postgres"}, "the store memory: has one server only: set store = 'postgresql://"),
        ({"store": "memory:", "bus": "nats://user:secret@h"}, "bus is for replicas"),
        ({"store": "memory:", "bus_listen_url": SHARED}, "or remove bus_listen_url"),
        ({"store": "memory:", "replica_lease_s": 30.0}, "replica_lease_s is for replicas, and the store memory:"),
        ({"store": "memory:", "replica_beat_s": 2.0}, "or remove replica_beat_s"),
        ({"store": "memory:", "replica_address": "http://h"}, "or remove replica_address"),
        (
            {"store": "sqlite:///x.db", "processes": 2},
            "processes = 2 runs several replicas, and the store sqlite:///x.db",
        ),
    ],
)
def test_settings_of_replicas_that_cannot_work_are_refused_with_the_fix(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StartError) as caught:
        check_replicas(Config(**settings))
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bus": "none"},
        {"store": SHARED, "bus": "nats://h:4222", "processes": 4},
        {"store": SHARED, "bus_listen_url": SHARED},
        {"store": SHARED, "replica_lease_s": 3.0, "replica_beat_s": 1.0},
    ],
)
def test_other_settings_of_replicas_are_taken(settings: dict[str, Any]) -> None:
    check_replicas(Config(**settings))


async def test_a_server_does_not_start_with_settings_that_cannot_work() -> None:
    with pytest.raises(StartError, match="bus is for replicas"):
        async with serving(Config(port=0, store="memory:", bus="postgres"), [echo]):
            pass


async def told(http: aiohttp.ClientSession, url: str, status: int, said: str) -> dict[str, Any]:
    """The answer of `/ready`, once it is that."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with http.get(f"{url}/ready") as answer:
                body: dict[str, Any] = await answer.json()
            if answer.status == status and said in str(body):
                return body
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_replica_that_cannot_reach_the_store_is_unready_and_comes_back_as_another(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    async with before("127.0.0.1", parts.port) as proxy:
        store = postgres_url.replace(f":{parts.port}/", f":{proxy.port}/")
        # asyncpg leaves a future behind that nobody awaits when it gives up between TCP and its question for TLS.
        query = "timeout_s=1&sslmode=disable"
        config = Config(port=0, store=f"{store}?{query}", bus="none", replica_lease_s=3.0, replica_beat_s=0.5)
        async with aiohttp.ClientSession() as http, serving(config, [echo]) as url:
            first = (await told(http, url, 200, "ready"))["cluster"]
            assert [replica["id"] for replica in first["replicas"]] == [first["id"]]
            assert first["heartbeat_age_s"] < 3.0
            proxy.stall()
            lost = await told(http, url, 503, "the store has not heard of this replica for too long")
            assert lost["cluster"]["heartbeat_age_s"] > 2.0
            proxy.heal()
            async with asyncio.timeout(DEADLINE_S):
                while True:  # the list is as old as the last heartbeat, and may still name the replica of before
                    again = (await told(http, url, 200, "ready"))["cluster"]
                    if [replica["id"] for replica in again["replicas"]] == [again["id"]]:
                        break
                    await asyncio.sleep(0.05)
            assert again["id"] != first["id"]


@pytest.mark.slow
async def test_a_webhook_call_that_a_stop_cuts_off_is_made_by_another_replica_soon(postgres_url: str) -> None:
    config = Config(
        port=0, store=postgres_url, push_allowed_cidrs=("127.0.0.0/8",), shutdown_grace_s=6.0, replica_lease_s=60.0
    )
    async with receiving() as receiver, AsyncExitStack() as others:
        receiver.hold.clear()
        async with serving(config, [echo]) as url:
            async with connect(url) as agent:
                await agent.send("go", push=PushConfig(url=receiver.url))
            await receiver.came(1)
            await others.enter_async_context(serving(config, [echo]))
        receiver.hold.set()
        async with asyncio.timeout(DEADLINE_S * 2 / 3):  # a claim lasts for a minute, and the lease, too
            await receiver.came(2)
        first, second = receiver.asked[:2]
        assert first.headers["webhook-id"] == second.headers["webhook-id"]


GATED = """
import asyncio
from pathlib import Path
from dragoman import Agent, Context

agent = Agent("{name}", restartable=True)

@agent.skill
async def wait(ctx: Context) -> str:
    while not Path("gate").exists():
        await asyncio.sleep(0.05)
    return "done"
"""


async def asked(url: str) -> tuple[int, bool]:
    """The status that a server answers, and whether it says when to come back."""
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, "Retry-After" in answer.headers


async def sent(url: str) -> str:
    """The id of a task that an agent works on."""
    async with connect(url) as agent:
        task = await agent.send("go", return_immediately=True)
        assert isinstance(task, Task)
        return task.id


async def stored_state(store: Store, task_id: str, *wanted: TaskState) -> TaskState:
    """The state of a task in the store, once it is one of those."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await store.head(task_id)
            assert found is not None
            if found[2] in wanted:
                return found[2]
            await asyncio.sleep(0.05)


def replica(folder: Path, name: str, store: str, *flags: str) -> AbstractAsyncContextManager[ServerProcess]:
    """A process that serves the agent `name` alone."""
    (folder / f"{name}.py").write_text(GATED.format(name=name))
    place = ("--port", "0", "--store", store, "--bus", "postgres")
    return serving_process(folder, f"{name}.py", *place, *flags, log=f"{name}.log")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_replicas_with_different_agents_that_restart_at_once_fail_no_task(
    postgres_url: str, tmp_path: Path, how: signal.Signals
) -> None:
    flags = "--replica-lease-s", "3", "--replica-beat-s", "0.5", "--shutdown-grace-s", "3"
    store = open_store(postgres_url, SystemClock())
    await store.open("test")
    try:
        tasks = dict[str, str]()
        async with (
            replica(tmp_path, "one", postgres_url, *flags) as one,
            replica(tmp_path, "other", postgres_url, *flags) as other,
        ):
            for name, each in (("one", one), ("other", other)):
                tasks[name] = await sent(f"{each.url}/agents/{name}")
                await stored_state(store, tasks[name], TaskState.WORKING)
            for each in (one, other):
                each.signal(how)
            for each in (one, other):
                await each.ended()
        async with replica(tmp_path, "one", postgres_url, *flags) as one:  # it has looked for what others left
            assert await asked(f"{one.url}/agents/other/.well-known/agent-card.json") == (503, True)
            assert await asked(f"{one.url}/agents/other/v1/tasks") == (503, True)
            assert await asked(f"{one.url}/agents/nobody/.well-known/agent-card.json") == (404, False)
            (tmp_path / "gate").touch()
            assert await stored_state(store, tasks["one"], *TERMINAL) is TaskState.COMPLETED
            async with replica(tmp_path, "other", postgres_url, *flags):
                assert await stored_state(store, tasks["other"], *TERMINAL) is TaskState.COMPLETED
    finally:
        await store.close()


@pytest.mark.slow
async def test_a_task_whose_agent_does_not_come_back_fails_while_others_are_served(
    postgres_url: str, tmp_path: Path
) -> None:
    store = open_store(postgres_url, SystemClock())
    await store.open("test")
    try:
        async with replica(tmp_path, "one", postgres_url, "--agent-absent-s", "2"):
            async with replica(tmp_path, "other", postgres_url) as other:
                task_id = await sent(f"{other.url}/agents/other")
                other.signal(signal.SIGTERM)
                await other.ended()
            assert await stored_state(store, task_id, *TERMINAL) is TaskState.FAILED
    finally:
        await store.close()
