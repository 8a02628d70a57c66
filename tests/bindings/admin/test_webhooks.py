"""Webhooks over the admin API: hosts that are paused on every replica, and what is done to single deliveries."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.model.principal import AccessRole
from tests.bindings.admin.test_admin import DEADLINE_S, make_keys, make_task, read, waiting_agent
from tests.bindings.admin.test_feeds import CHANGES, reading
from tests.kit import places as kit_places
from tests.kit.places import V1, bearer, sqlite_url
from tests.push.receiver import Receiver, place_of, receiving

SEQ = "x-dragoman-seq"

AT_ONCE = {"held": 0, "later": 0, "next": None}
"""No delivery waits for anything else than its host."""


def servers(store: str, count: int) -> AbstractAsyncContextManager[list[aiohttp.ClientSession]]:
    """So many servers on a store, which may call webhooks on this machine."""
    return kit_places.servers(count, lambda: [waiting_agent("echo")], store=store, push_allowed_hosts=("127.0.0.1",))


async def change(http: aiohttp.ClientSession, path: str, headers: dict[str, str], body: Any) -> Any:
    status, answer = await read(http, path, headers, "POST", json=body)
    assert status == 200, answer
    return answer


async def make_pushed_task(http: aiohttp.ClientSession, url: str, name: str, headers: dict[str, str]) -> str:
    """Make a task that waits for an answer, with a webhook."""
    task_id = await make_task(http, "echo", name, headers)
    path = f"/agents/echo/tasks/{task_id}/pushNotificationConfigs"
    async with http.post(path, json={"url": f"{url}/in/secret"}, headers=V1 | headers) as answer:
        assert answer.status == 200, await answer.text()
    return task_id


async def answer_task(http: aiohttp.ClientSession, task_id: str, headers: dict[str, str]) -> None:
    """Answer the question of a task, which ends then."""
    sent = {"messageId": f"{task_id}-2", "taskId": task_id, "role": "ROLE_USER", "parts": [{"text": "blue"}]}
    async with http.post("/agents/echo/message:send", json={"message": sent}, headers=V1 | headers) as answer:
        assert (await answer.json())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def until_counted(http: aiohttp.ClientSession, headers: dict[str, str], paused: int) -> None:
    """Wait until a server's courier has looked, and counts so many deliveries to paused hosts."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with http.get("/metrics", headers=headers) as answer:
                text = await answer.text()
            if re.search(rf"^dragoman_push_paused {paused}(\.0)?$", text, re.MULTILINE):
                return
            await asyncio.sleep(0.05)  # a page of metrics is long, and the courier looks every 5 s


def places(receiver: Receiver) -> list[tuple[int, float]]:
    return [place_of(asked.headers[SEQ]) for asked in receiver.asked]


@pytest.mark.parametrize("replicas", [1, 2])
async def test_no_replica_sends_to_a_paused_host_until_it_is_resumed(
    tmp_path: Path, request: pytest.FixtureRequest, replicas: int
) -> None:
    store = sqlite_url(tmp_path) if replicas == 1 else request.getfixturevalue("postgres_url")
    ops = (await make_keys(store, ops=(AccessRole.OPERATOR, None)))["ops"]
    async with receiving() as receiver, servers(store, replicas) as running:
        one, other = running[0], running[-1]
        paused = await change(other, "/webhooks:pause", ops, {"host": "127.0.0.1"})
        assert paused == AT_ONCE | {"host": "127.0.0.1", "paused": True, "changed": True, "waiting": 0}
        assert (await change(one, "/webhooks:pause", ops, {"host": "127.0.0.1"}))["changed"] is False
        task_id = await make_pushed_task(one, receiver.url, "one", ops)
        await answer_task(one, task_id, ops)

        listed = (await read(other, f"/webhooks?task={task_id}", ops))[1]
        waiting = len(listed["deliveries"])
        assert waiting >= 2
        assert (listed["pending"], listed["paused"], listed["dead"]) == (waiting, waiting, 0)
        assert all(each["paused"] and each["next"] is None for each in listed["deliveries"])
        first = listed["deliveries"][0]
        shown = (await read(one, f"/webhooks/{first['number']}", ops))[1]
        assert shown == (await read(other, f"/webhooks/{first['id']}", ops))[1]
        assert (shown["status"], shown["failed"], shown["behind"]) == ("paused", 0, waiting - 1)
        (hosts,) = [(await read(http, "/webhooks/paused", ops))[1] for http in running[:1]]
        assert shown["pauses"] == hosts["hosts"]
        assert [(each["host"], each["by"], each["waiting"]) for each in hosts["hosts"]] == [
            ("127.0.0.1", "key:ops", waiting)
        ]
        assert (await read(other, "/stats", ops))[1]["webhook_calls_paused"] == waiting
        for http in running:
            await until_counted(http, ops, waiting)
        assert receiver.asked == [], "each server has looked for something to send since"

        resumed = await change(one, "/webhooks:resume", ops, {"host": "127.0.0.1"})
        assert resumed == AT_ONCE | {"host": "127.0.0.1", "paused": False, "changed": True, "waiting": waiting}
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(waiting)
        assert places(receiver) == sorted(places(receiver)), "in their order"
        assert (await change(one, "/webhooks:resume", ops, {"host": "127.0.0.1"}))["changed"] is False


