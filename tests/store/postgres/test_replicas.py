"""Replicas of one database: who beats stays alive, who does not is dead for good, and knows it first."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import AGENT_ABSENT_S, StoreError
from dragoman.store.open import open_store
from dragoman.store.outbox import Lane
from dragoman.store.postgres.database.address import Address, parse_address
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.replicas import DatabaseClock, Heart, SharedReplicas
from dragoman.store.replicas import Heartbeat, ReplicaBuried, ReplicaFenced
from tests.kit.places import beside
from tests.kit.waiting import until
from tests.postgres import PostgresServer
from tests.store.cases.bench import new_task
from tests.store.cases.deliveries import telling, webhook
from tests.store.postgres.database import connected

PATIENCE_S = 60

QUICK = Heartbeat(lease_s=1.5, beat_s=0.3)
STEADY = Heartbeat(lease_s=600, beat_s=200)
"""Its beats come too rarely for a test to see the second one."""

PASS = """
WITH dead AS (
    UPDATE dragoman.replicas
    SET beats_until = beats_until - make_interval(secs => $1), started = started - make_interval(secs => $1)
    WHERE id IN ('stopped', 'killed')
), alive AS (
    UPDATE dragoman.replicas SET started = started - make_interval(secs => $1) WHERE id NOT IN ('stopped', 'killed')
)
UPDATE dragoman.agents_seen SET seen = seen - make_interval(secs => $1)
"""
"""Lets time pass: two replicas have been dead for longer, and the others alive."""


@asynccontextmanager
async def replicas(
    address: Address, heartbeat: Heartbeat = STEADY, clock: DatabaseClock | None = None
) -> AsyncIterator[SharedReplicas]:
    """The replicas of one process."""
    pool = await open_pool(address)
    opened = SharedReplicas(lambda: pool, address, clock or SystemClock(), heartbeat, pool.history)
    try:
        yield opened
    finally:
        await opened.close()
        await pool.close()


class Fences:
    """The events that a process got about its replicas, and when it lost each."""

    def __init__(self, of: SharedReplicas) -> None:
        self.lost: list[str] = []
        self.lost_s: list[float] = []
        self.back: list[str] = []
        self._reading = asyncio.create_task(self._read(of))

    async def _read(self, of: SharedReplicas) -> None:
        while True:
            match await of.next_event():
                case ReplicaFenced(replica_id):
                    self.lost.append(replica_id)
                    self.lost_s.append(time.monotonic())
                case ReplicaBuried(replica_id):
                    self.back.append(replica_id)


async def test_replicas_of_several_processes_see_each_other_until_they_leave(used_postgres_url: str) -> None:
    address = parse_address(used_postgres_url)
    async with replicas(address) as mine:
        await mine.join("one", address="http://one", agents=("b", "a"))
        async with replicas(address) as theirs:
            await theirs.join("two", address="", agents=())
            assert [one.id for one in await mine.all()] == ["one", "two"]
            (one, _) = await theirs.all()
            assert (one.address, one.agents) == ("http://one", ("a", "b"))
            assert one.beats_until_ms is not None
            assert one.beats_until_ms - one.started_ms >= 599_999
            assert await mine.alive("two")
        assert not await mine.alive("two"), "a process that closes takes its replicas with it"
        with pytest.raises(StoreError, match="may not join again"):
            await mine.join("two", address="", agents=())


async def test_a_replica_beats_while_the_loop_of_its_process_is_busy(
    postgres_server: PostgresServer, used_postgres_url: str
) -> None:
    address = parse_address(used_postgres_url)
    until = "SELECT extract(epoch FROM beats_until)::float8 FROM dragoman.replicas WHERE NOT dead"
    async with replicas(address, QUICK) as mine:
        fences = Fences(mine)
        await mine.join("one", address="", agents=())
        ((first,),) = postgres_server.execute(until, database=address.database)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:  # nothing else runs on the loop meanwhile
            rows = postgres_server.execute(until, database=address.database)
            if rows and float(str(rows[0][0])) > float(str(first)) + 2 * QUICK.lease_s:
                break
        assert await mine.alive("one")
        await asyncio.sleep(0.01)
        assert fences.lost == []


async def test_a_replica_that_was_declared_dead_hears_of_it_and_may_begin_anew(
    postgres_server: PostgresServer, used_postgres_url: str
) -> None:
    address = parse_address(used_postgres_url)
    async with replicas(address, QUICK) as mine:
        fences = Fences(mine)
        await mine.join("one", address="", agents=())
        postgres_server.execute("UPDATE dragoman.replicas SET dead = true", database=address.database)
        await until(lambda: fences.back == ["one"])
        assert fences.lost == ["one"]
        await mine.join("other", address="", agents=())
        assert [one.id for one in await mine.all()] == ["other"]


async def test_a_heartbeat_that_ran_out_is_not_renewed(postgres_server: PostgresServer, used_postgres_url: str) -> None:
    address = parse_address(used_postgres_url)
    async with replicas(address, QUICK) as mine:
        fences = Fences(mine)
        await mine.join("one", address="", agents=())
        past = "UPDATE dragoman.replicas SET beats_until = clock_timestamp() - interval '1 ms'"
        postgres_server.execute(past, database=address.database)
        await until(lambda: fences.lost == ["one"])
        assert not await mine.alive("one")


async def test_a_replica_without_its_database_gives_up_before_its_lease_ends_and_buries_itself() -> None:
    with PostgresServer() as server:
        address = parse_address(server.url())
        async with replicas(address, QUICK) as mine:
            fences = Fences(mine)
            joined_s = time.monotonic()
            await mine.join("one", address="", agents=())
            server.stop(signal.SIGQUIT)
            stopped_s = time.monotonic()
            await until(lambda: fences.lost == ["one"])
            assert joined_s + QUICK.lease_s * 0.9 <= fences.lost_s[0]
            age = mine.beat_age_s
            assert age is not None
            assert time.monotonic() - age <= stopped_s, "no beat was answered since"
            assert fences.back == []
            with pytest.raises(StoreError):
                await mine.join("other", address="", agents=())
            server.start()
            await until(lambda: fences.back == ["one"])
            assert not await mine.alive("one")
            await mine.join("other", address="", agents=())
            assert [one.id for one in await mine.all()] == ["other"]


async def test_only_the_silent_are_buried_and_nobody_whose_beat_is_under_way(
    postgres_server: PostgresServer, used_postgres_url: str
) -> None:
    address = parse_address(used_postgres_url)
    async with replicas(address) as mine:
        for name in ("alive", "silent", "late"):
            await mine.join(name, address="", agents=())
        pool = await open_pool(address)
        past = "UPDATE dragoman.replicas SET beats_until = clock_timestamp() WHERE id = ANY ($1)"
        await pool.write(past, ["silent", "late"])
        async with pool.transaction() as renewal:
            await renewal.execute(
                "UPDATE dragoman.replicas SET beats_until = clock_timestamp() + interval '1 min' WHERE id = 'late'"
            )
            await mine.bury()
        await mine.bury()
        dead = await pool.read("SELECT id FROM dragoman.replicas WHERE dead")
        assert dead == [("silent",)]
        assert {one.id: one.silent for one in await mine.all()} == {"alive": False, "late": True}
        await pool.write("UPDATE dragoman.replicas SET beats_until = clock_timestamp() - interval '25 h' WHERE dead")
        await mine.bury()
        assert await pool.read("SELECT id FROM dragoman.replicas WHERE dead") == []
        await pool.close()


async def test_the_time_of_the_store_is_that_of_the_database(used_postgres_url: str) -> None:
    clock = DatabaseClock()
    wrong_ms = clock.now_ms() + 3_600_000.0
    clock.measured(wrong_ms, time.monotonic(), time.monotonic())
    async with replicas(parse_address(used_postgres_url), QUICK, clock) as mine:
        await mine.join("one", address="", agents=())
        assert abs(clock.now_ms() - time.time() * 1000) < 5_000, "from the first moment on"
        clock.measured(wrong_ms, time.monotonic(), time.monotonic())
        await until(lambda: abs(clock.now_ms() - time.time() * 1000) < 5_000)


def test_a_clock_moves_no_further_than_a_measurement_demands() -> None:
    clock = DatabaseClock()
    now_s = time.monotonic()
    clock.measured(1_000_000.0, now_s, now_s)
    clock.measured(1_000_150.0, now_s - 0.1, now_s + 0.2)
    assert clock.now_ms() - 1_000_000 <= (time.monotonic() - now_s) * 1000, "the doubt covers it"
    clock.measured(1_000_500.0, now_s - 0.1, now_s + 0.2)
    assert clock.now_ms() >= 1_000_300


def test_a_beat_longer_than_a_third_of_the_lease_is_refused() -> None:
    assert Heartbeat(lease_s=3, beat_s=1) is not None
    with pytest.raises(ValueError, match="more than a third"):
        Heartbeat(lease_s=3, beat_s=1.01)


async def test_closing_ends_the_thread_even_if_the_database_does_not_answer() -> None:
    with PostgresServer() as server:
        address = parse_address(f"{server.url()}?timeout_s=1&connect_s=1")
        async with replicas(address, QUICK) as mine:
            await mine.join("one", address="", agents=())
            assert any(thread.name == "store-heart" for thread in threading.enumerate())
            server.stop()
        assert not any(thread.name == "store-heart" for thread in threading.enumerate())


async def test_no_error_of_this_program_ends_the_heartbeats(
    postgres_server: PostgresServer, used_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the thread, the process would be fenced for ever."""
    address = parse_address(used_postgres_url)
    postgres_server.execute("CREATE TABLE odd (renewed text[], now float8)", "SELECT 1", database=address.database)
    beat = "SELECT * FROM odd WHERE $1::text[] IS NOT NULL AND $2::float8 > 0 AND $3::text[] IS NOT NULL"
    heart = Heart(address, QUICK, beat, lambda: None)
    try:
        await until(lambda: "error of this program" in caplog.text)  # a beat has no answer
        postgres_server.execute("INSERT INTO odd VALUES ('{}', 1)", "SELECT 1", database=address.database)
        await until(lambda: bool(heart.answers))
    finally:
        await heart.end()


