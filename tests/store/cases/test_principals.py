"""What a store has of one principal beside its tasks, and how it forgets it.

Invariant: a case uses nothing but the Store protocol.
"""

import pytest
from msgspec.structs import replace

from dragoman.model.principal import AccessRole
from dragoman.store.api import Dedupe, ListQuery, Quota, Store
from dragoman.store.audit import AuditEntry, AuditFilter
from dragoman.store.keyring import key_state
from dragoman.store.outbox import PausedHost
from dragoman.store.principals import PrincipalCounts
from dragoman.store.shared import Spending
from dragoman.store.sql import principals as table
from dragoman.store.state import StatePut, StateScope, StateWrite
from tests.store.cases.bench import DAY_MS, START_MS, WIDE, Bench, ending, new_task
from tests.store.cases.deliveries import telling, webhook

ANN, BOB, ALIAS = "key:ann", "key:bob", "erased:1"
TODAY = START_MS // DAY_MS
MADE = Dedupe(b"made", b"m", START_MS + 600_000)


def entry(number: int, principal: str, subject: str = "") -> AuditEntry:
    """An entry of the trail, from an address."""
    return AuditEntry(at_ms=START_MS + number, principal=principal, action="x.y", subject=subject, peer="10.0.0.1")


async def fill(store: Store) -> None:
    """Tasks, webhooks, usage, quotas, keys, pauses, rates and entries of two principals. Ann's tasks have ended."""
    quota = Quota(max_open_tasks=0, max_daily_tasks=9, day=TODAY)
    await store.create(replace(new_task("a1", owner=ANN, dedupe=MADE), quota=quota))
    await store.create(new_task("a2", owner=ANN, agent="other", context_id="c2"))
    await store.create(replace(new_task("b1", owner=BOB), quota=quota))
    for scope, puts in ((StateScope("echo", ANN, "", "memory"), 3), (StateScope("echo", BOB, "", "memory"), 1)):
        entries = tuple(StatePut(f"k{number}", b"1") for number in range(puts))
        await store.state.write_entries(StateWrite(scope=scope, puts=entries))
    await store.outbox.register("a1", webhook(), (telling(1),))
    for task_id in ("a1", "a2"):
        await store.append(ending(task_id, 1))
    for name in ("ann", "ann", "bob"):
        await store.keys.add(replace(WIDE, id=f"{name}{len(await store.keys.all())}", name=name))
    await store.outbox.pause(PausedHost(name="hooks.example", at_ms=START_MS, by=ANN))
    await store.outbox.pause(PausedHost(name="other.example", at_ms=START_MS, by=BOB))
    await store.shared.spend((Spending(f"rate/{ANN}", 10**9), Spending(f"rate/{BOB}", 10**9)))
    await store.shared.tally("h2", {f"streams/{ANN}": 2, f"listeners/{ANN}": 1, f"streams/{BOB}": 3}, 60_000)
    await store.audit.write([entry(1, ANN), entry(2, BOB, "s"), entry(3, BOB, ANN), entry(4, ANN), entry(5, BOB)])


async def forget(store: Store, principal: str) -> int:
    """Repeat short batches until nothing is left. Returns how many there were."""
    batches = 0
    while await store.principals.forget(principal):
        batches += 1
    return batches


async def rename(store: Store, principal: str) -> int:
    """The same for the name."""
    batches = 0
    while await store.principals.rename(principal, ALIAS, START_MS + 9):
        batches += 1
    return batches


async def test_what_a_principal_has_is_counted(bench: Bench) -> None:
    async with bench.store() as store:
        await fill(store)
        assert await store.principals.count(ANN) == PrincipalCounts(
            tasks=2, open_tasks=0, webhooks=1, deliveries=1, receipts=0, calls=1, memory=3, usage=2, keys=2, audit=3
        )
        assert (await store.principals.count(BOB)).open_tasks == 1
        assert await store.principals.count("ann") == PrincipalCounts()
        assert await store.principals.count("key:") == PrincipalCounts()
        assert {(day.agent, day.runs) for day in await store.principals.usage(ANN)} == {("echo", 1), ("other", 1)}


