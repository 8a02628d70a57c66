"""Room: whoever waits comes in when there is room, in turn, and nobody's leaving is lost."""

import asyncio

import pytest

from dragoman.net.dialer import RequestLimit

A, B = ("http", "a", 80), ("http", "b", 80)


def at(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_come_in_and_the_next_waits_until_one_leaves() -> None:
    room = RequestLimit(in_all_max=2, per_destination_max=0)
    for _ in range(2):
        await room.enter(A, at(5))
    third = asyncio.create_task(room.enter(B, at(5)))
    await settle()
    assert not third.done()
    room.leave(A)
    await third
    assert room.free == 0


async def test_one_place_that_is_full_keeps_no_other_waiting() -> None:
    room = RequestLimit(in_all_max=3, per_destination_max=1)
    await room.enter(A, at(5))
    waiting = [asyncio.create_task(room.enter(A, at(5))) for _ in range(3)]
    await settle()
    await room.enter(B, at(5))
    for each in waiting:
        assert not each.done()
        room.leave(A)
        await each


async def test_places_take_turns() -> None:
    room = RequestLimit(in_all_max=1, per_destination_max=0)
    await room.enter(A, at(5))
    order: list[str] = []

    async def wait(destination: tuple[str, str, int]) -> None:
        await room.enter(destination, at(5))
        order.append(destination[1])
        room.leave(destination)

    tasks = [asyncio.create_task(wait(destination)) for destination in (A, A, A, B)]
    await settle()
    room.leave(A)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "a", "a"]
    assert room.free == 1


async def test_whoever_waits_too_long_or_is_canceled_takes_no_room() -> None:
    room = RequestLimit(in_all_max=1, per_destination_max=0)
    await room.enter(A, at(5))
    with pytest.raises(TimeoutError):
        await room.enter(A, at(0.01))
    assert room.free == 0, "it gives up no room that it never had"
    canceled = asyncio.create_task(room.enter(A, at(5)))
    await settle()
    canceled.cancel()
    await asyncio.gather(canceled, return_exceptions=True)
    assert room.free == 0
    granted = asyncio.create_task(room.enter(B, at(5)))
    await settle()
    room.leave(A)
    granted.cancel()  # when it has just been let in
    await asyncio.gather(granted, return_exceptions=True)
    assert room.free == 1


async def test_a_limit_of_nought_is_none() -> None:
    room = RequestLimit(in_all_max=0, per_destination_max=0)
    for _ in range(1000):
        await room.enter(A, at(5))
