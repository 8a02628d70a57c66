"""The worker API over HTTP, against the whole server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.config import AgentEntry
from dragoman.config.budgets import Budget, Reserve
from tests.kit.agents import echoing, hired
from tests.kit.places import server
from tests.kit.workers import WorkerDoor

DEADLINE_S = 60.0


SETTINGS: dict[str, Any] = {"agents": (AgentEntry(id="keyed", run="worker", api_key="secret"),)}


@pytest.fixture
async def site() -> AsyncIterator[WorkerDoor]:
    """A server with an agent of its own and two of workers."""
    async with server(echoing("here"), hired("far"), hired("keyed"), **SETTINGS) as http:
        yield WorkerDoor([http])


async def test_a_task_from_lease_to_completion(site: WorkerDoor) -> None:
    task_id = (await site.send("hello"))["id"]
    delivery = await site.take()
    assert delivery["task"]["id"] == task_id
    assert delivery["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert delivery["message"]["parts"] == [{"text": "hello"}]
    assert delivery["expires_s"] == 30
    lease = delivery["lease"]
    assert await site.act("heartbeat", {"lease": lease}) == (200, {"cancel": False, "expires_s": 30.0, "answers": []})
    said = {"lease": lease, "message": "Step 1", "progress": {"current": 1, "total": 2}, "number": 1}
    assert (await site.act("update", said))[0] == 200
    chunk = {"lease": lease, "artifact": {"artifactId": "a", "parts": [{"text": "one "}]}, "append": True, "number": 2}
    for _ in range(2):  # the second time since the first answer was lost
        assert await site.act("artifact", chunk) == (200, {"artifact_id": "a"})
    chunk = {"lease": lease, "artifact": {"artifactId": "a", "parts": [{"text": "two"}]}, "append": True, "number": 3}
    assert (await site.act("artifact", chunk))[0] == 200
    finish = {"lease": lease, "artifacts": [{"parts": [{"kind": "text", "text": "Done!"}]}], "usage": {"input": 2}}
    for _ in range(2):
        status, task = await site.act("complete", finish)
        assert status == 200
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [artifact["parts"] for artifact in task["artifacts"]] == [[{"text": "one two"}], [{"text": "Done!"}]]
    kept = await site.task(task_id)
    assert kept["artifacts"] == task["artifacts"]
    assert kept["metadata"]["urn:dragoman:usage:v1"]["inputTokens"] == 2


LATER: dict[str, dict[str, Any]] = {
    "update": {"message": "more", "number": 3},
    "artifact": {"artifact": {"artifactId": "a", "parts": [{"text": "more"}]}, "number": 3},
    "ask": {"message": "Which?", "question": 1},
    "delegate": {"agent": "here", "message": "hello", "delegation": 1},
    "step": {"name": "charge", "number": 1, "at_most_once": True},
    "step-result": {"name": "charge", "number": 1, "result": 1},
    "sleep": {"number": 1, "seconds": 3600},
    "memory": {"verb": "set", "key": "k", "value": 1, "number": 1},
    "complete": {"usage": {"input": 1}},
    "fail": {"message": "no", "usage": {"input": 1}},
}
"""The requests that say what a worker knows to be confirmed."""


@pytest.mark.parametrize("known", [{"confirmed": 2}, {"heard": "an answer"}])
async def test_what_the_store_has_lost_ends_the_lease_at_the_next_request(
    site: WorkerDoor, known: dict[str, Any]
) -> None:
    task_id = (await site.send())["id"]
    for action, said in LATER.items():
        lease = (await site.take())["lease"]
        await site.report("update", lease, message="kept", number=1)
        status, refused = await site.act(action, {"lease": lease, **known, **said})
        assert (action, status) == (action, 409)
        assert refused["error"]["details"][0]["reason"] == "LEASE_LOST"
    await site.report("complete", (await site.take())["lease"])
    ended = await site.reach(task_id, "COMPLETED")
    assert "artifacts" not in ended


async def test_a_number_that_no_store_holds_is_refused(site: WorkerDoor) -> None:
    await site.send()
    lease = (await site.take())["lease"]
    for name in ("number", "confirmed"):
        status, refused = await site.act("update", {"lease": lease, "message": "hi", name: 2**31})
        assert (status, refused["error"]["code"]) == (400, 400)
        assert name in refused["error"]["message"]


async def test_a_question_of_an_update_counts_as_a_report(site: WorkerDoor) -> None:
    task_id = (await site.send())["id"]
    lease = (await site.take())["lease"]
    await site.report("update", lease, message="One", number=1)
    asked = {"state": "input-required", "message": "Which city?", "number": 2, "confirmed": 1}
    await site.report("update", lease, **asked)
    await site.send("Lyon", taskId=task_id)
    await site.report("update", lease, **asked)  # again, since its answer was lost: it is no second question
    await site.report("update", lease, message="Three", number=3, confirmed=2)
    await site.report("update", lease, state="completed", number=1, confirmed=3)
    await site.reach(task_id, "COMPLETED")


async def test_a_report_that_confirms_itself_is_refused_and_its_lease_stays(site: WorkerDoor) -> None:
    await site.send()
    lease = (await site.take())["lease"]
    for action, said in (("update", {"message": "One"}), ("artifact", {"artifact": {"parts": [{"text": "One"}]}})):
        status, refused = await site.act(action, {"lease": lease, "number": 1, "confirmed": 1, **said})
        assert (status, refused["error"]["message"].partition(" ")[0]) == (400, "confirmed:")
    await site.report("update", lease, message="One", number=1)
    await site.report("complete", lease, confirmed=1)


async def test_without_a_task_the_answer_is_204_when_the_wait_is_over(site: WorkerDoor) -> None:
    assert await site.act("lease", {"worker": "w1"}) == (204, None)
    assert await site.act("lease", {"worker": "w1", "wait_s": 0.05}) == (204, None)


async def test_a_worker_that_waits_gets_the_task_as_it_comes(site: WorkerDoor) -> None:
    waiting = asyncio.create_task(site.take())
    task_id = (await site.send())["id"]
    delivery = await waiting
    assert delivery["task"]["id"] == task_id
    await site.act("complete", {"lease": delivery["lease"]})


async def test_a_worker_that_left_while_it_waited_gets_nothing(site: WorkerDoor) -> None:
    leaving = asyncio.create_task(site.take())
    async with asyncio.timeout(DEADLINE_S):
        while (await site.act("lease", {"worker": "w2"}))[0] != 204:
            pass
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert (await site.act("lease", {"worker": "w2", "wait_s": 0.1}))[0] == 204  # meanwhile the server sees it leave
    task_id = (await site.send())["id"]
    delivery = await site.take(worker="w2")
    assert delivery["task"]["id"] == task_id
    await site.act("fail", {"lease": delivery["lease"]})


async def test_a_worker_asks_and_hears_the_answer(site: WorkerDoor) -> None:
    task_id = (await site.send())["id"]
    lease = (await site.take())["lease"]
    question = {"lease": lease, "message": "Which city?", "question": 1, "wait_s": 0}
    assert await site.act("ask", question) == (200, {"answer": None, "expires_s": 30.0})
    assert (await site.task(task_id))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    asking = asyncio.create_task(site.act("ask", {**question, "wait_s": 5}))
    await site.send("Lyon", taskId=task_id)
    status, reply = await asking
    assert status == 200
    assert reply["answer"]["parts"] == [{"text": "Lyon"}]
    _, pulse = await site.act("heartbeat", {"lease": lease})
    assert [answer["parts"] for answer in pulse["answers"]] == [[{"text": "Lyon"}]]
    assert (await site.act("complete", {"lease": lease}))[0] == 200


async def test_a_cancel_reaches_the_worker(site: WorkerDoor) -> None:
    task_id = (await site.send())["id"]
    lease = (await site.take())["lease"]
    hearing = asyncio.create_task(site.act("heartbeat", {"lease": lease, "wait_s": 10}))
    async with site.server().post(f"/agents/far/tasks/{task_id}:cancel", headers={"A2A-Version": "1.0"}) as answer:
        assert (await answer.json())["status"]["state"] == "TASK_STATE_CANCELED"
    status, pulse = await hearing
    assert (status, pulse["cancel"]) == (200, True)
    status, refused = await site.act("complete", {"lease": lease})
    assert (status, refused["error"]["details"][0]["reason"]) == (409, "LEASE_LOST")


async def test_a_failure_is_told_in_the_workers_words(site: WorkerDoor) -> None:
    task_id = (await site.send())["id"]
    lease = (await site.take())["lease"]
    status, task = await site.act("fail", {"lease": lease, "message": "The weather station is down."})
    assert (status, task["status"]["state"]) == (200, "TASK_STATE_FAILED")
    assert (await site.task(task_id))["status"]["message"]["parts"] == [{"text": "The weather station is down."}]


@pytest.mark.parametrize("state", ["rejected", "TASK_STATE_REJECTED"])
async def test_a_status_may_be_spelled_either_way(site: WorkerDoor, state: str) -> None:
    await site.send()
    lease = (await site.take())["lease"]
    status, task = await site.act("update", {"lease": lease, "state": state, "message": "No"})
    assert (status, task["status"]["state"]) == (200, "TASK_STATE_REJECTED")


async def test_the_past_of_a_task_can_be_read(site: WorkerDoor) -> None:
    first = await site.send("first")
    lease = (await site.take())["lease"]
    await site.act("complete", {"lease": lease, "artifacts": [{"parts": [{"text": "one"}]}]})
    await site.send("second", contextId=first["contextId"], referenceTaskIds=[first["id"]])
    delivery = await site.take(history=10)
    said = [[{"text": "first"}], [{"text": "one"}]]
    assert [message["parts"] for message in delivery["history"]] == said
    lease = delivery["lease"]
    _, past = await site.act("history", {"lease": lease})
    assert [message["parts"] for message in past["messages"]] == said
    _, found = await site.act("references", {"lease": lease})
    assert [task["id"] for task in found["tasks"]] == [first["id"]]
    await site.act("release", {"lease": lease})
    again = await site.take()
    assert again["lease"] != lease
    await site.act("complete", {"lease": again["lease"]})


@pytest.mark.parametrize(
    ("action", "body", "agent", "status"),
    [
        ("heartbeat", {"lease": "1.guessed"}, "far", 409),
        ("complete", {"lease": "1.guessed"}, "far", 409),
        ("complete", {}, "far", 400),
        ("update", {"lease": 7}, "far", 400),
        ("lease", {"wait_s": 31}, "far", 400),
        ("lease", {"wait_s": "long"}, "far", 400),
        ("lease", {}, "here", 400),
        ("lease", {}, "nobody", 404),
        ("dance", {}, "far", 404),
        ("lease", {}, "keyed", 401),
    ],
)
async def test_what_does_not_fit_is_refused(
    site: WorkerDoor, action: str, body: dict[str, Any], agent: str, status: int
) -> None:
    got, answer = await site.act(action, body, agent=agent)
    assert got == status, answer
    assert answer["error"]["message"]


async def test_the_key_of_an_agent_lets_its_workers_in(site: WorkerDoor) -> None:
    assert (await site.act("lease", {}, agent="keyed", **{"x-api-key": "secret"}))[0] == 204
    assert (await site.act("lease", {}, agent="keyed", Authorization="Bearer secret"))[0] == 204


async def test_a_report_of_too_many_values_is_refused_and_the_limit_named(site: WorkerDoor) -> None:
    await site.send()
    lease = (await site.take())["lease"]
    chunk = {"lease": lease, "artifact": {"artifactId": "a", "parts": [{"data": [1] * 250_000}]}}
    status, refusal = await site.act("artifact", chunk)
    assert (status, "max_values" in refusal["error"]["message"]) == (400, True)
    chunk["artifact"] = {"artifactId": "a", "parts": [{"text": "x" * 800_000}, {"data": [1] * 10_000}]}
    assert await site.act("artifact", chunk) == (200, {"artifact_id": "a"})


@pytest.mark.parametrize(
    ("action", "body", "status", "fix"),
    [
        ("lease", {"wait_s": 31}, 400, "wait_s: must be at most 30"),
        ("lease", {"history": -1}, 400, "history: must be at least 0"),
        ("delegate", {"lease": "", "agent": "here", "timeout_s": 0}, 400, "timeout_s: must be more than 0"),
        ("leese", {}, 404, "workers have no such action: there are artifact, ask, complete, delegate, fail"),
    ],
)
async def test_a_refusal_says_what_would_do(
    site: WorkerDoor, action: str, body: dict[str, Any], status: int, fix: str
) -> None:
    refused, answer = await site.act(action, body)
    assert (refused, answer["error"]["message"][: len(fix)]) == (status, fix)


async def test_a_body_that_is_not_json_is_refused(site: WorkerDoor) -> None:
    for body, content_type, status in ((b"{", "application/json", 400), (b"{}", "text/plain", 415)):
        async with site.server().post(
            "/workers/far/lease", data=body, headers={"Content-Type": content_type}
        ) as answer:
            assert answer.status == status


async def test_a_lease_counts_for_its_agent_alone(site: WorkerDoor) -> None:
    task_id = (await site.send("hi"))["id"]
    lease = (await site.take())["lease"]
    bodies: dict[str, dict[str, Any]] = {
        "heartbeat": {},
        "update": {"message": "x"},
        "artifact": {"artifact": {"parts": [{"text": "x"}]}},
        "ask": {"message": "which?"},
        "delegate": {"agent": "here", "message": "x"},
        "complete": {},
        "fail": {},
        "release": {},
        "history": {},
        "references": {},
    }
    for action, body in bodies.items():
        status, refused = await site.act(action, {"lease": lease, **body}, agent="keyed", **{"x-api-key": "secret"})
        assert (action, status) == (action, 409)
        assert refused["error"]["details"][0]["reason"] == "LEASE_LOST"
    assert (await site.task(task_id))["status"]["state"] == "TASK_STATE_WORKING"
    assert (await site.act("complete", {"lease": lease}))[0] == 200


async def test_a_worker_that_cancels_may_say_so_again(site: WorkerDoor) -> None:
    await site.send("hi")
    lease = (await site.take())["lease"]
    first = await site.act("update", {"lease": lease, "state": "canceled", "message": "no"})
    assert first[0] == 200
    assert await site.act("update", {"lease": lease, "state": "canceled", "message": "no"}) == first
    assert (await site.act("complete", {"lease": lease}))[0] == 400
    assert (await site.act("heartbeat", {"lease": lease}))[0] == 409


async def test_a_late_worker_is_told_to_stop() -> None:
    late = hired("late")
    late.limit(0.3)
    async with server(late) as http:
        site = WorkerDoor([http])
        await site.send("hi", agent="late")
        status, delivery = await site.act("lease", {"worker": "w1", "wait_s": 5}, agent="late")
        lease = {"lease": delivery["lease"]}
        status, beat = await site.act("heartbeat", {**lease, "wait_s": 10}, agent="late")
        assert (status, beat["cancel"]) == (200, True)
        for action in ("heartbeat", "complete"):
            status, beat = await site.act(action, lease, agent="late")
            assert (status, beat.get("cancel")) == ((200, True) if action == "heartbeat" else (409, None))


async def test_a_budget_stops_a_worker_at_the_report_with_which_it_has_nothing_left() -> None:
    budget = Budget(id="tokens", unit="tokens", limit=100, stops=True)
    entry = AgentEntry(id="far", run="worker", reserve=Reserve(tokens=40))
    async with server(hired("far"), agents=(entry,), budgets=(budget,)) as http:
        site = WorkerDoor([http])
        task_id = (await site.send())["id"]
        lease = (await site.take())["lease"]
        await site.report("update", lease, message="less", number=1, usage={"input": 60})
        await site.report("update", lease, message="more", number=2, usage={"input": 60})
        ended = await site.reach(task_id, "FAILED")
        assert ended["status"]["message"]["parts"] == [{"text": "The budget tokens is used up."}]
        assert ended["metadata"]["urn:dragoman:usage:v1"]["inputTokens"] == 120
        status, pulse = await site.act("heartbeat", {"lease": lease})
        assert (status, pulse["cancel"]) == (200, True)
