"""Webhook deliveries that arrived, over the admin API: who was told what and when, with what answer, and once more."""

import asyncio
import hashlib
import hmac
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from tests.bindings.admin.test_admin import DEADLINE_S, make_task, read
from tests.bindings.admin.test_webhooks import answer_task, change, make_pushed_task, places, servers
from tests.kit.places import V1, bearer, sqlite_url
from tests.push.receiver import Receiver, receiving

SECRET = "a secret of sixteen characters"

Ops = dict[str, str]


async def until_arrived(http: aiohttp.ClientSession, ops: Ops, task_id: str, count: int) -> list[dict[str, Any]]:
    """The deliveries of a task, once so many have arrived and none is pending."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            status, found = await read(http, f"/tasks/{task_id}/deliveries", ops)
            assert status == 200, found
            deliveries: list[dict[str, Any]] = found["deliveries"]
            if len(deliveries) == count and all(each["state"] == "delivered" for each in deliveries):
                return deliveries
            await asyncio.sleep(0)


async def told_task(http: aiohttp.ClientSession, receiver: Receiver, ops: Ops) -> tuple[str, list[dict[str, Any]]]:
    """A task that has ended, and its deliveries, which have all arrived."""
    task_id = await make_pushed_task(http, receiver.url, "one", {})
    await answer_task(http, task_id, {})
    async with asyncio.timeout(DEADLINE_S):
        while (await read(http, "/webhooks", ops))[1]["pending"]:
            await asyncio.sleep(0)
    return task_id, await until_arrived(http, ops, task_id, len(receiver.asked))


async def test_who_was_told_when_with_what_answer(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        receiver.answers = lambda number: 503 if number == 0 else 202
        task_id = await make_pushed_task(http, receiver.url, "one", {})
        await answer_task(http, task_id, {})
        async with asyncio.timeout(DEADLINE_S):
            while (await read(http, "/webhooks", ops))[1]["pending"]:
                await asyncio.sleep(0)
        first_call, *calls = receiver.asked
        deliveries = await until_arrived(http, ops, task_id, len(calls))
        first = deliveries[0]
        assert first_call.headers["webhook-id"] == calls[0].headers["webhook-id"] == first["id"]
        assert [each["id"] for each in deliveries] == [asked.headers["webhook-id"] for asked in calls]
        assert (first["task"], first["agent"], first["http_status"]) == (task_id, "echo", 202)
        assert (first["failed"], first["reason"], first["dead"], first["next"]) == (1, "HTTP 503", False, None)
        assert first["made"] < first["arrived"]
        assert first["took_ms"] >= 0
        assert (first["url"], first["host"]) == (f"{receiver.url}/in/…", receiver.url)
        listed = (await read(http, "/webhooks?state=delivered", ops))[1]
        assert listed["deliveries"] == deliveries[::-1]
        assert (listed["pending"], listed["next_before"]) == (0, None)
        page = (await read(http, f"/webhooks?state=delivered&task={task_id}&limit=1", ops))[1]
        assert page["deliveries"] == deliveries[-1:]
        rest = f"/webhooks?state=delivered&before={page['next_before']}"
        assert (await read(http, rest, ops))[1]["deliveries"] == deliveries[-2::-1]
        for wanted in (first["number"], first["id"]):
            shown = (await read(http, f"/webhooks/{wanted}", ops))[1]
            assert (shown["status"], shown["obstacle"], shown["lane"]) == ("delivered", None, None)
            assert {name: shown[name] for name in first} == first
            assert (shown["dialect"], shown["size_bytes"]) == ("1.0", len(calls[0].body))
        for state in ("pending", "dead"):
            assert (await read(http, f"/webhooks?state={state}", ops))[1]["deliveries"] == []
        assert (await read(http, "/tasks/nobody/deliveries", ops))[0] == 404


async def test_a_delivery_that_arrived_is_sent_once_more_as_it_was(tmp_path: Path) -> None:
    """With its id, its place and its body, behind which the signature is valid again."""
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        task_id, deliveries = await told_task(http, receiver, ops)
        count = len(deliveries)
        numbers = [each["number"] for each in deliveries]
        path = f"/agents/echo/tasks/{task_id}/pushNotificationConfigs"
        config = {"url": f"{receiver.url}/later", "id": deliveries[0]["config"], "secret": SECRET}
        async with http.post(path, json=config, headers=V1) as answer:
            assert answer.status == 200, await answer.text()
        deliveries = await until_arrived(http, ops, task_id, count + 1)
        sent = await change(http, "/webhooks:redeliver", ops, {"numbers": numbers, "delivered": True})
        assert sent == {"count": 0, "pending": 0, "again": count, "refused": [], "missing": []}
        after = await until_arrived(http, ops, task_id, 2 * count + 1)
        assert after[: count + 1] == deliveries, "that they arrived before is still known"
        assert [each["id"] for each in after[count + 1 :]] == [each["id"] for each in deliveries[:count]]
        first, again = receiver.asked[:count], receiver.asked[count + 1 :]
        assert [asked.body for asked in again] == [asked.body for asked in first]
        assert [asked.path for asked in again] == ["/later"] * count, "where the webhook is now"
        assert places(receiver)[count + 1 :] == places(receiver)[:count]
        for asked in again:
            signed = f"{asked.headers['webhook-id']}.{asked.headers['webhook-timestamp']}.".encode() + asked.body
            digest = b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
            assert asked.headers["webhook-signature"] == f"v1,{digest}"
        async with asyncio.timeout(DEADLINE_S):
            while not (acts := (await read(http, "/audit?action=webhooks.redeliver", ops))[1]["entries"]):
                await asyncio.sleep(0.05)  # the trail is written within a second
        assert [each["subject"] for each in acts] == [",".join(map(str, numbers))]


async def test_a_body_that_is_the_whole_task_is_made_again(tmp_path: Path) -> None:
    """In 0.3 each call brings the task as it stood then."""
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        task_id = await make_task(http, "echo", "one", {})
        params = {"taskId": task_id, "pushNotificationConfig": {"url": f"{receiver.url}/in"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/pushNotificationConfig/set", "params": params}
        async with http.post("/agents/echo", json=call) as answer:
            assert "result" in await answer.json()
        await answer_task(http, task_id, {})
        async with asyncio.timeout(DEADLINE_S):
            while (await read(http, "/webhooks", ops))[1]["pending"]:
                await asyncio.sleep(0)
        count = len(receiver.asked)
        deliveries = await until_arrived(http, ops, task_id, count)
        chosen = {"numbers": [each["number"] for each in deliveries], "delivered": True}
        assert (await change(http, "/webhooks:redeliver", ops, chosen))["again"] == count
        await until_arrived(http, ops, task_id, 2 * count)
        assert receiver.bodies[count:] == receiver.bodies[:count]
        assert len(set(receiver.bodies)) == count > 1


async def test_it_says_why_a_delivery_is_not_sent_again(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with receiving() as receiver, servers(store, 1) as (http,):
        pruned, lost = await told_task(http, receiver, bearer(store))
    alone = open_store(store, SystemClock())
    await alone.open("alone")
    assert await alone.sweep(SystemClock().now_ms() + 1, -1, 0, -1)
    await alone.close()
    async with receiving() as receiver, servers(store, 1) as (http,):
        ops = bearer(store)
        why = {"number": lost[0]["number"], "reason": "the events of its task have been deleted (log_retention)"}
        chosen = {"numbers": [lost[0]["number"]], "delivered": True}
        sent = await change(http, "/webhooks:redeliver", ops, chosen)
        assert sent == {"count": 0, "pending": 0, "again": 0, "refused": [why], "missing": []}
        assert (await read(http, f"/webhooks/{lost[0]['number']}", ops))[1]["obstacle"] == why["reason"]
        config = lost[0]["config"]
        async with http.delete(f"/agents/echo/tasks/{pruned}/pushNotificationConfigs/{config}", headers=V1) as answer:
            assert answer.status < 300
        sent = await change(http, "/webhooks:redeliver", ops, chosen)
        assert [each["reason"] for each in sent["refused"]] == ["its webhook has been removed"]

        await change(http, "/webhooks:pause", ops, {"host": "127.0.0.1"})
        receiver.asked.clear()
        task_id = await make_task(http, "echo", "two", {})
        path = f"/agents/echo/tasks/{task_id}/pushNotificationConfigs"
        async with http.post(path, json={"url": f"{receiver.url}/in"}, headers=V1) as answer:
            assert answer.status == 200
        await change(http, "/webhooks:resume", ops, {"host": "127.0.0.1"})
        (told,) = await until_arrived(http, ops, task_id, 1)
        await change(http, "/webhooks:pause", ops, {"host": "127.0.0.1"})
        chosen = {"numbers": [told["number"]], "delivered": True}
        assert (await change(http, "/webhooks:redeliver", ops, chosen))["again"] == 1
        sent = await change(http, "/webhooks:redeliver", ops, chosen)
        assert [each["reason"] for each in sent["refused"]] == ["it is in the queue again already"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=delivered&dead=true", "dead"),
        ("state=delivered&after=3", "after"),
        ("before=3", "before"),
        ("state=dead&before=3", "before"),
        ("state=late", "state"),
        ("state=delivered&before=0", "before"),
        (f"state=delivered&before={1 << 53}", "before"),
        (f"after={1 << 63}", "after"),
    ],
)
async def test_a_wrong_list_is_refused_by_its_field(running: tuple[Any, Ops], query: str, field: str) -> None:
    http, ops = running
    status, answer = await read(http, f"/webhooks?{query}", ops)
    faults = [each["field"] for detail in answer["error"]["details"] for each in detail.get("fieldViolations", ())]
    assert (status, faults) == (400, [field]), answer


async def test_a_number_that_no_delivery_has_is_refused_by_its_field(running: tuple[Any, Ops]) -> None:
    http, ops = running
    chosen = {"numbers": [(1 << 63) - 1], "delivered": True}
    status, answer = await read(http, "/webhooks:redeliver", ops, "POST", json=chosen)
    assert (status, answer["error"]["message"]) == (400, "numbers[0]: must be at most 9007199254740991")
    for number in ((1 << 53) - 1, (1 << 63) - 1):
        assert (await read(http, f"/webhooks/{number}", ops))[0] == 404


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = sqlite_url(tmp_path_factory.mktemp("running"))
    async with servers(store, 1) as (http,):
        yield http, bearer(store)
