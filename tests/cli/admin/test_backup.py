"""`dragoman store backup|restore|check`: the real commands, beside a busy store, at a terminal and in a pipe."""

import asyncio
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.model.ids import SystemClock
from dragoman.model.message import Part
from dragoman.server import serving
from dragoman.store.api import ASLEEP, Append
from dragoman.store.blobs.api import BlobAddress
from dragoman.store.blobs.folder import FolderBlobs
from dragoman.store.open import check_store, open_store
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import migrate, migrations
from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.cli.admin.site import DEADLINE_S, V1, Ran, dragoman, dragoman_alone, dragoman_process
from tests.durability.test_full_disk import namespace
from tests.processes import ENDS_WITH_US
from tests.store.cases.bench import W, message, new_task
from tests.store.cases.deliveries import telling, webhook

STORE = "sqlite:///store.db"

BYTES = b"\x00large\xff" * 500


async def store_command(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run `dragoman store` on the store of the folder, in a pipe."""
    run = dragoman if arguments[0] == "check" else dragoman_process  # the others handle signals
    return await run(folder, "store", *arguments, **({"DRAGOMAN_STORE": STORE} | environ))


def store_alone(folder: Path, *arguments: str, **environ: str) -> Ran:
    """Run `dragoman store` on a store without a server."""
    return dragoman_alone(folder, "store", *arguments, **({"DRAGOMAN_STORE": STORE} | environ))


async def fill(folder: Path, *, owed: bool = False, tasks: int = 3) -> Path:
    """Make a store, one of whose tasks runs, and owes calls to a webhook if `owed`."""
    path = folder / "store.db"
    store = open_store(f"sqlite:///{path}", SystemClock())
    await store.open("h1")
    await store.keys.signing_key()
    for number in range(tasks):
        new = new_task(f"t{number}")
        if owed and not number:
            new = replace(new, push=webhook(), deliveries=(telling(1), telling(2)))
        await store.create(new)
    await store.close()
    return path


def database_of(archive: Path, target: Path) -> Path:
    """The store file in an archive."""
    with tarfile.open(archive) as opened:
        content = opened.extractfile("dragoman.db")
        assert content is not None
        target.write_bytes(content.read())
    return target


def fetch(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


async def test_the_backup_of_a_store_that_is_written_to_is_a_prefix(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", SystemClock())
    await store.open("h1")
    text = "x" * 8000
    made: list[str] = []

    async def write(count: int) -> None:
        fresh = [f"t{len(made) + number:07}" for number in range(count)]
        made.extend(fresh)
        await asyncio.gather(*(store.create(new_task(name, said=message(text))) for name in fresh))

    while len(made) < 3000:
        await write(100)
    before = len(made)
    command = asyncio.create_task(store_command(tmp_path, "backup", "b.tar"))
    while not command.done():
        await write(50)
    ran = await command
    assert (ran.status, ran.err) == (0, ""), ran
    await store.close()
    copy = database_of(tmp_path / "b.tar", tmp_path / "copy.db")
    ids = [name for (name,) in fetch(copy, "SELECT id FROM tasks ORDER BY task")]
    assert ids == made[: len(ids)]
    assert before <= len(ids) < len(made)
    assert await check_store(f"sqlite:///{copy}") == []
    assert f"Backed up {len(ids):,} tasks" in ran.out
    assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b.tar", "copy.db", "store.db", "store.db.lock"]


def large_agent() -> Agent:
    agent = Agent("giver")

    @agent.skill
    async def give(ctx: Context) -> Part:
        """Give out a large file."""
        return Part(raw=BYTES, filename="a.bin")

    return agent


async def send(url: str, text: str) -> Any:
    body = {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with (
        aiohttp.ClientSession(url, timeout=timeout) as http,
        http.post("/message:send", json=body, headers=V1) as answer,
    ):
        return (await answer.json())["task"]


async def test_a_running_server_is_backed_up_and_served_again_elsewhere_with_its_files(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    files = {"DRAGOMAN_FILES": "folder:files", "DRAGOMAN_FILES_ABOVE": "1000"}

    def config(folder: Path) -> Config:
        return Config(port=0, store=f"sqlite:///{folder}/store.db", files=f"folder:{folder}/files", files_above=1000)

    async with serving(config(tmp_path), [large_agent()]) as url:
        task = await send(url, "one")
        done = await store_command(tmp_path, "backup", str(there / "b.tar"), **files)
        assert (done.status, done.err) == (0, ""), done
        assert "Backed up 1 task with 4 events and 1 file to" in done.out
        running = await store_command(tmp_path, "restore", str(there / "b.tar"), **files)
        assert (running.status, len(running.err.splitlines())) == (1, 1)
        assert "in use by another server" in running.err
        assert (await store_command(tmp_path, "check", **files)).out == f"No faults in {STORE}.\n"
    lost = await store_command(there, "restore", "b.tar")
    assert (lost.status, "holds 1 files: set files to folder:PATH" in lost.err) == (1, True)
    assert sorted(entry.name for entry in there.iterdir()) == ["b.tar"]
    back = await store_command(there, "restore", "b.tar", **files)
    assert (back.status, back.err) == (0, ""), back
    assert back.out.startswith("Restored 1 task with 4 events and 1 file, as of ")
    again = await store_command(there, "restore", "b.tar", **files)
    assert (again.status, "store.db exists, and is not overwritten" in again.err) == (1, True)
    async with (
        serving(config(there), [large_agent()]) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        async with http.get(f"{url}/tasks/{task['id']}", headers=V1) as answer:
            (part,) = (await answer.json())["artifacts"][0]["parts"]
        async with http.get(part["url"]) as answer:
            assert await answer.read() == BYTES
    trail = await dragoman(there, "audit", "--json", DRAGOMAN_STORE=STORE)
    noted = [json.loads(line) for line in trail.out.splitlines()]
    assert [entry["subject"] for entry in noted if entry["action"] == "store.restore"] == ["b.tar"]
    (place,) = [path for path in (there / "files").rglob("*") if path.is_file() and len(path.name) == 40]
    place.unlink()
    found = await store_command(there, "check", **files)
    assert (found.status, found.out) == (1, f"files: {task['id']}/{place.name} is missing\n")


async def test_a_backup_without_the_files_is_refused_and_a_lost_file_is_told(tmp_path: Path) -> None:
    files = {"DRAGOMAN_FILES": "folder:files", "DRAGOMAN_FILES_ABOVE": "1000"}
    config = Config(port=0, store=f"sqlite:///{tmp_path}/store.db", files=f"folder:{tmp_path}/files", files_above=1000)
    async with serving(config, [large_agent()]) as url:
        task = await send(url, "one")
    unset = await store_command(tmp_path, "backup", "b.tar")
    assert (unset.status, "set files to the folder where they are" in unset.err) == (1, True)
    bucket = await store_command(
        tmp_path, "backup", "bucket.tar", DRAGOMAN_FILES="s3://bucket?endpoint=https://s3.example"
    )
    assert (bucket.status, bucket.err) == (0, "Files in s3://bucket are not in it: back up the bucket as well.\n")
    (place,) = [path for path in (tmp_path / "files").rglob("*") if path.is_file() and len(path.name) == 40]
    place.unlink()
    lost = await store_command(tmp_path, "backup", "b.tar", **files)
    assert lost.status == 1
    assert lost.err.splitlines()[0] == f"files: {task['id']}/{place.name} is missing"
    assert (tmp_path / "b.tar").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_command_that_is_ended_leaves_no_half_file(tmp_path: Path, number: signal.Signals) -> None:
    await fill(tmp_path, tasks=1000)
    caught = False
    while not caught:  # it is stopped at work, unless it was faster than we are
        process = await asyncio.create_subprocess_exec(
            *(*ENDS_WITH_US, sys.executable, "-m", "dragoman", "store", "backup", "b.tar", "--force"),
            cwd=tmp_path,
            env={**os.environ, "DRAGOMAN_STORE": STORE},
        )
        while process.returncode is None and not list(tmp_path.glob(".b.tar.*")):
            await asyncio.sleep(0)
        if process.returncode is None:
            process.send_signal(signal.SIGSTOP)
            caught = bool(list(tmp_path.glob(".b.tar.*")))
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
        code = await asyncio.wait_for(process.wait(), DEADLINE_S)
        assert code == 128 + number or not caught
    assert {entry.name for entry in tmp_path.iterdir()} <= {"b.tar", "store.db", "store.db.lock"}


def test_leases_of_the_old_server_count_no_more(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    assert store_alone(tmp_path, "backup", "b.tar").status == 0
    back = store_alone(tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db")
    assert (back.status, "to sqlite:///new.db." in back.out) == (0, True)
    assert fetch(tmp_path / "store.db", "SELECT DISTINCT holder, epoch FROM tasks") == [("h1", 1)]
    assert fetch(tmp_path / "new.db", "SELECT DISTINCT epoch FROM tasks") == [(2,)]
    assert fetch(tmp_path / "new.db", "SELECT count(*) FROM shared") == [(0,)]

    async def claim() -> set[tuple[str, int]]:
        store = open_store(f"sqlite:///{tmp_path}/new.db", SystemClock())
        await store.open("h2")
        await store.replicas.join("h2", address="", agents=("echo",))
        claimed = await store.claim("h2", 10, ("echo",))
        await store.close()
        return {(task.head.id, task.epoch) for task in claimed}

    assert asyncio.run(claim()) == {("t0", 3), ("t1", 3), ("t2", 3)}


def test_a_task_that_sleeps_sleeps_on_in_the_restored_store(tmp_path: Path) -> None:
    wakes_ms = SystemClock().now_ms() + 3_600_000

    async def sleep() -> None:
        store = open_store(f"sqlite:///{await fill(tmp_path, tasks=1)}", SystemClock())
        await store.open("h1")
        await store.append(
            Append(task_id="t0", events=(), state=W, status_ms=1, epoch=1, holder=ASLEEP, wakes_ms=wakes_ms)
        )
        await store.close()

    asyncio.run(sleep())
    assert store_alone(tmp_path, "backup", "b.tar").status == 0
    assert store_alone(tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db").status == 0
    found = fetch(tmp_path / "new.db", "SELECT holder, offered_until_ms FROM tasks")
    assert found == [(ASLEEP, wakes_ms)]


@pytest.mark.parametrize(("choice", "left"), [("keep", 2), ("drop", 0)])
def test_webhook_calls_that_were_owed_go_out_only_if_the_operator_says_so(
    tmp_path: Path, choice: str, left: int
) -> None:
    asyncio.run(fill(tmp_path, owed=True))
    assert store_alone(tmp_path, "backup", "b.tar").status == 0
    silent = store_alone(tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db")
    assert (silent.status, "--webhooks: 2 webhook deliveries were pending" in silent.err) == (2, True)
    assert not (tmp_path / "new.db").exists()
    back = store_alone(tmp_path, "restore", "b.tar", "--webhooks", choice, DRAGOMAN_STORE="sqlite:///new.db")
    assert back.status == 0, back.err
    assert fetch(tmp_path / "new.db", "SELECT count(*) FROM deliveries") == [(left,)]
    due = fetch(tmp_path / "new.db", "SELECT count(due_ms) FROM push_configs")
    assert due == [(1 if left else 0,)]
    assert asyncio.run(check_store(f"sqlite:///{tmp_path}/new.db")) == []


async def test_at_a_terminal_there_are_bars_and_a_question(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    await fill(shell.work, owed=True)
    shell.environment["DRAGOMAN_STORE"] = STORE
    with at_terminal(shell, "store", "backup", "b.tar") as terminal:
        terminal.until("Backed up 3 tasks")
        assert terminal.end() == 0
    for stage in ("Copying", "Checking", "Writing", "Verifying"):
        assert stage in terminal.screen
    assert "100%" in terminal.screen
    shell.environment["DRAGOMAN_STORE"] = "sqlite:///new.db"
    with at_terminal(shell, "store", "restore", "b.tar") as terminal:
        terminal.until("Keep or drop them?")
        terminal.type("drop\n")
        terminal.until("2 pending webhook deliveries were deleted.")
        assert terminal.end() == 0
    assert fetch(shell.work / "new.db", "SELECT count(*) FROM deliveries") == [(0,)]


def test_a_backup_replaces_another_only_by_force(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    (tmp_path / "b.tar").write_text("precious")
    refused = store_alone(tmp_path, "backup", "b.tar")
    assert (refused.status, "exists: name another file, or add --force" in refused.err) == (2, True)
    assert (tmp_path / "b.tar").read_text() == "precious"
    assert store_alone(tmp_path, "backup", "b.tar", "--force").status == 0
    assert tarfile.is_tarfile(tmp_path / "b.tar")


def test_an_older_store_is_backed_up_as_it_is_and_migrated_when_restored(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    location = locate(f"sqlite:///{path}")
    connection = connect(location)
    migrate(connection, location, migrations()[:1])
    connection.close()
    done = store_alone(tmp_path, "backup", "b.tar")
    assert (done.status, done.err) == (0, ""), done
    assert fetch(path, "PRAGMA user_version") == [(1,)]
    assert store_alone(tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db").status == 0
    assert fetch(tmp_path / "new.db", "PRAGMA user_version") == [(migrations()[-1].version,)]


def cut_off(archive: Path) -> None:
    os.truncate(archive, archive.stat().st_size // 2)


def without_manifest(archive: Path) -> None:
    rewrite(archive, lambda name, content: None if name == "manifest.json" else content)


def flipped(archive: Path) -> None:
    with archive.open("r+b") as file:
        file.seek(512 + 5000)
        byte = file.read(1)[0]
        file.seek(512 + 5000)
        file.write(bytes([byte ^ 1]))


def newer(archive: Path) -> None:
    rewrite(
        archive,
        lambda name, content: content.replace(b'"schema": ', b'"schema": 9') if name == "manifest.json" else content,
    )


def foreign(archive: Path) -> None:
    archive.write_text("no archive at all\n" * 100)


def faulty(archive: Path) -> None:
    """A store with a log that has a gap, in an archive whose digests are right."""
    folder = archive.with_name("fault.db")
    database_of(archive, folder)
    connection = apsw.Connection(str(folder))
    connection.execute("DELETE FROM pages")
    connection.close()
    content = folder.read_bytes()
    folder.unlink()

    def change(name: str, old: bytes) -> bytes:
        if name != "manifest.json":
            return content
        manifest = json.loads(old)
        return json.dumps(manifest | {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}).encode()

    rewrite(archive, change)


def rewrite(archive: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with tarfile.open(archive) as opened:
        entries = []
        for entry in opened:
            body = opened.extractfile(entry)
            assert body is not None
            entries.append((entry.name, change(entry.name, body.read())))
    with tarfile.open(archive, "w") as opened:
        for name, content in entries:
            if content is not None:
                written = tarfile.TarInfo(name)
                written.size = len(content)
                opened.addfile(written, io.BytesIO(content))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (cut_off, "was cut off"),
        (without_manifest, "was cut off"),
        (flipped, "is damaged"),
        (newer, "this program knows"),
        (foreign, "is no backup of Dragoman"),
        (faulty, "has faults: ends: "),
    ],
)
def test_a_backup_that_cannot_be_trusted_leaves_nothing_behind(
    tmp_path: Path, harm: Callable[[Path], None], words: str
) -> None:
    asyncio.run(fill(tmp_path))
    assert store_alone(tmp_path, "backup", "b.tar").status == 0
    harm(tmp_path / "b.tar")
    refused = store_alone(tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db")
    assert (refused.status, len(refused.err.splitlines())) == (1, 1), refused.err
    assert words in refused.err
    left = {entry.name for entry in tmp_path.iterdir()} - {"b.tar", "store.db", "store.db.lock", "new.db.lock"}
    assert left == set()


async def test_files_of_another_store_are_left_alone(tmp_path: Path) -> None:
    files = {"DRAGOMAN_FILES": "folder:files", "DRAGOMAN_FILES_ABOVE": "1000"}
    config = Config(port=0, store=f"sqlite:///{tmp_path}/store.db", files=f"folder:{tmp_path}/files", files_above=1000)
    async with serving(config, [large_agent()]) as url:
        await send(url, "one")
    assert (await store_command(tmp_path, "backup", "b.tar", **files)).status == 0
    FolderBlobs(tmp_path / "other").claim("another store")
    refused = await store_command(
        tmp_path, "restore", "b.tar", DRAGOMAN_STORE="sqlite:///new.db", DRAGOMAN_FILES="folder:other"
    )
    assert (refused.status, "holds the files of another store" in refused.err) == (1, True)
    assert not (tmp_path / "new.db").exists()
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".store"]


async def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path: Path) -> None:
    command = namespace()
    if not command:
        pytest.skip("this machine allows no mounts")
    await fill(tmp_path, tasks=100)
    small = tmp_path / "small"
    small.mkdir()
    for size in ("64k", "350k"):  # full while the store is copied, and while the archive is written
        script = f'mount -t tmpfs -o size={size} none "$0" && "$@"; echo "status $?"; ls -A "$0"'
        words = [sys.executable, "-m", "dragoman", "store", "backup", str(small / "b.tar"), "--store", STORE]
        process = await asyncio.create_subprocess_exec(
            *command, "sh", "-c", script, str(small), *words, cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert out.decode() == "status 1\n"
        assert err.decode() == (
            f"dragoman: {small}/b.tar: no space left on its disk: free some, or name a file on another disk\n"
        )


def test_check_finds_a_gap_in_a_log(tmp_path: Path) -> None:
    path = asyncio.run(fill(tmp_path))
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM pages WHERE task = 1")
    connection.close()
    found = store_alone(tmp_path, "check")
    assert (found.status, found.out) == (1, "ends: ('t0', 1, None)\n")
    as_json = store_alone(tmp_path, "check", "-o", "json")
    assert (as_json.status, json.loads(as_json.out)["faults"]) == (1, ["ends: ('t0', 1, None)"])
    done = store_alone(tmp_path, "backup", "b.tar")
    assert (done.status, "has these faults, and so has its backup" in done.err) == (1, True)
    assert (tmp_path / "b.tar").exists()


def test_postgresql_is_left_to_its_own_tools(tmp_path: Path, used_postgres_url: str) -> None:
    url = used_postgres_url.replace("postgres@", "postgres:secret@")
    told = store_alone(tmp_path, "backup", "b.dump", DRAGOMAN_STORE=url)
    bare = used_postgres_url.partition("?")[0]
    assert (told.status, f"pg_dump --format=custom --file=b.dump --schema=dragoman --dbname={bare}" in told.err) == (
        2,
        True,
    )
    back = store_alone(tmp_path, "restore", "b.dump", DRAGOMAN_STORE=url)
    assert (back.status, f"pg_restore --exit-on-error --dbname={bare}" in back.err) == (2, True)
    sound = store_alone(tmp_path, "check", DRAGOMAN_STORE=url)
    assert (sound.status, sound.out.startswith("No faults in ")) == (0, True)
    assert f"pg_amcheck --schema=dragoman {bare}" in sound.err
    assert "secret" not in "".join((*told[1:], *back[1:], *sound[1:]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("backup",), "Missing argument 'FILE'"),
        (("backup", "no/such/b.tar"), "there is no folder no/such: make it"),
        (("backup", "."), "is a folder: name a file in it"),
        (("backup", "b.tar"), "there is no store file store.db"),
        (("backup", "b.tar", "--server", "http://127.0.0.1:1"), "--server: a backup holds the server's private key"),
        (("backup", "b.tar", "--store", "memory:"), "ends with its server"),
        (("backup", "b.tar", "--store", "mysql://h/d"), "use sqlite:///path"),
        (("restore", "none.tar"), "there is no such file"),
        (("restore", "none.tar", "--webhooks", "maybe"), "'maybe' is not one of"),
        (("check",), "there is no store file store.db"),
        (("check", "--store", "memory:"), "ends with its server"),
    ],
)
def test_wrong_input_says_how_to_put_it_right(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = store_alone(tmp_path, *arguments)
    assert (ran.status, words in ran.err) == (2, True), ran.err
    assert len(ran.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_at_the_place_of_its_content() -> None:
    place = BlobAddress.of("t1", BYTES)
    assert FolderBlobs(Path("/f")).path(place) == Path("/f/t1/t1") / place.digest
