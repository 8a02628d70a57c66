"""A store that is copied to another driver and back is the same, whatever happens in between."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.model.events import Noted
from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.model.principal import AccessRole
from dragoman.model.task import STATES
from dragoman.model.title import TITLE_NOTE
from dragoman.store.api import Dedupe, ListQuery, Owners, Quota, Store, Stored, StoreError
from dragoman.store.audit import AuditEntry
from dragoman.store.copying import Copied, CopyProgress
from dragoman.store.keyring import SigningKey, StoredKey
from dragoman.store.open import check_store, copy_store, open_store
from dragoman.store.outbox import Lane, PausedHost, Settled
from dragoman.store.sqlite.connection import ProcessLock
from dragoman.store.state import StateGuard, StatePut, StateScope, StateWrite
from tests.postgres import PostgresServer
from tests.store.cases.bench import AGENTS, by_run, chunk, ending, message, new_task
from tests.store.cases.deliveries import arrival, telling, webhook

TASKS = 60
NEVER_MS = 1 << 60
ODD = "a\\b\0c ü"
"""Text that PostgreSQL cannot store as it is."""


def nothing(progress: CopyProgress) -> None:
    """Show no progress."""


def interrupt(progress: CopyProgress) -> None:
    """Press Ctrl-C when all is copied and not yet compared."""
    if progress.stage == "compared":
        raise KeyboardInterrupt


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


class Opened:
    """A store at a URL, open in a block, as the replica `h1`."""

    def __init__(self, url: str, holder: str = "h1") -> None:
        self._store = open_store(url, SystemClock())
        self._holder = holder

    async def __aenter__(self) -> Store:
        await self._store.open(self._holder)
        await self._store.replicas.join(self._holder, address="", agents=AGENTS)
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


async def fill(store: Store) -> None:
    """Write something to every table."""
    for number in range(TASKS):
        task_id = f"t{number:03}"
        new = new_task(task_id, at=1000 + number, owner=("ann", "bob", ODD)[number % 3], context_id=f"c{number % 7}")
        if number % 5 == 0:
            picture = Part(raw=bytes([number]) * 5000, media_type="image/png")
            new = replace(new, events=(replace(new.events[0], message=message("look", picture)),))
        if number % 4 == 0:
            new = replace(new, push=webhook(host=f"https://h{number % 3}:443"), deliveries=(telling(1), telling(2)))
        if number % 6 == 0:
            new = replace(new, dedupe=Dedupe(b"key%d" % number, b"digest", NEVER_MS), quota=Quota(1000, 1000, 20_000))
        if number % 9 == 0:
            new = replace(new, head=replace(new.head, metadata={"title": f"{number} {ODD}"}))
        await store.create(new)
        named = (Noted({TITLE_NOTE: f"named {number} {ODD}"}),) if number % 10 == 0 else ()
        await store.append(by_run(task_id, chunk("one"), *named))
        if number % 2:
            await store.append(ending(task_id, 2, at=2000 + number))
    dues = await store.outbox.claim(Lane.UNKNOWN, NEVER_MS, NEVER_MS + 1, 3, 1)
    assert len(dues) == 3
    for due, outcome in zip(dues, ("dead", "retry", "delivered"), strict=True):
        arrivals = (replace(arrival(due, 7), url=ODD),) if outcome == "delivered" else ()
        await store.outbox.settle(
            Settled(number=due.number, outcome=outcome, due_ms=5, reason=ODD, arrivals=arrivals)  # type: ignore[arg-type]
        )
    key = StoredKey(
        id="a" * 12,
        name=ODD,
        role=AccessRole.CALLER,
        agents=("x", ODD),
        scopes=None,
        digest=b"digest",
        made_ms=1,
    )
    await store.keys.add(key)
    await store.keys.add(replace(key, id="b" * 12, agents=None))
    await store.outbox.pause(PausedHost(name="hooks.example.org", at_ms=7, by="key:ops"))
    await store.keys.signing_key(SigningKey(kid="k", jwk=b"{}", made_ms=1))
    await store.remember(Dedupe(b"direct", b"d", NEVER_MS), message("answer"))
    for number in range(12):  # more than one step reads
        scope = StateScope("echo", (ODD, "ann", "bob")[number % 3], ("", "c0", "c6")[number % 3], "checkpoint")
        puts = StatePut(f"{number:02}\\ü", bytes([number]) * (4 << 20)), StatePut(f"{number:02}", b"", NEVER_MS)
        await store.state.write_entries(StateWrite(scope=scope, puts=puts))
    guard = StateGuard("t000", 1)
    scope = StateScope("echo", "ann", "c0", "memory")
    await store.state.write_entries(StateWrite(scope=scope, puts=(StatePut("k", b"v"),), guard=guard, act="0"))
    for body in (b"\x00on", None, b"off"):
        await store.operator_records.put_record("switch", ODD, body)
    for number in range(30):
        entry = AuditEntry(
            at_ms=number,
            principal=ODD,
            action="keys.create",
            agent="echo",
            task_id="",
            allowed=number % 2 == 0,
            reason="",
            peer="::1",
            subject=f"s{number}",
        )
        await store.audit.write((entry,))


def comparable(stored: Stored | None) -> Any:
    """The task with its events as values that can be compared."""
    assert stored is not None
    return replace(stored, events=()), [(logged.seq, logged.event) for logged in stored.events]


async def contents(store: Store) -> dict[str, Any]:
    """Everything that can be read through the protocol."""
    found: dict[str, Any] = {}
    for number in range(TASKS):
        task_id = f"t{number:03}"
        found[task_id] = comparable(await store.load(task_id)), await store.outbox.configs(task_id)
    query = ListQuery(owner=Owners.ALL, agent="echo", limit=100)
    found["rows"] = (await store.list_rows(query)).rows
    assert len([row for row in found["rows"] if row.title]) == 12
    listed = await store.list(query)
    found["list"] = listed.total, [comparable(stored) for stored in listed.tasks]
    found["totals"] = [(await store.list(replace(query, owner="bob", state=state))).total for state in STATES]
    found["owed"] = await store.outbox.owed()
    found["receipts"] = await store.receipts.page()
    assert len(found["receipts"]) == 1
    found["paused"] = await store.outbox.paused()
    scopes = [scope for owner in ("ann", "bob", ODD) for scope in await store.state.list_scopes(owner)]
    assert scopes
    found["state"] = {scope: await store.state.list_entries(scope) for scope in scopes}
    found["sizes"] = await store.state.count_kinds()
    found["records"] = await store.operator_records.read_records()
    assert len(found["records"]) == 3
    found["keys"] = await store.keys.all(), await store.keys.signing_key()
    found["calls"] = [await store.recall(key) for key in (b"key0", b"key6", b"direct", b"none")]
    found["audit"] = await store.audit.read(limit=1000)
    return found


async def made(url: str) -> dict[str, Any]:
    """The contents of the store at `url` after it was filled."""
    async with Opened(url) as store:
        await fill(store)
        return await contents(store)


async def test_a_store_goes_to_postgresql_and_back(file_url: str, postgres_url: str, tmp_path: Path) -> None:
    before = await made(file_url)
    shown: list[CopyProgress] = []
    copied = await copy_store(file_url, postgres_url, shown.append)
    assert (copied.tasks, copied.again) == (TASKS, False)
    assert copied.rows["files"] == TASKS // 5
    assert copied.rows["deliveries"] == 2 * TASKS // 4 - 1
    assert (shown[0], shown[-1]) == (CopyProgress("copied", 0, TASKS), CopyProgress("compared", TASKS, TASKS))
    assert await check_store(postgres_url) == []
    back = f"sqlite:///{tmp_path}/back.db"
    assert replace(await copy_store(postgres_url, back, nothing)) == copied
    assert await check_store(back) == []
    for url in (postgres_url, back):
        async with Opened(url, "h2") as store:
            assert await contents(store) == before


async def test_a_copy_goes_on_where_the_store_was(file_url: str, postgres_url: str, tmp_path: Path) -> None:
    await made(file_url)
    back = f"sqlite:///{tmp_path}/back.db"
    await copy_store(file_url, postgres_url, nothing)
    await copy_store(postgres_url, back, nothing)
    numbers = []
    for url in (file_url, postgres_url, back):
        async with Opened(url, "h2") as store:
            assert len(await store.claim("h2", 1000, AGENTS)) == TASKS // 2, "nobody holds them"
            new = replace(new_task("new", at=3000), push=webhook(), deliveries=(telling(1),))
            await store.create(new)
            await store.append(by_run("new", chunk("x", Part(raw=b"f" * 3000))))
            numbers.append((await store.outbox.owed())[-1].number)
            assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == TASKS // 3 + 1
        assert await check_store(url) == []
    assert numbers == [2 * TASKS // 4 + 1] * 3, "a number is never given again"


KILLED = """
import asyncio, os, signal, sys
from dragoman.store.open import copy_store

