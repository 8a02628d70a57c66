"""The bus of a replica over a carrier that the test holds in its hand.

Time is virtual: a sleep is exact, and takes no time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dragoman.bus import cluster
from dragoman.bus.api import Hint, HintInbox
from dragoman.bus.carrier import CarrierDown, Dropped, Received
from dragoman.bus.cluster import ClusterBus
from dragoman.bus.envelope import Envelope, MessageKind, Seal
from dragoman.bus.interest import FORGET_S
from tests.virtual_time import in_virtual_time


class Air:
    """A carrier, which brings everything to everybody at once, unless it is told otherwise."""

    name = "air"
    bytes_max: int = 2000
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


class Listing(HintInbox):
    """Keeps hints in a list."""

    def __init__(self, hints: list[Hint]) -> None:
        super().__init__()
        self._listed = hints

    def put(self, hint: Hint) -> None:
        self._listed.append(hint)


@asynccontextmanager
async def a_bus(air: Air, hints: list[Hint] | None = None) -> AsyncIterator[ClusterBus]:
    bus = ClusterBus(air, b"secret")
    bus.listen(Listing([] if hints is None else hints))
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
async def test_a_signal_for_a_full_queue_is_dropped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    air, heard = Air(), asyncio.Queue[bytes](1)
    other = ClusterBus(air, b"secret")
    other.on_signal("s", heard)
    await other.open()
    async with a_bus(air) as one:
        await asyncio.sleep(0.5)
        for payload in (b"first", b"second"):
            one.signal("s", payload)
        await asyncio.sleep(0.5)
        assert (heard.get_nowait(), heard.empty()) == (b"first", True)
        one.signal("s", b"third")
        await asyncio.sleep(0.5)
        assert heard.get_nowait() == b"third"
    await other.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


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
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "open a window" in line


@in_virtual_time
async def test_a_replica_hears_of_what_it_follows_and_a_while_longer() -> None:
    air, hints = Air(), list[Hint]()
    async with a_bus(air, hints) as bus, a_bus(air) as other:
        await asyncio.sleep(FORGET_S + 1)

        def reaches(seq: int) -> bool:
            other.publish("t", seq)
            return other.wants("t")

        assert not reaches(1)
        bus.follow("t")
        bus.follow("t")
        await asyncio.sleep(0.1)
        assert hints == [("t", None, None), ("t", 1, None)]
        bus.unfollow("t")
        bus.unfollow("t")
        await asyncio.sleep(cluster.LINGER_S / 2)
        bus.follow("t")  # it has been heard all the time, so that nothing was missed
        await asyncio.sleep(cluster.LINGER_S)
        assert reaches(2)
        await asyncio.sleep(0.1)
        assert hints[2:] == [("t", 2, None)]
        bus.unfollow("t")
        await asyncio.sleep(cluster.LINGER_S + 3)
        assert not reaches(3)


@in_virtual_time
async def test_many_followers_hear_little_that_they_do_not_follow() -> None:
    air, followers = Air(), list[tuple[ClusterBus, list[Hint], set[str]]]()
    air.bytes_max = 6000  # as NOTIFY has
    async with AsyncExitStack() as buses:
        teller = await buses.enter_async_context(a_bus(air))
        for replica in range(3):
            hints, tasks = list[Hint](), {f"t{number}" for number in range(replica, 6000, 3)}
            bus = await buses.enter_async_context(a_bus(air, hints))
            for task_id in tasks:
                bus.follow(task_id)
            followers.append((bus, hints, tasks))
        await asyncio.sleep(FORGET_S + 1)
        before = [bus.figures.received for bus, _, _ in followers]
        for _, hints, _ in followers:
            hints.clear()
        for number in range(6000):
            teller.publish(f"t{number}", 7)
        await asyncio.sleep(0.1)
        for (bus, hints, tasks), received in zip(followers, before, strict=True):
            assert {task_id for task_id, _, _ in hints} == tasks
            assert len(hints) == 2000
            assert bus.figures.received - received < 2000 + 400
        assert (teller.figures.dropped, len(air.connections[1].subjects)) == (0, 3)


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

    class Strange(HintInbox):
        def put(self, hint: Hint) -> None:
            seen.append(hint[1])
            if hint[1] == 1:
                raise LookupError("strange")

    other = ClusterBus(air, b"secret")
    other.listen(Strange())
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


@in_virtual_time
async def test_a_replica_of_a_release_with_other_hints_is_not_taken_to_be_heard() -> None:
    air = Air()
    async with a_bus(air) as bus:
        await asyncio.sleep(2)
        seal = Seal(b"secret")
        before = Envelope("older", MessageKind.ECHO, number=7, payload=bytes([3, 200]))  # subjects, as it numbers them
        told: list[bytes] = []
        older = await air.connect(told.append, lambda: None)
        await older.subscribe([f"dragoman.{seal.cluster}.e"])
        await older.send([(f"dragoman.{seal.cluster}.e", seal.seal(before))])
        await asyncio.sleep(2)
        assert bus.others == 0
        assert told == [seal.seal(before)]
