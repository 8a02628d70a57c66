"""Files of earlier programs: after the migrations they hold what a new program would have written."""

from pathlib import Path

from msgspec.structs import replace

from dragoman.model.events import Logged
from dragoman.model.ids import SystemClock
from dragoman.model.lifecycle import fold
from dragoman.model.task import TaskHead
from dragoman.store.api import TaskSearch
from dragoman.store.codec import Codec
from dragoman.store.sqlite import SqliteStore
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import migrate, migrations
from tests.store.cases.bench import by_run, chunk, message, new_task

HUGE = {"parent": 10**30}
"""MessagePack cannot encode it, so that the head is spelled in JSON; and its key looks like a field of the head."""

WORKING, INPUT_REQUIRED, COMPLETED = 1, 2, 4


def write_old_file(path: Path, version: int, tasks: list[tuple[TaskHead, int]]) -> None:
    """A file as a program of that version left it: these tasks, each with one page."""
    location, codec = locate(f"sqlite:///{path}"), Codec()
    connection = connect(location)
    migrate(connection, location, migrations()[:version])
    connection.execute("INSERT INTO scopes (scope, owner, agent) VALUES (1, 'ann', 'echo')")
    for task, (head, state) in enumerate(tasks, 1):
        page = codec.encode(new_task(head.id, said=message("hello")).events)
        leased = state == WORKING
        row = (task, head.id, head.context_id, state, int(leased), "dead" if leased else None, codec.encode(head))
        connection.execute(
            "INSERT INTO tasks (task, id, scope, context, state, status_ms, seq, epoch, holder, log_bytes, head) "
            "VALUES (?, ?, 1, ?, ?, 1, 1, ?, ?, 10, ?)",
            row,
        )
        connection.execute("INSERT INTO pages (task, first_seq, last_seq, events) VALUES (?, 1, 1, ?)", (task, page))
        connection.execute(f"UPDATE scopes SET n{state} = n{state} + 1")
    connection.close()


async def test_delegations_of_an_old_file_are_found_by_their_parent(tmp_path: Path) -> None:
    plain = new_task("plain").head
    tasks = [
        (plain, WORKING),
        (replace(plain, id="c1", parent="plain", deadline_ms=7), INPUT_REQUIRED),
        (replace(plain, id="odd", parent="plain", metadata=HUGE), WORKING),
        (replace(plain, id="mere words", metadata={"parent": "plain"}), INPUT_REQUIRED),
        (replace(plain, id="ended", parent="plain"), COMPLETED),
        (replace(plain, id="alone", parent="plain", detached=True), WORKING),
    ]
    path = tmp_path / "store.db"
    write_old_file(path, 5, tasks)
    store = SqliteStore(f"sqlite:///{path}", SystemClock())
    await store.open("h1")
    assert [head.id for head in await store.children("plain")] == ["c1", "odd"]
    assert [(head.id, head.deadline_ms) for head in await store.asking()] == [("c1", 7)]
    stored = await store.load("odd")
    assert stored is not None
    assert stored.head == tasks[2][0]
    write = replace(by_run("plain", chunk("more")), write=1)
    assert await store.append(write) == await store.append(write), "pages of old files have no id"
    await store.close()
    columns = connect(locate(f"sqlite:///{path}")).execute("SELECT id, parent, deadline_ms FROM tasks ORDER BY task")
    assert list(columns) == [
        ("plain", None, None),
        ("c1", "plain", 7),
        ("odd", "plain", None),
        ("mere words", None, None),
        ("ended", "plain", None),
        ("alone", None, None),
    ]


async def test_tasks_of_an_old_file_are_found_by_text_and_dialect(tmp_path: Path) -> None:
    path, codec = tmp_path / "store.db", Codec()
    plain = new_task("logged").head
    tasks = [(plain, WORKING), (replace(plain, id="odd", metadata=HUGE, dialect="0.3"), WORKING)]
    write_old_file(path, 10, [*tasks, (replace(plain, id="pruned"), COMPLETED)])
    old = connect(locate(f"sqlite:///{path}"))
    record = fold(plain, None, [Logged(1, new_task("x", said=message("hello once")).events[0])])
    old.execute("DELETE FROM pages WHERE task = 3")
    old.execute("INSERT INTO snapshots (task, seq, record) VALUES (3, 1, ?)", (codec.encode_record(record),))
    old.close()
    store = SqliteStore(f"sqlite:///{path}", SystemClock())
    await store.open("h1")
    every = TaskSearch(owner="ann", agent="echo")
    found = {row.head.id: row.text for row in (await store.search(every)).rows}
    assert found == {"logged": "hello", "odd": "hello", "pruned": "hello once"}
    assert [row.head.id for row in (await store.search(replace(every, dialect="0.3"))).rows] == ["odd"]
    await store.close()
