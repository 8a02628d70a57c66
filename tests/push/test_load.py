"""The courier under load: large bodies, long queues, and what others do to the outbox while it delivers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.push.lanes import LARGE_BYTES_MAX
from dragoman.store.api import StoreError, StoreFull
from dragoman.store.open import open_store
from dragoman.store.outbox import Due, Lane, Outbox
from dragoman.telemetry.job_group import JobGroup
from tests.kit.waiting import no_hang
from tests.push.receiver import Receiver, receiving
from tests.push.rig import DEADLINE_S, FORM, QUICK, delivery, rig

MB = 1 << 20

PATIENT = replace(QUICK, attempt_s=DEADLINE_S, first_s=DEADLINE_S)
"""Silent hosts are waited for, however long a busy machine takes to fill the memory with calls to them."""


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with no_hang(), receiving() as receiver:
        yield receiver


def pieces(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def test_large_bodies_to_silent_hosts_take_bounded_memory_and_keep_no_small_one_waiting(
    receiver: Receiver,
) -> None:
    room = LARGE_BYTES_MAX[Lane.UNKNOWN] // MB
    async with receiving("0.0.0.0") as silent, rig(settings=PATIENT) as it:
        silent.hold.clear()
        port = silent.url.rpartition(":")[2]
        for number in range(1, 2 * room + 1):
            url = f"http://127.0.1.{number}:{port}/"
            await it.owe(await it.task(url), url, bytes(MB))
        await silent.came(room)
        await it.owe(await it.task(receiver.url), receiver.url, *pieces(20))
        await receiver.came(20)
        assert silent.open == len(silent.asked) == room
        writes = it.store.writing.writes
        await asyncio.sleep(0.3)  # while nothing can go on, and a look is due every 50 ms
        assert it.store.writing.writes - writes < 40
        silent.hold.set()
        await it.settled()
        assert len(silent.asked) == 2 * room


async def test_a_body_larger_than_all_the_memory_there_is_goes_alone(receiver: Receiver) -> None:
    huge = LARGE_BYTES_MAX[Lane.UNKNOWN] + 1
    async with receiving("0.0.0.0") as slow, rig(settings=PATIENT) as it:
        slow.hold.clear()
        port = slow.url.rpartition(":")[2]
        for number, size in enumerate((MB, huge, MB), 1):
            url = f"http://127.0.1.{number}:{port}/"
            await it.owe(await it.task(url), url, bytes(size))
            if number == 1:
                await slow.came(1)
        await it.owe(await it.task(receiver.url), receiver.url, b"small")
        await receiver.came(1)
        assert len(slow.asked) == 1, "what follows the huge one does not pass it"
        slow.hold.set()
        await it.settled()
        assert [len(body) for body in slow.bodies] == [MB, huge, MB]


async def test_of_one_configuration_the_next_goes_out_with_the_note_of_the_last(receiver: Receiver) -> None:
    async with rig() as it:
        task = await it.task(receiver.url)
        await it.owe(task, receiver.url, *pieces(20))
        await it.settled()
        before = it.store.writing.writes
        await it.owe(task, receiver.url, *pieces(200, 20))
        await it.settled()
        assert it.store.writing.writes - before < 200 * 1.3, "not also a claim for each"
    assert receiver.bodies == pieces(220)
    assert receiver.most == 1
    assert it.counts.pushes == {"delivered": 220}


async def test_configurations_of_one_host_go_on_side_by_side(receiver: Receiver) -> None:
    async with rig() as it:
        tasks = [await it.task(receiver.url) for _ in range(12)]  # three times as many as are begun with
        for number, task in enumerate(tasks):
            await it.owe(task, receiver.url, *[b"%d %d" % (number, piece) for piece in range(30)])
        await it.settled()
    assert len(receiver.bodies) == 360
    for number in range(12):
        mine = [place for place, body in enumerate(receiver.bodies) if body.startswith(b"%d " % number)]
        assert [receiver.bodies[place] for place in mine] == [b"%d %d" % (number, piece) for piece in range(30)]
        assert mine[0] < 300, "none waits until the others are through"


async def test_a_configuration_that_cannot_be_read_costs_its_own_calls_alone(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with rig(url=f"sqlite:///{tmp_path}/store.db", started=False) as it:
        broken, whole = await it.task(receiver.url), await it.task(receiver.url)
        await it.owe(broken, receiver.url, b"x", b"y")
        connection = apsw.Connection(str(tmp_path / "store.db"))
        connection.execute("UPDATE push_configs SET settings = x'ff00'")
        connection.close()
        await it.owe(whole, receiver.url, *pieces(3))
        async with asyncio.TaskGroup() as tasks:
            it.courier.start(JobGroup(tasks))
            await it.settled()
            await it.courier.drain(DEADLINE_S)
        dead = await it.dead()
        assert await it.store.outbox.configs(broken) == ()
        assert await it.store.load(broken) is not None
    assert receiver.bodies == pieces(3)
    assert [(one.task_id, one.reason, one.url) for one in dead] == [
        (broken, "its configuration cannot be read", "")
    ] * 2


async def test_what_was_owed_before_another_dialect_took_over_is_sent_as_what_it_is(receiver: Receiver) -> None:
    older = replace(FORM, content_type="text/older")
    async with rig(forms={"older": older}) as it:
        receiver.hold.clear()
        task = await it.task(receiver.url, dialect="older")
        told = [delivery(b"a", 1, dialect="older"), delivery(b"b", 2, dialect="older")]
        await it.webhook(task, receiver.url, told, dialect="older", token="first")
        it.courier.wake()
        await receiver.came(1)
        await it.webhook(task, receiver.url, [delivery(b"c", 3, dialect="1.0")], token="second")
        receiver.hold.set()
        await it.settled()
    sent = [(one.body, one.headers["content-type"], one.headers["authorization"]) for one in receiver.asked]
    assert sent == [
        (b"a", "text/older", "Bearer first"),
        (b"b", "text/older", "Bearer second"),
        (b"c", "application/a2a+json", "Bearer second"),
    ]


async def test_ten_thousand_that_are_owed_when_the_server_starts_arrive_once_and_in_order(
    receiver: Receiver, tmp_path: Path
) -> None:
    tasks, each = 500, 20
    async with rig(url=f"sqlite:///{tmp_path}/store.db", started=False) as it:
        names = [await it.task(receiver.url) for _ in range(tasks)]
        registrations = [
            it.webhook(name, receiver.url, [delivery(b"%d %d" % (number, piece), piece) for piece in range(each)])
            for number, name in enumerate(names)
        ]
        await asyncio.gather(*registrations)
        async with asyncio.TaskGroup() as group:
            it.courier.start(JobGroup(group))
            await it.settled()
            await it.courier.drain(DEADLINE_S)
    assert len(receiver.bodies) == tasks * each
    seen = [0] * tasks
    for body in receiver.bodies:
        number, piece = map(int, body.split())
        assert piece == seen[number]
        seen[number] += 1


async def test_a_configuration_that_is_deleted_while_it_is_called_is_called_no_more(receiver: Receiver) -> None:
    async with rig() as it:
        task, other = await it.task(receiver.url), await it.task(receiver.url)
        await it.owe(task, receiver.url, b"warm")
        await it.settled()
        receiver.hold.clear()
        await it.owe(task, receiver.url, *pieces(5))
        await receiver.came(2)
        assert await it.store.outbox.remove(task, "c")
        receiver.hold.set()
        await it.owe(other, receiver.url, b"other")
        await receiver.came(3)
        await it.settled()
        assert await it.dead() == ()
    assert receiver.bodies == [b"warm", b"0", b"other"]


async def test_another_process_may_retry_and_drop_while_the_courier_delivers(
    receiver: Receiver, tmp_path: Path
) -> None:
    well = asyncio.Event()
    receiver.answers = lambda number: 204 if well.is_set() or not receiver.bodies[number].startswith(b"bad") else 500
    url, clock = f"sqlite:///{tmp_path}/store.db", SystemClock()
    async with rig(url=url) as it:
        tasks = [await it.task(receiver.url) for _ in range(8)]
        beside = open_store(url, clock)
        await beside.open(None)
        try:
            revived = dropped = 0
            for turn in range(5):
                for number, task in enumerate(tasks):
                    await it.owe(task, receiver.url, b"bad %d %d" % (number, turn), b"%d %d" % (number, turn))
                await it.until(lambda waiting, dead: dead > 4)
                letters = [one.number for one in await beside.outbox.owed(dead=True)]
                revived += await beside.outbox.revive(letters[::2], clock.now_ms())
                dropped += await beside.outbox.drop(letters[1::2])
            await it.settled()
            well.set()
            revived += await beside.outbox.revive(None, clock.now_ms())
            await it.settled()
            assert await it.dead() == ()
        finally:
            await beside.close()
    assert (revived > 0, dropped > 0) == (True, True)
    good = [body for body in receiver.bodies if not body.startswith(b"bad")]
    assert sorted(good) == sorted({b"%d %d" % (number, turn) for number in range(8) for turn in range(5)})
    assert it.counts.pushes["delivered"] + dropped == 80


class FullDisk:
    """The outbox of a store that cannot note what became of a call while its disk is `full`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.full = False
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)

    def settle(self, *given: Any) -> "asyncio.Future[Due | None]":
        if not self.full:
            return self._outbox.settle(*given)
        self.failed += 1
        failed: asyncio.Future[Due | None] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreFull("no space"))
        return failed


