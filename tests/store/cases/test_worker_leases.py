"""Leases of workers: who has a task, for how long, and what is written under a lease, or not any more.

Invariant: a case uses nothing but the Store protocol, and knows no more of its clock than that it does not go back.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.task import TaskState, Usage
from dragoman.store.api import Append, Appended, Fenced, Moved, Store, Stored, TaskEnded, Unknown
from dragoman.store.worker_leases import WORKER, DueLeases, WorkerLease, WorkerLeaseChange
from tests.store.cases.bench import (
    AGENTS,
    START_MS,
    Bench,
    ending,
    loaded,
    new_task,
    refused,
    status,
)
from tests.store.cases.spoiling import cut
from tests.store.cases.worker_leases import LONG_MS, Q, S, W, answered, granting, lease_of, leased, single, told

SOON_MS = 50


def silenced(stored: Stored, lease: WorkerLease) -> Append:
    """The lease of a worker ends that has been silent."""
    return Append(
        task_id=stored.head.id,
        events=(status(W),),
        state=W,
        status_ms=START_MS,
        expected_seq=stored.seq,
        release=True,
        lease=WorkerLeaseChange(lease, silent=True),
    )


async def silence(store: Store) -> None:
    """Wait until a lease has run out."""
    async with asyncio.timeout(60):
        while not (await store.worker_leases.due(10)).silent:
            await asyncio.sleep(SOON_MS / 1000)


async def test_a_task_that_a_worker_takes_during_the_first_claim_is_not_taken_away(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", holder=None, state=S))
        taking = granting(await loaded(store, "t1"), lease_of())
        claim = asyncio.ensure_future(store.claim("h1", 10, AGENTS, queued=False))
        await asyncio.sleep(0)
        await store.append(taking)
        assert await claim == ()
        assert (await loaded(store, "t1")).holder == WORKER


async def test_a_worker_takes_what_nobody_has_and_the_lease_is_read_as_it_was_granted(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t2", holder=None, state=S))
        await store.create(new_task("t1", holder=None, state=S))
        await store.create(new_task("mine", holder="h1"))
        await store.create(new_task("asks", holder=None, state=Q))
        assert await store.queued("echo", 10) == ("t2", "t1")
        assert await store.queued("echo", 1) == ("t2",)
        assert await store.queued("other", 10) == ()
        assert await store.worker_leases.get("t2") is None
        lease = lease_of("t2", "t2.a", worker="w\x00é", replays=True, used=Usage(1, 2, 3), deadline_s=3600.0)
        await store.append(granting(await loaded(store, "t2"), lease))
        held = await store.worker_leases.get("t2")
        assert held is not None
        assert (held.lease, held.runs, held.over) == (lease, True, False)
        assert LONG_MS - 60_000 < held.left_ms <= LONG_MS
        stored = await loaded(store, "t2")
        assert (stored.holder, stored.epoch, stored.delivered, stored.seq) == (WORKER, 1, 1, 2)
        assert await store.queued("echo", 10) == ("t1",)
        assert [each.lease.task_id for each in await store.worker_leases.of_agent("echo")] == ["t2"]
        asked = [("t2", "t2.a"), ("t2", "t2.b"), ("t1", "t2.a"), ("t1", "t1.a"), ("gone", "gone.a")]
        assert await store.worker_leases.running(asked) == {"t2.a"}
        assert await store.worker_leases.of_agent("other") == ()


async def test_a_task_that_a_worker_has_is_not_claimed_and_given_to_no_other(bench: Bench) -> None:
    async with bench.store() as store:
        await leased(store)
        assert await store.claim("h1", 10, AGENTS) == ()
        stored = await loaded(store, "t1")
        await refused(store.append(granting(stored, lease_of(token="t1.b"))), Moved)
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.lease.token == "t1.a"
        assert (await loaded(store, "t1")).epoch == 1


async def test_of_two_who_take_a_task_one_gets_it(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", holder=None, state=S))
        stored = await loaded(store, "t1")
        takes = [store.append(granting(stored, lease_of(token=f"t1.{name}"))) for name in "ab"]
        outcomes = await asyncio.gather(*takes, return_exceptions=True)
        assert sorted(isinstance(each, Moved) for each in outcomes) == [False, True]
        assert (await loaded(store, "t1")).delivered == 1


async def test_what_is_queued_is_left_out_of_a_claim_that_says_so(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", holder=None, state=S))
        await store.create(new_task("t2", holder="dead"))
        claimed = await store.claim("h1", 10, AGENTS, queued=False)
        assert [each.head.id for each in claimed] == ["t2"]


async def test_a_word_is_written_under_its_lease_and_told_once(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        stored = await loaded(store, "t1")
        first = replace(lease, reports=1, used=Usage(1, 1, 2), version=1)
        assert (await store.append(told(stored, first))).last_seq == 3  # type: ignore[union-attr]
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.lease == first
        stored = await loaded(store, "t1")
        await refused(store.append(told(stored, replace(first, reports=2))), Moved)  # another replica told one since
        await refused(store.append(told(stored, replace(first, token="t1.b", version=2))), Fenced)
        old = replace(told(stored, replace(first, version=2)), epoch=0)
        await refused(store.append(old), Fenced)
        assert (await loaded(store, "t1")).seq == 3


async def test_a_single_word_follows_those_that_its_writer_has_not_read(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        stored = await loaded(store, "t1")  # what each of several replicas has read
        first, second = single(stored, lease, 1), single(stored, lease, 2)
        assert (await store.append(first)).last_seq == 3  # type: ignore[union-attr]
        written = await store.append(second)
        assert isinstance(written, Appended)
        assert written.last_seq == 4
        if written.missed:  # a store may leave it to the writer to read them
            assert [(each.seq, each.event) for each in written.missed] == [(3, first.events[0])]
            assert written.log_bytes_since == (await loaded(store, "t1")).log_bytes_since
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.lease == replace(lease, reports=2)
        await refused(store.append(single(stored, lease, 2)), Moved)  # it was told
        await refused(store.append(single(stored, lease, 1)), Moved)
        await refused(store.append(single(stored, lease, 4, confirmed=3)), Moved)  # the store has lost that one
        await refused(store.append(single(stored, replace(lease, version=1), 3)), Moved)
        await refused(store.append(single(stored, replace(lease, token="t1.b"), 3)), Fenced)
        await refused(store.append(replace(single(stored, lease, 3), epoch=0)), Fenced)
        assert (await store.append(single(stored, lease, 0, confirmed=2))).last_seq == 5  # type: ignore[union-attr]
        unread = replace(lease, reports=1, version=1)
        await refused(store.append(told(await loaded(store, "t1"), unread)), Moved)
        assert not await store.worker_leases.note(unread)
        assert (await loaded(store, "t1")).seq == 5
        asked = replace(lease, reports=2, questions=1, version=1)
        await store.append(told(await loaded(store, "t1"), asked, state=Q))
        await refused(store.append(single(stored, asked, 3)), Fenced)  # nobody has the task now
        await store.append(answered(await loaded(store, "t1")))
        await refused(store.append(single(stored, asked, 3)), Fenced)  # it is leased anew
        await store.append(single(await loaded(store, "t1"), asked, 3))


async def test_a_word_to_a_task_that_has_ended_or_is_gone_is_refused_for_that_reason(bench: Bench) -> None:
    """The end is for good. Another lease could follow the one that is over, so that reason comes second."""
    async with bench.store() as store:
        lease = replace(await leased(store), version=1)
        stored = await loaded(store, "t1")
        await store.append(ending("t1", stored.seq, epoch=None, state=TaskState.CANCELED))
        await refused(store.append(told(stored, lease)), TaskEnded)
        await refused(store.append(single(stored, lease, 1)), TaskEnded)
        await refused(store.append(granting(stored, lease_of(token="t1.b"))), TaskEnded)
        await refused(store.append(silenced(stored, lease)), TaskEnded)
        await refused(store.append(replace(told(stored, lease), task_id="gone")), Unknown)


async def test_a_single_word_is_refused_if_the_task_has_a_later_status(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        stored = await loaded(store, "t1")
        later = replace(told(stored, replace(lease, version=1)), events=(status(W),), status_ms=START_MS + 5)
        await store.append(later)
        lease = replace(lease, version=1)
        dated = replace(single(stored, lease, 1), events=(status(W),), status_ms=START_MS + 4)
        await refused(store.append(dated), Moved)
        await refused(store.append(replace(single(stored, lease, 1), read_seq=9)), Moved)
        await store.append(single(stored, lease, 1))  # a chunk has no status
        await store.append(replace(single(stored, lease, 2), events=(status(W),), status_ms=START_MS + 5))
        assert (await loaded(store, "t1")).seq == 5


async def test_a_word_that_is_sent_again_has_its_first_outcome_whatever_was_told_since(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        stored = await loaded(store, "t1")
        first = replace(single(stored, lease, 1), write=11)
        second = replace(single(stored, lease, 2), write=12)
        written = await store.append(first)
        assert isinstance(written, Appended)
        await store.append(second)
        again = await store.append(first)
        assert isinstance(again, Appended)
        assert (again.last_seq, again.epoch) == (written.last_seq, written.epoch)
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.lease.reports == 2
        assert (await loaded(store, "t1")).seq == 4


async def test_a_lease_that_cannot_be_read_runs_out_and_leaves_what_ends_it(shared_bench: Bench) -> None:
    assert shared_bench.spoil is not None
    async with shared_bench.store() as store:
        lease = await leased(store, for_ms=SOON_MS)
        await shared_bench.spoil("worker_leases", "lease", "true", cut)
        await silence(store)
        (left,) = (await store.worker_leases.due(10)).silent
        assert left == replace(lease, worker="", delivery=0, since=0)
        await store.append(silenced(await loaded(store, "t1"), left))
        assert (await loaded(store, "t1")).holder is None


async def test_a_lease_that_has_run_out_is_neither_used_nor_renewed(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, for_ms=SOON_MS)
        await silence(store)
        stored = await loaded(store, "t1")
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert not held.runs
        await refused(store.append(told(stored, replace(lease, version=1))), Fenced)
        await refused(store.append(single(stored, lease, 1)), Fenced)
        assert await store.worker_leases.renew([("t1", lease.token)], LONG_MS) == {}
        assert not await store.worker_leases.note(replace(lease, version=1))
        assert await store.worker_leases.of_agent("echo") == ()
        assert await store.worker_leases.running([("t1", lease.token)]) == frozenset()
        assert await store.claim("h1", 10, AGENTS) == ()  # it is for those who look for silent workers


async def test_the_task_of_a_silent_worker_goes_back_once(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, for_ms=SOON_MS)
        await silence(store)
        assert (await store.worker_leases.due(10)).silent == (lease,)
        stored = await loaded(store, "t1")
        await store.append(silenced(stored, lease))
        assert (await store.worker_leases.due(10)).silent == ()
        after = await loaded(store, "t1")
        assert (after.holder, after.epoch) == (None, 1)
        await refused(store.append(silenced(after, lease)), Moved)
        assert await store.queued("echo", 10) == ("t1",)
        again = lease_of(token="t1.b", delivery=2)
        await store.append(granting(after, again))
        stored = await loaded(store, "t1")
        assert (stored.holder, stored.epoch, stored.delivered) == (WORKER, 2, 2)
        await refused(store.append(told(stored, replace(lease, version=1))), Fenced)


async def test_a_renewed_lease_goes_on(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, for_ms=2_000, questions=3)
        renewed = await store.worker_leases.renew([("t1", lease.token), ("t1", "t1.b"), ("t2", "t2.a")], LONG_MS)
        assert renewed == {lease.token: lease}
        assert lease.questions == 3
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.left_ms > LONG_MS - 60_000
        await refused(store.append(silenced(await loaded(store, "t1"), lease)), Moved)
        assert (await loaded(store, "t1")).seq == 2  # nothing was written to the task


async def test_what_is_noted_changes_the_lease_alone(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        noted = replace(lease, delegations=1, version=1)
        assert await store.worker_leases.note(noted)
        assert not await store.worker_leases.note(noted)
        assert not await store.worker_leases.note(replace(noted, token="t1.b", version=2))
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert held.lease == noted
        assert (await loaded(store, "t1")).seq == 2


async def test_the_answer_to_a_workers_question_is_for_that_worker(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        asked = replace(lease, questions=1, version=1)
        await store.append(told(await loaded(store, "t1"), asked, state=Q))
        stored = await loaded(store, "t1")
        assert (stored.holder, stored.epoch, stored.state) == (None, 1, Q)
        assert await store.queued("echo", 10) == ()
        answer = answered(stored)
        assert (await store.append(answer)).epoch == 2  # type: ignore[union-attr]
        stored = await loaded(store, "t1")
        assert (stored.holder, stored.epoch, stored.delivered) == (WORKER, 2, 1)
        await store.append(told(stored, replace(asked, reports=1, version=2)))


async def test_an_answer_is_for_the_queue_if_the_worker_has_gone(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, for_ms=SOON_MS)
        stored = await loaded(store, "t1")
        await store.create(new_task("t2", holder=None, state=Q))
        bare = await loaded(store, "t2")
        assert (await store.append(answered(bare))).epoch == 0  # type: ignore[union-attr]
        assert await store.queued("echo", 10) == ("t2",)
        await silence(store)
        await store.append(silenced(stored, lease))
        assert set(await store.queued("echo", 10)) == {"t1", "t2"}


async def test_a_task_that_is_given_back_is_for_the_next(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store)
        stored = await loaded(store, "t1")
        await store.append(told(stored, replace(lease, version=1), over=True))
        held = await store.worker_leases.get("t1")
        assert held is not None
        assert (held.runs, held.over) == (False, True)
        assert await store.worker_leases.renew([("t1", lease.token)], LONG_MS) == {}
        assert await store.queued("echo", 10) == ("t1",)
        assert (await store.worker_leases.due(10)).silent == ()
        assert await store.worker_leases.running([("t1", lease.token)]) == frozenset()


async def test_the_end_of_a_task_is_the_end_of_its_lease(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, for_ms=LONG_MS)
        stored = await loaded(store, "t1")
        await store.append(ending("t1", stored.seq, epoch=None))
        held = await store.worker_leases.get("t1")
        assert held is not None  # its worker is told what became of the task
        assert (held.lease.token, held.runs) == (lease.token, False)
        assert await store.worker_leases.renew([("t1", lease.token)], LONG_MS) == {}
        assert not await store.worker_leases.note(replace(lease, version=1))
        assert await store.worker_leases.of_agent("echo") == ()


async def test_who_works_for_too_long_is_found_but_not_while_its_question_is_open(bench: Bench) -> None:
    async with bench.store() as store:
        lease = await leased(store, deadline_s=0.001)
        asked = await leased(store, "t2", deadline_s=0.001)
        await leased(store, "t3", deadline_s=3600.0)
        await leased(store, "t4")
        await store.append(told(await loaded(store, "t2"), replace(asked, questions=1, version=1), state=Q))
        await asyncio.sleep(SOON_MS / 1000)
        assert await store.worker_leases.due(10) == DueLeases(late=(lease,))
        await store.append(answered(await loaded(store, "t2")))
        await asyncio.sleep(SOON_MS / 1000)
        assert {each.task_id for each in (await store.worker_leases.due(10)).late} == {"t1", "t2"}


async def test_who_waits_for_the_answer_to_anothers_question_is_not_found_late(bench: Bench) -> None:
    """The question of a delegated task is put without a word of the worker."""
    async with bench.store() as store:
        await leased(store, deadline_s=0.001)
        working = await loaded(store, "t1")
        question = Append(
            task_id="t1",
            events=(status(Q),),
            state=Q,
            status_ms=START_MS,
            expected_seq=working.seq,
            release=True,
        )
        await store.append(question)
        await asyncio.sleep(SOON_MS / 1000)
        assert await store.worker_leases.due(10) == DueLeases()
        await store.append(answered(await loaded(store, "t1")))
        await asyncio.sleep(SOON_MS / 1000)
        assert [each.task_id for each in (await store.worker_leases.due(10)).late] == ["t1"]
