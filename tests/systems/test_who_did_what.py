"""The notes of a server about its callers: who did what, allowed and refused, and no secret out of place."""

import asyncio
import json
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from dragoman.cli import main
from dragoman.config import settings
from dragoman.engine.handlers import audit as trails
from dragoman.model.principal import AccessRole, Scope
from tests.kit.places import beside
from tests.push.receiver import receiving
from tests.systems.conftest import DEADLINE_S, Json
from tests.systems.keyed import Holder, House, keyed, secret_of
from tests.systems.speakers import ALL, NEW, OLD

V = {"a2a_version": "1.0"}
HOLDERS = {
    "anna": Holder(name="anna"),
    "reader": Holder(name="reader", limits={"scopes": (Scope.READ,)}),
    "admin": Holder(name="admin", limits={"role": AccessRole.ADMIN}),
}
TOKEN, CREDENTIALS, SECRET = "hush-token-hush", "hush-credentials-hush", "hush-secret-hush-secret"
WORDS = "words-that-anna-says"


async def command(*arguments: str, **environment: str) -> str:
    """The standard output of a command of ours, run beside the server."""
    unset = {setting.env: None for setting in settings()} | {"DRAGOMAN_CONFIG": None}
    runner = CliRunner(env=unset | environment)
    result = await asyncio.to_thread(runner.invoke, main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


async def trail(house: House, task_id: str) -> list[Json]:
    """The audit trail, once that task is in it: it is written once a second."""
    async with asyncio.timeout(DEADLINE_S), beside(house.store) as store:
        while task_id not in {entry.task_id for entry in await store.audit.read(limit=1000)}:
            await asyncio.sleep(0.05)  # nothing tells when it has been written
    printed = await command("audit", "--json", "--store", house.store, "--limit", "1000")
    return [json.loads(line) for line in printed.splitlines()]


async def live(house: House, url: str) -> None:
    """A few calls of each kind: with webhooks, with wrong keys, and with keys that are not for that."""
    anna, reader = house.by("anna"), house.by("reader")
    config = {
        "url": url,
        "token": TOKEN,
        "secret": SECRET,
        "authentication": {"scheme": "Basic", "schemes": ["Basic"], "credentials": CREDENTIALS},
    }
    for speaker in ALL:
        task_id = await speaker.send(anna, WORDS)
        assert (await speaker.get(reader, task_id)).status == 200
        assert (await speaker.call(reader, speaker.methods[0], speaker.said(WORDS))).status == 403
        assert (await speaker.get(house.site, task_id)).status == 401
        assert (await speaker.get(house.site.by(house.keys["anna"][:-2]), task_id)).status == 401
    assert (await reader.rpc("/agents/desk", "ListTasks", {}, **V)).result
    task_id = await OLD.send(anna, WORDS)
    for path, method, params, headers in (
        ("/agents/desk", "CreateTaskPushNotificationConfig", {"taskId": task_id, **config}, V),
        ("/a2a", "tasks/pushNotificationConfig/set", {"taskId": task_id, "pushNotificationConfig": config}, {}),
        ("/desk", "SetPushNotificationConfig", {"taskId": task_id, "pushNotificationConfig": config}, {}),
        ("/api/v1/a2a/desk", "tasks/pushNotificationConfig/set",
         {"taskId": task_id, "pushNotificationConfig": config}, {}),
    ):  # fmt: skip
        assert (await anna.rpc(path, method, params, **headers)).result
        broken = json.loads(json.dumps(params).replace(url, "http://10.0.0.1/"))
        assert (await anna.rpc(path, method, broken, **headers)).error
        unsendable = json.loads(json.dumps(params).replace(TOKEN, TOKEN + "\\n"))
        assert (await anna.rpc(path, method, unsendable, **headers)).error


def tables_with(store: str, text: str) -> set[str]:
    """The tables of the store that hold a text."""
    found = set()
    with closing(apsw.Connection(store.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            for row in connection.execute(f'SELECT * FROM "{name}"'):
                if any(text.encode() in _bytes(cell) for cell in row):
                    found.add(name)
    return found


def _bytes(cell: Any) -> bytes:
    return cell if isinstance(cell, bytes) else str(cell).encode()


async def test_the_trail_says_who_did_what_and_no_secret_is_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    network = {"push_allowed_hosts": (), "push_allowed_cidrs": ("127.0.0.0/8",)}
    async with keyed(tmp_path, HOLDERS, log_level="debug", **network) as house, receiving() as receiver:
        receiver.answers = lambda number: 500
        await live(house, f"{receiver.url}/hook")
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)
        entries = await trail(house, await NEW.send(house.by("anna"), WORDS))
        said = {(each["principal"], each["action"], each["allowed"], each.get("reason", "")) for each in entries}
        assert ("key:anna", "SendMessage", True, "") in said
        assert ("key:reader", "GetTask", False, "TaskNotFound") in said
        assert ("key:reader", "ListTasks", True, "") in said
        assert ("key:reader", "SendMessage", False, "Forbidden") in said
        assert any(who == "anonymous" and reason == "Unauthorized" for who, _, _, reason in said), said
        assert ("key:anna", "CreateTaskPushNotificationConfig", True, "") in said
        assert ("key:anna", "CreateTaskPushNotificationConfig", False, "InvalidParams") in said
        assert all(each["peer"] == "127.0.0.1" for each in entries)
        metrics = await house.by("admin").ask("GET", "/metrics")
        assert metrics.status == 200
        shown = [
            json.dumps(entries),
            metrics.raw.decode(),
            await command("webhooks", "list", "--json", "--store", house.store),
            await command("keys", "list", "--json", "--store", house.store),
            caplog.text,
        ]
        assert len(caplog.text) > 1000, "what was logged is looked at"
        keys = list(house.keys.values())
        secrets = [secret_of(key) for key in keys]
        for text in (TOKEN, CREDENTIALS, SECRET, *keys, *secrets):
            assert not [page for page in shown if text in page], text
        assert WORDS not in shown[0]
        for text in (*keys, *secrets):
            assert not tables_with(house.store, text)
            for file in tmp_path.iterdir():
                assert text.encode() not in file.read_bytes(), file
        for text in (TOKEN, SECRET, CREDENTIALS):
            assert len(tables_with(house.store, text)) == 1, tables_with(house.store, text)


async def test_what_commands_do_beside_the_server_is_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trails, "HEAR_EVERY_S", 0.02)
    caplog.set_level(logging.INFO)
    async with keyed(tmp_path, HOLDERS) as house:
        made = json.loads(await command("keys", "create", "carl", "--json", "--store", house.store))
        await command("keys", "revoke", made["id"], "--store", house.store)
        told = [f"action=keys.create subject={made['id']}", f"action=keys.revoke subject={made['id']}"]
        async with asyncio.timeout(DEADLINE_S):
            while not all(text in caplog.text for text in told):
                await asyncio.sleep(0.02)  # nothing tells when it has been logged
        assert secret_of(made["key"]) not in caplog.text
