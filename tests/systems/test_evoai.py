"""Evo AI: a client written from its text alone, `POST /api/v1/a2a/{agent_id}`."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.config.agents import AgentEntry
from tests.dialects.shown import further_keys, holds
from tests.systems.agents import PIECE, PIECES, REPORT
from tests.systems.conftest import HOOK, Site, site
from tests.systems.speakers import EVOAI

FURTHER = further_keys("Evo AI")
SET_PUSH, GET_PUSH = "tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get"
PATH = "/api/v1/a2a/my-agent"
HEADERS = {"accept": "text/event-stream", "x_api_key": "your-api-key"}

STREAM = {
    "jsonrpc": "2.0",
    "id": "req-stream-001",
    "method": "message/stream",
    "params": {
      "message": {
        "role": "user",
        "parts": [
          {
            "type": "text",
            "text": "Generate a detailed report about AI trends"
          }
        ],
        "messageId": "6dbc13b5-bd57-4c2b-b503-24e381b6c8d6"
      }
    }
}  # fmt: skip

ANALYZING = {"current": 1, "total": 5, "message": "Analyzing AI trends data"}
GENERATING = {"current": 3, "total": 5, "message": "Generating report sections"}
ANSWER = {"role": "agent", "parts": [{"type": "text", "text": REPORT}]}

SHOWN = [
    {"id": "...", "status": {"state": "submitted"}, "final": False},
    {"id": "...", "status": {"state": "working", "progress": ANALYZING}, "final": False},
    {"id": "...", "status": {"state": "working", "progress": GENERATING}, "final": False},
    {"id": "...", "status": {"state": "completed", "message": ANSWER}, "contextId": "...", "final": True},
]


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **more}


def call(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "r", "method": method, "params": params}


async def test_the_example_of_a_stream(served: Site) -> None:
    async with served.flow(PATH, STREAM, **HEADERS) as flow:
        assert flow.answer.status == 200
        shown = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"), ("Connection", "keep-alive")]
        assert [(name, flow.answer.headers[name]) for name, _ in shown] == shown
        frames = [frame.text for frame in await flow.rest()]
    shown_of = {frame: json.loads(frame) for frame in frames}
    found = [next((text for text in frames if holds(_framed(one), shown_of[text], FURTHER)), None) for one in SHOWN]
    assert None not in found, frames
    assert [frames.index(text) for text in found if text is not None] == sorted({frames.index(t) for t in found if t})
    assert (found[0], found[-1]) == (frames[0], frames[-1])
    assert len({shown_of[text]["result"]["id"] for text in frames}) == 1
    assert all(
        '"jsonrpc":"2.0","result":{"id":"' in text and text.endswith('"id":"req-stream-001"}') for text in frames
    )
    assert [shown_of[text]["result"]["final"] for text in frames] == [False] * (len(frames) - 1) + [True]


def _framed(result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "result": result, "id": "req-stream-001"}


async def test_a_send_is_answered_with_the_task_once(served: Site) -> None:
    params = said("Analyze this data")
    told = await served.post(PATH, call("message/send", params), x_api_key="any")
    answer = {"role": "agent", "parts": [{"type": "text", "text": "Analysis result..."}]}
    shown = {"id": "...", "status": {"state": "completed", "message": answer}, "contextId": "..."}
    assert holds({"jsonrpc": "2.0", "result": shown, "id": "r"}, _without_time(told.body), FURTHER), told.body


def _without_time(body: dict[str, Any]) -> dict[str, Any]:
    body["result"]["status"].pop("timestamp")
    return body


@pytest.mark.parametrize("key", ["taskId", "id"])
async def test_a_task_is_read_canceled_and_followed_by_either_key(served: Site, key: str) -> None:
    task_id = await EVOAI.start(served, f"evo-{key}", "my-agent")
    got = (await served.post(PATH, call("tasks/get", {key: task_id}))).body
    assert list(got) == ["jsonrpc", "result", "id"]
    assert (got["result"]["id"], got["result"]["status"]["state"]) == (task_id, "working")
    async with served.flow(PATH, call("tasks/resubscribe", {key: task_id})) as flow:
        first = await flow.next()
        assert first is not None
        assert (first.body["result"]["status"]["state"], first.body["result"]["final"]) == ("working", False)
        canceled = (await served.post(PATH, call("tasks/cancel", {key: task_id}))).result
        assert (canceled["id"], canceled["status"]["state"]) == (task_id, "canceled")
        last = (await flow.rest())[-1].body["result"]
        assert (last["id"], last["status"]["state"], last["final"]) == (task_id, "canceled", True)
    again = (await served.post(PATH, call("tasks/cancel", {key: task_id}))).result
    assert again == canceled
    ended = await served.stream(PATH, call("tasks/resubscribe", {key: task_id}))
    assert [frame.body["result"]["final"] for frame in ended] == [True]


async def test_a_context_goes_on(served: Site) -> None:
    first = (await served.rpc(PATH, "message/send", said("one"))).result
    second = (await served.rpc(PATH, "message/send", said("two", contextId=first["contextId"]))).result
    assert second["contextId"] == first["contextId"]


async def test_pieces_come_as_the_text_so_far_now_and_then_and_whole_in_the_end(served: Site) -> None:
    """One frame in 250 ms at most, each below 10 kB while the task works."""
    begun = time.monotonic()
    frames = await served.stream(PATH, call("message/stream", said("pieces")))
    most = (time.monotonic() - begun) / 0.25 + 1
    *early, last = [frame for frame in frames if "message" in frame.body["result"]["status"]]
    texts = [frame.body["result"]["status"]["message"]["parts"][0]["text"] for frame in early]
    assert 2 <= len(early) <= most, f"{PIECES} pieces"
    for frame, text in zip(early, texts, strict=True):
        assert len(f"data: {frame.text}\n\n".encode()) < 10_000
        assert (PIECE * PIECES).count(text[-50:]) > 0
    assert last.body["result"]["status"]["message"]["parts"][0]["text"] == PIECE * PIECES
    assert last.body["result"]["final"] is True


async def test_a_failing_agent_is_an_error_in_both_ways(served: Site) -> None:
    unary = (await served.post(PATH, call("message/send", said("fail")))).body
    (*_, frame) = await served.stream(PATH, call("message/stream", said("fail")))
    for body in (unary, frame.body):
        assert list(body) == ["jsonrpc", "error", "id"]
        error = {"code": -32000, "message": "Agent processing failed", "data": {"taskId": "...", "details": "..."}}
        assert holds(error, body["error"], FURTHER), body
        assert "secret" not in str(body)
    got = (await served.post(PATH, call("tasks/get", {"taskId": unary["error"]["data"]["taskId"]}))).result
    assert got["status"]["state"] == "failed"


async def test_a_call_that_is_late_is_an_error_and_the_task_goes_on() -> None:
    async with site(blocking_timeout_s=0.2) as served:
        error = (await served.post(PATH, call("message/send", said("wait late")))).error
        task_id = error["data"]["taskId"]
        assert error == {
            "code": -32000,
            "message": "Agent processing failed",
            "data": {"taskId": task_id, "details": "Timeout exceeded"},
        }
        served.open("late")
        frames = await served.stream(PATH, call("tasks/resubscribe", {"taskId": task_id}))
        assert frames[-1].body["result"]["status"]["state"] == "completed"


async def test_errors_of_a_call(served: Site) -> None:
    for body, code in (
        (b"{", -32700),
        ({"jsonrpc": "2.0", "id": "r"}, -32600),
        (call("nothing", {}), -32601),
        (call("message/send", {}), -32602),
        (call("tasks/get", {}), -32602),
        (call("tasks/get", {"taskId": "task-789"}), -32001),
    ):
        told = await served.post(PATH, body)
        assert (told.status, list(told.body), told.error["code"]) == (200, ["jsonrpc", "error", "id"], code), told


async def test_a_refused_stream_is_plain_json(served: Site) -> None:
    told = await served.post(PATH, call("message/stream", {}), **HEADERS)
    assert (told.headers["Content-Type"], told.error["code"]) == ("application/json", -32602)


async def test_an_unknown_agent_is_404(served: Site) -> None:
    told = await served.post("/api/v1/a2a/nobody", STREAM, **HEADERS)
    assert (told.status, told.body) == (404, {"detail": "Agent not found"})
    assert (await served.ask("GET", "/api/v1/a2a/nobody/.well-known/agent.json")).status == 404


async def test_a_webhook_is_registered_read_and_taken_away(served: Site) -> None:
    task_id = (await served.rpc(PATH, "message/send", said("x"))).result["id"]
    named = {"taskId": task_id}
    webhook = {"webhookUrl": HOOK, "webhookAuthenticationInfo": {"type": "bearer", "token": "hush"}}
    made = await served.rpc(PATH, SET_PUSH, {**named, "pushNotificationConfig": webhook})
    assert list(made.result)[:4] == ["configured", "configId", "url", "events"]
    got = (await served.rpc(PATH, GET_PUSH, named)).result
    assert (got["taskId"], got["pushNotificationConfig"]["url"]) == (task_id, HOOK)
    assert "hush" not in str((made.body, got))
    assert (await served.rpc(PATH, SET_PUSH, {**named, "pushNotificationConfig": None})).result["success"] is True
    assert (await served.rpc(PATH, GET_PUSH, named)).error["code"] == -32001


async def test_a_webhook_comes_with_a_message_and_must_be_safe(served: Site) -> None:
    task_id = (await served.rpc(PATH, "message/send", said("x", pushNotificationConfig={"url": HOOK}))).result["id"]
    assert (await served.rpc(PATH, GET_PUSH, {"taskId": task_id})).result["pushNotificationConfig"]["url"] == HOOK
    for unsafe in ("https://127.0.0.2/hook", "http://example.org/hook"):
        told = await served.rpc(PATH, "message/send", said("x", pushNotificationConfig={"url": unsafe}))
        assert told.error["code"] == -32602, told


ENTRIES = (AgentEntry(id="my-agent", run="x:y", api_key="your-api-key"),)
"""The other agents have the key of the server."""


@pytest.fixture(scope="module")
async def keyed() -> AsyncIterator[Site]:
    async with site(api_key="the servers", agents=ENTRIES) as running_site:
        yield running_site


@pytest.mark.parametrize(
    ("path", "key", "detail"),
    [
        (PATH, None, "API key not provided"),
        (PATH, "wrong", "Invalid API key"),
    ],
)
async def test_a_missing_or_wrong_key_is_401(keyed: Site, path: str, key: str | None, detail: str) -> None:
    headers = {} if key is None else {"x_api_key": key}
    for body in (
        STREAM,
        call("message/send", said("x")),
        call("tasks/get", {"taskId": "t"}),
        call("nothing", {}),
        b"{",
    ):
        told = await keyed.post(path, body, **headers)
        assert (told.status, told.body) == (401, {"detail": detail})
        assert "WWW-Authenticate" in told.headers


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (PATH, {"x_api_key": "your-api-key"}),
        (PATH, {"authorization": "Bearer your-api-key"}),
        ("/api/v1/a2a/desk", {"x_api_key": "the servers"}),
        (PATH, {"x_api_key": "the servers"}),
    ],
)
async def test_the_key_of_the_agent_opens_it(keyed: Site, path: str, headers: dict[str, str]) -> None:
    assert (await keyed.post(path, call("message/send", said("x")), **headers)).result["status"]["state"] == "completed"


async def test_a_key_guards_an_agent_on_every_mount(keyed: Site) -> None:
    message = {"role": "user", "parts": [{"kind": "text", "text": "x"}]}
    for path in ("/my-agent", "/agents/my-agent", "/a2a", "/"):
        assert (await keyed.rpc(path, "message/send", {"message": message})).status == 401, path
    for path in ("/agents/my-agent/tasks", "/my-agent/stream?task_id=x", "/a2a/tasks/x", "/tasks"):
        assert (await keyed.ask("GET", path, a2a_version="1.0")).status == 401, path
    chat = {"model": "my-agent", "messages": [{"role": "user", "content": "x"}]}
    assert (await keyed.post("/v1/chat/completions", chat)).status == 401
    assert (await keyed.post("/v1/chat/completions", chat, authorization="Bearer your-api-key")).status == 200
    tenant = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}, "tenant": "my-agent"}
    told = await keyed.rpc("/", "SendMessage", tenant, a2a_version="1.0", x_api_key="your-api-key")
    assert told.result["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await keyed.rpc("/", "SendMessage", tenant, a2a_version="1.0", x_api_key="the servers")).status == 200


async def test_a_key_of_one_agent_is_refused_on_another(keyed: Site) -> None:
    for body in (STREAM, call("message/send", said("x")), call("tasks/get", {"taskId": "t"}), b"{"):
        told = await keyed.post("/api/v1/a2a/desk", body, x_api_key="your-api-key")
        assert (told.status, list(told.body)) == (403, ["detail"])


async def test_an_unknown_agent_is_404_where_keys_are_asked_for(keyed: Site) -> None:
    assert (await keyed.post("/api/v1/a2a/nobody", STREAM, x_api_key="the servers")).status == 404


async def test_the_card_is_public_and_says_where_the_key_goes(keyed: Site) -> None:
    card = (await keyed.ask("GET", f"{PATH}/.well-known/agent.json")).body
    assert card["url"] == keyed.url + PATH
    schemes = {
        "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        "bearer": {"type": "http", "scheme": "Bearer"},
    }
    assert card["securitySchemes"] == schemes
    assert card["security"] == [{"apiKey": []}, {"bearer": []}]


async def test_a_stream_whose_reader_leaves_goes_on(served: Site) -> None:
    async with served.flow(PATH, call("message/stream", said("held evo-leaves"))) as flow:
        first = await flow.next()
        assert first is not None
        task_id = first.body["result"]["id"]
        await served.begun("evo-leaves", task_id, "my-agent")
    served.open("evo-leaves")
    frames = await served.stream(PATH, call("tasks/resubscribe", {"taskId": task_id}))
    assert frames[-1].body["result"]["status"]["message"]["parts"][0]["text"] == "first second"


async def test_the_same_message_again_is_the_same_task_told_from_the_start(served: Site) -> None:
    """Its id is a UUID, so it is the call that came before, whose answer was perhaps lost."""
    first, again = [[frame.body["result"] for frame in await served.stream(PATH, STREAM, **HEADERS)] for _ in range(2)]
    assert (first[0], first[-1]) == (again[0], again[-1])


async def test_health_is_told_where_its_own_client_looks(served: Site) -> None:
    assert (await served.ask("GET", "/api/v1/a2a/health")).status == 200


async def test_a_page_may_send_the_key() -> None:
    async with site(cors_origins=("https://app.example.org",)) as served:
        asked = {
            "origin": "https://app.example.org",
            "access_control_request_method": "POST",
            "access_control_request_headers": "x-api-key,content-type,authorization",
        }
        told = await served.ask("OPTIONS", PATH, **asked)
        allowed = told.headers["Access-Control-Allow-Headers"].lower()
        assert [name for name in ("x-api-key", "content-type", "authorization") if name not in allowed] == []
