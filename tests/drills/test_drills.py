"""Drills on three replicas, with a real PostgreSQL and a real NATS: whatever breaks, nobody is told what does not hold.

`make test` harms one cluster in every way, one after the other. `make test-soak` gives each way a drill of its own,
longer and with more clients, and prints what it counted.
"""

import random
import re
from pathlib import Path
from time import monotonic

import pytest

from tests.drills.agents import LEDGER
from tests.drills.clients import Clients
from tests.drills.drill import drill
from tests.drills.house import BEAT_S, FAULTS, LEASE_S, House, built
from tests.soak import SOAK

pytestmark = [pytest.mark.slow, pytest.mark.drill]


TAKEOVER_S = LEASE_S + BEAT_S


def check_logs(house: House) -> None:
    """No replica met an error that it did not expect."""
    for replica in house.replicas:
        assert re.findall(r" dragoman\S*: .*\nTraceback(?:.*\n)+?\S.*", replica.said()) == []


@pytest.mark.skipif(SOAK, reason="each fault has a drill of its own")
async def test_a_cluster_that_is_harmed_in_every_way_keeps_what_it_promised(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    async with built(tmp_path, random.Random(seed)) as house:
        house.long_s = 1.3 * LEASE_S

        async def all_faults(clients: Clients) -> None:
            for name in FAULTS:
                began_s = monotonic()
                await getattr(house, name)(clients)
                print(f"{name}: {monotonic() - began_s:.1f} s")

        record = await drill(
            house.read,
            house.urls,
            all_faults,
            senders=6,
            followers=12,
            seed=seed,
            ledger=tmp_path / LEDGER,
            takeover_s=TAKEOVER_S,
            stopped=True,
        )
        assert record.retries > 0
        await house.whole()
        check_logs(house)


LONG = pytest.mark.skipif(not SOAK, reason="the long form is for make test-soak")
STOPPING = ("stop_a_replica", "stall_postgres", "partition_a_replica")
"""After these faults a process goes on that was paused for longer than its lease."""


@LONG
@pytest.mark.parametrize("name", ["kill_replicas", "stop_a_replica", "restart_postgres", "cut_commits"])
async def test_no_step_is_lost_or_repeated(tmp_path: Path, name: str) -> None:
    seed = random.randrange(1 << 30)
    async with built(tmp_path, random.Random(seed)) as house:
        house.rounds = 5
        print(f"{name}: ", end="")
        await drill(
            house.read,
            house.urls,
            getattr(house, name),
            senders=0,
            followers=4,
            seed=seed,
            ledger=tmp_path / LEDGER,
            takeover_s=TAKEOVER_S,
            travelers=64,
            journeys_min=400,
            stopped=name in STOPPING,
        )
        await house.whole()
        check_logs(house)


@LONG
@pytest.mark.parametrize("name", FAULTS)
async def test_a_cluster_under_load_keeps_what_it_promised(tmp_path: Path, name: str) -> None:
    seed = random.randrange(1 << 30)
    async with built(tmp_path, random.Random(seed)) as house:
        house.rounds, house.long_s = 5, 60.0 if name == "stall_postgres" else 10.0
        print(f"{name}: ", end="")
        await drill(
            house.read,
            house.urls,
            getattr(house, name),
            senders=32,
            followers=100,
            seed=seed,
            ledger=tmp_path / LEDGER,
            takeover_s=TAKEOVER_S,
            stopped=name in STOPPING,
        )
        await house.whole()
        check_logs(house)
