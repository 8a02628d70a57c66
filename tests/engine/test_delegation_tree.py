"""The trees of delegations."""

import pytest
from msgspec.structs import replace

from dragoman.admin.logs import UpstreamWord
from dragoman.admin.overview import UpstreamLine
from dragoman.engine.admin.delegation_tree import DelegationTrees
from dragoman.engine.admin.folded_places import LOG_BYTES
from dragoman.engine.lineage import child_of
from dragoman.engine.upstream_notes import UpstreamAttempt, write_attempts
from dragoman.model.events import Delegated, Logged, Noted, StatusChanged
from dragoman.model.ids import SystemClock, timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.task import TERMINAL, TaskState
from dragoman.store.open import open_store
from tests.store.cases.bench import DAY_MS, START_MS, by_run, ending, new_task, status


async def test_a_circle_of_delegations_is_a_tree_that_ends() -> None:
    """An agent of another server gives its tasks ids of its own choice."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        for task_id, other in (("t1", "t2"), ("t2", "t1")):
            new = new_task(task_id)
            outcomes = [
                Delegated(number, "remote", other, TaskState.COMPLETED, "2026-01-01T00:00:00.000Z") for number in (1, 2)
            ]
            await store.create(replace(new, events=(*new.events, *outcomes)))
        tree = await DelegationTrees(store).read("t1", ())
        assert [(task.id, task.parent) for task in tree.tasks] == [("t1", None), ("t2", "t1")]
        assert not tree.more
    finally:
        await store.close()


def line(agent: str, url: str, dragoman: bool | None = None) -> UpstreamLine:
    return UpstreamLine(agent=agent, breaker="closed", succeeded=0, refused=0, failed=0, url=url, dragoman=dragoman)


FAR = (line("far", "https://far.example", dragoman=True), line("near", "http://localhost"))
WORD = {"said": "working", "first": "2027-01-15T07:00:00.000Z", "last": "2027-01-15T07:00:01.000Z"}


async def test_a_task_at_another_server_is_a_row_of_its_own_unless_it_is_in_this_store() -> None:
    """Only agents of other servers note the ids of tasks there; the notes of others are their own."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        for task_id, agent, there in (("t1", "far", "x1"), ("t2", "near", "t3"), ("t3", "own", "x3")):
            new = new_task(task_id, agent=agent)
            ended = StatusChanged(TaskState.COMPLETED, "2027-01-15T08:00:09.000Z")
            events = (*new.events, Noted({"task": there}), ended)
            await store.create(replace(new, events=events, state=TaskState.COMPLETED, holder=None))
        ours, theirs = (await DelegationTrees(store).read("t1", FAR)).tasks
        assert (ours.id, ours.url, ours.elsewhere, ours.upstream) == ("t1", None, False, None)
        assert (theirs.id, theirs.parent, theirs.url) == ("x1", "t1", "https://far.example")
        assert (theirs.elsewhere, theirs.state, theirs.ended_at) == (True, "completed", "2027-01-15T08:00:09.000Z")
        assert theirs.upstream == UpstreamWord(known=False, dragoman=True), "it is from before states were noted"
        here = (await DelegationTrees(store).read("t2", FAR)).tasks
        assert [(task.id, task.parent, task.agent, task.elsewhere) for task in here] == [
            ("t2", None, "near", False),
            ("t3", "t2", "own", False),
        ]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("ours", "notes", "state", "word"),
    [
        (
            TaskState.CANCELED,
            WORD | {"cancel": "refused"},
            "working",
            UpstreamWord(
                known=True,
                first_status_at=WORD["first"],
                last_status_at=WORD["last"],
                followed_until="2027-01-15T08:00:09.000Z",
                cancel="refused",
                differs=True,
                dragoman=True,
            ),
        ),
        (
            TaskState.WORKING,
            {"said": "submitted", "lost": "2027-01-15T08:00:05.000Z", "cancel": "nonsense"},
            "submitted",
            UpstreamWord(
                known=True,
                lost_at="2027-01-15T08:00:05.000Z",
                followed_until="2027-01-15T08:00:05.000Z",
                dragoman=True,
            ),
        ),
        (TaskState.WORKING, {"said": "failed"}, "failed", UpstreamWord(known=True, differs=True, dragoman=True)),
        (TaskState.WORKING, {"said": "nonsense"}, "working", UpstreamWord(known=False, dragoman=True)),
    ],
)
async def test_the_last_word_on_a_task_there_is_told_apart_from_ours(
    ours: TaskState, notes: dict[str, str], state: str, word: UpstreamWord
) -> None:
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        new = new_task("t1", agent="far")
        now = StatusChanged(ours, "2027-01-15T08:00:09.000Z")
        events = (*new.events, Noted({"task": "x1"}), Noted(notes), now)
        await store.create(replace(new, events=events, state=ours, holder=None if ours in TERMINAL else new.holder))
        _, theirs = (await DelegationTrees(store).read("t1", FAR)).tasks
        assert (theirs.state, theirs.upstream) == (state, word)
        tasks = (await DelegationTrees(store).read("t1", ())).tasks
        if word.known:
            assert (tasks[1].url, tasks[1].upstream) == (None, replace(word, dragoman=None)), "it is served elsewhere"
        else:
            assert len(tasks) == 1
    finally:
        await store.close()


