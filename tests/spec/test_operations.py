"""Every operation, in every version, over every binding, on every mount (A2A 1.0 §3.1, §5.3; A2A 0.3 §3.5.6)."""

from typing import Any

import pytest

from dragoman.testing import agents as examples
from tests.spec.caller import Caller
from tests.spec.conftest import House
from tests.spec.failures import BAD_REQUEST
from tests.spec.lanes import (
    EVERYWHERE,
    GRPC_03,
    GRPC_1,
    REST_03,
    REST_1,
    RPC_1,
    Lane,
    lane_id,
    over_grpc,
    over_grpc_1,
    task_view,
)

HOOK = "https://127.0.0.1:9/hook"
"""A webhook that may be registered, at a port where nobody listens (RFC 863)."""

HOSTILE = "http://127.0.0.2/hook"

PUSH = {
    "set_push": {"taskId": "t", "url": HOOK},
    "get_push": {"taskId": "t", "id": "c"},
    "list_push": {"taskId": "t"},
    "delete_push": {"taskId": "t", "id": "c"},
}


@pytest.fixture(params=[*EVERYWHERE, GRPC_1, GRPC_03], ids=lane_id)
def anywhere(request: Any, served: House) -> Caller:
    """A caller in every lane there is, and over gRPC."""
    return served.caller(request.param)


async def test_a_message_is_answered_with_the_task_it_made(anywhere: Caller) -> None:
    """§3.1.1: the task in its final state, with its artifacts and history."""
    task = (await anywhere.send("say hi")).task
    assert (task.state, task.text, task.history) == ("completed", "say hi", ("say hi",))


async def test_a_message_is_answered_with_a_stream(anywhere: Caller) -> None:
    """§3.1.2: the task first, updates, and the end when the task has ended."""
    async with anywhere.stream("chunks 3") as stream:
        frames = await stream.rest()
    assert frames[0].kind == "task"
    assert {frame.kind for frame in frames[1:]} == {"status", "artifact"}
    assert "".join(frame.text for frame in frames if frame.kind == "artifact") == "0 1 2 "
    assert frames[-1].state == "completed"
    assert (await anywhere.get(frames[0].raw["id"])).task.text == "0 1 2 "


async def test_a_task_is_read(anywhere: Caller) -> None:
    """§3.1.3: what SendMessage answered is what GetTask answers."""
    sent = (await anywhere.send()).task
    assert (await anywhere.get(sent.id)).task == sent


@pytest.mark.parametrize("anywhere", [*EVERYWHERE, GRPC_1], indirect=True, ids=lane_id)
async def test_tasks_are_listed(anywhere: Caller) -> None:
    """§3.1.4: the tasks of a context."""
    sent = (await anywhere.send()).task
    page = await anywhere.list(contextId=sent.context_id)
    assert [task.id for task in page.tasks] == [sent.id]
    assert page.result["totalSize"] == 1


async def test_a_task_is_canceled(anywhere: Caller, served: House) -> None:
    """§3.1.5: the answer is the task, canceled."""
    name = f"cancel {anywhere.lane.name}"
    sent = (await anywhere.send(f"wait {name}", configuration={"returnImmediately": True})).task
    await served.gates.reached[name].wait()
    assert (await anywhere.cancel(sent.id)).task.state == "canceled"
    assert (await anywhere.get(sent.id)).task.state == "canceled"


@pytest.mark.parametrize("lane", [REST_1, REST_03], ids=lambda lane: lane.name)
async def test_http_cancels_without_a_body_and_without_a_content_type(served: House, lane: Lane) -> None:
    """§11.3: clients send `{}`, or nothing; but what a form on a web page can send is refused."""
    caller = served.caller(lane)
    task_id = (await caller.send("ask")).task.id
    url = f"{served.url}{lane.path('script')}/tasks/{task_id}:cancel"
    headers = {"A2A-Version": lane.version}
    form = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    async with served.http.post(url, headers=form) as answer:
        assert answer.status == 415
    async with served.http.post(url, headers=headers, skip_auto_headers=["Content-Type"]) as answer:
        assert (answer.status, (await answer.json(content_type=None))["id"]) == (200, task_id)


async def test_a_task_is_followed(anywhere: Caller, served: House) -> None:
    """§3.1.6: the task as it stands, then what happens."""
    name = f"follow {anywhere.lane.name}"
    sent = (await anywhere.send(f"wait {name}", configuration={"returnImmediately": True})).task
    await served.gates.reached[name].wait()
    async with anywhere.subscribe(sent.id) as stream:
        first = await stream.next()
        assert first is not None
        assert (first.kind, task_view(first.raw).id) == ("task", sent.id)
        served.gates.open[name].set()
        frames = await stream.rest()
    assert frames[-1].state == "completed"


@pytest.mark.parametrize("lane", [lane for lane in EVERYWHERE if not lane.rpc], ids=lambda lane: lane.name)
@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_http_follows_a_task_by_get_and_by_post(served: House, lane: Lane, verb: str) -> None:
    """§11.3.2 has POST in the mapping and GET in the text (0.3 §3.5.3 likewise): both are served."""
    caller, name = served.caller(lane), f"{verb} {lane.name}"
    sent = (await caller.send(f"wait {name}", configuration={"returnImmediately": True})).task
    async with caller.subscribe(sent.id, verb=verb) as stream:
        first = await stream.next()
        served.gates.open[name].set()
        assert first is not None
        assert first.raw["id"] == sent.id
        assert (await stream.rest())[-1].state == "completed"


