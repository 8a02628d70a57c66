"""The harness of the drills on a single server with SQLite: a kill takes nothing back here either."""

import random
from pathlib import Path

import pytest

from tests.drills.clients import TRIPS
from tests.drills.kills import KINDS, kill_kind, kill_often
from tests.soak import times

pytestmark = [pytest.mark.slow, pytest.mark.drill]


async def test_a_kill_of_the_only_server_takes_nothing_back(tmp_path: Path) -> None:
    record = await kill_often(
        tmp_path, times(2, 30), random.Random(), journeys=TRIPS, senders=8, followers=8, travelers=8
    )
    assert record.retries > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_no_step_is_lost_or_repeated_however_often_the_server_is_killed(tmp_path: Path, kind: str) -> None:
    if not KINDS[kind].dragoman.exists():
        pytest.skip("no environment .venv-fw-langgraph: make test-frameworks FRAMEWORKS=langgraph")
    record = await kill_kind(kind, tmp_path, times(3, 1000), random.Random())
    assert record.retries > 0
