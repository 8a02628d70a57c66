"""protoAgent: a client written from its text alone, `POST /a2a`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.shown import further_keys, holds
from tests.systems.conftest import HOOK, Frame, Site, site
from tests.systems.speakers import PROTOAGENT

FURTHER = further_keys("protoAgent")
PATH = "/a2a"

SEND = {
    "method": "message/send",
    "params": {
        "message": {
            "role": "user",
            "parts": [{"text": "summarize https://example.com"}]
        },
        "metadata": {"skill": "summarize_pr"}
    }
}  # fmt: skip


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "parts": [{"text": text}]}, **more}


def call(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "caller-chosen", "method": method, "params": params}


async def test_the_example_of_send(served: Site) -> None:
    told = await served.post(PATH, {"jsonrpc": "2.0", "id": "caller-chosen", **SEND})
    assert (told.body["jsonrpc"], told.body["id"]) == ("2.0", "caller-chosen")
    result = told.result
    assert list(result)[:6] == ["kind", "id", "contextId", "status", "artifacts", "data"]
    assert (result["kind"], result["status"]["state"]) == ("task", "completed")
    assert holds({"usage": {"input_tokens": 1200, "output_tokens": 340, "total_tokens": 1540}}, _usage(result), FURTHER)
    assert (list(result["data"]), type(result["data"]["durationMs"])) == (["usage", "durationMs"], int)
    text, *_ = result["artifacts"][0]["parts"]
    assert text == {"kind": "text", "text": "summary of summarize https://example.com"}
    assert FURTHER.issuperset(list(result)[6:])


def _usage(result: dict[str, Any]) -> dict[str, Any]:
    return {"usage": result["data"]["usage"]}


async def test_usage_is_three_zeros_if_the_agent_reports_none(served: Site) -> None:
    data = (await served.rpc(PATH, "message/send", said("hi"))).result["data"]
    assert data["usage"] == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}


async def test_every_frame_of_a_stream_has_its_kind(served: Site) -> None:
    served.open("proto-stream")
    async with served.flow(PATH, call("message/stream", said("held proto-stream"))) as flow:
        assert flow.answer.headers["Cache-Control"] == "no-cache"
        frames = [frame.body for frame in await flow.rest()]
    assert all(frame["id"] == "caller-chosen" for frame in frames)
    results = [frame["result"] for frame in frames]
    kinds = [result["kind"] for result in results]
    assert kinds[0] == "task"
    assert set(kinds) == {"task", "status-update", "artifact-update"}
    assert results[0]["status"]["state"] == "submitted"
    assert (kinds[-1], results[-1]["final"], results[-1]["status"]["state"]) == ("status-update", True, "completed")
    assert not any(result.get("final") for result in results[:-1])
    chunks = [result for result in results if result["kind"] == "artifact-update"]
    deltas = "".join(_text(chunk) for chunk in chunks if chunk["append"] or not chunk.get("lastChunk"))
    assert (deltas, _text(chunks[-1]), chunks[-1]["lastChunk"]) == ("first second", "first second", True)


def _text(update: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in update["artifact"]["parts"])


async def test_tool_calls_are_status_updates_with_a_phase(served: Site) -> None:
    frames = await served.stream(PATH, call("message/stream", said("tool")))
    calls = [
        part["data"]["phase"]
        for frame in frames
        if frame.body["result"]["kind"] == "status-update"
        for part in frame.body["result"]["status"].get("message", {}).get("parts", [])
        if part["kind"] == "data"
    ]
    assert calls == ["start", "end"]


async def test_a_task_is_read_in_both_ways(served: Site) -> None:
    task_id = (await served.rpc(PATH, "message/send", said("hi"))).result["id"]
    got = (await served.post(PATH, call("tasks/get", {"id": task_id}))).result
    rest = await served.ask("GET", f"/a2a/tasks/{task_id}")
    assert (rest.status, rest.headers["Content-Type"], rest.body) == (200, "application/json", got)
    assert got["kind"] == "task"
    assert (await served.ask("GET", "/a2a/tasks/nothing")).status == 404


async def test_cancel_stops_what_runs_and_leaves_what_has_ended(served: Site) -> None:
    task_id = await PROTOAGENT.start(served, "proto-cancel")
    canceled = (await served.post(PATH, call("tasks/cancel", {"id": task_id}))).result
    assert (canceled["kind"], canceled["status"]["state"]) == ("task", "canceled")
    assert (await served.post(PATH, call("tasks/cancel", {"id": task_id}))).result == canceled
    done = (await served.rpc(PATH, "message/send", said("hi"))).result
    assert (await served.post(PATH, call("tasks/cancel", {"id": done["id"]}))).result == done


async def test_a_reader_that_comes_back_misses_nothing(served: Site) -> None:
    """With the last id exactly what follows; without one what there was, and what follows."""
    async with served.flow(PATH, call("message/stream", said("held proto-back"))) as flow:
        first = [await flow.next(), await flow.next()]
        assert first[0] is not None
        assert first[1] is not None
        task_id = first[0].body["result"]["id"]
        await served.begun("proto-back", task_id)
    again = call("tasks/resubscribe", {"id": task_id})
    async with (
        served.flow(PATH, again, last_event_id=first[1].id) as resumed,
        served.flow(PATH, again) as joined,
    ):
        snapshot = await joined.next()
        assert snapshot is not None
        task = snapshot.body["result"]
        assert (task["kind"], task["status"]["state"]) == ("task", "working")
        held = "".join(part.get("text", "") for each in task["artifacts"] for part in each["parts"])
        served.open("proto-back")
        following = await resumed.rest()
        later = [frame.body["result"] for frame in await joined.rest()]
    replayed = await served.stream(PATH, again, last_event_id="0")
    assert [frame.text for frame in replayed] == [frame.text for frame in (*_known(first), *following)]
    told = held + "".join(_text(each) for each in later if each["kind"] == "artifact-update" and each["append"])
    assert (told, later[-1]["final"]) == ("first second", True)
    ended = [frame.body["result"] for frame in await served.stream(PATH, again)]
    assert [each["kind"] for each in ended] == ["task", "artifact-update", "status-update"]
    assert ended[-1]["final"] is True


def _known(frames: list[Frame | None]) -> list[Frame]:
    return [frame for frame in frames if frame is not None]


async def test_a_reader_that_comes_back_after_a_restart_misses_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    async with site(store=store) as served, served.flow(PATH, call("message/stream", said("held x"))) as flow:
        before = [await flow.next(), await flow.next()]
        assert before[0] is not None
        assert before[1] is not None
        await served.begun("x", before[0].body["result"]["id"])
    again = call("tasks/resubscribe", {"id": before[0].body["result"]["id"]})
    async with site(store=store) as served:
        after = await served.stream(PATH, again, last_event_id=before[1].id)
        replayed = await served.stream(PATH, again, last_event_id="0")
    assert [frame.text for frame in replayed] == [frame.text for frame in (*_known(before), *after)]
    last = replayed[-1].body["result"]
    assert (last["kind"], last["final"], last["status"]["state"]) == ("status-update", True, "failed")


async def test_both_card_paths_have_the_same_content(served: Site) -> None:
    cards = [await served.ask("GET", f"/a2a/.well-known/{name}") for name in ("agent-card.json", "agent.json")]
    assert cards[0].raw == cards[1].raw
    card = cards[0].body
    assert card["url"] == f"{served.url}/a2a"
    uris = [extension["uri"] for extension in card["capabilities"]["extensions"]]
    assert uris == [
        f"https://proto-labs.ai/a2a/ext/{name}"
        for name in ("cost-v1", "worldstate-delta-v1", "tool-call-v1", "confidence-v1")
    ]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/resubscribe"])
async def test_an_unknown_task_is_not_found(served: Site, method: str) -> None:
    told = await served.post(PATH, call(method, {"id": "nothing"}))
    assert (told.status, told.error["code"]) == (200, -32001)


async def test_errors_of_a_call(served: Site) -> None:
    for body, code in (
        (b"{", -32700),
        ({"jsonrpc": "2.0", "id": "r"}, -32600),
        (call("nothing", {}), -32601),
        (call("message/send", {}), -32602),
        (call("tasks/get", {}), -32602),
    ):
        told = await served.post(PATH, body)
        assert (told.status, told.error["code"]) == (200, code), told


async def test_a_webhook_is_registered_read_listed_and_forgotten(served: Site) -> None:
    task_id = (await served.rpc(PATH, "message/send", said("x"))).result["id"]
    config = {"url": HOOK, "token": "shared-secret"}
    calls = "tasks/pushNotificationConfig/"
    assert (await served.rpc(PATH, f"{calls}get", {"taskId": task_id})).result is None
    made = (await served.rpc(PATH, f"{calls}set", {"taskId": task_id, "pushNotificationConfig": config})).result
    assert list(made["pushNotificationConfig"]) == ["url", "id"], "its token is its credential"
    assert (made["taskId"], made["pushNotificationConfig"]["url"]) == (task_id, HOOK)
    assert (await served.rpc(PATH, f"{calls}get", {"id": task_id})).result == made
    assert (await served.rpc(PATH, f"{calls}list", {"taskId": task_id})).result == [made]
    assert (await served.rpc(PATH, f"{calls}delete", {"taskId": task_id})).result is None
    assert (await served.rpc(PATH, f"{calls}list", {"id": task_id})).result == []


@pytest.mark.parametrize("wrapped", [False, True])
async def test_the_aliases_register_and_list_webhooks(served: Site, wrapped: bool) -> None:
    task_id = (await served.rpc(PATH, "message/send", said("x"))).result["id"]
    path = f"/a2a/tasks/{task_id}/pushNotificationConfig"
    authentication = {"schemes": ["Bearer"], "credentials": "hush"}
    config = {"url": HOOK, "token": "shared-secret", "authentication": authentication}
    made = await served.ask("POST", path, {"pushNotificationConfig": config} if wrapped else config)
    assert (made.status, list(made.body)[:3], made.body["taskId"]) == (200, ["id", "taskId", "url"], task_id)
    listed = (await served.ask("GET", path)).body
    assert [each["pushNotificationConfig"]["url"] for each in listed] == [HOOK]
    told = made.raw + json.dumps(listed).encode()
    assert b"hush" not in told
    assert b"shared-secret" not in told
    unsafe = await served.ask("POST", path, {"url": "http://127.0.0.2/hook"})
    assert (unsafe.status, "127.0.0.2" in unsafe.body["detail"]) == (400, True), unsafe


async def test_what_a_call_that_is_late_is_answered() -> None:
    async with site(blocking_timeout_s=0.2) as served:
        result = (await served.rpc(PATH, "message/send", said("wait x"))).result
        assert result["kind"] == "task"
        assert result["status"]["state"] in ("submitted", "working")
