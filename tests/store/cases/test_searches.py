"""Searches by what no index answers.

Invariant: a case uses nothing but the Store protocol.
"""

from msgspec.structs import replace

from dragoman.model.events import Noted, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.message import Part
from dragoman.model.task import STATES, TaskState
from dragoman.model.title import TITLE, TITLE_NOTE
from dragoman.store.api import ASLEEP, ListQuery, Owners, StatusRow, Store, TaskSearch
from tests.store.cases.bench import START_MS, Bench, D, W, by_run, ending, message, new_task, status

EVERYBODY = TaskSearch(owner=Owners.ALL, agent=None)


async def _found(store: Store, **wanted: object) -> list[str]:
    """The ids that a search finds, a page of two at a time, of which each looks at three tasks."""
    ids: list[str] = []
    query = replace(EVERYBODY, limit=2, scan_max=3, **wanted)
    while True:
        page = await store.search(query)
        assert len(page.rows) <= 2
        ids += [row.head.id for row in page.rows]
        if page.after is None:
            return ids
        query = replace(query, after=page.after)


async def test_tasks_are_found_by_what_no_index_answers(bench: Bench) -> None:
    """Every filter alone, and all together; the newest made come first, on pages that overlap nowhere."""
    async with bench.store() as store:
        for number in range(10):
            said = f"Order number {number} for Ωmega, 100 % \\ off\0"
            new = new_task(f"t{number}", context_id=f"c{number % 2}", owner="ann" if number % 3 else "bob", at=START_MS)
            submitted = Submitted(message(said), timestamp(START_MS))
            head = replace(new.head, dialect="1.0" if number < 5 else "0.3", agent="echo" if number < 8 else "other")
            head = replace(head, key=("", "leaked", "other")[number % 3])
            await store.create(replace(new, head=head, events=(submitted,)))
            if number % 5 == 0:
                await store.append(ending(f"t{number}", 1, at=START_MS + number))
            elif number % 4 == 2:
                sleeps = by_run(f"t{number}", status(W))
                await store.append(replace(sleeps, status_ms=START_MS, holder=ASLEEP, wakes_ms=START_MS + 9_000))
        every = [f"t{number}" for number in reversed(range(10))]
        assert await _found(store, key="leaked") == ["t7", "t4", "t1"]
        assert await _found(store, asleep=True) == ["t6", "t2"]
        assert await _found(store, asleep=False) == ["t9", "t8", "t7", "t5", "t4", "t3", "t1", "t0"]
        assert await _found(store) == every
        assert await _found(store, oldest=True) == every[::-1]
        assert await _found(store, oldest=True, agent="other") == ["t8", "t9"]
        assert await _found(store, text="NUMBER 3") == ["t3"]
        assert await _found(store, text="order number") == every
        assert await _found(store, text="Ωmega") == every
        assert await _found(store, text="100 % \\ off\0") == every
        assert await _found(store, text="100 _") == [], "no letter stands for others"
        assert await _found(store, anywhere="T7") == ["t7"], "ids are of small letters"
        assert await _found(store, anywhere="c1", oldest=True) == ["t1", "t3", "t5", "t7", "t9"]
        assert await _found(store, anywhere="NUMBER 3 f", owner="bob") == ["t3"]
        assert await _found(store, dialect="0.3") == every[:5]
        assert await _found(store, owner="bob") == ["t9", "t6", "t3", "t0"]
        assert await _found(store, agent="other") == ["t9", "t8"]
        assert await _found(store, context_id="c1") == ["t9", "t7", "t5", "t3", "t1"]
        assert await _found(store, state=D) == ["t5", "t0"]
        assert await _found(store, status_after_ms=START_MS + 1) == ["t5"]
        assert await _found(store, status_before_ms=START_MS) == []
        assert await _found(store, text="4", dialect="1.0", owner="ann", agent="echo", context_id="c0", state=W) == [
            "t4"
        ]
        assert await _found(store, state=TaskState.FAILED) == []
        (row,) = (await store.search(replace(EVERYBODY, text="number 5"))).rows
        assert (row.state, row.status_ms, row.holder, row.cancel_requested) == (D, START_MS + 5, None, False)
        assert row.text == "Order number 5 for Ωmega, 100 % \\ off\0"
        await store.request_cancel("t4")
        (row,) = (await store.search(replace(EVERYBODY, text="number 4"))).rows
        assert (row.state, row.holder, row.cancel_requested) == (W, "h1", True)


