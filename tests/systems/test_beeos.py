"""BeeOS: a client written from its text alone, `POST /{agentId}`."""

from typing import Any

import pytest

from tests.dialects.shown import further_keys, holds
from tests.systems.conftest import HOOK, Frame, Site, site
from tests.systems.speakers import BEEOS

FURTHER = further_keys("BeeOS")
PATH = "/desk"
V = {"a2a_version": "1.0"}

SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {
        "message": {
            "role": "user",
            "parts": [
                {"kind": "text", "text": "What is the weather in San Francisco?"}
            ],
        }
    },
}  # fmt: skip

TASK = {
    "id": "...",
    "status": {"state": "completed", "timestamp": "..."},
    "artifacts": [{"parts": [{"kind": "text", "text": "The weather in San Francisco is 65°F and sunny."}]}],
}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"kind": "text", "text": text}]}, **more}


@pytest.mark.parametrize("headers", [V, {}], ids=["with the version", "without"])
async def test_the_examples_of_send_and_get(served: Site, headers: dict[str, str]) -> None:
    told = await served.post(PATH, SEND, **headers)
    assert told.status == 200
    assert told.headers["Content-Type"] == "application/json"
    assert holds({"jsonrpc": "2.0", "id": 1, "result": TASK}, told.body, FURTHER), told.body
    timestamp = told.result["status"]["timestamp"]
    assert len(timestamp) == len("2026-04-23T10:30:00Z")
    assert timestamp.endswith("Z")
    get = {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": told.result["id"]}}
    got = await served.post(PATH, get, **headers)
    assert holds({"jsonrpc": "2.0", "id": 2, "result": TASK}, got.body, FURTHER), got.body
    assert got.result == told.result


async def test_the_example_of_cancel(served: Site) -> None:
    task_id = await BEEOS.start(served, "beeos-cancel")
    cancel = {"jsonrpc": "2.0", "id": 3, "method": "CancelTask", "params": {"id": task_id}}
    told = await served.post(PATH, cancel, **V)
    shown = {"id": task_id, "status": {"state": "canceled", "timestamp": "..."}, "artifacts": []}
    assert holds({"jsonrpc": "2.0", "id": 3, "result": shown}, told.body, FURTHER), told.body
    assert (await served.post(PATH, cancel, **V)).result == told.result, "canceling again changes nothing"


@pytest.mark.parametrize("method", ["CompleteTask", "UpdateStatus", "tasks/complete", "tasks/updateStatus"])
async def test_a_report_on_an_unknown_task_is_task_not_found_also_where_no_worker_is(served: Site, method: str) -> None:
    report = {"artifacts": [], "status": {"state": "working"}}
    unknown = await served.rpc(PATH, method, {"id": "task_abc123", **report}, **V)
    assert (unknown.error["code"], unknown.error["message"]) == (-32000, "Task not found")
    own = (await served.post(PATH, SEND, **V)).result["id"]
    told = await served.rpc(PATH, method, {"id": own, **report}, **V)
    assert (told.error["code"], told.error["data"]["code"]) == (-32004, "unsupported_operation")
    assert "is not a worker" in told.error["message"]


async def test_a_version_that_is_not_spoken_is_refused(served: Site) -> None:
    told = await served.post(PATH, SEND, a2a_version="9.9")
    assert (told.status, told.error["code"], told.error["data"]["code"]) == (200, -32009, "version_not_supported")
    told = await served.ask("GET", f"{PATH}/stream?task_id=t", a2a_version="9.9")
    assert (told.status, told.body["error"]["code"]) == (400, "version_not_supported")


async def test_a_send_that_names_0_3_is_answered_in_0_3(served: Site) -> None:
    parts = [{"kind": "text", "text": "hi"}]
    params = {"message": {"role": "user", "messageId": "m", "parts": parts}}
    task = (await served.rpc(PATH, "message/send", params, a2a_version="0.3")).result
    assert (task["kind"], task["history"][0]["kind"]) == ("task", "message")
    assert (await served.rpc(PATH, "tasks/get", {"id": task["id"]}, a2a_version="0.3")).result == task


async def test_tasks_are_listed_by_limit_and_offset(served: Site) -> None:
    context = "beeos-list"
    made = []
    for number in range(3):
        params = said(f"number {number}")
        params["message"]["contextId"] = context
        made.append((await served.rpc(PATH, "SendMessage", params, **V)).result["id"])
    everything = (await served.rpc(PATH, "ListTasks", {}, **V)).result
    assert (list(everything), everything["limit"], everything["offset"]) == (
        ["tasks", "total", "limit", "offset"],
        20,
        0,
    )
    assert [task["id"] for task in everything["tasks"][:3]] == made[::-1]
    page = (await served.rpc(PATH, "tasks/list", {"limit": 1, "offset": 1}, **V)).result
    assert ([task["id"] for task in page["tasks"]], page["limit"], page["offset"]) == ([made[1]], 1, 1)
    assert holds({"id": "...", "status": {"state": "completed", "timestamp": "..."}}, _begin(page["tasks"][0]), FURTHER)


def _begin(task: dict[str, Any]) -> dict[str, Any]:
    return {name: task[name] for name in list(task)[:2]}


@pytest.mark.parametrize("method", ["SendStreamingMessage", "message/stream"])
async def test_a_stream_has_bare_frames_that_end_with_the_terminal_status(served: Site, method: str) -> None:
    name = f"beeos-{method}"
    body = {"jsonrpc": "2.0", "id": 4, "method": method, "params": said(f"held {name}")}
    served.open(name)
    async with served.flow(PATH, body, accept="text/event-stream", **V) as flow:
        assert flow.answer.status == 200
        frames = [frame.body for frame in await flow.rest()]
    task_id = frames[0]["task_id"]
    text = {"kind": "text", "text": "first second"}
    for frame in frames:
        assert list(frame)[:2] == ["type", "task_id"], frame
        assert frame["task_id"] == task_id
    shown = {"type": "artifact", "task_id": task_id, "artifact": {"parts": [text]}}
    assert holds(shown, frames[-2], FURTHER), frames[-2]
    assert holds({"type": "status", "task_id": task_id, "status": {"state": "completed"}}, frames[-1], FURTHER)
    deltas = [frame["delta"]["parts"][0]["text"] for frame in frames if frame["type"] == "artifact_delta"]
    assert "".join(deltas) == "first second"
    assert {frame["type"] for frame in frames} == {"status", "artifact_delta", "artifact"}


async def test_a_stream_is_taken_up_again_by_offset(served: Site) -> None:
    frames = await served.stream(PATH, {**SEND, "method": "SendStreamingMessage"}, **V)
    task_id = frames[0].body["task_id"]

    async def since(offset: str) -> list[Frame]:
        return await served.stream(f"{PATH}/stream?task_id={task_id}&since={offset}", None, verb="GET")

    everything = [(frame.id, frame.text) for frame in await since("0")]
    assert everything[-1] == (frames[-1].id, frames[-1].text)
    assert [frame["status"]["state"] for _, frame in _bodies(everything) if frame["type"] == "status"] == [
        "submitted",
        "working",
        "completed",
    ]
    for at, (offset, _) in enumerate(everything):
        assert [(frame.id, frame.text) for frame in await since(offset)] == everything[at + 1 :]
    assert (await served.stream(f"{PATH}/stream?task_id={task_id}", None, verb="GET"))[-1].text == frames[-1].text


def _bodies(frames: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    return [(name, Frame(name, text).body) for name, text in frames]


async def test_a_running_task_is_followed_by_get_and_by_subscribing(served: Site) -> None:
    task_id = await BEEOS.start(served, "beeos-follow")
    subscribe = {"jsonrpc": "2.0", "id": 5, "method": "SubscribeToTask", "params": {"id": task_id}}
    async with (
        served.flow(f"{PATH}/stream?task_id={task_id}&since=0", None, verb="GET") as replayed,
        served.flow(PATH, subscribe, **V) as joined,
    ):
        first = await joined.next()
        assert first is not None
        assert holds({"type": "status", "task_id": task_id, "status": {"state": "working"}}, first.body, FURTHER), (
            first.body
        )
        served.open("beeos-follow")
        for flow in (replayed, joined):
            assert (await flow.rest())[-1].body["status"]["state"] == "completed"


async def test_an_unknown_task_or_agent_has_no_stream(served: Site) -> None:
    for path in ("/desk/stream?task_id=nothing&since=0", "/nobody/stream?task_id=x"):
        told = await served.ask("GET", path)
        assert told.status == 404
        assert (told.body["success"], "not_found" in told.body["error"]["code"]) == (False, True)
    assert (await served.ask("GET", "/desk/stream")).status == 400


ALIASES = {
    "message/send": "SendMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/list": "ListTasks",
}


async def test_an_alias_is_answered_as_what_it_stands_for(served: Site) -> None:
    task_id = (await served.post(PATH, SEND)).result["id"]
    for alias, name in ALIASES.items():
        params = SEND["params"] if name == "SendMessage" else {"id": task_id} if name != "ListTasks" else {"limit": 3}
        shown = (await served.rpc(PATH, name, params)).result
        written = (await served.rpc(PATH, alias, params)).result
        assert list(shown) == list(written)
        if name in ("GetTask", "CancelTask"):
            assert shown == written
    frames = await served.stream(
        PATH, {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task_id}}
    )
    assert frames[-1].body["status"] == {"state": "completed"}


async def test_only_a_worker_is_completed_from_outside(served: Site) -> None:
    task_id = await BEEOS.start(served, "beeos-complete")
    artifacts = [{"parts": [{"kind": "text", "text": "Done!"}]}]
    status = {"state": "working", "message": "Processing step 2 of 5..."}
    for methods, params in (
        (("CompleteTask", "tasks/complete"), {"id": task_id, "artifacts": artifacts}),
        (("UpdateStatus", "tasks/updateStatus"), {"id": task_id, "status": status}),
    ):
        for method in methods:
            assert (await served.rpc(PATH, method, params)).error["code"] == -32004
    served.open("beeos-complete")


async def test_skills_restrict_the_run(served: Site) -> None:
    params = said("x", configuration={"skills": ["summarize_pr"]})
    result = (await served.rpc(PATH, "SendMessage", params)).result
    assert result["artifacts"][0]["parts"] == [{"kind": "text", "text": "summary of x"}]
    assert (await served.rpc(PATH, "SendMessage", said("x", configuration={"skills": ["no"]}))).error["code"] == -32602


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PATH, {"jsonrpc": "2.0", "id": 9, "params": {}}, -32600),
        (PATH, {"jsonrpc": "1.0", "id": 9, "method": "GetTask"}, -32600),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "Nothing", "params": {}}, -32601),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "SendMessage", "params": {}}, -32602),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": {}}, -32602),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": {"id": "task_abc123"}}, -32000),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "CancelTask", "params": {"id": "task_abc123"}}, -32000),
        (PATH, {"jsonrpc": "2.0", "id": 9, "method": "SubscribeToTask", "params": {"id": "task_abc123"}}, -32000),
        ("/nobody", {"jsonrpc": "2.0", "id": 9, "method": "SendMessage", "params": said("hi")}, -32001),
        ("/nobody", {"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": {"id": "task_abc123"}}, -32001),
    ],
)  # fmt: skip
async def test_errors_have_the_codes_of_the_table(served: Site, path: str, body: dict[str, Any], code: int) -> None:
    told = await served.post(path, body, **V)
    assert (told.status, list(told.body), told.body["id"]) == (200, ["jsonrpc", "id", "error"], 9)
    assert told.error["code"] == code
    assert told.error["message"]


