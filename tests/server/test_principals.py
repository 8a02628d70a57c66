"""All data of a principal: what whole servers export, and what is left when they have deleted it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import apsw
import asyncpg
import pytest

from dragoman import Agent, Context
from dragoman.engine.admin import principal_deletion, principal_export
from dragoman.engine.api import Runner
from dragoman.model.ids import new_id
from dragoman.model.principal import AccessRole
from tests.kit.agents import asking, echoing, reporting
from tests.kit.places import LOOPBACK, V1, add_keys, servers, sqlite_url
from tests.push.receiver import receiving

DELETE, EXPORT = "/admin/v1/principals:delete", "/admin/v1/principals:export"
PICTURE = bytes(range(256)) * 40
"""A file that is kept beside the store."""

SMALL = b"small file of ann" * 100
"""One that is kept in it."""

Json = dict[str, Any]


def house() -> list[Runner]:
    """An agent that gives back, one that asks, one that answers with messages, and one that delegates to the first."""
    team = Agent("team", input_modes=["*/*"])

    @team.skill
    async def pass_on(ctx: Context) -> str:
        outcome = await ctx.delegate("echo", ctx.text)
        return outcome.text

    return [echoing(input_modes=["*/*"]), asking(), reporting(), team]


class Place(NamedTuple):
    """Where the servers of a test keep things, and how many of them there are."""

    store: str
    files: Path
    count: int

    async def rows(self) -> list[tuple[str, str]]:
        """All rows of all tables, as text that has all bytes of ASCII as they are."""
        if self.store.startswith("sqlite"):
            connection = apsw.Connection(self.store.removeprefix("sqlite:///"))
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found = [(name, repr(row)) for name in names for row in connection.execute(f'SELECT * FROM "{name}"')]
            connection.close()
            return found
        database = await asyncpg.connect(self.store)
        tables = await database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'dragoman'")
        named = [(table, await database.fetch(f"SELECT * FROM dragoman.{table}")) for (table,) in tables]
        await database.close()
        return [(table, repr(tuple(row))) for table, rows in named for row in rows]


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A file with one server, and a database with three."""
    if request.param == "file":
        yield Place(sqlite_url(tmp_path), tmp_path / "files", 1)
    else:
        yield Place(request.getfixturevalue("used_postgres_url"), tmp_path / "files", 3)


def settings(place: Place) -> Json:
    return {"store": place.store, "files": f"folder:{place.files}", "files_above": 4000, "audit": "all", **LOOPBACK}


class Caller:
    """Somebody with a key, at one of several servers."""

    def __init__(self, at: list[aiohttp.ClientSession], key: str) -> None:
        self.servers = at
        self._headers = {"x-api-key": key, **V1}
        self.contexts: set[str] = set()
        self.tasks: list[str] = []

    async def ask(self, method: str, path: str, body: Json | None = None, *, at: int = 0) -> tuple[int, Json]:
        """The status and the answer."""
        http = self.servers[at % len(self.servers)]
        async with http.request(method, path, headers=self._headers, json=body) as answer:
            return answer.status, json.loads(await answer.read() or b"{}")

    async def send(self, agent: str, *parts: Json, at: int = 0, webhook: str = "") -> Json:
        """Send a message; the answer's task or message."""
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": parts or [{"text": "hello"}]}
        configuration = {"taskPushNotificationConfig": {"url": webhook, "token": "very-secret"}} if webhook else {}
        body = {"message": message, "configuration": configuration}
        status, answer = await self.ask("POST", f"/agents/{agent}/message:send", body, at=at)
        assert status == 200, answer
        if "task" in answer:
            self.tasks.append(answer["task"]["id"])
            self.contexts.add(answer["task"]["contextId"])
        found: Json = answer.get("task") or answer["message"]
        return found

    async def deletes(self, principal: str, **wanted: bool) -> Json:
        """Repeat a deletion until it is done. Returns the last answer, with the number of all tasks."""
        tasks = 0
        while True:
            status, report = await self.ask("POST", DELETE, {"principal": principal, **wanted})
            assert status == 200, report
            tasks += report["tasks"]
            if not report["more"]:
                return report | {"tasks": tasks}

    async def exports(self, principal: str, *, at: int = 0) -> dict[str, bytes]:
        """The files of an export."""
        files: dict[str, bytes] = {}
        whole: set[str] = set()
        cursor = ""
        while True:
            async with self.servers[at % len(self.servers)].get(
                EXPORT, params={"principal": principal, "cursor": cursor}, headers=self._headers
            ) as answer:
                page = await answer.json()
                assert answer.status == 200, page
            for piece in page["pieces"]:
                name = piece["path"]
                content = piece.get("text", "").encode() or base64.b64decode(piece.get("raw", ""))
                files[name] = (b"" if name in whole else files.get(name, b"")) + content
                whole.discard(name)
                if piece.get("last"):
                    whole.add(name)
            if not (cursor := page["next_cursor"]):
                assert whole == set(files)
                return {name: content for name, content in files.items() if content}


