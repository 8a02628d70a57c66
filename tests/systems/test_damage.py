"""A server on a store with damaged rows: each costs itself alone, in every dialect and for operators."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest
from grpc import aio
from msgspec import Struct

from dragoman.auth.operator_token import read_token
from dragoman.dialects.extensions import UNREADABLE
from dragoman.model.events import Submitted
from dragoman.model.ids import SystemClock, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import PushConfig
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import TaskHead, TaskState
from dragoman.store.api import NewTask, StoreError
from dragoman.store.open import open_store
from dragoman.store.outbox import Registration
from tests.cli.admin.site import dragoman
from tests.push.receiver import receiving
from tests.spec import grpc_lane
from tests.spec.lanes import GRPC_03, GRPC_1, Lane
from tests.spoil import spoil_database, spoil_file
from tests.store.cases.bench import Spoil
from tests.store.cases.spoiling import cut, flip
from tests.systems.conftest import DEADLINE_S, Site, site
from tests.systems.grpc_speakers import CLIENTS, Client, GrpcSpeaker
from tests.systems.speakers import ALL, NEW, Speaker, V

Json = dict[str, Any]

PLACES = (("tasks", "head"), ("snapshots", "record"))


class Damaged(Struct, frozen=True):
    """A server on a damaged store. `ended` has a task for each client and each place, `asking` one for each client."""

    site: Site
    store: str
    ended: Mapping[tuple[str, str], str]
    asking: Mapping[str, str]


async def spoil_task(spoil: Spoil, table: str, column: str, task_id: str, *, flipped: bool = False) -> None:
    of_task = f"id = '{task_id}'" if table == "tasks" else f"task = (SELECT task FROM tasks WHERE id = '{task_id}')"
    await spoil(table, column, of_task, flip if flipped else cut)


@pytest.fixture(scope="module")
async def damaged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Damaged]:
    path = tmp_path_factory.mktemp("damaged") / "store.db"
    store = f"sqlite:///{path}"
    ended, asking = {}, {}
    async with site(store=store) as served:
        for client in CLIENTS:
            for table, _ in PLACES:
                ended[client.name, table] = await client.send(served, f"of {client.name}")
            told = await client.call(served, client.methods[0], client.said("ask", wait=False))
            asking[client.name] = str(told.result.get("task", told.result)["id"])
            await client.get(served, asking[client.name])
    spoil = spoil_file(path)
    for number, client in enumerate(CLIENTS):
        for table, column in PLACES:
            await spoil_task(spoil, table, column, ended[client.name, table], flipped=number % 2 == 1)
        await spoil_task(spoil, "pages", "events", asking[client.name])
    async with site(store=store) as served:
        yield Damaged(served, store, ended, asking)


async def test_the_command_of_its_caller_says_that_a_task_is_damaged(damaged: Damaged, tmp_path: Path) -> None:
    for task_id in (damaged.ended[NEW.name, "tasks"], damaged.asking[NEW.name]):
        shown = await dragoman(tmp_path, "task", "get", "-a", f"{damaged.site.url}/agents/desk", task_id)
        assert shown.status == 0, shown.err
        assert "Unreadable: the server's record of this task is damaged" in shown.out
        assert f"--task-id {task_id}" not in shown.out + shown.err, "an answer would be refused"


@pytest.mark.parametrize("table", [table for table, _ in PLACES])
@pytest.mark.parametrize("reader", CLIENTS, ids=lambda reader: reader.name)
async def test_a_damaged_task_shows_where_it_stands_and_nothing_else(
    damaged: Damaged, reader: Client, table: str
) -> None:
    task_id = damaged.ended[reader.name, table]
    task = (await reader.get(damaged.site, task_id)).result
    assert (task["id"], task["status"]["state"]) == (task_id, reader.spelled("completed"))
    assert task["status"]["timestamp"]
    assert task.get("contextId") or task.get("sessionId")
    assert task["metadata"] == {UNREADABLE: True}
    for member in ("artifacts", "history", "data", "output"):
        assert not task.get(member)


@pytest.mark.parametrize("table", [table for table, _ in PLACES])
async def test_a_damaged_task_is_read_over_rest(damaged: Damaged, table: str) -> None:
    for path, version in (("/agents/desk/tasks/", "1.0"), ("/agents/desk/v1/tasks/", "0.3")):
        task = (await damaged.site.ask("GET", path + damaged.ended["1.0", table], a2a_version=version)).body
        assert task["metadata"] == {UNREADABLE: True}


async def test_each_page_of_a_list_can_be_reached(damaged: Damaged) -> None:
    token, ids = "", set[str]()
    while True:
        params = {"pageSize": 1, "pageToken": token, "includeArtifacts": True}
        page = (await damaged.site.rpc("/agents/desk", "ListTasks", params, **V)).result
        ids |= {task["id"] for task in page["tasks"]}
        assert all(task["metadata"] == {UNREADABLE: True} for task in page["tasks"])
        token = page["nextPageToken"]
        if not token:
            break
    assert ids == {*damaged.ended.values(), *damaged.asking.values()}
    assert page["totalSize"] == len(ids)


@pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)
async def test_what_a_damaged_task_cannot_do_is_refused_in_words(damaged: Damaged, speaker: Speaker) -> None:
    task_id = damaged.asking[speaker.name]
    sent = speaker.said("blue", task_id=task_id)
    refusals = [
        await speaker.call(damaged.site, speaker.methods[0], sent),
        await speaker.cancel(damaged.site, task_id),
    ]
    if speaker.methods[3] is not None:
        refusals.append(await speaker.call(damaged.site, speaker.methods[3], {speaker.key: task_id}))
    for refusal in refusals:
        assert refusal.status < 500
        assert refusal.error["code"] not in (-32603, -32000), refusal.error
        assert "damaged" in str(refusal.error), refusal.error
    task = (await speaker.get(damaged.site, task_id)).result
    assert task["metadata"] == {UNREADABLE: True}, "nothing was changed"


@pytest.mark.parametrize("lane", [GRPC_1, GRPC_03], ids=["1.0", "0.3"])
async def test_what_a_damaged_task_cannot_do_is_refused_over_grpc(damaged: Damaged, lane: Lane) -> None:
    (speaker,) = (each for each in CLIENTS if isinstance(each, GrpcSpeaker) and each.lane is lane)
    task_id = damaged.asking[speaker.name]
    async with aio.insecure_channel(damaged.site.grpc) as channel:
        for op, params in (("cancel", {"id": task_id}), ("send", speaker.said("blue", task_id=task_id))):
            made = grpc_lane.called(lane, op, params, "desk", {})
            _, _, failed = await grpc_lane.answered(channel, lane, made)
            assert failed is not None
            assert "damaged" in str(failed)
        made = grpc_lane.called(lane, "subscribe", {"id": task_id}, "desk", {})
        async with grpc_lane.reading(channel, lane, made) as reading:
            assert reading.failed is not None
            assert "damaged" in str(reading.failed)


async def test_a_tool_of_mcp_tells_where_a_damaged_task_stands(damaged: Damaged) -> None:
    call = {"name": "desk_do", "arguments": {"task_id": damaged.asking["1.0"], "message": ""}}
    accept = {"accept": "application/json, text/event-stream", "mcp_protocol_version": "2025-06-18"}
    listed = (await damaged.site.rpc("/mcp", "tools/list", {}, **accept)).result
    call["name"] = next(tool["name"] for tool in listed["tools"] if tool["name"].startswith("desk"))
    result = (await damaged.site.rpc("/mcp", "tools/call", call, **accept)).result
    assert result["_meta"] == {UNREADABLE: True}
    assert result["structuredContent"]["state"] == "input-required"
    assert "damaged" in str(result["content"])


async def test_a_damaged_task_is_named_once_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.db"
    async with site(store=f"sqlite:///{path}") as served:
        task_id = await NEW.send(served, "x")
    await spoil_task(spoil_file(path), "tasks", "head", task_id)
    async with site(store=f"sqlite:///{path}") as served:
        for _ in range(2):
            await NEW.get(served, task_id)
            await served.rpc("/agents/desk", "ListTasks", {}, **V)
    (named,) = [record for record in caplog.records if task_id in record.getMessage()]
    assert "cannot be read" in named.getMessage()


async def test_an_operator_sees_and_deletes_a_damaged_task(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = f"sqlite:///{path}"
    async with site(store=store) as served:
        ended, asking = await NEW.send(served, "x"), (await NEW.call(served, "SendMessage", NEW.said("ask"))).result
        asking = asking["task"]["id"]
    await spoil_task(spoil_file(path), "tasks", "head", ended)
    await spoil_task(spoil_file(path), "pages", "events", asking)
    async with site(store=store) as served:
        token = read_token(store, 0)
        operator = {"authorization": f"Bearer {token}"}
        listed = (await served.ask("GET", "/admin/v1/tasks", **operator)).body
        assert {task["id"] for task in listed["tasks"]} == {ended, asking}
        for task_id, state in ((ended, "completed"), (asking, "input-required")):
            report = (await served.ask("GET", f"/admin/v1/tasks/{task_id}", **operator)).body
            assert (report["task"]["unreadable"], report["task"]["state"]) == (True, state)
            assert (await served.ask("GET", f"/admin/v1/tasks/{task_id}/log", **operator)).status == 200
            assert (await served.ask("GET", f"/admin/v1/tasks/{task_id}/content", **operator)).status == 200
        for task_id in (ended, asking):
            refused = await served.ask("POST", f"/admin/v1/tasks/{task_id}:send-again", **operator)
            assert (refused.status, b"damaged" in refused.raw) == (400, True), refused.raw
        open_one = await served.ask("DELETE", f"/admin/v1/tasks/{asking}", **operator)
        assert open_one.status == 400, "it has not ended"
        for task_id in (ended, asking):
            deleted = await served.ask("DELETE", f"/admin/v1/tasks/{task_id}?force=true", **operator)
            assert deleted.status == 200, deleted.raw
            assert (await served.ask("GET", f"/admin/v1/tasks/{task_id}", **operator)).status == 404


async def test_a_damaged_key_for_signatures_leaves_cards_unsigned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    store, card = f"sqlite:///{path}", "/.well-known/agent-card.json"
    async with site(store=store) as served:
        assert (await served.ask("GET", card)).body["signatures"]
    await spoil_file(path)("signing_keys", "jwk", "true", cut)
    async with site(store=store) as served:
        for _ in range(2):
            unsigned = await served.ask("GET", card)
            assert (unsigned.status, "signatures" in unsigned.body) == (200, False)
            assert (await served.ask("GET", "/.well-known/jwks.json")).status == 503
        named = [each.getMessage() for each in caplog.records if "cards are served without signatures" in each.message]
        assert len(named) == 1
        assert "delete its row in signing_keys" in named[0]
        connection = apsw.Connection(str(path))
        connection.execute("DELETE FROM signing_keys")
        connection.close()
        assert (await served.ask("GET", card)).body["signatures"], "the server has made another one"


@pytest.mark.parametrize("needs", ["files", "push_jwt"])
async def test_a_server_that_cannot_do_without_its_key_for_signatures_names_the_fix(tmp_path: Path, needs: str) -> None:
    path = tmp_path / "store.db"
    changes = {"files": f"folder:{tmp_path / 'files'}"} if needs == "files" else {"push_jwt": True}
    async with site(store=f"sqlite:///{path}", **changes):
        pass
    await spoil_file(path)("signing_keys", "jwk", "true", cut)
    with pytest.raises(StoreError, match="cannot be read: restore a backup, or delete its row in signing_keys"):
        async with site(store=f"sqlite:///{path}", **changes):
            pass


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "evoai", "protoagent"])
@pytest.mark.parametrize(("table", "column"), [("tasks", "head"), ("pages", "events")])
async def test_a_webhook_hears_that_a_damaged_task_was_set_aside(
    tmp_path: Path, table: str, column: str, dialect: str
) -> None:
    path = tmp_path / "store.db"
    await set_aside(f"sqlite:///{path}", spoil_file(path), table, column, dialect)


@pytest.mark.parametrize(("table", "column"), [("tasks", "head"), ("pages", "events")])
async def test_a_damaged_task_of_a_dead_replica_is_set_aside(used_postgres_url: str, table: str, column: str) -> None:
    await set_aside(used_postgres_url, spoil_database(used_postgres_url), table, column, "1.0")


async def set_aside(store: str, spoil: Spoil, table: str, column: str, dialect: str) -> None:
    """Damage a task that was at work when its server ended, and start a server: it fails, and its webhook hears it."""
    now_ms = SystemClock().now_ms()
    opened = open_store(store, SystemClock())
    await opened.open("killed")
    head = TaskHead(
        id="t", context_id="c", agent="desk", owner=ANONYMOUS.id, dialect=dialect, mount="/", created_at=timestamp(1)
    )
    said = Submitted(Message(message_id="m", role=Role.USER, parts=(Part(text="go"),)), timestamp(now_ms))
    async with receiving() as receiver:
        config = PushConfig(url=f"{receiver.url}/told", id="w", task_id="t", dialect=dialect, events=("failed",))
        await opened.create(
            NewTask(
                head=head,
                events=(said,),
                state=TaskState.WORKING,
                status_ms=now_ms,
                holder="killed",
                push=Registration(config=config, host=receiver.url),
            )
        )
        await opened.close()
        await spoil_task(spoil, table, column, "t")
        async with site(store=store) as served:
            async with asyncio.timeout(DEADLINE_S):
                await receiver.came(1)
            task = (await served.rpc("/agents/desk", "GetTask", {"id": "t"}, **V)).result
            assert task["status"]["state"] == "TASK_STATE_FAILED"
            assert "damaged" in task["status"]["message"]["parts"][0]["text"]
            assert task["metadata"] == {UNREADABLE: True}
    assert b"failed" in receiver.bodies[0].lower()


async def test_no_page_of_the_console_stumbles_over_a_damaged_task(damaged: Damaged) -> None:
    operator = {"authorization": f"Bearer {read_token(damaged.store, 0)}"}
    for task_id in (damaged.ended["1.0", "tasks"], damaged.ended["1.0", "snapshots"], damaged.asking["1.0"]):
        for part in ("", "/log", "/content", "/moment", "/moment?seq=1", "/tree", "/deliveries", "/wire?dialects=1.0"):
            answer = await damaged.site.ask("GET", f"/admin/v1/tasks/{task_id}{part}", **operator)
            assert answer.status == 200, (part, answer.raw)
    for path in (
        "/tasks",
        "/tasks?order=newest-created",
        "/conversations",
        "/stats",
        "/series?span=month",
        "/agents",
        "/usage",
    ):
        assert (await damaged.site.ask("GET", f"/admin/v1{path}", **operator)).status == 200