def show(progress):
    if progress.stage == "copied" and progress.done:
        os.kill(os.getpid(), signal.SIGKILL)

import dragoman.store.copying
dragoman.store.copying.STEP_TASKS = 7
asyncio.run(copy_store(sys.argv[1], sys.argv[2], show))
"""


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_copy_that_is_killed_goes_on(file_url: str, postgres_url: str, tmp_path: Path, direction: str) -> None:
    before = await made(file_url)
    source, target = file_url, postgres_url
    if direction == "out":
        await copy_store(file_url, postgres_url, nothing)
        source, target = postgres_url, f"sqlite:///{tmp_path}/out.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, source, target], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(StoreError, match="unfinished copy of"):
        await copy_store(_other(source, tmp_path), target, nothing)
    shown: list[CopyProgress] = []
    assert (await copy_store(source, target, shown.append)).again is False
    assert 0 < shown[0].done < TASKS, "it does not begin anew"
    async with Opened(target, "h2") as store:
        assert await contents(store) == before


def _other(url: str, tmp_path: Path) -> str:
    """Another store than the one at `url`, with the same contents."""
    if url.startswith("sqlite"):
        other = tmp_path / "other.db"
        other.write_bytes((tmp_path / "store.db").read_bytes())
        return f"sqlite:///{other}"
    return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.parametrize("driver", ["sqlite", "postgres"])
async def test_a_store_is_copied_within_a_driver_and_a_copy_is_begun_anew_if_asked_to(
    file_url: str, postgres_url: str, tmp_path: Path, driver: str
) -> None:
    before = await made(file_url)
    source, target = file_url, f"sqlite:///{tmp_path}/other.db"
    if driver == "postgres":
        source, target = postgres_url, f"{postgres_url}?schema=other"
        await copy_store(file_url, source, nothing)
    stale = f"sqlite:///{tmp_path}/stale.db"
    async with Opened(stale) as store:
        await store.create(new_task("stale"))
    with pytest.raises(KeyboardInterrupt):
        await copy_store(stale, target, interrupt)
    with pytest.raises(StoreError, match="or add --restart"):
        await copy_store(source, target, nothing)
    await copy_store(source, target, nothing, restart=True)
    async with Opened(target, "h2") as store:
        assert await contents(store) == before
        assert await store.load("stale") is None


async def test_what_was_copied_before_the_source_changed_is_copied_again(file_url: str, postgres_url: str) -> None:
    await made(file_url)
    with pytest.raises(KeyboardInterrupt):
        await copy_store(file_url, postgres_url, interrupt)
    async with Opened(file_url, "h2") as store:
        await store.claim("h2", 1000, AGENTS)
        await store.append(by_run("t000", chunk("more"), epoch=2))
        after = await contents(store)
    copied: Copied = await copy_store(file_url, postgres_url, nothing)
    assert copied.again
    async with Opened(postgres_url, "h3") as store:
        assert await contents(store) == after


async def test_a_store_that_is_in_use_or_has_data_is_left_alone(
    file_url: str, postgres_url: str, tmp_path: Path
) -> None:
    before = await made(file_url)
    async with Opened(file_url):
        with pytest.raises(StoreError, match="in use by another server"):
            await copy_store(file_url, postgres_url, nothing)
    async with Opened(postgres_url):
        with pytest.raises(StoreError, match="stop it first"):
            await copy_store(file_url, postgres_url, nothing)
    await copy_store(file_url, postgres_url, nothing)
    with pytest.raises(StoreError, match="has data already"):
        await copy_store(file_url, postgres_url, nothing)
    other = f"sqlite:///{tmp_path}/other.db"
    async with Opened(other) as store:
        await store.create(new_task("mine"))
    with pytest.raises(StoreError, match="has data already"):
        await copy_store(postgres_url, other, nothing)
    async with Opened(postgres_url, "h2"):
        await copy_store(postgres_url, f"sqlite:///{tmp_path}/live.db", nothing)
    async with Opened(f"sqlite:///{tmp_path}/live.db", "h3") as store:
        assert await contents(store) == before


@pytest.mark.parametrize("reads", [True, False], ids=["source", "target"])
async def test_a_file_that_is_no_store_is_refused_and_not_locked(file_url: str, tmp_path: Path, *, reads: bool) -> None:
    await made(file_url)
    path = tmp_path / "notes.db"
    path.write_text("no database, but long enough to have the head of one: " * 20)
    odd = f"sqlite:///{path}"
    source, target = (odd, f"sqlite:///{tmp_path}/x.db") if reads else (file_url, odd)
    with pytest.raises(StoreError, match=str(path)):
        await copy_store(source, target, nothing)
    ProcessLock(path).release()


@pytest.mark.parametrize("url", ["memory:", "sqlite:///nowhere/store.db"])
async def test_a_source_that_is_not_there_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"memory|there is no store file"):
        await copy_store(url, f"sqlite:///{tmp_path}/x.db", nothing)
    with pytest.raises(StoreError, match=r"memory|there is no store file"):
        await check_store(url)


async def test_faults_are_found(postgres_server: PostgresServer, postgres_url: str, file_url: str) -> None:
    await made(file_url)
    await copy_store(file_url, postgres_url, nothing)
    database = postgres_url.rpartition("/")[2]
    for damage, fault in (
        ("UPDATE dragoman.counts SET n1 = n1 + 1", "scope_counters"),
        ("DELETE FROM dragoman.pages WHERE first_seq = 2", "ends"),
        ("DELETE FROM dragoman.push_hosts", "outbox_orphans"),
        ("UPDATE dragoman.push_configs SET due_ms = NULL", "forgotten_webhooks"),
    ):
        postgres_server.execute(damage, database=database)
        assert any(line.startswith(f"{fault}: ") for line in await check_store(postgres_url)), damage
