"""Reads: logs, files and lists, also after a restart and after a sweep.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.events import Delegated, StatusChanged, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import TaskState, Usage
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    ListQuery,
    NewTask,
    Owners,
    Repeat,
    Store,
)
from dragoman.testing.store_cases.bench import (
    DAY_MS,
    START_MS,
    Bench,
    Case,
    D,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    record,
    said_event,
    seqs,
    status,
)
from dragoman.testing.store_cases.pushing import webhook


async def the_log_is_numbered_without_gaps_and_read_from_anywhere(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        for page in range(5):
            appended = await store.append(by_run("t1", *(chunk(f"{page}.{number}") for number in range(4))))
            assert isinstance(appended, Appended)
            assert appended.last_seq == 5 + 4 * page
        everything = await store.read("t1", 0, 1 << 20)
        assert seqs(everything) == list(range(1, 22))
        for after in range(21):
            some = await store.read("t1", after, 1 << 20)
            assert seqs(some) == list(range(after + 1, 22))
            assert [one.event for one in some] == [one.event for one in everything[after:]]
            assert seqs(await store.read("t1", after, 1)) == [after + 1]
        assert await store.read("t1", 21, 1000) == ()


async def large_bytes_come_back_equal(bench: Bench) -> None:
    async with bench.store() as store:
        content = bytes(range(256)) * 400
        part = Part(raw=content, filename="f", media_type="a/b")
        other = Part(raw=content[:-1] + b"!", filename="g")
        said = message("file", part, other)
        first = await store.create(new_task("t1", said=said))
        assert isinstance(first, Appended)
        assert first.log_bytes < len(content), "bytes of files are no part of the log"
        echo = chunk("", part, Part(raw=bytes(bytearray(content))))
        await store.append(by_run("t1", echo))
        kept = record("t1", 3, D, parts=[part, other])
        found = await loaded(store, "t1")
        assert [logged.event for logged in found.events] == [Submitted(said, timestamp(START_MS)), echo]
        assert all(logged.size > 2 * len(content) for logged in found.events)
        await store.append(Append(task_id="t1", events=(status(D),), state=D, status_ms=1, epoch=1, snapshot=kept))
        assert (await loaded(store, "t1")).snapshot == kept
        assert [logged.event for logged in await store.read("t1", 0, 1 << 20)][:2] == [said_event(said), echo]
        assert seqs(await store.read("t1", 0, 1000)) == [1], "bytes of files count"


async def everything_survives_a_restart(bench: Bench) -> None:
    if not bench.durable:
        return
    part = Part(raw=b"x" * 100_000)
    async with bench.store() as store:
        await store.create(new_task("t1", said=message("file", part), dedupe=Dedupe(b"k", b"d", START_MS + 1000)))
        await store.append(by_run("t1", chunk("1"), chunk("2")))
        await store.request_cancel("t1")
        await store.create(new_task("t2"))
        await store.append(ending("t2", 1))
        before = await store.load("t1"), await store.load("t2")
    async with bench.store("h2") as store:
        for old, new in zip(before, (await loaded(store, "t1"), await loaded(store, "t2")), strict=True):
            assert old is not None
            assert (old.head, old.seq, old.state, old.snapshot) == (new.head, new.seq, new.state, new.snapshot)
            assert [one.event for one in old.events] == [one.event for one in new.events]
        assert (await loaded(store, "t1")).cancel_requested
        assert await store.recall(b"k") == Repeat("t1", b"d", 1)
        assert [stored.head.id for stored in await store.claim("h2", 10)] == ["t1"]
        assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 2
        echo = chunk("", Part(raw=b"x" * 100_000))
        await store.append(by_run("t1", echo, epoch=2))
        assert (await loaded(store, "t1")).events[-1].event == echo


async def delegated_tasks_that_wait_are_found_oldest_first(bench: Bench) -> None:
    def child(task_id: str, state: TaskState, parent: str | None = "p") -> NewTask:
        new = new_task(task_id, holder=None, state=state)
        return replace(new, head=replace(new.head, parent=parent))

    async with bench.store() as store:
        assert await store.asking() == ()
        await store.create(child("t3", TaskState.INPUT_REQUIRED))
        await store.create(child("t2", TaskState.AUTH_REQUIRED))
        await store.create(child("parent", TaskState.INPUT_REQUIRED, None))
        await store.create(child("t1", TaskState.SUBMITTED))
        await store.create(child("t4", TaskState.INPUT_REQUIRED))
        await store.append(replace(ending("t4", 1, epoch=None), expected_seq=1))
        assert [(head.id, head.parent) for head in await store.asking()] == [("t3", "p"), ("t2", "p")]


async def the_children_of_a_task_are_found_until_they_end(bench: Bench) -> None:
    def child(task_id: str, parent: str | None, deadline_ms: int | None = None) -> NewTask:
        new = new_task(task_id)
        return replace(new, head=replace(new.head, parent=parent, deadline_ms=deadline_ms))

    async with bench.store() as store:
        first = child("c9", "p", START_MS + 1)
        for new in (child("p", None), first, child("c1", "p"), child("c2", "q"), child("grandchild", "c1")):
            await store.create(new)
        assert [head.id for head in await store.children("p")] == ["c9", "c1"]
        assert (await store.children("p"))[0] == first.head
        assert [head.id for head in await store.children("c1")] == ["grandchild"]
        assert await store.children("none") == ()
        await store.append(ending("c1", 1))
        assert [head.id for head in await store.children("p")] == ["c9"]


async def the_events_of_many_tasks_are_read_at_once(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id in ("t1", "t2", "t3"):
            await store.create(new_task(task_id))
        await store.append(by_run("t1", *(chunk("x" * 100) for _ in range(5))))
        await store.append(by_run("t3", chunk("late", Part(raw=b"x" * 100_000))))
        seen = [("t2", 1), ("t1", 2), ("none", 0), ("t3", 1)]
        found = await store.read_since(seen, 1 << 20)
        assert list(found) == ["t1", "t3"], "only those that have news, in the given order"
        for task_id, after in (("t1", 2), ("t3", 1)):
            log = await store.read(task_id, after, 1 << 20)
            assert [(one.seq, one.event, one.size) for one in found[task_id]] == [
                (one.seq, one.event, one.size) for one in log
            ]
        some = await store.read_since([("t1", 1), ("t3", 1)], 1)
        assert {task_id: seqs(events) for task_id, events in some.items()} == {"t1": [2]}, "one at least"
        rest = await store.read_since([("t1", 6), ("t3", 1)], 1)
        assert {task_id: seqs(events) for task_id, events in rest.items()} == {"t3": [2]}
        assert await store.read_since([("t1", 6), ("t3", 2)], 1 << 20) == {}
        assert await store.read_since([], 1 << 20) == {}


async def a_list_is_ordered_filtered_paged_and_counted(bench: Bench) -> None:
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


async def tasks_of_all_owners_are_listed_only_for_those_who_say_so(bench: Bench) -> None:
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
        try:
            ListQuery(agent="echo")  # type: ignore[call-arg]
        except TypeError:
            return
        raise AssertionError("a query without an owner")


async def _paged(
    store: Store,
    context_id: str | None,
    state: TaskState | None,
    after: int | None,
    owner: str | Owners = "ann",
) -> list[str]:
    """The ids of all pages, seven at a time; the totals agree."""
    found: list[str] = []
    totals: set[int] = set()
    before: tuple[int, str] | None = None
    more = True
    while more:
        query = ListQuery(
            owner=owner, agent="echo", context_id=context_id, state=state, status_after_ms=after, limit=7, before=before
        )
        listed = await store.list(query)
        assert len(listed.tasks) == 7 or not listed.more
        found += [stored.head.id for stored in listed.tasks]
        totals.add(listed.total)
        more = listed.more
        before = (listed.tasks[-1].status_ms, listed.tasks[-1].head.id) if listed.tasks else None
    assert totals == {len(found)}
    return found


async def a_large_task_is_known_to_be_one_and_is_read_whole(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("small", said=message("f", Part(text="x"))))
        text, file = Part(text="x" * 2_000_000), Part(raw=b"x" * 2_000_000)
        await store.create(new_task("text", said=Message(message_id="m", role=Role.USER, parts=(text,))))
        await store.create(
            replace(new_task("file", said=Message(message_id="m", role=Role.USER, parts=(file,))), push=webhook())
        )
        assert await store.size("small") < 10_000
        assert await store.size("text") >= 2_000_000
        assert await store.size("file") >= 2_000_000
        assert await store.size("none") == 0
        for task_id, part in (("text", text), ("file", file)):
            found = await loaded(store, task_id)
            assert [one.event.message.parts for one in found.events] == [(part,)]  # type: ignore[union-attr]
            assert found.pushed == (task_id == "file")
            await store.append(by_run(task_id, chunk("more")))
            assert (await loaded(store, task_id)).seq == 2
        assert await store.load("none") is None


async def a_page_ends_before_it_has_too_many_bytes_but_has_a_task(bench: Bench) -> None:
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


async def a_list_may_do_without_artifacts_and_history_but_not_without_the_status(bench: Bench) -> None:
    async with bench.store() as store:
        content = Part(raw=b"x" * 5000)
        said = message("status", content, role=Role.AGENT)
        await store.create(new_task("t1", said=message("f", content)))
        await store.append(by_run("t1", chunk("", content), StatusChanged(W, timestamp(1), said)))
        stored = (await store.list(ListQuery(owner="ann", agent="echo", artifacts=False, history=0))).tasks[0]
        assert seqs(stored.events) == [1, 2, 3]
        assert stored.events[2].event == StatusChanged(W, timestamp(1), said)
        whole = (await store.list(ListQuery(owner="ann", agent="echo", artifacts=True))).tasks[0]
        assert [one.event for one in whole.events] == [one.event for one in (await loaded(store, "t1")).events]
        assert [one.event for one in (await store.messages("ann", "echo", "c1", 1))[0].events] == [
            one.event for one in whole.events
        ]


async def what_was_delegated_is_kept_with_its_files(bench: Bench) -> None:
    async with bench.store() as store:
        content = Part(raw=b"x" * 5000, filename="x")
        artifacts = (Artifact(artifact_id="b", parts=(content, Part(data={"a": [1, None]}))),)
        said = message("done", content, role=Role.AGENT)
        event = Delegated(1, "other", "t2", TaskState.COMPLETED, timestamp(1), said, artifacts, Usage(1, 2, 3))
        refused = Delegated(2, "other", "", TaskState.REJECTED, timestamp(2))
        await store.create(new_task("t1"))
        await store.append(by_run("t1", event, refused))
        assert [one.event for one in (await loaded(store, "t1")).events[1:]] == [event, refused]
        assert [one.event for one in await store.read("t1", 1, 1 << 20)] == [event, refused]


async def the_newest_tasks_of_a_context_come_oldest_first(bench: Bench) -> None:
    async with bench.store() as store:
        for number in range(6):
            await store.create(new_task(f"t{number}", at=START_MS + number, context_id=f"c{number % 2}"))
        await store.create(new_task("t9", at=START_MS + 9, owner="bob", context_id="c0"))
        found = await store.messages("ann", "echo", "c0", 2)
        assert [stored.head.id for stored in found] == ["t2", "t4"]
        assert await store.messages("ann", "echo", "none", 2) == ()


async def a_sweep_takes_what_is_too_old_and_nothing_else(bench: Bench) -> None:
    async with bench.store() as store:
        content = Part(raw=b"x" * 5000)
        for age in range(4):  # days
            at = START_MS - age * DAY_MS
            await store.create(new_task(f"done{age}", at=at, said=message("f", content)))
            await store.append(ending(f"done{age}", 1, at=at))
            await store.create(new_task(f"waiting{age}", at=at, holder=None, state=TaskState.INPUT_REQUIRED))
            await store.create(new_task(f"working{age}", at=at))
        await store.create(new_task("call", dedupe=Dedupe(b"old", b"", START_MS)))
        await store.remember(Dedupe(b"new", b"", START_MS + 1), message("x"))
        assert await swept(store, START_MS, -1, -1, -1) == 1, "the expired call"
        assert await store.recall(b"new") is not None
        await swept(store, START_MS, int(2.5 * DAY_MS), int(1.5 * DAY_MS), int(0.5 * DAY_MS))
        listed = await store.list(ListQuery(owner="ann", agent="echo", limit=100))
        left = {stored.head.id for stored in listed.tasks}
        assert left == {"done0", "done1", "done2", "waiting0", "working0", "working1", "working2", "working3", "call"}
        assert listed.total == len(left)
        assert seqs(await store.read("done1", 0, 1 << 20)) == [1, 2]
        assert await store.read("done2", 0, 1 << 20) == (), "its log is gone"
        assert (await loaded(store, "done2")).snapshot is not None, "its snapshot is not"
        assert await swept(store, START_MS, int(2.5 * DAY_MS), int(1.5 * DAY_MS), int(0.5 * DAY_MS)) == 0


async def swept(store: Store, *ages: int) -> int:
    """Sweep until nothing is left to do; how many rows went."""
    rows = 0
    while went := await store.sweep(*ages):
        rows += went
    return rows


async def readers_and_writers_do_not_get_in_each_others_way(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))

        async def write() -> None:
            for number in range(100):
                await store.append(by_run("t1", chunk(str(number))))

        async def read() -> None:
            seen = 0
            while seen < 101:
                events = await store.read("t1", seen, 1 << 20)
                assert seqs(events) == list(range(seen + 1, seen + 1 + len(events)))
                seen += len(events)
                assert (await loaded(store, "t1")).seq >= seen
                assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 1

        await asyncio.wait_for(asyncio.gather(write(), read(), read(), read()), 60)


async def what_was_loaded_is_forgotten_when_it_is_written_to(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        assert (await loaded(store, "t1")).seq == (await loaded(store, "t1")).seq == 1
        store.append(by_run("t1", chunk("a"))).cancel()  # the one who waited is gone; the write is not
        await store.append(by_run("t1", chunk("b")))
        assert (await loaded(store, "t1")).seq == 3
        await store.request_cancel("t1")
        assert (await loaded(store, "t1")).cancel_requested


READING: tuple[Case, ...] = (
    the_log_is_numbered_without_gaps_and_read_from_anywhere,
    large_bytes_come_back_equal,
    everything_survives_a_restart,
    delegated_tasks_that_wait_are_found_oldest_first,
    the_children_of_a_task_are_found_until_they_end,
    the_events_of_many_tasks_are_read_at_once,
    tasks_of_all_owners_are_listed_only_for_those_who_say_so,
    a_list_is_ordered_filtered_paged_and_counted,
    a_large_task_is_known_to_be_one_and_is_read_whole,
    a_page_ends_before_it_has_too_many_bytes_but_has_a_task,
    a_list_may_do_without_artifacts_and_history_but_not_without_the_status,
    what_was_delegated_is_kept_with_its_files,
    the_newest_tasks_of_a_context_come_oldest_first,
    a_sweep_takes_what_is_too_old_and_nothing_else,
    readers_and_writers_do_not_get_in_each_others_way,
    what_was_loaded_is_forgotten_when_it_is_written_to,
)
