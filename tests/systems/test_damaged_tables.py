"""A row of any table is damaged: the server starts, serves, lists, delivers and sweeps, and that row costs itself."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole
from dragoman.store.open import check_store, open_store
from tests.bindings.admin.test_admin import make_keys
from tests.push.receiver import receiving
from tests.spoil import spoil_database, spoil_file
from tests.store.cases.bench import Spoil
from tests.store.cases.spoiling import Way, cut, empty, flip
from tests.systems.conftest import DEADLINE_S, Site, site
from tests.systems.speakers import NEW, V

WAIT_MS = 10**14
"""So late that everything is older than any retention."""


def broken(data: bytes) -> bytes:
    """A text whose last character is cut off in the middle."""
    return data[:-1] + b"\xc3"


BYTES: tuple[tuple[str, str, str, tuple[Way, ...]], ...] = (
    ("tasks", "head", "ENDED", (cut, empty, flip)),
    ("pages", "events", "OF_ENDED", (cut, empty, flip)),
    ("snapshots", "record", "OF_ENDED", (cut, empty, flip)),
    ("files", "bytes", "true", (cut, empty)),
    ("calls", "digest", "true", (cut,)),
    ("calls", "answer", "true", (cut, empty, flip)),
    ("push_configs", "settings", "OF_ENDED", (cut, empty, flip)),
    ("deliveries", "body", "true", (cut, empty)),
    ("keys", "digest", "name = 'bob'", (cut, empty)),
    ("keys", "limits", "name = 'bob'", (cut,)),
    ("shared", "value", "true", (cut, empty)),
    ("receipts", "digest", "true", (cut, empty)),
)
"""Columns, the rows of theirs that are damaged, and how."""

OPAQUE = (
    *(("files", "bytes"), ("calls", "digest"), ("deliveries", "body"), ("receipts", "digest")),
    *(("shared", "value"), ("shared", "key"), ("keys", "digest"), ("contexts", "context")),
)
"""Columns of which nobody can tell that they are damaged, those that end by themselves within minutes, and counters,
which other checks name."""

NAMED = {
    **dict.fromkeys(("pages", "snapshots", "push_configs"), "task ENDED"),
    "tasks": "task ",
    "keys": "key ",
    "calls": "the answer to a call",
}
"""How a check names the damaged row of a table."""

TEXTS = (
    *(("tasks", "text"), ("tasks", "dialect"), ("audit", "principal"), ("audit", "subject"), ("usage_days", "model")),
    *(("deliveries", "id"), ("deliveries", "dialect"), ("receipts", "url"), ("receipts", "config_id")),
    *(("push_hosts", "name"), ("paused_hosts", "name"), ("shared", "key"), ("quota_days", "owner")),
    *(("tasks", "context"), ("contexts", "context"), ("push_configs", "id"), ("audit", "action")),
)
"""Columns of SQLite whose text may be no UTF-8. PostgreSQL refuses such text."""

FAR = 9_007_199_254_740_993
"""A time or a day that no calendar has."""

NUMBERS = (
    *(("tasks", "state", 99, "ENDED"), ("tasks", "status_ms", FAR, "ENDED"), ("audit", "at_ms", FAR, "true")),
    *(("usage_days", "day", 2_000_000_000, "true"), ("receipts", "arrived_ms", FAR, "true")),
    *(("receipts", "made_ms", FAR, "true"), ("deliveries", "made_ms", FAR, "true")),
    *(("push_configs", "due_ms", FAR, "true"), ("paused_hosts", "paused_ms", FAR, "true")),
)
"""Numbers that are out of range."""

ADMIN = (
    *("/tasks", "/tasks?order=newest-created", "/tasks?text=x", "/conversations", "/keys", "/audit", "/webhooks"),
    *("/webhooks/paused", "/agents", "/workers", "/replicas", "/stats", "/series?span=month", "/usage"),
)


class Made(Struct, frozen=True):
    """What a store holds: the tasks, of which `ended` is damaged, and the keys."""

    ended: str
    tasks: frozenset[str]
    keys: dict[str, str]


async def make(store: str) -> Made:
    """Make a store with a row in each table."""
    headers = await make_keys(
        store, ann=(AccessRole.CALLER, None), bob=(AccessRole.CALLER, None), root=(AccessRole.OPERATOR, None)
    )
    keys = {name: header["x-api-key"] for name, header in headers.items()}
    async with receiving() as receiver, site(store=store, max_daily_tasks=100) as served:
        ann, root = served.by(keys["ann"]), served.by(keys["root"])
        receiver.answers = lambda number: 204 if receiver.asked[number].path == "/arrives" else 503
        sent = []
        for text, path in (("first", "/arrives"), ("second", "/waits"), ("third", "/waits")):
            params = NEW.said(text)
            hook = {"url": f"{receiver.url}{path}"}
            params["configuration"] = {"taskPushNotificationConfig": hook}
            parts = [{"text": text}, {"raw": "A" * 4000, "filename": "f"}]
            params["message"]["parts"] = parts
            sent.append((await ann.rpc("/agents/desk", "SendMessage", params, **V)).result["task"]["id"])
        sent.append(await NEW.send(ann, "fourth"))
        sent.append((await ann.rpc("/agents/desk", "SendMessage", NEW.said("ask"), **V)).result["task"]["id"])
        await ann.rpc("/agents/direct", "SendMessage", NEW.said("said"), idempotency_key="once", **V)
        listed = (await root.ask("GET", "/admin/v1/keys")).body["keys"]
        bob = next(key["id"] for key in listed if key["name"] == "bob")
        limited = await root.ask("POST", f"/admin/v1/keys/{bob}:limit", {"max_open_tasks": 5})
        assert limited.status == 200, limited.raw
        paused = await root.ask("POST", "/admin/v1/webhooks:pause", {"host": "hooks.example.org"})
        assert paused.status == 200, paused.raw
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(4)
    opened = open_store(store, SystemClock())
    await opened.open("test")
    await opened.shared.put("x/1", b"{}" * 10, WAIT_MS)
    await opened.close()
    return Made(sent[1], frozenset(sent), keys)


async def check(made: Made, served: Site, *, task_damaged: bool, unlisted: frozenset[str]) -> None:
    """Check what a server on a damaged store still does."""
    ann, root = served.by(made.keys["ann"]), served.by(made.keys["root"])
    nobody = await served.rpc("/agents/desk", "ListTasks", {}, **V)
    assert nobody.status == 401, "a damaged key lets nobody in"
    for task_id in made.tasks:
        task = (await NEW.get(ann, task_id)).result
        assert task["id"] == task_id
        assert ("metadata" in task and len(task["metadata"]) == 1) or not task_damaged or task_id != made.ended
    ids, token = set[str](), ""
    while True:
        page = (await ann.rpc("/agents/desk", "ListTasks", {"pageSize": 2, "pageToken": token}, **V)).result
        ids |= {task["id"] for task in page["tasks"]}
        token = page["nextPageToken"]
        if not token:
            break
    assert ids >= made.tasks - unlisted
    assert (await NEW.get(ann, await NEW.send(ann, "new"))).result["status"]["state"] == "TASK_STATE_COMPLETED"
    again = await ann.rpc("/agents/direct", "SendMessage", NEW.said("said"), idempotency_key="once", **V)
    assert again.status == 200
    assert "result" in again.body or again.error["code"] in (-32004, -32602), again.body
    for path in ADMIN:
        answer = await root.ask("GET", f"/admin/v1{path}")
        assert answer.status == 200, (path, answer.raw)


async def deliver(made: Made, served: Site) -> None:
    """Check that new deliveries go out beside damaged ones."""
    ann = served.by(made.keys["ann"])
    async with receiving() as receiver:
        params = NEW.said("told")
        params["configuration"] = {"taskPushNotificationConfig": {"url": f"{receiver.url}/new"}}
        assert "task" in (await ann.rpc("/agents/desk", "SendMessage", params, **V)).result
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)


async def sweep(store: str) -> None:
    """Check that everything is swept away once it is old."""
    opened = open_store(store, SystemClock())
    await opened.open("sweeper")
    try:
        await opened.replicas.join("sweeper", address="", agents=())
        while await opened.sweep(WAIT_MS, 1, 1, 1):
            pass
        while await opened.audit.sweep(WAIT_MS) or await opened.receipts.sweep(WAIT_MS):
            pass
        await opened.shared.sweep()
        figures = await opened.figures()
        assert not figures.open_tasks, "the one that waits for its caller is old, too"
    finally:
        await opened.close()


async def survive(store: str, made: Made, spoil: Spoil, table: str, column: str, where: str, way: Way) -> None:
    """Damage a row, and check that it costs itself."""
    task = f"(SELECT task FROM tasks WHERE id = '{made.ended}')"
    selected = where.replace("OF_ENDED", f"task = {task}").replace("ENDED", f"id = '{made.ended}'")
    await spoil(table, column, selected, way)
    faults = [fault for fault in await check_store(store) if fault.startswith("damaged: ")]
    if (table, column) not in OPAQUE and not column.endswith(("_ms", "state", "day")):
        named = NAMED.get(table, f"a row of {table}").replace("ENDED", made.ended)
        assert any(named in fault for fault in faults), faults
    async with site(store=store) as served:
        unlisted = frozenset({made.ended} if column == "state" else ())  # no list is of a state that there is not
        await check(made, served, task_damaged=table in ("tasks", "snapshots"), unlisted=unlisted)
        await deliver(made, served)
        if table == "keys":
            assert (await served.by(made.keys["bob"]).rpc("/agents/desk", "ListTasks", {}, **V)).status == 401
    await sweep(store)


@pytest.fixture(scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    path = tmp_path_factory.mktemp("made") / "store.db"
    return path, await make(f"sqlite:///{path}")


@asynccontextmanager
async def copied(made: tuple[Path, Made], folder: Path) -> AsyncIterator[tuple[str, Made, Spoil]]:
    shutil.copy(made[0], folder / "store.db")
    yield f"sqlite:///{folder}/store.db", made[1], spoil_file(folder / "store.db")


@pytest.mark.parametrize(
    ("table", "column", "where", "way"),
    [(table, column, where, way) for table, column, where, ways in BYTES for way in ways],
    ids=lambda value: value.__name__ if callable(value) else value,
)
async def test_damaged_bytes_cost_their_row(
    made: tuple[Path, Made], tmp_path: Path, table: str, column: str, where: str, way: Way
) -> None:
    async with copied(made, tmp_path) as (store, things, spoil):
        await survive(store, things, spoil, table, column, where, way)


@pytest.mark.parametrize(("table", "column"), TEXTS)
async def test_a_damaged_text_costs_its_row(made: tuple[Path, Made], tmp_path: Path, table: str, column: str) -> None:
    async with copied(made, tmp_path) as (store, things, spoil):
        where = "ENDED" if column == "context" and table == "tasks" else "true"
        await survive(store, things, spoil, table, column, where, broken)


@pytest.mark.parametrize(("table", "column", "number", "where"), NUMBERS)
async def test_a_damaged_number_costs_its_row(
    made: tuple[Path, Made], tmp_path: Path, table: str, column: str, number: int, where: str
) -> None:
    async with copied(made, tmp_path) as (store, things, spoil):
        await survive(store, things, spoil, table, column, where, lambda data: str(number).encode())


@pytest.mark.parametrize(
    ("table", "column", "where", "way"),
    [(table, column, where, ways[-1]) for table, column, where, ways in BYTES],
    ids=lambda value: value.__name__ if callable(value) else value,
)
async def test_damaged_bytes_cost_their_row_in_postgres(
    used_postgres_url: str, table: str, column: str, where: str, way: Way
) -> None:
    made = await make(used_postgres_url)
    await survive(used_postgres_url, made, spoil_database(used_postgres_url), table, column, where, way)


async def test_a_damaged_key_that_is_the_only_one_opens_no_server(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    (key,) = (await make_keys(store, ann=(AccessRole.CALLER, None))).values()
    await spoil_file(tmp_path / "store.db")("keys", "role", "true", cut)
    async with site(store=store) as served:
        for asking in (served, served.by(key["x-api-key"])):
            assert (await asking.rpc("/agents/desk", "ListTasks", {}, **V)).status == 401
