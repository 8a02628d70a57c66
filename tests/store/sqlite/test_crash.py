"""A process that is killed while it writes loses nothing that it acknowledged."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.store.sqlite.schema import check
from tests.soak import SOAK, times
from tests.store.cases.bench import seqs

ROOT = Path(__file__).parents[3]
KILLS = times(3, 50)
SENDERS = 32

Line = tuple[str, str, int]


@pytest.mark.slow
async def test_every_acknowledged_append_and_its_delivery_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(None if SOAK else 7)
    acknowledged: dict[str, int] = {}
    lines: set[Line] = set()
    unfinished = 0
    for kill in range(KILLS):
        await _write_until_killed(f"sqlite:///{path}", kill * 100_000, chance.randrange(1, 1500), lines)
        assert check(path) == []
        for what, task_id, seq in lines:
            if what == "wrote":
                acknowledged[task_id] = max(seq, acknowledged.get(task_id, 0))
        store = open_store(f"sqlite:///{path}", SystemClock())
        await store.open(f"parent {kill}")
        try:
            for task_id, seq in acknowledged.items():
                found = await store.head(task_id)
                assert found is not None, f"{task_id} was acknowledged and is lost"
                assert found[1] >= seq, f"{task_id} was at {seq} and is at {found[1]}"
                if chance.random() < 0.05:
                    assert seqs(await store.read(task_id, 0, 1 << 20)) == list(range(1, found[1] + 1))
                    assert await store.recall(task_id.encode()) is not None
            owed = {(one.task_id, one.seq) for one in await store.outbox.owed(limit=1_000_000)}
            kept = {(one.task_id, one.seq) for one in await store.receipts.page(limit=1_000_000)}
            for what, task_id, seq in lines:
                if what == "wrote" and seq in (1, 8):
                    assert ((task_id, seq) in owed) is ((task_id, seq) not in kept), (
                        "a delivery is lost, or is there twice"
                    )
                if what == "settled":
                    assert (task_id, seq) in kept, "a delivery that was settled has no receipt"
            assert kept <= {(task_id, seq) for what, task_id, seq in lines if what == "sent"}
            await store.replicas.join(f"parent {kill}", address="", agents=())
            unfinished = len(await store.claim(f"parent {kill}", 1_000_000, None))
            assert unfinished <= SENDERS * (kill + 1)
        finally:
            await store.close()
    assert unfinished > 0
    assert len(acknowledged) > KILLS
    assert any(what == "settled" for what, _, _ in lines)


async def _write_until_killed(url: str, first: int, count: int, lines: set[Line]) -> None:
    """Kill the process after so many lines; `lines` gets what it managed to print."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.sqlite.appending", url, str(first), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        for _ in range(count):
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, "the process ended by itself"
            _note(line, lines)
    finally:
        process.kill()
        for line in (await process.stdout.read()).splitlines(keepends=True):
            if line.endswith(b"\n"):
                _note(line, lines)
        await process.wait()


def _note(line: bytes, lines: set[Line]) -> None:
    what, task_id, seq = line.decode().split()
    lines.add((what, task_id, int(seq)))
