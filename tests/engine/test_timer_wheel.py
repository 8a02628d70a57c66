"""The timer wheel: everything is looked at after its time, and soon after it, for one timer of the loop."""

import asyncio

from dragoman.engine.timer_wheel import LOOKS, TURN_MAX_S, TURNS_MAX, Bucket, TimerWheel
from tests.virtual_time import in_virtual_time

WAIT_S = 60


class Waiting:
    """Notes when it is looked at."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    def look(self, now_s: float) -> None:
        self.looks.append(now_s)


@in_virtual_time
async def test_everything_is_looked_at_once_after_its_time_and_within_a_turn() -> None:
    wheel: TimerWheel = TimerWheel(WAIT_S)
    times_s = [3.0, 0.1, 7.7, 0.5, 0.1, 2.999, 40.0]
    waiting = [Waiting() for _ in times_s]
    for one, at_s in zip(waiting, times_s, strict=True):
        wheel.add(one, at_s)
    await asyncio.sleep(60)
    for one, at_s in zip(waiting, times_s, strict=True):
        (looked_s,) = one.looks
        assert at_s <= looked_s <= at_s + TURN_MAX_S + 0.01


@in_virtual_time
async def test_what_leaves_is_not_looked_at_and_what_comes_back_is() -> None:
    wheel: TimerWheel = TimerWheel(WAIT_S)

    class Returning(Waiting):
        bucket: Bucket

        def look(self, now_s: float) -> None:
            super().look(now_s)
            if len(self.looks) < 3:
                self.bucket = wheel.add(self, now_s + 10)

    left, returning = Waiting(), Returning()
    wheel.add(left, 5).discard(left)
    returning.bucket = wheel.add(returning, 5)
    await asyncio.sleep(24)
    returning.bucket.discard(returning)
    await asyncio.sleep(60)
    assert left.looks == []
    assert [round(at_s) for at_s in returning.looks] == [5, 15]


@in_virtual_time
async def test_one_that_comes_back_later_holds_up_none_of_those_between() -> None:
    wheel: TimerWheel = TimerWheel(WAIT_S)

    class Returning(Waiting):
        def look(self, now_s: float) -> None:
            super().look(now_s)
            if len(self.looks) < 2:
                wheel.add(self, now_s + 30)

    returning, between = Returning(), Waiting()
    wheel.add(returning, 5)
    wheel.add(between, 10)
    await asyncio.sleep(60)
    assert [round(at_s) for at_s in between.looks] == [10]
    assert [round(at_s) for at_s in returning.looks] == [5, 35]


@in_virtual_time
async def test_one_that_raises_holds_up_none_of_the_others() -> None:
    wheel: TimerWheel = TimerWheel(WAIT_S)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    class Faulty(Waiting):
        def look(self, now_s: float) -> None:
            raise ValueError

    same, later = Waiting(), Waiting()
    for one, at_s in ((Faulty(), 5), (same, 5), (later, 10)):
        wheel.add(one, at_s)
    await asyncio.sleep(60)
    assert [type(error) for error in told] == [ValueError]
    assert [round(at_s) for one in (same, later) for at_s in one.looks] == [5, 10]


@in_virtual_time
async def test_thousands_with_one_time_leave_the_loop_its_turns() -> None:
    wheel: TimerWheel = TimerWheel(WAIT_S)
    looked: list[int] = []

    class Counted(Waiting):
        def look(self, now_s: float) -> None:
            if not looked:
                asyncio.get_running_loop().call_soon(looked.append, 0)  # a turn for others
            looked.append(1)

    for _ in range(3 * LOOKS):
        wheel.add(Counted(), 1)
    await asyncio.sleep(10)
    assert looked == [1] * LOOKS + [0] + [1] * 2 * LOOKS


@in_virtual_time
async def test_those_who_wait_for_a_day_share_few_sets() -> None:
    day_s = 86_400
    wheel, one = TimerWheel(day_s), Waiting()
    buckets = [wheel.add(one, at_s) for at_s in range(0, day_s, 10)]
    assert len({id(bucket) for bucket in buckets}) <= TURNS_MAX + 1