async def lives(
    at: list[aiohttp.ClientSession], caller: Caller, webhook: str = "", small: bytes = b"bob" * 900
) -> None:
    """Tasks of all kinds, one of them open, at all servers."""
    files = [
        {"raw": base64.b64encode(PICTURE).decode(), "filename": "my pic.bin", "mediaType": "image/x"},
        {"raw": base64.b64encode(small).decode(), "filename": "../small", "mediaType": "image/x"},
    ]
    for number in range(len(at)):
        await caller.send("echo", {"text": "with files"}, *files, at=number, webhook=webhook)
        await caller.send("team", {"text": "pass it on"}, at=number)
        await caller.send("ask", at=number)
        await caller.send("auto", {"text": "plain"}, at=number)


async def people(place: Place) -> dict[str, str]:
    """The keys of two callers and an operator."""
    return await add_keys(place.store, ann={}, bob={}, root={"role": AccessRole.OPERATOR})


def names(row: str, caller: Caller) -> bool:
    """Whether a row names ann, or what was hers."""
    hers = ("key:ann", "'ann'", '"ann"', "very-secret", "small file of ann", *caller.tasks, *caller.contexts)
    return any(word in row for word in hers)


async def test_nothing_is_left_of_a_principal_and_others_notice_nothing(place: Place) -> None:
    keys = await people(place)
    async with receiving() as hook, servers(place.count, house, **settings(place)) as at:
        ann, bob, root = (Caller(at, keys[name]) for name in ("ann", "bob", "root"))
        await lives(at, ann, hook.url, SMALL)
        await lives(at, bob)
        status, refused = await root.ask("POST", DELETE, {"principal": "key:ann"})
        assert (status, "open task" in refused["error"]["message"]) == (400, True), refused
        assert (await ann.ask("GET", f"/agents/echo/tasks/{ann.tasks[0]}"))[0] == 200, "she is let in again"
        counted = await noted(root, "key:ann")
        assert (counted["tasks"], counted["open_tasks"], counted["keys"]) == (4 * place.count, place.count, 1)
        assert all(counted[name] for name in ("webhooks", "calls", "usage", "audit")), counted
        kept = asyncio.create_task(keep_calling(at, bob))
        report = await root.deletes("key:ann", cancel_open=True)
        kept.cancel()
        with pytest.raises(asyncio.CancelledError):
            await kept
        assert (report["tasks"], report["failed"]) == (4 * place.count, [])
        assert report["alias"].startswith("erased:")
        await asyncio.sleep(1.5)  # what servers had gathered is written by then
        left = [(table, row) for table, row in await place.rows() if names(row, ann)]
        assert {table for table, _ in left} == {"audit"}, left
        assert not any("key:ann" in row for _, row in left), "the trail names tasks alone"
        assert all(report["alias"] in row or "key:root" in row for _, row in left), left
        assert not [path for path in place.files.rglob("*") if path.parent.name in ann.tasks]
        for number in range(place.count):
            assert (await ann.ask("GET", f"/agents/echo/tasks/{ann.tasks[0]}", at=number))[0] == 401
            for task_id in bob.tasks:
                status, _ = await bob.ask("GET", f"/tasks/{task_id}", at=number)
                assert status in (200, 404), "a task is found at the mount of its agent alone"
        again = await root.deletes("key:ann")
        assert (again["held"], again["tasks"]) == (dict.fromkeys(again["held"], 0), 0)
        bobs = await bob_is_whole(root)
        assert bobs["open_tasks"] == place.count


async def noted(root: Caller, principal: str) -> Json:
    """What there is of a principal, once the audit trail is written, as every second, and its webhooks are called."""
    held: Json = {"audit": 0}
    async with asyncio.timeout(60):
        while held["audit"] < len(root.servers) * 4 or held["deliveries"]:
            held = (await root.deletes(principal, dry_run=True))["held"]
    return held


async def keep_calling(at: list[aiohttp.ClientSession], bob: Caller) -> None:
    """Call for ever, at all servers in turn."""
    number = 0
    while True:
        await bob.send("echo", at=number)
        number += 1


async def bob_is_whole(root: Caller) -> Json:
    """What there is of bob."""
    report = await root.deletes("key:bob", dry_run=True)
    held: Json = report["held"]
    assert held["tasks"]
    assert held["keys"] == 1
    return held


