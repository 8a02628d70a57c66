"""The bus over a real NATS and a real PostgreSQL: both do the same."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dragoman.bus.api import Bus, BusError, Hint, HintInbox, NoBus
from dragoman.bus.envelope import Envelope, MessageKind, Seal
from dragoman.bus.nats import NatsCarrier
from dragoman.bus.open import make_bus
from tests.bus.places import SECRET, Place
from tests.kit.waiting import until
from tests.nats import NatsServer
from tests.ports import kept_port
from tests.postgres import PostgresServer

pytestmark = pytest.mark.slow

DEADLINE_S = 60


class Replica(HintInbox):
    """A bus, and what was heard on it."""

    def __init__(self, bus: Bus, name: str) -> None:
        super().__init__()
        self.bus = bus
        self.hints: list[Hint] = []
        self.calls = 0
        self._signals: asyncio.Queue[bytes] = asyncio.Queue()
        self._read: list[bytes] = []
        bus.listen(self)
        bus.on_signal("sessions", self._signals)
        bus.serve(name, ["echo"])

    def put(self, hint: Hint) -> None:
        self.hints.append(hint)

    def put_work(self) -> None:
        self.calls += 1

    @property
    def signals(self) -> list[bytes]:
        """All so far."""
        while not self._signals.empty():
            self._read.append(self._signals.get_nowait())
        return self._read


@asynccontextmanager
async def replicas(place: Place, *names: str) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        made = [Replica(place.bus(), name) for name in names]
        for replica in made:
            await replica.bus.open()
            stack.push_async_callback(replica.bus.close)
        await until(lambda: all(replica.bus.healthy for replica in made))
        yield made


async def test_everything_reaches_those_it_is_for(place: Place) -> None:
    async with replicas(place, "one", "two", "three") as (one, two, three):
        two.bus.follow("t")
        await until(lambda: two.hints == [("t", None, None)])
        one.bus.publish("t", 1, b"\x00page\xff")
        one.bus.publish("t", 2, b"x" * 4096)
        one.bus.publish("t", 3, b"x" * 4097)
        one.bus.publish("u", 4, b"y", to="three")
        one.bus.tell("two")
        one.bus.queued("echo")
        one.bus.queued("else")
        one.bus.signal("sessions", b"\xffhello")
        one.bus.signal("else", b"hello")
        one.bus.signal("sessions", b"end")
        await until(lambda: two.signals[-1:] == three.signals[-1:] == [b"end"])
        assert two.hints[1:] == [("t", 1, b"\x00page\xff"), ("t", 2, b"x" * 4096), ("t", 3, None)]
        await until(lambda: three.hints == [("u", 4, b"y")])
        await until(lambda: (one.calls, two.calls, three.calls) == (0, 2, 1))
        assert (one.hints, one.signals, two.signals) == ([], [], [b"\xffhello", b"end"])
        lag_s = one.bus.figures.lag_s
        assert lag_s is not None
        assert 0 < lag_s < DEADLINE_S


async def test_a_bus_that_is_down_at_start_holds_nobody_up(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    with place.stopped():
        replica = Replica(place.bus(), "one")
        async with asyncio.timeout(DEADLINE_S):
            await replica.bus.open()
        assert not replica.bus.healthy
        replica.bus.follow("t")
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "is down" in record.getMessage()
    await until(lambda: replica.bus.healthy and replica.hints == [("t", None, None)])
    await replica.bus.close()


async def test_a_server_that_is_killed_and_comes_back_is_used_again(place: Place) -> None:
    async with replicas(place, "one", "two") as (one, two):
        two.bus.follow("t")
        await until(lambda: two.hints)
        for number in (1, 2):
            two.hints.clear()
            with place.stopped():
                await until(lambda: not one.bus.healthy and not two.bus.healthy)
                one.bus.publish("t", 10 * number)  # lost
                two.bus.follow("u")
            await until(lambda: one.bus.healthy and len(two.hints) == 2)
            assert {("t", None, None), ("u", None, None)} == set(two.hints)
            one.bus.publish("t", number)
            await until(lambda number=number: two.hints[2:] == [("t", number, None)])


async def test_the_host_that_can_be_used_is_found(
    postgres_server: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A database with a standby has two hosts, one of which does not listen, or takes no NOTIFY."""
    nobody = postgres_url.replace(f":{postgres_server.port}/", f":{kept_port()}/")
    place = Place(postgres_server, "postgres", (nobody, postgres_url))
    async with replicas(place, "one", "two") as (one, two):
        one.bus.tell("two")
        await until(lambda: two.calls == 1)
    assert "is down" not in caplog.text


async def test_a_server_that_hangs_is_not_healthy_until_it_goes_on(nats: NatsServer) -> None:
    async with replicas(Place(nats, nats.url, ()), "one", "two") as (one, two):
        two.bus.follow("t")
        await until(lambda: two.hints)
        os.kill(nats.pid, signal.SIGSTOP)
        try:
            for seq in range(2000):  # more than fits into the socket
                one.bus.publish("t", seq, b"x" * 4000)
            await until(lambda: not one.bus.healthy and not two.bus.healthy)
        finally:
            os.kill(nats.pid, signal.SIGCONT)
        await until(lambda: one.bus.healthy and two.bus.healthy)
        one.bus.publish("t", 10**6)
        await until(lambda: two.hints[-1] == ("t", 10**6, None))


async def test_another_cluster_and_strangers_are_not_heard(place: Place) -> None:
    """They share the server, know the subjects, and repeat what they have overheard."""
    async with replicas(place, "one", "two") as (one, two):
        other = Replica(place.bus(b"another"), "two")
        overheard: list[bytes] = []
        stranger = await place.carrier().connect(overheard.append, lambda: None)
        try:
            await other.bus.open()
            await until(lambda: other.bus.healthy)
            two.bus.follow("t")
            other.bus.follow("t")
            await until(lambda: two.hints and other.hints)
            ours = Seal(SECRET)
            subject = f"dragoman.{ours.cluster}.t"  # of hints for all, as long as the replicas are new to each other
            await stranger.subscribe([subject])
            forged = Seal(b"guess").seal(Envelope("x", MessageKind.FOLLOWED_MOVED, "t", 99))
            relabeled = forged[:16] + ours.seal(Envelope("x", MessageKind.FOLLOWED_MOVED, "t", 99))[16:]
            await stranger.send([(subject, message) for message in (forged, relabeled, b"", b"\xff" * 40)])
            await until(lambda: two.bus.figures.refused >= 4)
            other.bus.publish("t", 5)
            one.bus.publish("t", 6)
            await until(lambda: two.hints[1:] == [("t", 6, None)])
            assert other.hints == [("t", None, None)]
            await until(lambda: any(ours.open(message) is not None for message in overheard))
            (genuine,) = [message for message in overheard if ours.open(message) is not None]
            await stranger.send([(subject, genuine)])  # which is a hint that comes twice
            await until(lambda: two.hints[1:] == [("t", 6, None)] * 2)
        finally:
            await stranger.close()
            await other.bus.close()


async def test_wrong_settings_are_refused_with_the_fix() -> None:
    assert isinstance(make_bus("none", SECRET), NoBus)
    with pytest.raises(BusError, match="NATS"):
        make_bus("postgres", SECRET)
    assert (
        NatsCarrier("nats://ann:geheim@127.0.0.1:1, nats://127.0.0.1:2").name == "nats://127.0.0.1:1,nats://127.0.0.1:2"
    )