async def test_a_name_gives_way_to_its_alias(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries keep everything but the name and the address. A batch is short, and a trail of others is left alone."""
    monkeypatch.setattr(table, "RENAMED_ENTRIES", 2)
    monkeypatch.setattr(table, "SPAN_ENTRIES", 2)
    async with bench.store() as store:
        await fill(store)
        assert await rename(store, ANN) == 2
        entries = (await store.audit.page(AuditFilter(), 10)).entries
        assert [(each.principal, each.subject, each.peer) for each in entries] == [
            *((ALIAS, "", ""), (BOB, "s", "10.0.0.1"), (BOB, ALIAS, "10.0.0.1")),
            *((ALIAS, "", ""), (BOB, "", "10.0.0.1")),
        ]
        assert [each.at_ms for each in entries] == [START_MS + number for number in range(1, 6)]
        assert [(host.name, host.by) for host in await store.outbox.paused()] == [
            ("hooks.example", ALIAS),
            ("other.example", BOB),
        ]
        *gone, kept = await store.keys.all()
        assert [(key.name, key.digest, key_state(key, START_MS)) for key in gone] == [(ALIAS, b"", "revoked")] * 2
        assert (kept.name, kept.digest, key_state(kept, START_MS)) == ("bob", WIDE.digest, "active")
        assert (await store.principals.count(ANN)).audit == 0


async def test_a_key_that_was_revoked_before_keeps_its_time(bench: Bench) -> None:
    async with bench.store() as store:
        await store.keys.add(replace(WIDE, revoked_ms=START_MS + 1, role=AccessRole.CALLER))
        await rename(store, ANN)
        assert [key.revoked_ms for key in await store.keys.all()] == [START_MS + 1]
        assert await store.keys.any(), "the store asks callers for a key as before"


async def test_a_principal_is_forgotten_and_nobody_else(bench: Bench) -> None:
    """A principal that comes back begins anew."""
    async with bench.store() as store:
        await fill(store)
        others = await store.principals.count(BOB)
        await store.delete(("a1", "a2"))
        assert await forget(store, ANN) == 2, "the usage of a day is one batch, the rest another"
        assert await store.principals.count(ANN) == PrincipalCounts(memory=3, keys=2, audit=3)
        assert [used.owner for used in await store.usage.days(0, TODAY + 1)] == []
        assert await store.principals.count(BOB) == others
        assert await store.shared.spend((Spending(f"rate/{ANN}", 1),)) < (1000,)
        assert await store.shared.spend((Spending(f"rate/{BOB}", 1),)) > (10**8,)
        told = await store.shared.tally("h1", {f"streams/{ANN}": 0, f"streams/{BOB}": 0}, 60_000)
        assert told == {f"streams/{ANN}": 0, f"streams/{BOB}": 3}
        await store.create(new_task("a3", owner=ANN))
        found = await store.find("a3", ANN, "echo")
        assert not isinstance(found, int | None)
        listed = await store.list(ListQuery(owner=ANN, agent=None))
        assert [stored.head.id for stored in listed.tasks] == ["a3"]
        assert listed.total == 1


async def test_tasks_keep_the_place_of_their_owner(bench: Bench) -> None:
    """Whoever forgets too early does no harm."""
    async with bench.store() as store:
        await fill(store)
        await store.delete(("a1",))
        await forget(store, ANN)
        assert (await store.list(ListQuery(owner=ANN, agent=None))).total == 1
        assert not isinstance(await store.find("a2", ANN, "other"), int | None)


async def test_another_process_forgets_what_it_remembers(shared_bench: Bench) -> None:
    """Else the next task of a principal that was forgotten would have an owner that nobody finds."""
    async with shared_bench.store("h1") as store, shared_bench.store("h2") as other:
        await other.create(new_task("a1", owner=ANN, holder="h2"))
        await other.append(ending("a1", 1))
        await store.delete(("a1",))
        await forget(store, ANN)
        other.principals.forget_cached()
        await other.create(new_task("a2", owner=ANN, holder="h2"))
        assert not isinstance(await store.find("a2", ANN, "echo"), int | None)
