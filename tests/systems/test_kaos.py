"""KAOS: a client written from its text alone, `POST /`."""

import re
from typing import Any

import pytest

from tests.dialects.shown import further_keys, holds
from tests.systems.conftest import HOOK, Site, site
from tests.systems.speakers import KAOS

FURTHER = further_keys("KAOS")

SEND: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "SendMessage",
    "id": 1,
    "params": {
      "message": {
        "role": "user",
        "parts": [{"type": "text", "text": "Analyze this data"}]
      },
      "contextId": "optional-session-id"
    }
}  # fmt: skip

TASK = {
    "id": "...",
    "sessionId": "optional-session-id",
    "status": {"state": "completed", "message": "Done", "timestamp": "..."},
    "history": [
        {"role": "user", "parts": [{"type": "text", "text": "Analyze this data"}]},
        {"role": "agent", "parts": [{"type": "text", "text": "Analysis result..."}]},
    ],
}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **more}


async def test_the_examples_of_send_get_and_cancel(served: Site) -> None:
    told = await served.post("/", SEND)
    assert (told.status, told.headers["Content-Type"]) == (200, "application/json")
    assert holds({"jsonrpc": "2.0", "id": 1, "result": TASK}, told.body, FURTHER), told.body
    result = told.result
    assert (result["output"], result["contextId"]) == ("Analysis result...", "optional-session-id")
    assert result["artifacts"][0]["parts"] == [{"type": "text", "text": "Analysis result..."}]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", result["status"]["timestamp"])
    get = {"jsonrpc": "2.0", "method": "GetTask", "id": 2, "params": {"id": result["id"]}}
    cancel = {"jsonrpc": "2.0", "method": "CancelTask", "id": 3, "params": {"id": result["id"]}}
    for body in (get, cancel):
        again = await served.post("/", body)
        assert holds({"jsonrpc": "2.0", "id": body["id"], "result": TASK}, again.body, FURTHER), again.body
        assert again.result == result, "canceling what is completed changes nothing"


async def test_a_session_is_made_if_none_is_named_and_kept_under_both_names(served: Site) -> None:
    first = (await served.rpc("/", "SendMessage", said("one"))).result
    assert first["sessionId"]
    assert first["contextId"] == first["sessionId"]
    second = (await served.rpc("/", "SendMessage", said("two", sessionId=first["sessionId"]))).result
    assert (second["sessionId"], second["id"] == first["id"]) == (first["sessionId"], False)


async def test_the_aliases(served: Site) -> None:
    sent = (await served.post("/", {**SEND, "method": "tasks/send"})).result
    assert holds(TASK, sent, FURTHER)
    for alias in ("tasks/get", "tasks/cancel"):
        assert (await served.rpc("/", alias, {"id": sent["id"]})).result == sent


async def test_a_running_task_is_processing_and_can_be_canceled(served: Site) -> None:
    task_id = await KAOS.start(served, "kaos-cancel")
    working = (await served.rpc("/", "GetTask", {"id": task_id})).result
    assert (working["status"]["state"], working["status"]["message"]) == ("working", "waiting")
    canceled = (await served.rpc("/", "CancelTask", {"id": task_id})).result
    assert (canceled["status"]["state"], canceled["status"]["message"]) == ("canceled", "Canceled by request")


async def test_a_failing_agent_is_a_failed_task(served: Site) -> None:
    told = await served.rpc("/", "SendMessage", said("fail"))
    assert told.result["status"]["state"] == "failed"
    assert b"secret" not in told.raw


NO_TASK = {"id": "task-uuid"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        ({"jsonrpc": "2.0", "id": 9}, -32600),
        ([], -32600),
        ({"jsonrpc": "2.0", "id": 9, "method": "Nothing"}, -32601),
        ({"jsonrpc": "2.0", "id": 9, "method": "SendMessage", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 9, "method": "GetTask", "params": NO_TASK}, -32001),
        ({"jsonrpc": "2.0", "id": 9, "method": "CancelTask", "params": NO_TASK}, -32001),
        ({"jsonrpc": "2.0", "id": 9, "method": "tasks/get", "params": NO_TASK}, -32001),
    ],
)
async def test_errors_have_the_codes_of_the_table(served: Site, body: Any, code: int) -> None:
    told = await served.post("/", body)
    known = isinstance(body, dict) and "method" in body
    assert (told.status, told.body["id"] if known else 9) == (200, 9)
    assert told.error["code"] == code


async def test_an_error_has_data_that_is_null(served: Site) -> None:
    error = (await served.rpc("/", "GetTask", NO_TASK)).error
    assert (list(error), error["data"]) == (["code", "message", "data"], None)


async def test_a_call_that_is_late_is_answered_with_the_task_as_it_is() -> None:
    async with site(blocking_timeout_s=0.2) as served:
        result = (await served.rpc("/", "SendMessage", said("wait x"))).result
        assert result["status"]["state"] in ("submitted", "working")


async def test_the_card_says_that_json_rpc_is_spoken(served: Site) -> None:
    card = (await served.ask("GET", "/.well-known/agent.json")).body
    assert list(card)[:4] == ["name", "protocolVersion", "supportedProtocols", "capabilities"]
    assert (card["protocolVersion"], card["supportedProtocols"]) == ("0.3.0", ["jsonrpc"])


async def test_a_webhook_in_a_send_is_refused_rather_than_passed_over(served: Site) -> None:
    params = {**SEND["params"], "configuration": {"pushNotificationConfig": {"url": HOOK}}}
    assert (await served.rpc("/", "SendMessage", params)).error["code"] == -32003