async def test_the_last_title_is_with_the_task_and_found_by_its_words(bench: Bench) -> None:
    """The caller's until the agent gives one, in whatever write: with a status, alone, with the end."""
    async with bench.store() as store:
        for name in ("none", "asked", "named"):
            new = new_task(name)
            await store.create(replace(new, head=replace(new.head, metadata={TITLE: f"For {name} Ωmega"})))
        await store.append(by_run("none", Noted({"other": ".title"})))
        await store.append(by_run("named", status(W), Noted({TITLE_NOTE: "first"})))
        await store.append(by_run("named", Noted({TITLE_NOTE: "second"}), Noted({TITLE_NOTE: "Third 100 %"})))
        assert await _found(store, text="third") == ["named"]
        assert await _found(store, text="FOR ") == ["asked", "none"]
        assert await _found(store, text="ωmega") == []
        assert await _found(store, text="Ωmega") == ["asked", "none"]
        end = ending("named", 4)
        await store.append(replace(end, events=(Noted({TITLE_NOTE: "last"}), *end.events), snapshot=None))
        listed = (await store.list_rows(ListQuery(owner="ann", agent="echo"))).rows
        searched = (await store.search(EVERYBODY)).rows
        titles = {"none": "For none Ωmega", "asked": "For asked Ωmega", "named": "last"}
        for rows in (listed, searched):
            assert {row.head.id: row.title for row in rows} == titles


async def test_only_the_beginning_of_a_message_is_searched(bench: Bench) -> None:
    """That is the first 200 characters of its text, over all of its parts."""
    async with bench.store() as store:
        await store.create(new_task("long", said=message("x" * 195 + "needle")))
        await store.create(new_task("parts", said=message("one", Part(data={"needle": 1}), Part(text="two"))))
        await store.create(new_task("file", said=replace(message(""), parts=(Part(raw=b"needle"),))))
        assert [row.head.id for row in (await store.search(replace(EVERYBODY, text="needle"))).rows] == []
        assert [row.head.id for row in (await store.search(replace(EVERYBODY, text="xneed"))).rows] == ["long"]
        assert [row.head.id for row in (await store.search(replace(EVERYBODY, text="one two"))).rows] == ["parts"]
        rows = {row.head.id: row.text for row in (await store.search(EVERYBODY)).rows}
        assert (rows["file"], len(rows["long"])) == ("", 200)


async def test_changes_are_the_tasks_with_the_newest_statuses(bench: Bench) -> None:
    """Tasks in any state, the oldest first, and those whose log was swept, too."""
    async with bench.store() as store:
        for number, state in enumerate(STATES):
            held = "h1" if state is W else None
            at = START_MS + number
            await store.create(new_task(f"t{number}", context_id="c7", owner="bob", at=at, state=state, holder=held))
        await store.create(new_task("late", at=START_MS + 20))
        await store.append(ending("late", 1, at=START_MS + 30))
        changed = await store.changes(START_MS + 1, 100)
        assert [row.id for row in changed] == [f"t{number}" for number in range(1, len(STATES))] + ["late"]
        assert [row.state for row in changed] == [*STATES[1:], D]
        assert [row.id for row in await store.changes(START_MS + 1, 3)] == ["t1", "t2", "t3"]
        (late,) = await store.changes(START_MS + 21, 100)
        assert late == StatusRow(
            id="late", agent="echo", owner="ann", context_id="c1", state=D, status_ms=START_MS + 30, seq=2
        )
        while await store.sweep(START_MS + 1000, -1, 900, -1):
            pass
        while await store.sweep(START_MS + 1000, -1, 0, -1):
            pass
        assert await store.read("late", 0, 1 << 20) == ()
        assert await store.changes(START_MS + 21, 100) == (late,)
        assert await store.changes(START_MS + 31, 100) == ()
