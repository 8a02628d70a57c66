"""The courier before real receivers, with a real store: what arrives, in which order, and what becomes of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.model.operations import PushConfig
from dragoman.net.address import Guard
from dragoman.push.courier import CourierSettings
from dragoman.push.lanes import SLOTS
from dragoman.push.outcome import Schedule
from dragoman.store.open import open_store
from dragoman.store.outbox import Due, Lane, Outbox, Settled
from dragoman.telemetry.job_group import JobGroup
from tests.kit.waiting import no_hang
from tests.net.peer import listening, nobody, says
from tests.push.receiver import Receiver, receiving
from tests.push.rig import DEADLINE_S, FORM, QUICK, delivery, rig

NEVER_S = 1000.0
"""When the look comes that a test must not need."""


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with no_hang(), receiving() as receiver:
        yield receiver


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_a_call_is_a_post_of_the_body_with_its_headers(receiver: Receiver) -> None:
    async with rig() as it:
        url = receiver.url + "/hook?of=me"
        task = await it.task(url, token="t0ken")
        await it.owe(task, url, b'{"a": 1}', token="t0ken")
        await it.settled()
    (asked,) = receiver.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/hook?of=me", b'{"a": 1}')
    assert asked.headers["content-type"] == "application/a2a+json"
    assert asked.headers["webhook-id"].startswith("msg_")
    assert asked.headers["x-dragoman-seq"] == "1"
    assert asked.headers["user-agent"].startswith("dragoman/")
    assert asked.headers["authorization"] == "Bearer t0ken"
    assert it.counts.pushes == {"delivered": 1}


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_call_that_arrives_leaves_a_receipt_unless_none_is_kept(receiver: Receiver, keeps: bool) -> None:
    receiver.answers = lambda number: 503 if number == 0 else 201
    async with rig(settings=replace(QUICK, keeps_receipts=keeps)) as it:
        url = f"{receiver.url}/in/s3cret?key=s3cret"
        task = await it.task(url, token="s3cret")
        await it.owe(task, url, *numbered(3), token="s3cret")
        await it.settled()
        receipts = await it.store.receipts.page()
    assert [(each.attempts, each.status, each.url) for each in receipts] == [
        (failed, 201, f"{receiver.url}/in/…") for failed in (0, 0, 1) if keeps
    ]
    assert "s3cret" not in repr(receipts)


async def test_calls_of_a_configuration_come_in_order_one_at_a_time(receiver: Receiver) -> None:
    async with rig() as it:
        await it.deliver(receiver.url, *numbered(20))
    assert receiver.bodies == numbered(20)
    assert receiver.most == 1


class Overtaken:
    """The outbox of a store with several connections: a claim may be made before the outcomes that it follows."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._claimed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)

    async def claim(self, *asked: Any, with_behind: bool, **more: Any) -> tuple[Due, ...]:
        taken = await self._outbox.claim(*asked, **more)
        self._claimed.set()
        return taken

    def settle(self, settled: Settled) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._settle_late(settled))

    async def _settle_late(self, settled: Settled) -> None:
        self._claimed.clear()
        await self._claimed.wait()
        await self._outbox.settle(settled)


async def test_a_delivery_does_not_wait_for_a_look_when_a_claim_overtakes_the_outcome_before_it(
    receiver: Receiver,
) -> None:
    settings = replace(QUICK, look_s=NEVER_S, claim_s=NEVER_S)
    async with rig(settings=settings, around=Overtaken) as it:
        await it.deliver(receiver.url, *numbered(3))
    assert receiver.bodies == numbered(3)


async def test_order_holds_while_calls_fail(receiver: Receiver) -> None:
    receiver.answers = lambda number: 204 if number % 3 == 2 else 500
    async with rig() as it:
        await it.deliver(receiver.url, *numbered(5))
    assert receiver.bodies == [body for body in numbered(5) for _ in range(3)]
    assert it.counts.pushes == {"delivered": 5, "retry": 10}


