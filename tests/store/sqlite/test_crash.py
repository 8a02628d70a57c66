"""A process that is killed while it writes loses nothing that it acknowledged."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.store.sqlite.check import check
from dragoman.testing.store_cases.bench import seqs

APPENDING = Path(__file__).with_name("appending.py")
KILLS = 10
SENDERS = 32


@pytest.mark.slow
async def test_every_acknowledged_append_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    for kill in range(KILLS):
        await _write_until_killed(f"sqlite:///{path}", kill * 100_000, chance.randrange(1, 1500), acknowledged)
        assert check(path) == []
        store = open_store(f"sqlite:///{path}", SystemClock())
        await store.open("parent")
        try:
            for task_id, seq in acknowledged.items():
                found = store.head(task_id)
                assert found is not None, f"{task_id} was acknowledged and is lost"
                assert found[1] >= seq, f"{task_id} was at {seq} and is at {found[1]}"
                if chance.random() < 0.05:
                    assert seqs(await store.read(task_id, 0, 1 << 20)) == list(range(1, found[1] + 1))
                    assert await store.recall(task_id.encode()) is not None
            assert 0 < len(await store.unfinished()) <= SENDERS * (kill + 1)
        finally:
            await store.close()
    assert len(acknowledged) > KILLS


async def _write_until_killed(url: str, first: int, lines: int, acknowledged: dict[str, int]) -> None:
    """Kill the process after so many lines; what it managed to print is what it acknowledged."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, APPENDING, url, str(first), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        for _ in range(lines):
            line = await asyncio.wait_for(process.stdout.readline(), 30)
            assert line, "the process ended by itself"
            _note(line, acknowledged)
    finally:
        process.kill()
        for line in (await process.stdout.read()).splitlines(keepends=True):
            if line.endswith(b"\n"):
                _note(line, acknowledged)
        await process.wait()


def _note(line: bytes, acknowledged: dict[str, int]) -> None:
    task_id, seq = line.decode().split()
    acknowledged[task_id] = max(int(seq), acknowledged.get(task_id, 0))