SHOWN: dict[str, Any] = {
    "token": "mine",
    "authentication": {"scheme": "Bearer", "schemes": ["Bearer"], "credentials": "hush"},
}
"""A webhook's token, which is its owner's to read, and its credentials, which nobody reads."""


def webhooks(result: Any) -> list[tuple[str, str]]:
    """Id and URL of the webhooks of an answer, which holds one or several of them, and no secret."""
    assert "hush" not in str(result)
    several = result.get("configs") if isinstance(result, dict) else result
    found = [result] if several is None else several
    bare = [each.get("pushNotificationConfig", each) for each in found]
    assert {each["token"] for each in bare} <= {"mine"}, "it is the owner's, and is given back (§3.1.8)"
    return [(each["id"], each["url"]) for each in bare]


@pytest.mark.parametrize("anywhere", EVERYWHERE, indirect=True, ids=lane_id)
async def test_a_webhook_is_registered_read_listed_and_forgotten(anywhere: Caller) -> None:
    """§3.1.7 to §3.1.10: and what only its owner may know is not given back (§13.2)."""
    task = (await anywhere.send("say hi")).task
    named = {"taskId": task.id, "id": "c"}
    made = await anywhere.call(
        "set_push",
        {**named, "url": HOOK, **SHOWN},
    )
    got = await anywhere.call("get_push", named)
    listed = await anywhere.call("list_push", {"taskId": task.id})
    assert webhooks(made.result) == webhooks(got.result) == webhooks(listed.result) == [("c", HOOK)]
    for _ in range(2):  # forgetting is idempotent
        assert (await anywhere.call("delete_push", named)).failed is None
    (await anywhere.call("get_push", named)).refused("TaskNotFound")
    assert webhooks((await anywhere.call("list_push", {"taskId": task.id})).result) == []


@pytest.mark.parametrize("op", PUSH)
async def test_of_a_task_that_is_not_there_there_are_no_webhooks(anywhere: Caller, op: str) -> None:
    """§3.1.7 to §3.1.10."""
    (await anywhere.call(op, PUSH[op])).refused("TaskNotFound")


@over_grpc
async def test_a_url_that_may_not_be_called_is_refused_by_its_name(caller: Caller) -> None:
    """§13.2: a webhook is a way into the server's own network."""
    task = (await caller.send("say hi")).task
    refused = (await caller.call("set_push", {"taskId": task.id, "url": HOSTILE})).refused("InvalidParams")
    assert [field.rpartition(".")[2] for field in refused.violations] == ["url"]
    assert "127.0.0.2" in str(refused.violations)


@over_grpc_1
async def test_a_send_with_an_unsafe_webhook_is_refused_and_makes_no_task(caller: Caller) -> None:
    """§13.2: nor is it dropped in silence."""
    wanted = {"taskPushNotificationConfig": {"url": HOSTILE}}
    context = f"push {caller.lane.name}"
    (await caller.send(contextId=context, configuration=wanted)).refused("InvalidParams")
    assert (await caller.list(contextId=context)).tasks == []


async def test_a_webhook_that_comes_with_a_message_is_the_tasks(caller: Caller) -> None:
    """§3.2.2: `taskPushNotificationConfig`."""
    wanted = {"taskPushNotificationConfig": {"id": "c", "url": HOOK, **SHOWN}}
    task = (await caller.send("say hi", configuration=wanted)).task
    listed = await caller.call("list_push", {"taskId": task.id})
    assert webhooks(listed.result) == [("c", HOOK)]


@pytest.mark.parametrize("anywhere", [*EVERYWHERE, GRPC_1], indirect=True, ids=lane_id)
async def test_the_extended_card_is_an_unsupported_operation(anywhere: Caller) -> None:
    """§3.1.11, §3.3.4: the card says `extendedAgentCard: false`."""
    (await anywhere.call("extended_card", {})).refused("UnsupportedOperation")


async def test_a_task_is_reached_on_every_mount_of_its_agent_in_every_version(served: House) -> None:
    """A mount is a way to an agent, not a place of its own."""
    sent = (await served.caller(RPC_1).send()).task
    for lane in EVERYWHERE:
        assert (await served.caller(lane).get(sent.id)).task.text == "say hi", lane.name


@over_grpc_1
async def test_a_task_of_another_agent_is_not_found(caller: Caller) -> None:
    """§3.3.2: through another agent's mount it does not exist, in no operation."""
    sent = (await caller.at("echo").send("hi")).task
    (await caller.get(sent.id)).refused("TaskNotFound")
    (await caller.cancel(sent.id)).refused("TaskNotFound")
    (await caller.send(taskId=sent.id)).refused("TaskNotFound")
    async with caller.subscribe(sent.id) as stream:
        stream.told.refused("TaskNotFound")
    assert sent.id not in {task.id for task in (await caller.list(contextId=sent.context_id)).tasks}


