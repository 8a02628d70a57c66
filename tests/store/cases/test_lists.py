"""Lists: their order, filters, pages and totals, for one owner and for all.

Invariant: a case uses nothing but the Store protocol.
"""

from functools import partial

from msgspec.structs import replace

from dragoman.model.events import StatusChanged
from dragoman.model.ids import timestamp
from dragoman.model.message import Part, Role
from dragoman.model.task import TaskState
from dragoman.store.api import (
    Append,
    ContextQuery,
    Listed,
    ListedRows,
    ListOrder,
    ListQuery,
    Owners,
    Store,
    TaskRow,
)
from tests.store.cases.bench import (
    START_MS,
    Bench,
    D,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    peak_bytes,
    record,
    seqs,
    status,
)


async def test_a_list_is_ordered_filtered_paged_and_counted(bench: Bench) -> None:
    async with bench.store() as store:
        states = (W, D, TaskState.INPUT_REQUIRED, TaskState.FAILED)
        rows: list[tuple[int, str, str, TaskState]] = []
        for number in range(60):
            task_id, context, state = f"t{number * 7 % 60:02}", f"c{number % 3}", states[number % 4]
            at = START_MS + number // 5  # five tasks share a moment
            await store.create(new_task(task_id, context_id=context, at=START_MS))
            if state in (D, TaskState.FAILED):
                await store.append(ending(task_id, 1, state=state, at=at))
            else:
                change = (status(state, at),)
                await store.append(Append(task_id=task_id, events=change, state=state, status_ms=at, epoch=1))
            rows.append((at, task_id, context, state))
        await store.create(new_task("other agent", agent="b"))
        await store.create(new_task("other owner", owner="bob"))
        rows.sort(key=lambda row: (row[0], row[1]), reverse=True)
        for context_id in (None, "c0", "c2", "none"):
            for wanted_state in (None, *states, TaskState.CANCELED):
                for after in (None, START_MS + 6):
                    wanted = [
                        row[1]
                        for row in rows
                        if context_id in (None, row[2]) and wanted_state in (None, row[3]) and row[0] >= (after or 0)
                    ]
                    assert await _paged(store, context_id, wanted_state, after) == wanted
        offset = await store.list(ListQuery(owner="ann", agent="echo", limit=5, offset=50))
        assert [stored.head.id for stored in offset.tasks] == [row[1] for row in rows[50:55]]
        assert (offset.total, offset.more) == (60, True)
        nobody = await store.list(ListQuery(owner="eve", agent="echo"))
        assert (nobody.tasks, nobody.total, nobody.more) == ((), 0, False)


async def test_tasks_of_all_owners_are_listed_only_for_those_who_say_so(bench: Bench) -> None:
    async with bench.store() as store:
        rows: list[tuple[int, str, str, TaskState]] = []
        for number in range(30):
            task_id, owner, at = f"t{number * 7 % 30:02}", f"owner{number % 3}", START_MS + number // 4
            new = new_task(task_id, context_id=f"c{number % 2}", owner=owner, at=at)
            await store.create(new if number % 5 else replace(new, state=TaskState.INPUT_REQUIRED, holder=None))
            rows.append((at, task_id, new.head.context_id, W if number % 5 else TaskState.INPUT_REQUIRED))
        await store.create(new_task("other agent", agent="b", owner="owner1"))
        rows.sort(key=lambda row: (row[0], row[1]), reverse=True)
        for context_id in (None, "c1", "none"):
            for wanted_state in (None, W, D):
                for after in (None, START_MS + 3):
                    wanted = [
                        row[1]
                        for row in rows
                        if context_id in (None, row[2]) and wanted_state in (None, row[3]) and row[0] >= (after or 0)
                    ]
                    assert await _paged(store, context_id, wanted_state, after, Owners.ALL) == wanted
        offset = await store.list(ListQuery(owner=Owners.ALL, agent="echo", limit=5, offset=20))
        assert [stored.head.id for stored in offset.tasks] == [row[1] for row in rows[20:25]]
        assert len({stored.head.owner for stored in offset.tasks}) > 1
        assert (offset.total, offset.more) == (30, True)
        assert (await store.list(ListQuery(owner=Owners.ALL, agent="none"))).tasks == ()
        for mistaken in ("", "all", "ALL", "*", "None"):
            assert (await store.list(ListQuery(owner=mistaken, agent="echo"))).tasks == ()
            assert (await store.list(ListQuery(owner=mistaken, agent=None))).tasks == ()
        try:
            ListQuery(agent="echo")  # type: ignore[call-arg]
        except TypeError:
            return
        raise AssertionError("a query without an owner")


