"""When a batch of writes starts, seen from the queue alone."""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman.store.postgres import writer
from dragoman.store.postgres.writer import ENOUGH, GATHERING_TURNS, BatchQueue, Waiting
from dragoman.store.writes import Addition
from tests.store.cases.bench import by_run, chunk

APPEND = Addition("t1", by_run("t1", chunk("a")), 1, None, False, None, b"page", None, (), (), None, "")


class Lanes:
    """A queue with two lanes, and the batches that it has started, each until it is `freed`."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.more = asyncio.Event()
        self.queue = BatchQueue(range(2), self._start)

    def _start(self, queue: BatchQueue, lane: int, batch: Sequence[Waiting]) -> None:
        self.started.append((lane, len(batch)))
        self.more.set()

    @property
    def sizes(self) -> list[int]:
        return [size for _, size in self.started]

    def add(self, count: int) -> None:
        for _ in range(count):
            self.queue.add((APPEND, asyncio.get_running_loop().create_future()))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def lanes(monkeypatch: pytest.MonkeyPatch) -> Lanes:
    """Lanes that never have waited for too long."""
    monkeypatch.setattr(writer, "GATHERING_S", 3600)
    return Lanes()


async def test_enough_writes_wait_for_no_more(lanes: Lanes) -> None:
    lanes.add(ENOUGH - 1)
    await turns(1)
    assert lanes.sizes == []
    for _ in range(3):  # more come in every turn
        lanes.add(1)
        await turns(1)
    assert lanes.sizes == [ENOUGH]


async def test_few_writes_wait_for_the_end_of_a_batch_that_had_enough(lanes: Lanes) -> None:
    lanes.add(ENOUGH)
    await turns(1)
    lanes.add(ENOUGH // 2 - 1)
    await turns(2 * GATHERING_TURNS)
    assert lanes.sizes == [ENOUGH]
    lanes.queue.free(lanes.started[0][0])
    await turns(2)
    lanes.add(2)  # what its end causes
    await turns(GATHERING_TURNS)
    assert lanes.sizes == [ENOUGH, ENOUGH // 2 + 1]


async def test_writes_that_waited_start_beside_it_once_they_are_many(lanes: Lanes) -> None:
    lanes.add(ENOUGH)
    await turns(1)
    lanes.add(ENOUGH // 2 - 1)
    await turns(2 * GATHERING_TURNS)
    lanes.add(1)
    await turns(GATHERING_TURNS)
    assert lanes.sizes == [ENOUGH, ENOUGH // 2]


async def test_few_writes_wait_for_no_small_batch(lanes: Lanes) -> None:
    lanes.add(ENOUGH - 1)
    await turns(GATHERING_TURNS)
    lanes.add(1)
    await turns(GATHERING_TURNS)
    assert lanes.sizes == [ENOUGH - 1, 1]


async def test_writes_wait_only_for_a_while(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GATHERING_S", 0.001)
    lanes.add(ENOUGH)
    await turns(1)
    lanes.more.clear()
    lanes.add(1)
    async with asyncio.timeout(60):
        await lanes.more.wait()
    assert lanes.sizes == [ENOUGH, 1]
    lanes.add(1)  # no lane is free
    await turns(2 * GATHERING_TURNS)
    lanes.queue.free(lanes.started[0][0])
    await turns(GATHERING_TURNS)
    assert lanes.sizes == [ENOUGH, 1, 1]
