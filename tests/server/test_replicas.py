"""Settings of replicas that cannot work are refused before anything is opened, with the fix."""

from typing import Any

import pytest

from dragoman.config import Config
from dragoman.server import StartError, serving
from dragoman.server.replicas import check_replicas
from dragoman.testing.agents import echo

SHARED = "postgresql://user:secret@db.example/tasks"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"store": SHARED, "replica_beat_s": 8.0}, "set replica_beat_s to 6.67 or less"),
        ({"store": SHARED, "bus": "none", "bus_listen_url": SHARED}, "bus_listen_url is for bus = 'postgres'"),
        ({"store": "memory:", "bus": "postgres"}, "the store memory: has one server only: set store = 'postgresql://"),
        ({"store": "memory:", "bus": "nats://user:secret@h"}, "bus is for replicas"),
        ({"store": "memory:", "bus_listen_url": SHARED}, "or remove bus_listen_url"),
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
