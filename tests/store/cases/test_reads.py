"""Reads of tasks, logs and files, also after a restart and after a sweep.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from dragoman.model.events import Delegated, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Record, TaskState, Usage
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    ListQuery,
    NewTask,
    Repeat,
    Store,
    Stored,
)
from tests.store.cases.bench import (
    AGENTS,
    DAY_MS,
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
    said_event,
    seqs,
    status,
)
from tests.store.cases.deliveries import webhook


async def test_the_log_is_numbered_without_gaps_and_read_from_anywhere(bench: Bench) -> None:
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


async def test_large_bytes_come_back_equal(bench: Bench) -> None:
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


async def test_everything_survives_a_restart(bench: Bench) -> None:
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
        assert [stored.head.id for stored in await store.claim("h2", 10, AGENTS)] == ["t1"]
        assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 2
        echo = chunk("", Part(raw=b"x" * 100_000))
        await store.append(by_run("t1", echo, epoch=2))
        assert (await loaded(store, "t1")).events[-1].event == echo


async def test_delegated_tasks_that_wait_are_found_oldest_first(bench: Bench) -> None:
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


async def test_the_children_of_a_task_are_found_until_they_end(bench: Bench) -> None:
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


async def test_the_events_of_many_tasks_are_read_at_once(bench: Bench) -> None:
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


async def test_a_large_task_is_known_to_be_one_and_is_read_whole(bench: Bench) -> None:
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
            size = await store.size(task_id)
            assert await store.find(task_id, "ann", "echo", size) == size, "it is not read"
            assert await store.find(task_id, "bob", "echo", size) is None
            whole = await store.find(task_id, "ann", "echo", size + 1)
            assert isinstance(whole, Stored)
            assert [one.event.message.parts for one in whole.events] == [(part,)]  # type: ignore[union-attr]
            found = await loaded(store, task_id)
            assert [one.event.message.parts for one in found.events] == [(part,)]  # type: ignore[union-attr]
            assert found.pushed == (task_id == "file")
            await store.append(by_run(task_id, chunk("more")))
            assert (await loaded(store, task_id)).seq == 2
        assert await store.load("none") is None


async def test_a_read_of_a_long_task_takes_no_more_memory_than_the_task(bench: Bench) -> None:
    """However many pages of its log follow its snapshot."""
    text, pages = "x" * 1_000_000, 200
    async with bench.store() as store:
        await store.create(new_task("t1"))
        kept = record("t1", 2, W, parts=[Part(text=text)])
        await store.append(replace(by_run("t1", chunk(text)), snapshot=kept))
        await asyncio.gather(*[store.append(by_run("t1", chunk("y"))) for _ in range(pages)])
        query = ListQuery(owner="ann", agent="echo", artifacts=True)
        reads: dict[str, Callable[[], Awaitable[object]]] = {
            "load": lambda: store.load("t1"),
            "find": lambda: store.find("t1", "ann", "echo"),
            "list": lambda: store.list(query),
            "messages": lambda: store.messages("ann", "echo", "c1", 1),
        }
        found = await loaded(store, "t1")
        assert (found.snapshot, seqs(found.events)) == (kept, list(range(3, pages + 3)))
        for name, read in reads.items():
            peak = await peak_bytes(read)
            assert peak < 10 * len(text), f"{name} took {peak:,} bytes"


async def test_a_task_is_read_without_the_events_after_its_snapshot(bench: Bench) -> None:
    async with bench.store() as store:
        file = Part(raw=b"x" * 100_000)
        await store.create(replace(new_task("t1"), push=webhook()))
        await store.append(by_run("t1", chunk("", file)))
        assert await store.load_snapshot("t1") == replace(await loaded(store, "t1"), events=()), "there is no snapshot"
        kept = record("t1", 3, W, parts=[file])
        await store.append(replace(by_run("t1", chunk("more")), snapshot=kept))
        await store.append(by_run("t1", chunk("x" * 1_000_000)))
        await store.request_cancel("t1")
        found = await store.load_snapshot("t1")
        assert found == replace(await loaded(store, "t1"), events=())
        assert (found.seq, found.snapshot, found.cancel_requested, found.pushed) == (4, kept, True, True)
        assert await peak_bytes(lambda: store.load_snapshot("t1")) < 900_000, "no event is read"
        assert await store.load_snapshot("none") is None


async def test_a_reader_that_knows_a_task_until_a_seq_reads_what_follows(bench: Bench) -> None:
    """Where others write to the store, it reads neither the snapshot nor the pages that it knows."""
    async with bench.store() as store:
        file = Part(raw=b"x" * 100_000)
        await store.create(replace(new_task("t1"), push=webhook()))
        await store.append(by_run("t1", chunk("x" * 1_000_000)))
        kept = record("t1", 3, W, parts=[Part(text="x" * 1_000_000)])
        await store.append(replace(by_run("t1", chunk("more")), snapshot=kept))
        await store.append(replace(by_run("t1"), events=(chunk("", file), chunk("y"))))
        await store.request_cancel("t1")
        whole = await loaded(store, "t1")
        assert whole.seq == 5
        for after in (1, 2, 3, 5):
            found = await store.load_after("t1", after)
            assert found is not None
            if bench.shared:
                assert replace(found, events=()) == replace(whole, snapshot=None, events=(), after=after)
                rest = () if after == 5 else await store.read("t1", after, 1 << 30)
                assert [(one.seq, one.event) for one in found.events] == [(one.seq, one.event) for one in rest]
            else:
                assert fold_of(found) == fold_of(whole)
        for after in (0, 4, 9):  # the last of them is from before the store went back
            assert fold_of(await store.load_after("t1", after)) == fold_of(whole), after
        if bench.shared:
            assert await peak_bytes(lambda: store.load_after("t1", 3)) < 900_000
        assert await store.load_after("none", 1) is None


def fold_of(stored: Stored | None) -> Record:
    """The record of a task that was read whole."""
    assert stored is not None
    assert not stored.after
    whole = Fold(stored.head, stored.snapshot)
    for logged in stored.events:
        whole.add(logged.seq, logged.event)
    return whole.record()


async def test_a_task_is_found_only_for_its_owner_with_its_agent(bench: Bench) -> None:
    async with bench.store() as store:
        owner, agent = "ann\\0", "echo\0"
        new = new_task("t1", owner=owner, agent=agent)
        await store.create(new)
        for seq in (1, 2):
            found = await store.find("t1", owner, agent)
            assert isinstance(found, Stored)
            assert (found.head, seqs(found.events)) == (new.head, list(range(1, seq + 1)))
            for others in (("ann\0", agent), (owner, "echo"), (agent, owner), ("", "")):
                assert await store.find("t1", *others, 1) is None
            assert await store.find("t2", owner, agent, 1) is None
            await store.append(by_run("t1", chunk("more")))


async def test_what_was_delegated_is_kept_with_its_files(bench: Bench) -> None:
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


async def test_a_sweep_takes_what_is_too_old_and_nothing_else(bench: Bench) -> None:
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


async def test_those_of_some_ids_that_no_task_has_are_known(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.create(new_task("t2"))
        assert await store.missing(()) == frozenset()
        assert await store.missing(("t1", "nobody's", "t2")) == {"nobody's"}
        await store.append(ending("t1", 1))
        await swept(store, START_MS + 4 * DAY_MS, DAY_MS, DAY_MS, -1)
        assert await store.missing(["t2", "t1"]) == {"t1"}


async def test_a_sweep_leaves_what_a_task_that_has_not_ended_has_delegated(bench: Bench) -> None:
    """It may not have read the outcome yet, and would delegate it once more."""
    async with bench.store() as store:
        for parent in ("working", "asking", "done"):
            await store.create(new_task(parent))
            child = new_task(f"of-{parent}")
            await store.create(replace(child, head=replace(child.head, parent=parent)))
            await store.append(ending(f"of-{parent}", 1))
        await store.append(by_run("asking", status(TaskState.INPUT_REQUIRED), state=TaskState.INPUT_REQUIRED))
        await store.append(ending("done", 1))
        ages = (START_MS + 4 * DAY_MS, DAY_MS, DAY_MS, -1)
        await swept(store, *ages)
        listed = await store.list(ListQuery(owner="ann", agent="echo", limit=100))
        assert {stored.head.id for stored in listed.tasks} == {"working", "of-working", "asking", "of-asking"}
        await store.append(ending("working", 1))
        await swept(store, *ages)
        assert await store.head("of-working") is None


async def test_a_sweep_deletes_logs_though_tasks_expire_at_every_turn(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id, days in (("gone", 3), ("pruned", 2)):
            await store.create(new_task(task_id, at=START_MS - days * DAY_MS))
            await store.append(ending(task_id, 1, at=START_MS - days * DAY_MS))
        assert await store.sweep(START_MS, DAY_MS * 5 // 2, DAY_MS, -1)
        assert await store.head("gone") is None
        assert await store.read("pruned", 0, 1 << 20) == ()


async def swept(store: Store, *ages: int) -> int:
    """Sweep until nothing is left to do; how many rows went."""
    rows = 0
    while went := await store.sweep(*ages):
        rows += went
    return rows


async def test_readers_and_writers_do_not_get_in_each_others_way(bench: Bench) -> None:
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


async def test_what_was_loaded_is_forgotten_when_it_is_written_to(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        assert (await loaded(store, "t1")).seq == (await loaded(store, "t1")).seq == 1
        store.append(by_run("t1", chunk("a"))).cancel()  # the one who waited is gone; the write is not
        await store.append(by_run("t1", chunk("b")))
        assert (await loaded(store, "t1")).seq == 3
        await store.request_cancel("t1")
        assert (await loaded(store, "t1")).cancel_requested