class Unread:
    """The outbox of a store that cannot be read beside its claims."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)

    def owes(self, due: Due) -> bool:
        self.asked += 1
        raise StoreError("the disk does not answer")


async def test_a_store_that_cannot_be_read_costs_a_claim_each_and_no_call(receiver: Receiver) -> None:
    outboxes: list[Unread] = []

    def around(outbox: Outbox) -> Unread:
        outboxes.append(Unread(outbox))
        return outboxes[0]

    async with rig(around=around) as it:
        task = await it.task(receiver.url)
        await it.owe(task, receiver.url, b"warm")
        await it.settled()
        await it.owe(task, receiver.url, *pieces(3))
        await it.settled()
        assert outboxes[0].asked
    assert receiver.bodies == [b"warm", b"0", b"1", b"2"]


async def test_what_could_not_be_written_for_want_of_space_is_written_later_and_called_once(
    receiver: Receiver,
) -> None:
    disks: list[FullDisk] = []

    def around(outbox: Outbox) -> FullDisk:
        disks.append(FullDisk(outbox))
        return disks[0]

    async with rig(around=around) as it:
        (disk,) = disks
        task = await it.task(receiver.url)
        await it.owe(task, receiver.url, b"warm")
        await it.settled()
        disk.full = True
        await it.owe(task, receiver.url, *pieces(3))
        async with asyncio.timeout(DEADLINE_S):
            while disk.failed < 3:
                await asyncio.sleep(0.01)
        assert receiver.bodies == [b"warm", b"0", b"1", b"2"]
        disk.full = False
        await it.settled()
    assert receiver.bodies == [b"warm", b"0", b"1", b"2"]
