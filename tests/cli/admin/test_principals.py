"""`dragoman admin principals`: the real command on a server, and on a store that no server has open."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.cli.admin.principals import HELD_WORDS
from dragoman.cli.tables import count
from dragoman.store.state import StatePut, StateScope, StateWrite
from tests.cli.admin.site import Ran, dragoman, site
from tests.kit.places import beside
from tests.systems.conftest import site as served_site
from tests.systems.speakers import NEW

ALL = ("admin", "principals")


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:///{tmp_path}/store.db"
    url: str = request.getfixturevalue("used_postgres_url")
    return url


def read_tar(content: bytes) -> dict[str, bytes]:
    """The files of an archive."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            assert member.mode == 0o600
            found[member.name] = file.read()
    return found


async def remember(store: str) -> None:
    """What an agent keeps for anonymous callers and, of which nothing is deleted, for all."""
    puts = tuple(StatePut(f"k{number:02}", b'{"n": %d}' % number) for number in range(25))
    async with beside(store, "h9") as opened:
        write = StateWrite(scope=StateScope("desk", "anonymous", "", "memory"), puts=puts)
        await opened.state.write_entries(write)
        session = StateWrite(scope=StateScope("desk", "anonymous", "", "session"), puts=(StatePut("s", b"\x80\xff"),))
        await opened.state.write_entries(session)
        await opened.state.write_entries(replace(session, scope=StateScope("desk", "", "", "memory")))


async def test_a_store_without_a_server_exports_and_deletes(store: str, tmp_path: Path) -> None:
    """Large files, which are kept elsewhere, too."""
    files = tmp_path / "files"

    async def run(*words: str) -> Ran:
        return await dragoman(tmp_path, *words, DRAGOMAN_STORE=store, DRAGOMAN_FILES=f"folder:{files}")

    large = "large " * 1000
    async with served_site(store=store, files=f"folder:{files}", files_above=1000) as served:
        said = NEW.said("file")
        said["message"]["parts"].append({"raw": "QUJD" * 1000, "filename": "abc.txt", "mediaType": "text/plain"})
        sent = (await NEW.call(served, "SendMessage", said)).result["task"]["id"]
        await NEW.send(served, large)
        asking = (await NEW.call(served, "SendMessage", NEW.said("ask"))).result["task"]["id"]
    await remember(store)
    assert [path.parent.name for path in files.rglob("*") if path.is_file() and path.parent != files] == [sent]
    exported = await run(*ALL, "export", "anonymous", "all.tar")
    assert exported == (0, "", "All data of anonymous is in all.tar: 3 tasks.\n")
    assert (tmp_path / "all.tar").stat().st_mode & 0o777 == 0o600
    found = read_tar((tmp_path / "all.tar").read_bytes())
    assert {name.split("/")[1] for name in found if name.startswith("tasks/")} >= {sent, asking}
    assert [content for name, content in found.items() if name.endswith("-abc.txt")] == [b"ABC" * 1000]
    assert json.loads(found["principal.json"])["held"]["open_tasks"] == 1
    assert b"tasks/ID/task.json" in found["README.txt"]
    memory, sessions = found["memory/desk/memory.jsonl"], found["memory/desk/session.jsonl"]
    assert [json.loads(line)["value"] for line in memory.splitlines()] == [{"n": number} for number in range(25)]
    assert [json.loads(line)["base64"] for line in sessions.splitlines()] == ["gP8="]
    counted = await run(*ALL, "delete", "anonymous", "--dry-run")
    assert (counted.status, counted.err, *counted.out.splitlines()[:2]) == (
        *(0, "", "3 tasks, 1 of them open"),
        "26 entries of agents' memory, checkpoints and sessions",
    )
    refused = await run(*ALL, "delete", "anonymous", "--yes")
    assert (refused.status, "1 open task" in refused.err) == (1, True), refused
    deleted = await run(*ALL, "delete", "anonymous", "--yes", "--cancel-open", "-o", "json")
    report = json.loads(deleted.out)
    assert (deleted.status, report["tasks"], report["more"]) == (0, 3, False), deleted
    assert [path for path in files.rglob("*") if path.is_file() and path.parent != files] == []
    assert (await run("admin", "tasks", "list")).err == "No tasks fit.\n"
    again = await run(*ALL, "delete", "anonymous", "--yes")
    assert (again.status, again.out, "nothing is kept of 'anonymous'" in again.err) == (0, "", True)
    trail = [json.loads(line) for line in (await run("audit", "--json", "--action", "principals")).out.splitlines()]
    assert [(entry["action"], entry.get("subject", "")) for entry in trail] == [
        ("principals.export", report["alias"]),
        *[("principals.show", report["alias"])] * 3,
        ("principals.delete", report["alias"]),
        ("principals.show", ""),
    ]
    async with beside(store, "h9") as opened:
        assert await opened.state.list_scopes("anonymous") == ()
        assert [(figures.kind, figures.entries) for figures in await opened.state.count_kinds()] == [("memory", 1)]
    assert (await run("store", "check")).status == 0


