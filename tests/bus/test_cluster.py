"""The bus of a replica over a carrier that the test holds in its hand.

Time is virtual: a sleep is exact, and takes no time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import pytest

from dragoman.bus import cluster
from dragoman.bus.carrier import CarrierDown, Dropped, Received
from dragoman.bus.cluster import ClusterBus
from dragoman.bus.interest import SUBJECTS
from tests.virtual_time import in_virtual_time

Hint = tuple[str, int | None, bytes | None]


class Air:
    """A carrier, which brings everything to everybody at once, unless it is told otherwise."""

    name = "air"
    bytes_max = 2000
    advice = "open a window"

    def __init__(self, gather_s: float = 0.0) -> None:
        self.gather_s = gather_s
        self.down = False
        self.mute = False
        self.strange = False
        self.attempts: list[float] = []
        self.connections: list[Wind] = []

    async def connect(self, received: Received, dropped: Dropped) -> "Wind":
        self.attempts.append(asyncio.get_running_loop().time())
        if self.down:
            raise CarrierDown("no wind")
        wind = Wind(self, received)
        self.connections.append(wind)
        return wind


class Wind:
    """A connection to the air."""

    def __init__(self, air: Air, received: Received) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.subjects: set[str] = set()
        self.batches: list[int] = []
        self._air = air
        self.received = received

    async def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        self.batches.append(len(messages))
        if self._air.strange:
            raise LookupError("odd")
        for subject, data in messages:
            for other in self._air.connections:
                if subject in other.subjects and not self._air.mute:
                    other.received(data)

    async def subscribe(self, subjects: Collection[str]) -> None:
        assert not self.subjects & set(subjects)
        self.subjects |= set(subjects)

    async def unsubscribe(self, subjects: Collection[str]) -> None:
        assert self.subjects >= set(subjects)
        self.subjects -= set(subjects)

    async def close(self) -> None:
        self._air.connections.remove(self)


@asynccontextmanager
async def a_bus(air: Air, hints: list[Hint] | None = None) -> AsyncIterator[ClusterBus]:
    bus = ClusterBus(air, b"secret")
    bus.listen(lambda *hint: None if hints is None else hints.append(hint), lambda: None)
    await bus.open()
    try:
        yield bus
    finally:
        await bus.close()


@in_virtual_time
async def test_a_bus_that_is_down_is_tried_for_ever_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    air, hints = Air(), list[Hint]()
    air.down = True
    async with a_bus(air, hints) as bus:
        bus.follow("t")
        bus.publish("t", 1)
        assert not bus.healthy
        await asyncio.sleep(60)
        pauses = [later - earlier for earlier, later in zip(air.attempts, air.attempts[1:], strict=False)]
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * (len(pauses) - 6)])
        assert (len(pauses), hints) == (16, [])
        air.down = False
        await asyncio.sleep(5.1)
        assert bus.healthy
        assert hints == [("t", None, None)]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0].split(",")[0] for line in lines] == ["bus air is down", "bus air works again"]
    assert lines[0].endswith("no wind")


@in_virtual_time
async def test_a_lost_connection_is_replaced_and_hints_count_as_lost() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air, hints) as bus:
        bus.follow("t")
        await asyncio.sleep(0.5)
        assert bus.healthy
        air.connections[0].lost.set_result("gone")
        await asyncio.sleep(0.05)
        assert not bus.healthy
        await asyncio.sleep(0.2)
        assert bus.healthy
        assert hints == [("t", None, None)] * 2


@in_virtual_time
async def test_a_connection_through_which_nothing_comes_back_is_not_healthy(caplog: pytest.LogCaptureFixture) -> None:
    air = Air()
    async with a_bus(air) as bus:
        await asyncio.sleep(5)
        assert bus.healthy
        air.mute = True
        await asyncio.sleep(1.5)
        assert bus.healthy
        await asyncio.sleep(2.5)
        assert not bus.healthy
        assert len(air.attempts) == 1
        await asyncio.sleep(10)
        assert len(air.attempts) == 2
    assert "open a window" in caplog.text
    assert len(caplog.records) == 1


@in_virtual_time
async def test_only_subjects_with_followers_are_received_and_a_while_longer() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air, hints) as bus:
        bus.serve("me", ["echo"])
        await asyncio.sleep(1)
        (wind,) = air.connections
        assert len(wind.subjects) == 3  # its own, its replica's, its agent's
        bus.follow("t")
        bus.follow("t")
        await asyncio.sleep(0.1)
        assert len(wind.subjects) == 4
        bus.unfollow("t")
        bus.unfollow("t")
        await asyncio.sleep(cluster.LINGER_S / 2)
        bus.follow("t")  # it has been heard all the time, so that nothing was missed
        await asyncio.sleep(cluster.LINGER_S)
        assert (len(wind.subjects), hints) == (4, [("t", None, None)])
        bus.unfollow("t")
        await asyncio.sleep(cluster.LINGER_S + 2)
        assert len(wind.subjects) == 3
        for number in range(5000):
            bus.follow(f"t{number}")
        await asyncio.sleep(0.1)
        assert len(wind.subjects) == 3 + SUBJECTS
        assert len(hints) == 5001


@in_virtual_time
async def test_messages_are_gathered_and_bounded() -> None:
    air, hints = Air(gather_s=0.003), list[Hint]()
    async with a_bus(air) as bus, a_bus(air, hints) as other:
        other.follow("t")
        await asyncio.sleep(0.5)
        before = len(air.connections[0].batches)
        for seq in range(20):
            bus.publish("t", seq, b"page")
        await asyncio.sleep(0.01)
        assert air.connections[0].batches[before:] == [20]
        assert hints[1:] == [("t", seq, b"page") for seq in range(20)]
        bus.publish("t", 20, b"x" * 3000)  # more than this carrier takes
        await asyncio.sleep(0.01)
        assert hints[-1] == ("t", 20, None)
        for seq in range(cluster.WAITING_MAX + 5):
            bus.publish("u", seq)
        assert bus.figures.dropped == 5


@in_virtual_time
async def test_a_replica_that_hears_no_other_says_nothing_until_one_comes() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air) as bus:
        assert _publishes(bus)  # nobody knows yet
        await asyncio.sleep(cluster.ALONE_S + 1)
        assert not _publishes(bus)
        async with a_bus(air, hints) as other:
            other.follow("t")
            await asyncio.sleep(0.01)
            bus.publish("t", 3)
            await asyncio.sleep(2 * cluster.ALONE_S)
            bus.publish("t", 4)
            await asyncio.sleep(0.01)
            assert hints == [("t", None, None), ("t", 3, None), ("t", 4, None)]
        await asyncio.sleep(cluster.ALONE_S + 1)
        assert not _publishes(bus)


def _publishes(bus: ClusterBus) -> bool:
    before = bus.figures.published
    bus.publish("u", 1)
    return bus.figures.published > before


@in_virtual_time
async def test_errors_of_this_program_are_logged_and_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    air, seen = Air(), list[int | None]()

    def moved(task_id: str, seq: int | None, page: bytes | None) -> None:
        seen.append(seq)
        if seq == 1:
            raise LookupError("strange")

    other = ClusterBus(air, b"secret")
    other.listen(moved, lambda: None)
    other.follow("t")
    await other.open()
    async with a_bus(air) as bus:
        await asyncio.sleep(0.1)
        bus.publish("t", 1)
        bus.publish("t", 2)
        await asyncio.sleep(0.1)
        air.strange = True
        await asyncio.sleep(1)  # an echo cannot be sent, for a reason that nobody thought of
        assert not bus.healthy
        air.strange = False
        await asyncio.sleep(5)
        assert bus.healthy
        assert other.healthy
        bus.publish("t", 3)
        await asyncio.sleep(0.1)
    await other.close()
    assert [seq for seq in seen if seq is not None] == [1, 2, 3]
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} >= {"strange"}
    assert "odd" in caplog.text


@in_virtual_time
async def test_the_last_words_are_sent_before_the_end() -> None:
    air, hints = Air(gather_s=0.003), list[Hint]()
    async with a_bus(air, hints) as other:
        other.follow("t")
        async with a_bus(air) as bus:
            bus.publish("t", 7)
        assert hints[-1] == ("t", 7, None)


@in_virtual_time
async def test_a_replica_counts_the_others_that_it_has_heard_of_late() -> None:
    air, elsewhere = Air(), Air()
    async with a_bus(air) as bus:
        async with a_bus(air), a_bus(air), a_bus(elsewhere) as far:
            await asyncio.sleep(cluster.ECHO_S + 1)
            assert bus.others == 2
            assert far.healthy
            assert far.others == 0
        await asyncio.sleep(cluster.HEALTHY_S + 1)
        assert bus.healthy
        assert bus.others == 0