async def test_a_principal_that_comes_back_begins_anew_at_every_server(place: Place) -> None:
    """No server takes an owner from its memory whose row is gone."""
    keys = await people(place)
    async with servers(place.count, house, **settings(place)) as at:
        ann, root = Caller(at, keys["ann"]), Caller(at, keys["root"])
        for number in range(place.count):
            await ann.send("echo", at=number)
        await root.deletes("key:ann")
        new = Caller(at, (await add_keys(place.store, ann={}))["ann"])
        async with asyncio.timeout(60):
            for number in range(place.count):  # a server learns within a second that it is over
                while (await new.ask("GET", "/agents/echo/tasks", at=number))[0] == 503:
                    await asyncio.sleep(0.1)
        made = [(await new.send("echo", at=number))["id"] for number in range(place.count)]
        for number in range(place.count):
            status, listed = await new.ask("GET", "/agents/echo/tasks", at=number)
            assert (status, {task["id"] for task in listed["tasks"]}) == (200, set(made))
            assert listed["totalSize"] == place.count
            for task_id in ann.tasks:
                assert (await new.ask("GET", f"/agents/echo/tasks/{task_id}", at=number))[0] == 404


async def test_a_deletion_goes_on_where_a_server_died(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same alias. Meanwhile, and after the restart, the principal is kept out."""
    monkeypatch.setattr(principal_deletion, "TURN_S", 0.0)
    monkeypatch.setattr(principal_deletion, "BATCH_TASKS", 2)
    keys = await people(place)
    async with servers(place.count, house, **settings(place)) as at:
        ann, root = Caller(at, keys["ann"]), Caller(at, keys["root"])
        for _ in range(5):
            await ann.send("echo")
        _, first = await root.ask("POST", DELETE, {"principal": "key:ann"})
        assert (first["tasks"], first["more"]) == (2, True)
        assert (await ann.ask("GET", "/agents/echo/tasks"))[0] == 503
    async with servers(place.count, house, **settings(place)) as at:
        ann, root = Caller(at, keys["ann"]), Caller(at, keys["root"])
        assert (await ann.ask("GET", "/agents/echo/tasks"))[0] == 503
        rest = await root.deletes("key:ann")
        assert (rest["tasks"], rest["alias"]) == (3, first["alias"])
        assert not any("key:ann" in row for _, row in await place.rows())


async def test_an_operator_cannot_delete_itself(tmp_path: Path) -> None:
    place = Place(sqlite_url(tmp_path), tmp_path / "files", 1)
    keys = await people(place)
    async with servers(1, house, **settings(place)) as at:
        status, refused = await Caller(at, keys["root"]).ask("POST", DELETE, {"principal": "key:root"})
        assert (status, "another operator" in refused["error"]["message"]) == (400, True)


async def test_an_export_has_everything_and_no_secret(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pages of any size, from any server."""
    keys = await people(place)
    async with receiving() as hook, servers(place.count, house, **settings(place)) as at:
        ann, root = Caller(at, keys["ann"]), Caller(at, keys["root"])
        await lives(at, ann, hook.url, SMALL)
        await hook.came(1)
        await noted(root, "key:ann")
        whole = await root.exports("key:ann", at=1)
        monkeypatch.setattr(principal_export, "PAGE_BYTES", 1)
        monkeypatch.setattr(principal_export, "PIECE_BYTES", 1000)
        small = await root.exports("key:ann")
        told = json.loads(whole.pop("principal.json"))
        small.pop("principal.json")
        assert small == whole
        assert told["principal"] == "key:ann"
        children = place.count
        assert told["held"]["tasks"] == len(ann.tasks) + children
        for task_id in ann.tasks:
            folder = f"tasks/{task_id}/"
            task = json.loads(whole[f"{folder}task.json"])
            assert task["task"]["id"] == task_id
            log = [json.loads(line) for line in whole[f"{folder}log.jsonl"].splitlines()]
            assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
            if task["facts"]["agent"] != "echo" or len(task["task"]["history"][0]["parts"]) < 3:
                continue
            pictures = [part["url"] for part in task["task"]["history"][0]["parts"] if "url" in part]
            assert [whole[folder + url] for url in pictures] == [PICTURE, SMALL]
            assert pictures[0].endswith("-my_pic.bin")
            assert [part.get("url") for part in log[0]["message"]["parts"]] == [None, *pictures]
            hooks = json.loads(whole[f"{folder}webhooks.json"])
            assert hooks["webhooks"][0]["url"].startswith(hook.url[:16])
            assert hooks["calls"]
        assert [json.loads(line)["name"] for line in whole["keys.jsonl"].splitlines()] == ["ann"]
        assert {json.loads(line)["agent"] for line in whole["usage.jsonl"].splitlines()} == {"echo", "team", "auto"}
        acts = [json.loads(line) for line in whole["audit.jsonl"].splitlines()]
        assert {act["principal"] for act in acts} == {"key:ann"}
        assert {act["task_id"] for act in acts} >= set(ann.tasks)
        everything = b"".join(whole.values())
        assert b"very-secret" not in everything
        assert keys["ann"].encode() not in everything
        assert b"README" not in everything
        missing = await root.ask("GET", f"{EXPORT}?principal=ann")
        assert (missing[0], "key:NAME" in json.dumps(missing[1])) == (400, True), "a likely mistake"
