"""Settings of replicas that cannot work are refused before anything is opened, with the fix."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dragoman.config import Config
from dragoman.server import StartError, serving
from dragoman.server.replicas import check_replicas
from dragoman.testing.agents import echo
from tests.drills.proxy import before

DEADLINE_S = 60.0
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
        config = Config(port=0, store=f"{store}?timeout_s=1", bus="none", replica_lease_s=3.0, replica_beat_s=0.5)
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
