"""The audit trail: written in batches, read by what one asks for, swept by age.

Invariant: a case uses nothing but the Store protocol.
"""

from typing import Any

from msgspec.structs import replace

from dragoman.store.audit import ACTS_MAX, AuditEntry, AuditFilter
from tests.store.cases.bench import START_MS, Bench, entry, new_task


async def test_entries_come_back_as_they_were_written_oldest_first(bench: Bench) -> None:
    async with bench.store() as store:
        written = [entry(number) for number in range(70)]
        first, second = store.audit.write(written[:40]), store.audit.write(written[40:])
        await first
        await second
        assert await store.audit.read() == tuple(written)
        assert await store.audit.read(limit=3) == tuple(written[-3:]), "the newest"
        await store.audit.write([])


async def test_only_what_is_asked_for_is_read(bench: Bench) -> None:
    async with bench.store() as store:
        allowed, refused = entry(1), entry(2, reason="Forbidden")
        others, late = entry(3, "key:bob", "Unauthorized"), entry(4, "key:bob")
        await store.audit.write([allowed, refused, others, late])
        assert await store.audit.read(principal="key:ann") == (allowed, refused)
        assert await store.audit.read(refused_only=True) == (refused, others)
        assert await store.audit.read(refused_only=True, principal="key:bob") == (others,)
        assert await store.audit.read(refused_only=True, limit=1) == (others,)
        assert await store.audit.read(since_ms=START_MS + 3000) == (others, late)
        assert await store.audit.read(refused_only=True, since_ms=START_MS + 3000) == (others,)
        assert await store.audit.read(principal="nobody") == ()


async def test_entries_are_found_by_each_of_their_fields(bench: Bench) -> None:
    async with bench.store() as store:
        sent, refused = entry(1), entry(2, "key:bob", "Forbidden")
        made = replace(entry(3, "operator:local"), action="keys.create", agent="", subject="ABCdef")
        near = replace(entry(4), action="keystone", agent="other")
        await store.audit.write([sent, refused, made, near])

        async def found(**wanted: Any) -> tuple[AuditEntry, ...]:
            backward = await store.audit.page(AuditFilter(**wanted), 10)
            forward = await store.audit.page(AuditFilter(**wanted), 10, forward=True)
            assert (forward, backward.next_cursor) == (backward, None)
            return backward.entries

        assert await found(action="SendMessage") == (sent, refused)
        assert await found(action="keys") == (made,)
        assert await found(action="keys.create") == (made,)
        assert await found(action="keys.") == ()
        assert await found(agent="other") == (near,)
        assert await found(text="abcDEF") == (made,)
        assert await found(text="forbidden") == (refused,)
        assert await found(text="key") == (sent, refused, made, near)
        assert await found(text="%") == ()
        assert await found(since_ms=START_MS + 2000, until_ms=START_MS + 4000) == (refused, made)
        assert await found(principal="key:ann", action="SendMessage") == (sent,)
        assert await found(refused=True, agent="echo") == (refused,)
        shown, hidden = (
            replace(entry(8), action="tasks.show"),
            replace(entry(9, reason="Forbidden"), action="tasks.show"),
        )
        await store.audit.write([shown, hidden])
        assert await found(without=("tasks.list", "tasks.show")) == (sent, refused, made, near, hidden)
        assert await found(without=("tasks",), action="tasks") == (shown, hidden)
        leaked, denied = replace(entry(5), key="leaked"), replace(entry(6, "key:ann", "Forbidden"), key="leaked")
        await store.audit.write([leaked, replace(entry(7), key="other"), denied])
        assert await found(key="leaked") == (leaked, denied)
        assert await found(key="leaked", refused=True) == (denied,)
        assert await found(text="leaked") == (leaked, denied)


async def test_any_number_of_entries_is_read_by_pages(bench: Bench) -> None:
    async with bench.store() as store:
        written = tuple(entry(number, reason="Forbidden" if number % 2 else "") for number in range(25))
        await store.audit.write(written)
        for wanted, expected in (
            (AuditFilter(), written),
            (AuditFilter(refused=True), tuple(each for each in written if each.reason)),
        ):
            for forward in (True, False):
                seen: list[AuditEntry] = []
                cursor: int | None = None
                while True:
                    page = await store.audit.page(wanted, 4, cursor, forward=forward)
                    seen = [*seen, *page.entries] if forward else [*page.entries, *seen]
                    cursor = page.next_cursor
                    if cursor is None:
                        break
                    assert len(page.entries) == 4
                assert tuple(seen) == expected


async def test_entries_keep_the_order_of_their_writing_whatever_their_time(bench: Bench) -> None:
    async with bench.store() as store:
        written = (entry(5), entry(1), entry(3))
        for one in written:
            await store.audit.write([one])
        assert await store.audit.read() == written
        assert await store.audit.read(limit=2) == written[1:]


async def test_administrative_acts_are_read_from_where_the_trail_ended(bench: Bench) -> None:
    async with bench.store() as store:
        acts = [replace(entry(number), action=action) for number, action in enumerate(("keys.create", "push.retry"))]
        assert await store.audit.acts(None) == (0, ())
        await store.audit.write([acts[0], entry(5)])
        end, found = await store.audit.acts(0)
        assert found == (acts[0],)
        assert await store.audit.acts(None) == (end, ()), "from now on"
        await store.audit.write([entry(6), acts[1]])
        later, found = await store.audit.acts(end)
        assert found == (acts[1],)
        assert await store.audit.acts(later) == (later, ())
        while await store.audit.sweep(START_MS + 1_000_000):
            pass
        await store.audit.write([acts[0]])
        assert (await store.audit.acts(later))[1] == (acts[0],), "also when all before has been swept"


async def only_the_newest_of_many_administrative_acts_are_read(bench: Bench) -> None:
    async with bench.store() as store:
        acts = [replace(entry(number), action="keys.create") for number in range(ACTS_MAX + 1)]
        await store.audit.write(acts)
        end, found = await store.audit.acts(0)
        assert found == tuple(acts[1:])
        assert await store.audit.acts(end) == (end, ())


async def test_a_sweep_takes_old_entries_a_batch_at_a_time(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.audit.write([entry(number) for number in range(1200)])
        gone = []
        while batch := await store.audit.sweep(START_MS + 1_100_000):
            gone.append(batch)
        assert sum(gone) == 1100
        assert len(gone) > 1, "short batches"
        assert await store.audit.read(limit=5000) == tuple(entry(number) for number in range(1100, 1200))
        assert await store.head("t1") is not None


async def test_the_audit_trail_survives_a_restart(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store() as store:
        await store.audit.write([entry(1), entry(2)])
    async with bench.store("h2") as store:
        await store.audit.write([entry(3)])
        assert await store.audit.read() == (entry(1), entry(2), entry(3))


async def test_closing_finishes_what_is_written_to_the_audit_trail(bench: Bench) -> None:
    async with bench.store() as store:
        waiting = [store.audit.write([entry(number)]) for number in range(20)]
        await store.close()
        assert all(future.done() and future.exception() is None for future in waiting)