@over_grpc
async def test_an_unknown_agent_is_not_found(caller: Caller) -> None:
    """The agent is a parameter of the path: 404, in the caller's own words."""
    (await caller.at("nobody").send()).refused("AgentNotFound")


async def test_a_tenant_chooses_the_agent_at_the_root(served: House) -> None:
    """§3.2.1 `tenant`: the id of an agent; an unknown one is a wrong parameter, which is named."""
    lane = next(lane for lane in EVERYWHERE if lane.tenant)
    assert (await served.caller(lane, "echo").send("hi")).task.text == "hi"
    failed = (await served.caller(lane, "nobody").send()).refused("AgentNotFound")
    assert "tenant" in failed.violations


@pytest.mark.parametrize("tenant", ["echo", "nobody"])
async def test_another_tenant_below_an_agents_mount_is_refused(served: House, tenant: str) -> None:
    """Below `/agents/{id}` the tenant is empty or that agent."""
    for lane in (RPC_1, REST_1):
        told = await served.caller(lane).call("send", {"tenant": tenant, **message()})
        assert "tenant" in told.refused("InvalidParams").violations
        assert (await served.caller(lane).call("send", {"tenant": "script", **message()})).task.state == "completed"


def message() -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


EXAMPLES = {
    "echo": ("hi", "completed"),
    "trip": ("book", "input-required"),
    "papers": ("a file", "completed"),
    "login": ("mail", "auth-required"),
    "fail": ("try", "failed"),
    "reject": ("try", "rejected"),
}


@pytest.mark.parametrize("agent", EXAMPLES)
@over_grpc_1
async def test_every_example_answers_by_the_letter_of_the_version(caller: Caller, agent: str) -> None:
    """§5.5, §5.7: nothing that is not in the schema; sent, streamed, read and listed with artifacts."""
    assert EXAMPLES.keys() <= vars(examples).keys()
    text, state = EXAMPLES[agent]
    caller = caller.at(agent)
    task = (await caller.send(text)).task
    assert task.state == state
    async with caller.stream(text) as stream:
        assert (await stream.rest())[-1].state == state
    assert (await caller.get(task.id)).task.state == state
    assert (await caller.list(contextId=task.context_id, includeArtifacts=True)).tasks[0].artifacts == task.artifacts


@over_grpc
async def test_status_progress_usage_and_several_artifacts_are_told_by_the_letter(caller: Caller) -> None:
    """§4.2: what 1.0 has no field for travels in `metadata` under the URI of an extension."""
    async with caller.stream("steps") as stream:
        frames = await stream.rest()
    told = [frame.raw["metadata"] for frame in frames if frame.kind == "status" and "metadata" in frame.raw]
    assert told[0] == {"urn:dragoman:progress:v1": {"current": 1, "total": 3, "message": "step 1"}}
    assert told[-1]["urn:dragoman:usage:v1"].items() >= {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}.items()
    artifacts = [frame.raw["artifact"] for frame in frames if frame.kind == "artifact"]
    assert [artifact["name"] for artifact in artifacts] == ["first", "second"]


@pytest.mark.parametrize(
    ("part", "view"),
    [
        ({"text": "päron 🍐"}, ("text", "päron 🍐", None, None)),
        (
            {"raw": "AP8=", "filename": "b.bin", "mediaType": "application/x-b"},
            ("file", b"\0\xff", "application/x-b", "b.bin"),
        ),
        (
            {"url": "https://example.org/f", "mediaType": "text/plain"},
            ("file", "https://example.org/f", "text/plain", None),
        ),
        ({"data": {"a": [1, None, 1.5, "x"]}}, ("data", {"a": [1, None, 1.5, "x"]}, None, None)),
    ],
)
@over_grpc
async def test_parts_go_through_unchanged(caller: Caller, part: dict[str, Any], view: tuple[Any, ...]) -> None:
    """§4.1.6: text, bytes, a URL and data, in a message and in an artifact."""
    task = (await caller.send(parts=[part])).task
    assert task.artifacts == ((view,),)


@pytest.mark.parametrize("value", [None, 1, 1.5, "text", True, [1, [2]], [], {}])
async def test_a_data_part_of_1_0_holds_any_json_value(served: House, value: Any) -> None:
    """§4.1.6: `data` is a google.protobuf.Value, null included."""
    for lane in (RPC_1, REST_1):
        task = (await served.caller(lane).send(parts=[{"data": value}])).task
        assert task.artifacts == ((("data", value, None, None),),)


async def test_several_violations_are_told_at_once(served: House) -> None:
    """§3.3.2: which parameters failed and why, as google.rpc.BadRequest (§9.5, §11.6)."""
    told = await served.caller(REST_1).call("send", {"message": {"parts": [{}]}})
    failed = told.refused("InvalidParams")
    assert failed.violations.keys() == {"message.messageId", "message.role", "message.parts[0]"}
    assert BAD_REQUEST.startswith("type.googleapis.com/")
    assert (await served.caller(REST_03).call("send", {"message": {}})).refused("InvalidParams").violations