async def test_tasks_of_all_agents_are_listed(bench: Bench) -> None:
    async with bench.store() as store:
        rows: list[tuple[int, str, str, str]] = []
        for number in range(12):
            task_id, owner, agent, at = f"t{number:02}", f"owner{number % 2}", f"a{number % 3}", START_MS + number // 2
            await store.create(new_task(task_id, context_id=f"c{number % 2}", owner=owner, agent=agent, at=at))
            rows.append((at, task_id, owner, agent))
        rows.sort(reverse=True)
        for asked in (Owners.ALL, "owner1", "nobody"):
            wanted = [row[1] for row in rows if asked in (Owners.ALL, row[2])]
            everything = await store.list(ListQuery(owner=asked, agent=None, limit=50))
            assert [stored.head.id for stored in everything.tasks] == wanted
            assert (everything.total, everything.more) == (len(wanted), False)
            in_context = await store.list(ListQuery(owner=asked, agent=None, context_id="c1", limit=50))
            assert [stored.head.id for stored in in_context.tasks] == [each for each in wanted if int(each[1:]) % 2]
            assert in_context.total == len(in_context.tasks)
            after = await store.list(ListQuery(owner=asked, agent=None, status_after_ms=START_MS + 3, state=W, limit=2))
            late = [row[1] for row in rows if row[1] in wanted and row[0] >= START_MS + 3]
            assert [stored.head.id for stored in after.tasks] == late[:2]
            assert (after.total, after.more) == (len(late), len(late) > 2)
            if after.more:
                place = (after.tasks[-1].status_ms, after.tasks[-1].head.id)
                rest = await store.list(ListQuery(owner=asked, agent=None, before=place, limit=50))
                assert [stored.head.id for stored in rest.tasks] == wanted[2:]


async def _paged(
    store: Store,
    context_id: str | None,
    state: TaskState | None,
    after: int | None,
    owner: str | Owners = "ann",
    order: ListOrder = ListOrder.NEWEST_CHANGED,
) -> list[str]:
    """The ids of all pages, seven at a time; the totals agree."""
    found: list[str] = []
    totals: set[int] = set()
    before: tuple[int, str] | None = None
    more = True
    while more:
        query = ListQuery(
            owner=owner,
            agent="echo",
            context_id=context_id,
            state=state,
            status_after_ms=after,
            order=order,
            limit=7,
            before=before,
        )
        listed = await store.list(query)
        assert len(listed.tasks) == 7 or not listed.more
        assert await store.list_rows(query) == _rows(listed)
        found += [stored.head.id for stored in listed.tasks]
        totals.add(listed.total)
        more = listed.more
        before = (listed.tasks[-1].status_ms, listed.tasks[-1].head.id) if listed.tasks else None
    assert totals == {len(found)}
    return found


def _rows(listed: Listed) -> ListedRows:
    """The same page without logs. All tasks begin with the same words."""
    rows = tuple(
        TaskRow(
            head=stored.head,
            state=stored.state,
            status_ms=stored.status_ms,
            holder=stored.holder,
            cancel_requested=stored.cancel_requested,
            text="hello",
        )
        for stored in listed.tasks
    )
    return ListedRows(rows, listed.total, listed.more)