async def test_a_call_that_begins_to_wait_and_arrives_is_told_to_those_who_follow(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        await change(http, "/webhooks:pause", ops, {"host": "127.0.0.1"})
        async with reading(http, CHANGES, ops) as reader:
            assert (await reader.until("webhooks")).data == {"pending": 0, "dead": 0, "next": None}
            await make_pushed_task(http, receiver.url, "one", {})
            waiting = await reader.until("webhooks")
            assert waiting.data["pending"] > 0
            await change(http, "/webhooks:resume", ops, {"host": "127.0.0.1"})
            await reader.until("webhooks", pending=0)


async def test_a_pending_delivery_is_sent_at_once_or_deleted(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        receiver.answers = lambda number: (503, {"retry-after": "3600"}) if number == 0 else 204
        task_id = await make_pushed_task(http, receiver.url, "one", {})
        await answer_task(http, task_id, {})
        async with asyncio.timeout(DEADLINE_S):
            while True:
                listed = (await read(http, "/webhooks", ops))[1]["deliveries"]
                if listed[0]["failed"]:
                    break
                await asyncio.sleep(0)
        first, *rest = [each["number"] for each in listed]
        report = (await read(http, f"/webhooks/{first}", ops))[1]
        assert (report["status"], report["reason"], report["lane"]) == ("retrying", "HTTP 503", "answers"), "it answers"
        assert (await read(http, f"/webhooks/{rest[-1]}", ops))[1]["status"] == "in-turn"
        assert (await change(http, "/webhooks:delete", ops, {"numbers": rest}))["pending"] == 0, "they are not dead"
        deleted = await change(http, "/webhooks:delete", ops, {"numbers": rest, "pending": True})
        assert deleted == {"count": 0, "pending": len(rest), "again": 0, "refused": [], "missing": []}
        sent = await change(http, "/webhooks:redeliver", ops, {"numbers": [first], "pending": True})
        assert sent == {"count": 0, "pending": 1, "again": 0, "refused": [], "missing": []}
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(2)
            while (await read(http, "/webhooks", ops))[1]["pending"]:
                await asyncio.sleep(0)
        assert [asked.headers["webhook-id"] for asked in receiver.asked] == [report["id"]] * 2
        assert (await read(http, f"/webhooks/{first}", ops))[1]["status"] == "delivered"
        assert (await read(http, f"/webhooks/{rest[0]}", ops))[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/webhooks:pause", {"host": 1}, "host"),
        ("/webhooks:pause", {"host": ""}, "host"),
        ("/webhooks:pause", {"host": "a b"}, "host"),
        ("/webhooks:pause", {"host": "https://hooks.example.org/in"}, "host"),
        ("/webhooks:pause", {"host": "ftp://hooks.example.org"}, "host"),
        ("/webhooks:resume", {"host": "hooks.example.org:0x"}, "host"),
        ("/webhooks:redeliver", {"all": True, "pending": True}, "pending"),
        ("/webhooks:redeliver", {"all": True, "delivered": True}, "delivered"),
        ("/webhooks:redeliver", {"numbers": list(range(1, 202)), "delivered": True}, "numbers"),
        ("/webhooks:delete", {"pending": True}, "numbers"),
        ("/webhooks:delete", {"numbers": [1], "delivered": True}, "delivered"),
    ],
)
async def test_wrong_input_is_refused_by_its_field(
    running: tuple[aiohttp.ClientSession, dict[str, str]], path: str, body: Any, field: str
) -> None:
    http, ops = running
    status, answer = await read(http, path, ops, "POST", json=body)
    faults = [each["field"] for detail in answer["error"]["details"] for each in detail.get("fieldViolations", ())]
    assert (status, faults) == (400, [field]), answer


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Hooks.Example.org", "hooks.example.org"),
        ("hooks.example.org:8443", "hooks.example.org:8443"),
        ("hooks.example.org:80", "hooks.example.org:80"),
        ("https://hooks.example.org", "https://hooks.example.org:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("[::1]", "[::1]"),
    ],
)
async def test_a_host_is_named_as_people_name_it(
    running: tuple[aiohttp.ClientSession, dict[str, str]], given: str, name: str
) -> None:
    http, ops = running
    assert (await change(http, "/webhooks:pause", ops, {"host": given}))["host"] == name
    assert (await change(http, "/webhooks:resume", ops, {"host": name}))["changed"] is True


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    store = sqlite_url(tmp_path_factory.mktemp("running"))
    async with servers(store, 1) as (http,):
        yield http, bearer(store)