async def test_a_process_that_begins_anew_counts_and_claims_under_its_new_id(used_postgres_url: str) -> None:
    store = open_store(used_postgres_url, SystemClock())
    await store.open("one")
    pool = await open_pool(parse_address(used_postgres_url))
    try:
        await store.replicas.join("one", address="", agents=())
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        await store.replicas.leave("one")
        assert await store.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1) == ()
        await store.replicas.join("two", address="", agents=())
        await store.create(new_task("t2"))
        assert len(await store.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)) == 1
        counted = await pool.read("SELECT replica, n1 FROM dragoman.counts ORDER BY replica")
        assert [tuple(row) for row in counted] == [("one", 1), ("two", 1)]
    finally:
        await pool.close()
        await store.close()


async def test_tasks_wait_for_a_replica_of_their_agent(used_postgres_url: str) -> None:
    """Replicas with different agents may restart at the same moment: the first to start fails no task of the others."""
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        await store.replicas.join("h1", address="", agents=("echo",))
        for holder, agent in (("stopped", "other"), ("killed", "third")):
            await store.replicas.join(holder, address="", agents=(agent,))
            await store.create(new_task(agent, agent=agent, holder=holder, at=1))
        await store.create(new_task("nobody's", agent="fourth", holder=None, at=1))
        await store.replicas.serve("stopped", ())  # it drains
        await store.replicas.leave("stopped")
        await connection.execute("UPDATE dragoman.replicas SET beats_until = clock_timestamp() WHERE id = 'killed'")
        for seconds in (0.0, AGENT_ABSENT_S - 60):
            await connection.execute(PASS, seconds)
            assert await store.claim("h1", 10, None) == ()
        await store.replicas.join("killed again", address="", agents=("third",))
        await connection.execute(PASS, 90.0)
        assert [stored.head.id for stored in await store.claim("h1", 10, None)] == ["other", "nobody's"]
        assert [stored.head.id for stored in await store.claim("killed again", 10, ("third",))] == ["third"]


async def test_a_task_waits_for_its_agent_from_when_it_could_run(used_postgres_url: str) -> None:
    async with beside(used_postgres_url, "h1") as store, connected(used_postgres_url) as connection:
        await store.replicas.join("h1", address="", agents=("echo",))
        await store.create(new_task("new", agent="other", holder=None, at=store.clock.now_ms()))
        await store.create(new_task("old", agent="other", holder=None, at=1))
        assert await store.claim("h1", 10, None, absent_s=60) == (), "no replica has been there for a minute"
        await connection.execute(PASS, 90.0)
        assert [stored.head.id for stored in await store.claim("h1", 10, None, absent_s=60)] == ["old"]
        await store.replicas.serve("h1", ("echo", "other"))
        await store.replicas.serve("h1", ("echo",))  # a reload has taken the agent away
        assert await store.claim("h1", 10, None, absent_s=1) == ()