async def test_a_list_has_its_order_on_every_page(bench: Bench) -> None:
    """The oldest status first, and the longest running, for one owner, for all, and within a context."""
    async with bench.store() as store:
        rows: list[tuple[int, str, str, str, TaskState]] = []
        for number in range(40):
            task_id, owner, context = f"t{number:02}", f"owner{number % 2}", f"c{number % 3}"
            state = (TaskState.SUBMITTED, W, TaskState.INPUT_REQUIRED, D)[number // 2 % 4]
            at = START_MS + number * 7 % 40 // 3  # three tasks share a moment
            held = state in (W, D)
            new = new_task(task_id, context_id=context, owner=owner, at=at, holder="h1" if held else None)
            await store.create(replace(new, state=W if held else state))
            if state is D:
                await store.append(ending(task_id, 1, at=at))
            rows.append((at, task_id, owner, context, state))
        owners: tuple[str | Owners, ...] = ("owner1", Owners.ALL)
        for asked_owner in owners:
            for context_id in (None, "c1"):
                for wanted_state in (None, W, D):
                    for after in (None, START_MS + 6):
                        fit = [
                            row
                            for row in rows
                            if asked_owner in (Owners.ALL, row[2])
                            and context_id in (None, row[3])
                            and wanted_state in (None, row[4])
                            and row[0] >= (after or 0)
                        ]
                        oldest = [row[1] for row in sorted(fit)]
                        running = [row[1] for row in fit if row[4] in (W, TaskState.SUBMITTED)]
                        asked = (store, context_id, wanted_state, after, asked_owner)
                        assert await _paged(*asked, ListOrder.OLDEST_CHANGED) == oldest
                        assert await _paged(*asked, ListOrder.LONGEST_RUNNING) == running


async def test_a_page_ends_before_it_has_too_many_bytes_but_has_a_task(bench: Bench) -> None:
    async with bench.store() as store:
        for number in range(6):
            said = message("f", Part(raw=b"%d" % number * 5000), Part(text="x" * 5000))
            await store.create(new_task(f"t{number}", said=said, at=START_MS + number))
        sizes, ids = [], list[str]()
        before: tuple[int, str] | None = None
        more = True
        while more:
            query = ListQuery(owner="ann", agent="echo", limit=5, before=before, artifacts=True, max_bytes=25_000)
            listed = await store.list(query)
            sizes.append(len(listed.tasks))
            ids += [stored.head.id for stored in listed.tasks]
            assert listed.total == 6
            more, last = listed.more, listed.tasks[-1]
            before = (last.status_ms, last.head.id)
        assert sizes == [2, 2, 2]
        assert ids == ["t5", "t4", "t3", "t2", "t1", "t0"]
        tiny = await store.list(ListQuery(owner="ann", agent="echo", limit=5, max_bytes=1))
        assert (len(tiny.tasks), tiny.more) == (1, True)
        some = await store.list(ListQuery(owner="ann", agent="echo", limit=2, max_bytes=1_000_000))
        assert (len(some.tasks), some.more) == (2, True)


async def test_a_list_of_rows_reads_no_log(bench: Bench) -> None:
    """A row has what its task's first message began with, and only heads count against the bound of a page."""
    text = "x" * 1_000_000
    async with bench.store() as store:
        for number in range(4):
            new = new_task(f"t{number}", at=START_MS + number)
            earlier = (message("y" * 10_000),)
            await store.create(replace(new, head=replace(new.head, earlier=earlier)))
            kept = record(f"t{number}", 2, W, parts=[Part(text=text)])
            await store.append(replace(by_run(f"t{number}", chunk(text)), snapshot=kept))
            await store.append(by_run(f"t{number}", chunk(text), StatusChanged(W, timestamp(1))))
        await store.request_cancel("t1")
        query = ListQuery(owner="ann", agent="echo", artifacts=True)
        peak = await peak_bytes(lambda: store.list_rows(query))
        assert peak < len(text) / 2, f"{peak:,} bytes for rows"
        listed = await store.list_rows(query)
        assert [(row.head.id, row.cancel_requested) for row in listed.rows] == [
            ("t3", False),
            ("t2", False),
            ("t1", True),
            ("t0", False),
        ]
        assert listed == _rows(await store.list(query))
        some = await store.list_rows(replace(query, max_bytes=25_000))
        assert (some.rows, some.total, some.more) == (listed.rows[:2], 4, True)
        least = await store.list_rows(replace(query, max_bytes=1))
        assert (least.rows, least.total, least.more) == (listed.rows[:1], 4, True)


async def test_a_list_may_do_without_artifacts_and_history_but_not_without_the_status(bench: Bench) -> None:
    async with bench.store() as store:
        content = Part(raw=b"x" * 5000)
        said = message("status", content, role=Role.AGENT)
        await store.create(new_task("t1", said=message("f", content)))
        await store.append(by_run("t1", chunk("", content), StatusChanged(W, timestamp(1), said)))
        stored = (await store.list(ListQuery(owner="ann", agent="echo", artifacts=False, history=0))).tasks[0]
        assert (stored.seq, seqs(stored.events)) == (3, [1, 3])
        assert stored.events[1].event == StatusChanged(W, timestamp(1), said)
        whole = (await store.list(ListQuery(owner="ann", agent="echo", artifacts=True))).tasks[0]
        assert [one.event for one in whole.events] == [one.event for one in (await loaded(store, "t1")).events]
        assert [one.event for one in (await store.messages("ann", "echo", "c1", 1))[0].events] == [
            one.event for one in whole.events
        ]


async def test_a_list_without_artifacts_takes_a_fraction_of_the_memory(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.append(by_run("t1", *[chunk(f"word {number}") for number in range(5_000)]))
        peaks = [
            await peak_bytes(partial(store.list, ListQuery(owner="ann", agent="echo", history=0, artifacts=artifacts)))
            for artifacts in (True, False)
        ]
        assert 3 * peaks[1] < peaks[0], f"{peaks[1]:,} of {peaks[0]:,} bytes"


async def test_the_newest_tasks_of_a_context_come_oldest_first(bench: Bench) -> None:
    async with bench.store() as store:
        for number in range(6):
            await store.create(new_task(f"t{number}", at=START_MS + number, context_id=f"c{number % 2}"))
        await store.create(new_task("t9", at=START_MS + 9, owner="bob", context_id="c0"))
        found = await store.messages("ann", "echo", "c0", 2)
        assert [stored.head.id for stored in found] == ["t2", "t4"]
        assert await store.messages("ann", "echo", "none", 2) == ()


async def test_contexts_are_listed_by_their_newest_task(bench: Bench) -> None:
    """Each once, whatever a page looks at; the first message is that of the first task, not of the oldest status."""
    async with bench.store() as store:
        for number in range(24):
            owner, agent = f"owner{number % 2}", "echo" if number % 3 else "other"
            new = new_task(
                f"t{number:02}",
                context_id=f"c{number % 4}",
                owner=owner,
                agent=agent,
                at=START_MS + number,
                said=message(f"said {number}"),
            )
            await store.create(new)
        await store.append(ending("t00", 1, at=START_MS + 100))
        listed: list[tuple[str, str, str, int, str, int]] = []
        query = ContextQuery(owner=Owners.ALL, agent=None, limit=2, scan_max=5)
        while True:
            page = await store.contexts(query)
            assert len(page.rows) <= 2
            for row in page.rows:
                at = row.status_ms - START_MS
                listed.append((row.id, row.owner, row.agent, row.tasks, row.text, at))
                assert row.state is (D if at == 100 else W)
            if page.before is None:
                break
            query = replace(query, before=page.before)
        groups: dict[tuple[str, str, str], list[int]] = {}
        for number in range(24):
            agent = "echo" if number % 3 else "other"
            groups.setdefault((f"c{number % 4}", f"owner{number % 2}", agent), []).append(number)
        wanted = [
            (*key, len(numbers), f"said {numbers[0]}", 100 if 0 in numbers else numbers[-1])
            for key, numbers in groups.items()
        ]
        assert listed == sorted(wanted, key=lambda row: -row[5])
        one = await store.contexts(ContextQuery(owner="owner1", agent="other"))
        assert ([row.id for row in one.rows], one.before) == (["c1", "c3"], None)
        assert (await store.contexts(ContextQuery(owner="nobody", agent="echo"))).rows == ()
        assert (await store.contexts(ContextQuery(owner="nobody", agent=None))).rows == ()
