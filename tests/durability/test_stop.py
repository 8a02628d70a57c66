"""SIGTERM: no new work, streams end with a hint to come back, runs get their time, and then exit code 0."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.durability.caller import RUNNING, WAITING, Caller, Frame, Refusal, message
from tests.durability.conftest import Serve, Server
from tests.durability.ledger import text_of

pytestmark = pytest.mark.slow

Call = Callable[[Server], Caller]


async def read_until_cut(caller: Caller, agent: str, task_id: str, begun: asyncio.Event) -> list[Frame]:
    """A subscriber; `begun` is set at its first frame. Returns all that it saw."""
    seen: list[Frame] = []
    async with caller.subscribe(agent, task_id, "0") as frames:
        async for frame in frames:
            seen.append(frame)
            begun.set()
    return seen


async def refused(attempt: Any) -> Refusal:
    """The refusal that an operation must end with."""
    with pytest.raises(Refusal) as refusal:
        await attempt
    return refusal.value


async def test_a_run_within_the_grace_period_ends_and_its_blocking_caller_is_answered(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", "10")
    caller = call(server)
    said = message("12 every 0.1")
    blocking = asyncio.create_task(caller.send("count", said))
    task = await caller.send("count", message("12 every 0.1"), at_once=True)
    begun = asyncio.Event()
    reading = asyncio.create_task(read_until_cut(caller, "count", task["id"], begun))
    await begun.wait()
    server.signal()
    seen = await reading  # streams end at once, with the hint
    assert int(seen[-1].retry) > 0
    assert seen[-2].state not in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")

    sent = await refused(caller.send("echo", message("too late")))
    assert (sent.status, sent.body["error"]["status"]) == (503, "UNAVAILABLE")
    assert int(sent.headers["Retry-After"]) > 0
    streamed = await refused(caller.replay("count", task["id"]))
    assert streamed.status == 503
    ready = await refused(caller.read("/ready"))
    assert (ready.status, ready.body["reason"]) == (503, "the server is stopping")
    assert (await caller.read("/health"))["status"] == "ok"
    assert (await caller.get("count", task["id"]))["status"]["state"] in RUNNING  # reads go on

    answered = await blocking
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(answered) == "".join(f"{number} " for number in range(12))
    assert await server.ended() == 0

    caller = call(await serve())
    ended = await caller.get("count", task["id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(ended) == text_of(answered)
    rest = await caller.replay("count", task["id"], seen[-2].id)
    assert seen[:-1] + rest == await caller.replay("count", task["id"])
    assert (await caller.send("count", said, at_once=True))["id"] == answered["id"]


async def test_while_stopping_each_dialect_has_its_own_way_to_say_so(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", "10")
    caller = call(server)
    task = await caller.send("count", message("20 every 0.1"), at_once=True)
    begun = asyncio.Event()
    reading = asyncio.create_task(read_until_cut(caller, "count", task["id"], begun))
    await begun.wait()
    server.signal()
    await reading
    said = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "late"}]}
    calls = {
        "SendMessage": ({"message": message("late")}, "1.0"),
        "SendStreamingMessage": ({"message": message("late")}, "1.0"),
        "message/send": ({"message": said}, "0.3"),
        "message/stream": ({"message": said}, "0.3"),
    }
    for method, (params, version) in calls.items():
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        refusal = await refused(caller.post("/agents/echo", body, {"A2A-Version": version}))
        assert refusal.status == 503, method
        assert int(refusal.headers["Retry-After"]) > 0
        assert refusal.body["id"] == 7
        assert refusal.body["error"]["code"] == -32000
        assert "stopping" in refusal.body["error"]["message"]
    await server.kill()


async def test_what_outlasts_the_grace_period_fails_or_runs_again_and_what_waits_goes_on(
    serve: Serve, call: Call
) -> None:
    server = await serve("--shutdown-grace-s", "0.5")
    caller = call(server)
    waiting = await caller.send("ask", message("hello"))
    waiting = await caller.send("ask", message("one", task_id=waiting["id"]))
    assert waiting["status"]["state"] == WAITING
    blocking = asyncio.create_task(caller.send("count", message("900 every 0.1")))
    restartable = await caller.send("again", message("25 every 0.05"), at_once=True)
    lost = await caller.send("count", message("901 every 0.1"), at_once=True)
    begun = asyncio.Event()
    reading = asyncio.create_task(read_until_cut(caller, "count", lost["id"], begun))
    await begun.wait()
    server.signal()
    assert (await reading)[-1].retry
    failed = await blocking
    assert failed["status"]["state"] == "TASK_STATE_FAILED"
    assert failed["status"]["message"]["metadata"]["reason"] == "interrupted"
    assert await server.ended() == 0

    caller = call(await serve())
    assert await caller.get("count", failed["id"]) == failed
    assert (await caller.get("count", lost["id"]))["status"]["state"] == "TASK_STATE_FAILED"
    await caller.replay("again", restartable["id"])
    task = await caller.get("again", restartable["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task) == "".join(f"{number} " for number in range(25))
    answered = await caller.send("ask", message("two", task_id=waiting["id"]))
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(answered) == "one, two"


async def test_a_second_sigterm_ends_it_at_once(serve: Serve, call: Call) -> None:
    server = await serve("--shutdown-grace-s", "3600")
    caller = call(server)
    task = await caller.send("count", message("900 every 0.1"), at_once=True)
    begun = asyncio.Event()
    reading = asyncio.create_task(read_until_cut(caller, "count", task["id"], begun))
    await begun.wait()
    server.signal()
    await reading  # it drains
    server.signal()
    assert await server.ended() == -signal.SIGTERM
    caller = call(await serve())
    ended = await caller.get("count", task["id"])
    assert ended["status"]["state"] == "TASK_STATE_FAILED"
    assert ended["status"]["message"]["metadata"]["reason"] == "interrupted"