async def test_every_attempt_has_the_same_id(receiver: Receiver) -> None:
    receiver.answers = lambda number: (500, 503, 204)[number]
    async with rig() as it:
        await it.deliver(receiver.url, b"x")
    assert len(receiver.asked) == 3
    assert len({asked.headers["webhook-id"] for asked in receiver.asked}) == 1


async def test_after_the_last_attempt_it_is_a_dead_letter_and_the_next_goes_out(receiver: Receiver) -> None:
    receiver.answers = lambda number: 500 if number < 3 else 204
    async with rig() as it:
        await it.deliver(receiver.url, b"first", b"second")
        (dead,) = await it.dead()
    assert receiver.bodies == [b"first", b"first", b"first", b"second"]
    assert (dead.reason, dead.attempts, dead.seq) == ("HTTP 500", 3, 1)
    assert it.counts.pushes == {"retry": 2, "dead": 1, "delivered": 1}


async def test_each_failed_attempt_is_in_the_log_with_its_host_its_cause_and_the_next(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = lambda number: (500, 503, 429)[number]
    async with rig() as it:
        task = await it.task(f"{receiver.url}/hook?of=me")
        await it.owe(task, f"{receiver.url}/hook?of=me", b"secret words", token="t0ken")
        await it.settled()
        (dead,) = await it.dead()
    failed = f"webhook call {dead.number} to {receiver.url} failed, attempt"
    assert [record.getMessage() for record in caplog.records] == [
        f"{failed} 1 of 3: HTTP 500; the next attempt is in 0 s",
        f"{failed} 2 of 3: HTTP 503; the next attempt is in 0 s",
        f"{failed} 3 of 3: HTTP 429; it is given up",
    ]
    assert {record.__dict__["subject"] for record in caplog.records} == {receiver.url}
    for secret in ("secret words", "t0ken", "of=me"):
        assert secret not in caplog.text


async def test_a_call_that_arrives_is_not_in_the_log(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as it:
        await it.deliver(receiver.url, b"x")
    assert caplog.text == ""


async def test_a_dead_letter_that_is_revived_elsewhere_goes_out_at_the_next_look(receiver: Receiver) -> None:
    receiver.answers = lambda number: 500 if number < 3 else 204
    async with rig() as it:
        await it.deliver(receiver.url, b"first")
        assert await it.store.outbox.revive(None, 0) == 1  # and nobody wakes the courier
        await receiver.came(4)
        await it.settled()
    assert len({asked.headers["webhook-id"] for asked in receiver.asked}) == 1


async def test_a_dead_letter_that_another_process_revives_goes_out_too(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = lambda number: 500 if number < 3 else 204
    url = f"sqlite:///{tmp_path}/store.db"
    async with rig(url=url) as it:
        await it.deliver(receiver.url, b"first")
        beside = open_store(url, SystemClock())
        await beside.open(None)
        assert await beside.outbox.revive(None, SystemClock().now_ms()) == 1
        await beside.close()
        await receiver.came(4)
        await it.settled()
    assert receiver.bodies == [b"first"] * 4


async def test_410_ends_the_configuration(receiver: Receiver) -> None:
    receiver.answers = lambda number: 410
    async with rig() as it:
        await it.deliver(receiver.url, *numbered(3))
        assert await it.dead() == ()
    assert receiver.bodies == [b"0"]
    assert it.counts.pushes == {"gone": 1}


async def test_retry_after_is_honoured(receiver: Receiver) -> None:
    receiver.answers = lambda number: (503, {"Retry-After": "3600"})
    async with rig() as it:
        task = await it.task(receiver.url)
        before_ms = int(datetime.now(UTC).timestamp() * 1000)
        await it.owe(task, receiver.url, b"x")
        await receiver.came(1)
        async with asyncio.timeout(DEADLINE_S):
            while not (owed := (await it.store.outbox.owed())[0]).attempts:
                await asyncio.sleep(0.005)
        assert owed.due_ms is not None
        assert owed.due_ms >= before_ms + 3_600_000
        assert owed.reason == "HTTP 503"


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    async with receiving() as other, rig() as it:
        receiver.answers = lambda number: (307, {"Location": other.url + "/"})
        await it.deliver(receiver.url, b"x")
        (dead,) = await it.dead()
        assert other.asked == []
    assert dead.reason == "HTTP 307: redirects are not followed"


async def test_a_receiver_that_keeps_silent_is_given_up_on_after_its_time(receiver: Receiver) -> None:
    receiver.hold.clear()
    settings = CourierSettings(schedule=Schedule(()), attempt_s=0.5, look_s=0.05)
    async with rig(settings=settings) as it:
        await it.deliver(receiver.url, b"x")
        (dead,) = await it.dead()
        assert dead.reason == "no answer within 0.5 s"
        receiver.hold.set()


async def test_an_answer_without_end_is_a_receipt_all_the_same() -> None:
    async with asyncio.timeout(DEADLINE_S), listening() as peer, rig() as it:
        peer.scripts["POST /large"] = says(b"x" * 5_000_000)
        task = await it.task(peer.url + "/large")
        await it.owe(task, peer.url + "/large", b"x")
        await it.settled()
        assert it.counts.pushes == {"delivered": 1}


async def test_an_address_that_is_not_public_is_refused_where_it_is_dialled(receiver: Receiver) -> None:
    async with rig(guard=Guard()) as it:
        await it.deliver(receiver.url, b"x")
        (dead,) = await it.dead()
    assert dead.reason == "address refused"
    assert receiver.asked == []


async def test_a_host_that_the_operator_named_is_called_whatever_its_address(receiver: Receiver) -> None:
    async with rig(guard=Guard(("127.0.0.1",))) as it:
        await it.deliver(receiver.url, b"x")
    assert receiver.bodies == [b"x"]


class TurningResolver:
    """DNS that says another address the second time."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)

    async def addresses(self, host: str) -> list[str]:
        return [self._addresses.pop(0) if len(self._addresses) > 1 else self._addresses[0]]

    async def close(self) -> None:
        pass


async def test_a_name_that_turns_to_another_address_is_refused(receiver: Receiver) -> None:
    port = receiver.url.rpartition(":")[2]
    resolver = TurningResolver("127.0.0.1", "127.0.0.2")
    receiver.answers = lambda number: (204, {"Connection": "close"})
    async with rig(guard=Guard((), ("127.0.0.1/32",)), resolver=resolver) as it:  # type: ignore[arg-type]
        url = f"http://rebinding.example:{port}/"
        task = await it.task(url)
        await it.owe(task, url, b"first", b"second")
        await it.settled()
        (dead,) = await it.dead()
    assert receiver.bodies == [b"first"]
    assert dead.reason == "address refused"


async def test_a_slow_host_does_not_delay_another(receiver: Receiver) -> None:
    async with receiving() as slow, rig(settings=replace(QUICK, attempt_s=3 * DEADLINE_S)) as it:
        slow.hold.clear()
        tasks = [await it.task(slow.url) for _ in range(300)]  # more than there are slots
        for task in tasks:
            await it.owe(task, slow.url, b"x")
        await slow.came(1)
        task = await it.task(receiver.url)
        await it.owe(task, receiver.url, *numbered(50))
        await receiver.came(50)  # while nothing of the slow one's has been answered
        assert slow.open == slow.most == len(slow.asked) == 1
        slow.hold.set()
        await it.settled()
        assert len(slow.asked) == 300


async def test_dead_hosts_do_not_delay_one_that_lives(receiver: Receiver) -> None:
    settings = CourierSettings(schedule=Schedule((0.001,) * 1000, jitter=0), attempt_s=5.0, look_s=0.05)
    async with rig(settings=settings) as it:
        for _ in range(100):
            url = await nobody()
            await it.owe(await it.task(url), url, b"x")
        await it.until(lambda waiting, dead: it.counts.pushes.get("retry", 0) > 200)
        task, failed = await it.task(receiver.url), it.counts.pushes["retry"]
        await it.owe(task, receiver.url, *numbered(20))
        await receiver.came(20)
        assert it.counts.pushes["retry"] - failed < 20 * 100  # by turns it would be all of them each time


async def test_a_new_host_does_not_wait_for_new_hosts_that_keep_silent(receiver: Receiver) -> None:
    async with receiving("0.0.0.0") as silent, rig() as it:
        silent.hold.clear()
        port = silent.url.rpartition(":")[2]
        for number in range(1, SLOTS[Lane.UNKNOWN] + 1):  # as many as there are slots, each a host of its own
            url = f"http://127.0.1.{number}:{port}/"
            await it.owe(await it.task(url), url, b"x")
        await silent.came(SLOTS[Lane.UNKNOWN])
        await it.owe(await it.task(receiver.url), receiver.url, b"y")
        await receiver.came(1)
        assert silent.open == SLOTS[Lane.UNKNOWN]
        silent.hold.set()
        await it.settled()


async def test_a_quick_host_gets_many_at_a_time_and_a_new_one_few(receiver: Receiver) -> None:
    async with rig() as it:
        tasks = [await it.task(receiver.url, id="c") for _ in range(200)]
        receiver.hold.clear()
        for task in tasks:
            await it.owe(task, receiver.url, b"x")
        await receiver.came(1)
        assert receiver.most == 1  # it has not answered yet
        receiver.hold.set()
        await it.settled()
        receiver.hold.clear()
        for task in tasks:
            await it.owe(task, receiver.url, b"y")
        await receiver.came(200 + 61)
        receiver.hold.set()
        await it.settled()
    assert 61 <= receiver.most <= 64


async def test_what_was_in_flight_when_the_process_before_ended_goes_out_again(receiver: Receiver) -> None:
    async with rig(started=False) as it:
        task = await it.task(receiver.url)
        await it.owe(task, receiver.url, b"x")
        for lane in Lane:
            await it.store.outbox.claim(lane, 2**50, 2**51, 10, 10)
        async with asyncio.TaskGroup() as tasks:
            it.courier.start(JobGroup(tasks))
            await it.settled()
            await it.courier.drain(DEADLINE_S)
    assert receiver.bodies == [b"x"]


class Rewinding:
    """An outbox that may go back to an earlier moment: see `Outbox.rewinds`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.rewinds = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)


async def test_a_call_whose_outcome_the_store_has_lost_goes_out_again_and_none_that_is_under_way(
    receiver: Receiver,
) -> None:
    made: list[Rewinding] = []

    def rewinding(outbox: Outbox) -> Rewinding:
        made.append(Rewinding(outbox))
        return made[0]

    async with receiving() as slow, rig(around=rewinding) as it:
        under_way, lost = await it.task(slow.url), await it.task(receiver.url)
        slow.hold.clear()
        await it.owe(under_way, slow.url, b"under way")
        await slow.came(1)
        await it.webhook(lost, receiver.url, [delivery(b"lost")])
        for lane in Lane:  # in the turn in which it is owed, so that the courier does not know of this claim
            await it.store.outbox.claim(lane, 2**50, 2**51, 10, 10)
        await asyncio.sleep(3 * QUICK.look_s)
        assert receiver.bodies == []
        (outbox,) = made
        outbox.rewinds += 1
        await receiver.came(1)
        slow.hold.set()
        await it.settled()
        assert (slow.bodies, receiver.bodies) == ([b"under way"], [b"lost"])


async def test_calls_under_way_end_before_the_courier_does(receiver: Receiver) -> None:
    async with rig() as it:
        task = await it.task(receiver.url)
        receiver.hold.clear()
        await it.owe(task, receiver.url, b"x", b"y")
        await receiver.came(1)
        draining = asyncio.create_task(it.courier.drain(DEADLINE_S))
        await asyncio.sleep(0)
        assert not draining.done()
        receiver.hold.set()
        await draining
        assert await it.store.outbox.owed_count() == (1, 0)
    assert receiver.bodies == [b"x"]


async def test_calls_that_outlast_the_grace_and_those_that_wait_for_their_host_are_due_at_once(
    receiver: Receiver,
) -> None:
    receiver.hold.clear()
    async with rig() as it:
        tasks = [await it.task(receiver.url) for _ in range(8)]
        for task in tasks:
            await it.owe(task, receiver.url, b"x")
        await receiver.came(1)
        await it.courier.drain(0.0)
        assert await it.store.outbox.owed_count() == (8, 0)
        now_ms = it.store.clock.now_ms()
        due = [due for lane in Lane for due in await it.store.outbox.claim(lane, now_ms, now_ms + 1, 20, 20)]
        assert sorted(each.task_id for each in due) == sorted(tasks)
    receiver.hold.set()
    assert it.counts.pushes == {}


async def test_a_dialect_that_is_not_spoken_here_makes_a_dead_letter(receiver: Receiver) -> None:
    async with rig() as it:
        task = await it.task(receiver.url, dialect="9.9")
        await it.owe(task, receiver.url, b"x", dialect="9.9")
        await it.settled()
        (dead,) = await it.dead()
    assert dead.reason == "its dialect is not spoken here"


async def test_a_configuration_that_breaks_its_dialect_makes_a_dead_letter_and_ends_nothing(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(config: PushConfig) -> list[tuple[str, str]]:
        raise RuntimeError(f"with {config.token}")

    async with rig(forms={"x": replace(FORM, authorization=broken)}) as it:
        task = await it.task(receiver.url, dialect="x", token="t0ken")
        await it.owe(task, receiver.url, b"x", dialect="x", token="t0ken")
        await it.settled()
        (dead,) = await it.dead()
        await it.owe(await it.task(receiver.url), receiver.url, b"y")
        await it.settled()
    assert (dead.attempts, dead.reason) == (3, "a fault in this server: see its log")
    assert receiver.bodies == [b"y"]
    assert "t0ken" not in caplog.text


async def test_a_fault_after_the_answer_costs_one_attempt_and_ends_nothing(receiver: Receiver) -> None:
    faults = [RuntimeError]

    def chance() -> float:
        if faults:
            raise faults.pop()
        return 0.5

    receiver.answers = lambda number: 500 if number == 0 else 204
    async with rig(chance=chance) as it:
        await it.owe(await it.task(receiver.url), receiver.url, b"x")
        await it.settled()
    assert receiver.bodies == [b"x", b"x"]


async def test_nothing_is_asked_of_the_store_while_nothing_is_owed(receiver: Receiver) -> None:
    settings = CourierSettings(look_s=3600)
    async with rig(settings=settings) as it:
        await it.deliver(receiver.url, b"x")
        writes, still = it.store.writing.writes, 0
        while still < 20:  # what the end of the call asked for
            await asyncio.sleep(0.01)
            writes, still = (it.store.writing.writes, still + 1 if it.store.writing.writes == writes else 0)
        await asyncio.sleep(0.5)
        assert it.store.writing.writes - writes <= len(Lane)


async def test_waiting_and_dead_are_counted_at_every_look(receiver: Receiver) -> None:
    receiver.answers = lambda number: 404
    async with rig() as it:
        await it.deliver(receiver.url, b"x")
        async with asyncio.timeout(DEADLINE_S):
            while it.counts.pushes_dead != 1:
                await asyncio.sleep(0.005)
        assert it.counts.pushes_waiting == 0


async def test_many_tasks_of_many_hosts_each_get_theirs_once_and_in_order() -> None:
    often = replace(QUICK, schedule=Schedule((0.01,) * 20, jitter=0.0))
    async with asyncio.timeout(DEADLINE_S), receiving() as one, receiving() as two, rig(settings=often) as it:
        one.answers = lambda number: 500 if number % 7 == 0 else 204
        for number in range(40):
            receiver = (one, two)[number % 2]
            task = await it.task(receiver.url)
            deliveries = [delivery(b"%d %d" % (number, seq), seq) for seq in range(5)]
            await it.webhook(task, receiver.url, deliveries)
            it.courier.wake()
        await it.settled()
        assert await it.dead() == ()
        seen = Counter(body for receiver in (one, two) for body in receiver.bodies)
        assert len(seen) == 200
        for receiver in (one, two):
            for number in range(40):
                mine = [body for body in dict.fromkeys(receiver.bodies) if body.startswith(b"%d " % number)]
                assert mine == sorted(mine)