async def test_a_call_that_is_late_is_a_task_timeout_and_the_task_goes_on() -> None:
    async with site(blocking_timeout_s=0.2) as served:
        error = (await served.rpc(PATH, "SendMessage", said("wait late"), **V)).error
        task_id = error["data"]["taskId"]
        assert error["code"] == -32003
        task = (await served.rpc(PATH, "GetTask", {"id": task_id}, **V)).result
        assert task["status"]["state"] in ("submitted", "working")
        served.open("late")
        subscribe = {"jsonrpc": "2.0", "id": 5, "method": "SubscribeToTask", "params": {"id": task_id}}
        assert (await served.stream(PATH, subscribe))[-1].body["status"]["state"] == "completed"


@pytest.mark.parametrize("names", ["{}PushNotificationConfig{}", "tasks/pushNotificationConfig/{}"])
async def test_a_webhook_is_registered_read_listed_and_forgotten(served: Site, names: str) -> None:
    verbs = ("Set", "Get", "List", "Delete") if names.startswith("{") else ("set", "get", "list", "delete")
    to_set, to_get, to_list, to_delete = (names.format(verb, "s" if verb == "List" else "") for verb in verbs)
    task_id = (await served.post(PATH, SEND)).result["id"]
    config = {"url": HOOK, "id": "c", "token": "hush", "secret": "hush-hush-hush-hush"}
    shown = {"taskId": task_id, "pushNotificationConfig": {"id": "c", "url": HOOK, "has_secret": True}}
    named = {"id": task_id, "pushNotificationConfigId": "c"}
    made = await served.rpc(PATH, to_set, {"taskId": task_id, "pushNotificationConfig": config})
    assert made.result == (await served.rpc(PATH, to_get, named)).result == shown
    assert (await served.rpc(PATH, to_list, {"id": task_id})).result == [shown]
    assert (await served.rpc(PATH, to_delete, named)).result is None
    assert (await served.rpc(PATH, to_list, {"id": task_id})).result == []
    assert (await served.rpc(PATH, to_get, named)).error["code"] == -32000


async def test_health_and_the_card_by_query(served: Site) -> None:
    assert (await served.ask("GET", "/healthz")).status == 200
    named = await served.ask("GET", "/.well-known/agent-card.json?id=other")
    assert named.raw == (await served.ask("GET", "/other/.well-known/agent-card.json")).raw
    assert (await served.ask("GET", "/.well-known/agent-card.json?id=nobody")).status == 404