def test_each_kind_of_data_has_its_plural() -> None:
    assert [count(1, word) for _, word in HELD_WORDS] == [f"1 {word}" for _, word in HELD_WORDS]
    assert [count(2_000, word) for _, word in HELD_WORDS] == [
        "2,000 tasks",
        "2,000 webhooks",
        "2,000 pending or dead deliveries",
        "2,000 receipts of a delivery",
        "2,000 remembered calls",
        "2,000 entries of agents' memory, checkpoints and sessions",
        "2,000 sums of usage",
        "2,000 keys",
        "2,000 entries of the audit trail",
    ]


async def test_a_person_is_asked_before_all_data_is_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        unasked = await here.admin("principals", "delete", "anonymous", "--cancel-open")
        assert (unasked.status, "--yes" in unasked.err) == (2, True)
        wanted = ("principals", "delete", "anonymous", "--cancel-open")
        status, shown = await here.at_terminal("Delete all data of anonymous for good? [y/N]", "n\n", *wanted)
        assert (status, "2 tasks, 2 of them open" in shown) == (1, True)
        assert here.echo in (await here.admin("tasks", "list")).out
        status, shown = await here.at_terminal("[y/N]", "y\n", *wanted)
        assert (status, "All data of anonymous is deleted: 2 tasks." in shown) == (0, True)
        assert (await here.admin("tasks", "list")).err == "No tasks fit.\n"


async def test_an_archive_takes_the_place_of_no_other_file_and_is_whole(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        (tmp_path / "mine.txt").write_text("mine")
        kept = await here.admin("principals", "export", "anonymous", "mine.txt")
        assert (kept.status, "exists already" in kept.err) == (2, True)
        assert (tmp_path / "mine.txt").read_text() == "mine"
        nobody = await here.admin("principals", "export", "ann", "ann.tar")
        assert (nobody.status, "nothing is kept of 'ann'" in nobody.err, "key:NAME" in nobody.err) == (1, True, True)
        nowhere = await here.admin("principals", "export", "anonymous", "no/such/folder.tar")
        assert (nowhere.status, len(nowhere.err.splitlines())) == (2, 1)
        assert list(tmp_path.glob("*.tar*")) == []
        sent = await here.admin("principals", "export", "anonymous", "served.tar", "--server", here.url)
        assert (sent.status, sent.err) == (0, "All data of anonymous is in served.tar: 2 tasks.\n")
        stored = await here.admin("principals", "export", "anonymous", "stored.tar")
        assert stored.status == 0
        archives = [read_tar((tmp_path / name).read_bytes()) for name in ("served.tar", "stored.tar")]
        for archive in archives:
            archive.pop("principal.json")
        assert archives[0] == archives[1]
