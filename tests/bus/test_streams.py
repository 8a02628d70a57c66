"""Streams of engines that share a store, while the server that carries their hints is killed and started again."""

import pytest

from tests.bus.places import Place
from tests.engine.house import seqs
from tests.engine.replicas import Stage, replicas
from tests.kit.waiting import until

pytestmark = pytest.mark.slow

PIECES = 300


async def test_followers_get_each_event_once_and_in_order_while_the_bus_dies(place: Place) -> None:
    stage = Stage()
    async with replicas(3, stage, place.bus, poll_s=0.05, healthy_poll_s=5) as (one, two, three):
        everybody = (one, two, three)
        await until(lambda: all(replica.bus.healthy for replica in everybody))
        task_id = await one.begin()
        await until(lambda: one.seq(task_id) == 2)
        following = [await replica.follow(task_id) for replica in (*everybody, two)]

        async def give_out(first: int, last: int) -> None:
            for number in range(first, last):
                stage.pieces.put_nowait(f"{number} " + "x" * (6000 if number % 10 == 0 else 100))
                await until(lambda number=number: one.seq(task_id) == 3 + number)

        await give_out(0, 100)
        with place.stopped():
            await until(lambda: not any(replica.bus.healthy for replica in everybody))
            await give_out(100, 150)
            await until(lambda: two.seq(task_id) == three.seq(task_id) == 152)
        await give_out(150, 200)
        await until(lambda: all(replica.bus.healthy for replica in everybody))
        await give_out(200, PIECES)
        stage.pieces.put_nowait(None)
        size = PIECES + 3
        for seen in following:
            numbers = seqs(await seen)
            assert numbers == list(range(numbers[0], size + 1))
        assert two.bus.figures.received > 0
