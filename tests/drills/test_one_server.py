"""The harness of the drills on a single server with SQLite: a kill takes nothing back here either."""

import random
from pathlib import Path

import pytest

from dragoman.store.sqlite.schema import check
from tests.drills.checker import Kept
from tests.drills.clients import Clients
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED, drill, read_beside

pytestmark = [pytest.mark.slow, pytest.mark.drill]


async def test_a_kill_of_the_only_server_takes_nothing_back(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    url = f"sqlite:///{file}"
    server = ReplicaProcess("only", ("--store", url, *ALLOWED), tmp_path)
    await server.start()

    async def kill(clients: Clients) -> None:
        await server.kill()
        await server.start()

    async def read() -> dict[str, Kept]:
        await server.kill()
        assert check(file) == []
        try:
            return await read_beside(url)
        finally:
            await server.start()

    try:
        record = await drill(read, [server.url], kill, senders=8, followers=8, seed=random.randrange(1 << 30))
        assert record.retries > 0
    finally:
        await server.kill()