async def test_a_task_whose_log_was_deleted_still_has_its_end_and_the_last_word_there() -> None:
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        new = new_task("t1", agent="far")
        await store.create(new)
        noted, ended = Noted({"task": "x1"} | WORD | {"said": "completed"}), status(TaskState.COMPLETED)
        record = fold(new.head, None, [Logged(seq, event) for seq, event in enumerate((*new.events, noted, ended), 1)])
        await store.append(replace(ending("t1", 1), events=(noted, ended), snapshot=record))
        while await store.sweep(START_MS + DAY_MS, -1, DAY_MS // 2, -1):
            pass
        assert not await store.read("t1", 0, LOG_BYTES)
        ours, theirs = (await DelegationTrees(store).read("t1", FAR)).tasks
        assert (ours.ended_at, theirs.id, theirs.state) == (timestamp(START_MS), "x1", "completed")
        assert theirs.upstream is not None
        assert theirs.upstream.last_status_at == WORD["last"]
    finally:
        await store.close()


async def test_the_members_of_a_pool_that_have_and_had_a_task_are_told() -> None:
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        await store.create(new_task("t1", agent="far"))
        tried = write_attempts([UpstreamAttempt(member="a", at=WORD["first"], reason="upstream_busy", why="429")])
        pages = [{"member": "a", "bound": "a"}, {"member": "b", "tried": tried}, {"task": "x1"} | WORD, {"lost": "now"}]
        await store.append(by_run("t1", *map(Noted, pages)))
        upstreams = [replace(FAR[0], member=name, url=f"https://{name}.example") for name in "ab"]
        ours, theirs = (await DelegationTrees(store).read("t1", upstreams)).tasks
        assert [(each.member, each.reason, each.why) for each in ours.attempts] == [("a", "upstream_busy", "429")]
        assert (theirs.member, theirs.history_at, theirs.url) == ("b", "a", "https://b.example")
        assert theirs.upstream is not None
        assert theirs.upstream.lost_at == "now"
    finally:
        await store.close()


async def test_tasks_that_a_canceled_task_delegated_are_in_its_tree() -> None:
    """Its log has no outcome of them, and they have ended."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        known, ended = child_of("t1", 1), child_of("t1", 2)
        new = new_task("t1")
        outcome = Delegated(1, "echo", known, TaskState.COMPLETED, "2026-01-01T00:00:00.000Z")
        canceled = StatusChanged(TaskState.CANCELED, "2026-01-01T00:00:01.000Z")
        events = (*new.events, outcome, canceled)
        await store.create(replace(new, events=events, state=TaskState.CANCELED, holder=None))
        for task_id in (known, ended):
            await store.create(new_task(task_id))
            await store.append(ending(task_id, 1))
        tree = await DelegationTrees(store).read("t1", ())
        assert [(task.id, task.parent) for task in tree.tasks] == [("t1", None), (known, "t1"), (ended, "t1")]
    finally:
        await store.close()


async def test_a_log_is_read_once_however_often_its_tree_is(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    seqs: list[int] = []
    read = store.read

    async def counted(task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        found = await read(task_id, after, limit_bytes)
        seqs.extend(logged.seq for logged in found)
        return found

    monkeypatch.setattr(store, "read", counted)
    try:
        await store.create(new_task("t1"))
        await store.create(new_task("t2"))
        trees = DelegationTrees(store)
        tree = await trees.read("t1", ())
        assert [(task.id, task.ended_at) for task in tree.tasks] == [("t1", None)]
        await store.append(by_run("t1", Delegated(1, "echo", "t2", TaskState.WORKING, timestamp(START_MS))))
        await store.append(ending("t1", 2))
        for _ in range(2):
            tree = await trees.read("t1", ())
            assert [(task.id, task.parent, task.state) for task in tree.tasks] == [
                ("t1", None, "completed"),
                ("t2", "t1", "working"),
            ]
            assert tree.tasks[0].ended_at == timestamp(START_MS)
        assert sorted(seqs) == [1, 1, 2, 3], "t1 has three events, and t2 one"
        await store.sweep(START_MS + DAY_MS, -1, 0, -1)
        assert (await trees.read("t1", ())).tasks == tree.tasks, "what is known of a log stays when it is deleted"
    finally:
        await store.close()
