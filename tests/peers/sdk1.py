"""Official Python SDK 1.3.0 against a server: `python sdk1.py BASE_URL [WORD …]`.

Speaks 1.0 and, in the SDK's compatibility mode, 0.3, each over JSON-RPC, HTTP+JSON and gRPC. A scenario
expects what the specification says, not what the SDK's own server does.
"""

import asyncio
import functools
import hashlib
import sys
import uuid
from collections.abc import Callable
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientCallContext
from a2a.client.transports import jsonrpc, rest
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf import json_format, struct_pb2
from jwt.api_jwk import PyJWK
from report import Scenario, run, selected
from sdk1_lane import (
    COMPLETED,
    TERMINAL,
    Lane,
    artifact_text,
    folded,
    frames,
    get,
    polled,
    refused,
    send,
    state_is,
    text,
)


async def card(lane: Lane) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        for mount in (lane.base_url, f"{lane.base_url}/agents/echo"):
            new = await A2ACardResolver(http, mount).get_agent_card()
            old = await A2ACardResolver(http, mount).get_agent_card(relative_card_path="/.well-known/agent.json")
            assert new == old, "agent-card.json and agent.json differ"
            assert new.name, "the card has no name"
            assert new.skills, "the card has no skill"
            assert new.capabilities.streaming, "the card does not offer streaming"
            assert new.capabilities.push_notifications, "the card does not offer push notifications"
            assert not new.capabilities.extended_agent_card, "the card offers an extended card"
            offered = {(i.protocol_binding, i.protocol_version) for i in new.supported_interfaces}
            assert {("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")} <= offered, f"interfaces {offered}"


async def signed_card(lane: Lane) -> None:
    """The SDK's own verifier, with the key where the signature says that it is; of what was changed it says no."""
    async with httpx.AsyncClient(timeout=60) as http:

        def verifier(keys: dict[str, Any]) -> Callable[[AgentCard], None]:
            def key(kid: str | None, jku: str | None) -> PyJWK:
                assert jku == f"{lane.base_url}/.well-known/jwks.json", f"the key is said to be at {jku}"
                return PyJWK(next(each for each in keys["keys"] if each["kid"] == kid))

            return create_signature_verifier(key, ["ES256"])

        verify = verifier((await http.get(f"{lane.base_url}/.well-known/jwks.json")).json())
        for mount in (lane.base_url, f"{lane.base_url}/agents/echo", f"{lane.base_url}/a2a"):
            signed = await A2ACardResolver(http, mount).get_agent_card(signature_verifier=verify)
            assert signed.name, "the card has no name"
            signed.description += "!"
            try:
                verify(signed)
            except InvalidSignaturesError:
                continue
            raise AssertionError("a card that was changed was verified")


async def send_blocking(lane: Lane) -> None:
    for agent in ("echo", ""):
        client = await lane.client(agent)
        task = await send(client, text("héllo 🌍"))
        state_is(task, COMPLETED)
        assert artifact_text(task) == "héllo 🌍", f"artifacts {task.artifacts}"
        assert all((task.id, task.context_id)), "task or context has no id"
        assert task.status.HasField("timestamp"), "the status has no timestamp"


async def send_keeps_context(lane: Lane) -> None:
    client = await lane.client()
    context_id = str(uuid.uuid4())
    first = await send(client, text("one", context_id=context_id))
    second = await send(client, text("two", context_id=context_id))
    assert first.context_id == second.context_id == context_id, "the context id was not kept"
    assert first.id != second.id, "two messages in a context made one task"


async def send_data(lane: Lane) -> None:
    value = struct_pb2.Value()
    value.struct_value.update({"city": "Lyon", "days": 3, "nested": {"on": True, "list": [1, "two", None]}})
    client = await lane.client()
    task = await send(client, text(parts=[Part(text="see"), Part(data=value)]))
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert [part.data for part in parts if part.HasField("data")] == [value], f"parts {parts}"


async def send_large(lane: Lane) -> None:
    long = "0123456789abcdef" * 65_536
    task = await send(await lane.client(), text(long))
    assert artifact_text(task) == long, "a megabyte of text did not come back"


async def send_many(lane: Lane) -> None:
    client = await lane.client()
    tasks = await asyncio.gather(*(send(client, text(f"n{n}")) for n in range(16)))
    assert [artifact_text(task) for task in tasks] == [f"n{n}" for n in range(16)], "answers were mixed up"
    assert len({task.id for task in tasks}) == 16, "tasks were mixed up"


async def send_not_blocking(lane: Lane) -> None:
    client = await lane.client("countdown")
    task = await send(client, text("2"), return_immediately=True)
    assert task.status.state not in TERMINAL, f"state {task.status.state} at once"
    done = await polled(client, task.id)
    state_is(done, COMPLETED)
    assert artifact_text(done), "no artifact"


async def stream(lane: Lane) -> None:
    client = await lane.client("countdown", streams=True)
    got = await frames(client.send_message(SendMessageRequest(message=text("2"))))
    kinds = [frame.WhichOneof("payload") for frame in got]
    assert kinds[0] == "task", f"the first frame is {kinds[0]} (§3.1.2)"
    assert kinds.count("artifact_update") >= 2, f"frames {kinds}"
    content, state = folded(got)
    assert state == COMPLETED, f"the stream ended in state {state}"
    task = await get(client, got[0].task.id)
    state_is(task, COMPLETED)
    assert artifact_text(task) == content, f"stream {content!r}, task {artifact_text(task)!r}"


async def get_history(lane: Lane) -> None:
    client = await lane.client()
    task = await send(client, text("remember"))
    whole = await get(client, task.id)
    assert [m.parts[0].text for m in whole.history if m.role == Role.ROLE_USER] == ["remember"], "history is lost"
    assert len((await get(client, task.id, history_length=1)).history) == 1, "historyLength 1"
    if lane.version == "1.0":
        assert not (await get(client, task.id, history_length=0)).history, "historyLength 0"


async def list_pages(lane: Lane) -> None:
    client = await lane.client()
    context_id = str(uuid.uuid4())
    made = [(await send(client, text(f"task {n}", context_id=context_id))).id for n in range(3)]
    first = await client.list_tasks(ListTasksRequest(context_id=context_id, page_size=2))
    assert (first.total_size, first.page_size) == (3, 2), f"total {first.total_size}, page {first.page_size}"
    assert first.next_page_token, "no token for the second page"
    assert not any(task.artifacts for task in first.tasks), "artifacts that nobody asked for"
    second = await client.list_tasks(
        ListTasksRequest(context_id=context_id, page_size=2, page_token=first.next_page_token, include_artifacts=True)
    )
    assert not second.next_page_token, "a token after the last page"
    listed = [task.id for task in (*first.tasks, *second.tasks)]
    assert listed == made[::-1], f"listed {listed}, newest first expected of {made}"
    assert artifact_text(second.tasks[0]) == "task 0", "artifacts are missing although asked for"
    done = await client.list_tasks(ListTasksRequest(context_id=context_id, status=COMPLETED))
    failed = await client.list_tasks(ListTasksRequest(context_id=context_id, status=TaskState.TASK_STATE_FAILED))
    assert (done.total_size, failed.total_size) == (3, 0), f"by state {done.total_size}, {failed.total_size}"


async def cancel(lane: Lane) -> None:
    client = await lane.client("countdown")
    task = await send(client, text("30"), return_immediately=True)
    state_is(await client.cancel_task(CancelTaskRequest(id=task.id)), TaskState.TASK_STATE_CANCELED)
    state_is(await get(client, task.id), TaskState.TASK_STATE_CANCELED)


async def cancel_again(lane: Lane) -> None:
    """Canceling is idempotent (§3.3.1): a canceled task is answered again. In 0.3 it is refused (0.3 §8.2)."""
    client = await lane.client("trip")
    task = await send(client, text("book a trip"))
    state_is(await client.cancel_task(CancelTaskRequest(id=task.id)), TaskState.TASK_STATE_CANCELED)
    if lane.version == "1.0":
        state_is(await client.cancel_task(CancelTaskRequest(id=task.id)), TaskState.TASK_STATE_CANCELED)
    else:
        await refused(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=task.id)))


async def subscribe(lane: Lane) -> None:
    client = await lane.client("countdown", streams=True)
    task = await send(await lane.client("countdown"), text("50 every 0.1"), return_immediately=True)
    request = SubscribeToTaskRequest(id=task.id)
    several = await asyncio.gather(*(frames(client.subscribe(request)) for _ in range(3)))
    done = await get(client, task.id)
    for got in several:
        assert got[0].WhichOneof("payload") == "task", "the first frame is no task (§3.1.6)"
        assert folded(got) == (artifact_text(done), COMPLETED), f"frames {got}"


async def resubscribe(lane: Lane) -> None:
    client = await lane.client("countdown", streams=True)
    task_id = ""
    broken = client.send_message(SendMessageRequest(message=text("50 every 0.1")))
    async for frame in broken:
        if frame.HasField("artifact_update"):
            task_id = frame.artifact_update.task_id
            break
    await broken.aclose()
    got = await frames(client.subscribe(SubscribeToTaskRequest(id=task_id)))
    assert folded(got) == (artifact_text(await get(client, task_id)), COMPLETED), f"frames {got}"


async def input_required(lane: Lane) -> None:
    client = await lane.client("trip")
    asked = await send(client, text("book a trip"))
    for question, answer in (("From where?", "Lyon"), ("To where?", "Oslo")):
        state_is(asked, TaskState.TASK_STATE_INPUT_REQUIRED)
        assert asked.status.message.parts[0].text == question, f"status {asked.status}"
        state_is(await get(client, asked.id), TaskState.TASK_STATE_INPUT_REQUIRED)
        again = await send(client, text(answer, task_id=asked.id))  # the context is inferred from the task (§3.4.3)
        assert (again.id, again.context_id) == (asked.id, asked.context_id), "another task answers"
        asked = again
    state_is(asked, COMPLETED)
    said = [m.parts[0].text for m in (await get(client, asked.id)).history if m.role == Role.ROLE_USER]
    assert said == ["book a trip", "Lyon", "Oslo"], f"history {said}"


async def input_required_stream(lane: Lane) -> None:
    client = await lane.client("trip", streams=True)
    got = await frames(client.send_message(SendMessageRequest(message=text("book a trip"))))
    assert folded(got)[1] == TaskState.TASK_STATE_INPUT_REQUIRED, f"frames {got}"
    task_id = got[0].task.id
    for answer, state in (("Lyon", TaskState.TASK_STATE_INPUT_REQUIRED), ("Oslo", COMPLETED)):
        request = SendMessageRequest(message=text(answer, task_id=task_id, context_id=got[0].task.context_id))
        assert folded(await frames(client.send_message(request)))[1] == state, f"after {answer}"


async def auth_required(lane: Lane) -> None:
    client = await lane.client("login")
    task = await send(client, text("hello"))
    state_is(task, TaskState.TASK_STATE_AUTH_REQUIRED)
    state_is(await send(client, text("here I am", task_id=task.id)), COMPLETED)


async def failed(lane: Lane) -> None:
    state_is(await send(await lane.client("fail"), text("try")), TaskState.TASK_STATE_FAILED)


async def rejected(lane: Lane) -> None:
    state_is(await send(await lane.client("reject"), text("try")), TaskState.TASK_STATE_REJECTED)


async def file_round_trip(lane: Lane) -> None:
    content = b"%PDF" + bytes(range(256))
    part = Part(raw=content, filename="report.pdf", media_type="application/pdf")
    client = await lane.client("papers")
    task = await send(client, text(parts=[Part(text="keep this"), part]))
    state_is(task, COMPLETED)
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert [(p.raw, p.filename, p.media_type) for p in parts if p.raw] == [
        (content, "report.pdf", "application/pdf")
    ], f"parts {parts}"
    if lane.encodes_twice:
        return
    facts = [dict(p.data.struct_value) for p in parts if p.HasField("data")]
    assert hashlib.sha256(content).hexdigest() in str(facts), f"no SHA-256 in {facts}"


async def file_received(lane: Lane) -> None:
    if lane.encodes_twice:
        return
    task = await send(await lane.client("papers"), text("any file"))
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert any(p.raw or (p.text and p.media_type.startswith("text/")) for p in parts), f"no file in {parts}"


async def unknown_task(lane: Lane) -> None:
    client, unknown = await lane.client(streams=True), str(uuid.uuid4())
    await refused(TaskNotFoundError, get(client, unknown))
    await refused(TaskNotFoundError, client.cancel_task(CancelTaskRequest(id=unknown)))
    await refused(TaskNotFoundError, frames(client.subscribe(SubscribeToTaskRequest(id=unknown))))
    await refused(TaskNotFoundError, send(await lane.client(), text("to whom?", task_id=unknown)))


async def foreign_mount(lane: Lane) -> None:
    task = await send(await lane.client("echo"), text("mine"))
    await refused(TaskNotFoundError, get(await lane.client("papers"), task.id))


async def terminal_task(lane: Lane) -> None:
    for agent in ("echo", "fail", "reject"):
        client = await lane.client(agent)
        task = await send(client, text("done"))
        await refused(TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=task.id)))
        if lane.version == "1.0":
            await refused(UnsupportedOperationError, send(client, text("more", task_id=task.id)))
            streams = await lane.client(agent, streams=True)
            await refused(UnsupportedOperationError, frames(streams.subscribe(SubscribeToTaskRequest(id=task.id))))


async def mismatched_context(lane: Lane) -> None:
    client = await lane.client("trip")
    task = await send(client, text("book"))
    await refused(A2AError, send(client, text("Lyon", task_id=task.id, context_id=str(uuid.uuid4()))))
    state_is(await get(client, task.id), TaskState.TASK_STATE_INPUT_REQUIRED)


async def webhooks(lane: Lane) -> None:
    """Registered, read, listed, forgotten; where they may not be, refused. Nobody listens at port 9."""
    client = await lane.client()
    task_id = (await send(client, text("push"))).id
    create = TaskPushNotificationConfig(task_id=task_id, id="c", url="https://127.0.0.1:9/hook", token="mine")
    shown = TaskPushNotificationConfig()
    shown.CopyFrom(create)  # with all of its settings (A2A 1.0 §3.1.8)
    if (lane.mount, lane.version) == ("/a2a", "0.3"):
        shown.token = ""  # protoAgent's dialect, where it is the credential of the calls
    create.authentication.scheme, create.authentication.credentials = "Bearer", "hush"
    shown.authentication.scheme = "Bearer"
    made = await client.create_task_push_notification_config(create)
    assert made == shown, f"made {made}"
    one = GetTaskPushNotificationConfigRequest(task_id=task_id, id="c")
    got = await client.get_task_push_notification_config(one)
    assert got == shown, f"got {got}"
    if (lane.binding, lane.version) != ("HTTP+JSON", "0.3"):  # there the SDK has no list
        every = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        listed = (await client.list_task_push_notification_configs(every)).configs
        assert list(listed) == [shown], f"listed {listed}"
    if lane.version == "1.0":  # there the SDK can delete
        delete = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="c")
        await client.delete_task_push_notification_config(delete)
        await refused(TaskNotFoundError, client.get_task_push_notification_config(one))
    create.url = "http://127.0.0.2/hook"
    await refused(InvalidParamsError, client.create_task_push_notification_config(create))


async def extended_card(lane: Lane) -> None:
    client = await lane.client(extended_agent_card=True)
    await refused(UnsupportedOperationError, client.get_extended_agent_card(GetExtendedAgentCardRequest()))


async def tenant(lane: Lane) -> None:
    """At the root the tenant names the agent, also in the path of HTTP+JSON."""
    client = await lane.client("", tenant="trip")
    task = await send(client, text("book a trip"))
    state_is(task, TaskState.TASK_STATE_INPUT_REQUIRED)
    state_is(await get(await lane.client("trip"), task.id), TaskState.TASK_STATE_INPUT_REQUIRED)
    state_is(await client.cancel_task(CancelTaskRequest(id=task.id)), TaskState.TASK_STATE_CANCELED)


async def unknown_version(lane: Lane) -> None:
    client = await lane.client()
    context = ClientCallContext(service_parameters={"A2A-Version": "9.9"})
    await refused(VersionNotSupportedError, client.get_task(GetTaskRequest(id="any"), context=context))


async def retried_send(lane: Lane) -> None:
    """The same message id, a UUID, with the same params is the same call."""
    client, message = await lane.client(), text("once")
    assert (await send(client, message)).id == (await send(client, message)).id, "a retry made a second task"


async def mount_card(lane: Lane) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        mount = lane.base_url + lane.mount
        new = await A2ACardResolver(http, mount).get_agent_card()
        old = await A2ACardResolver(http, mount).get_agent_card(relative_card_path="/.well-known/agent.json")
        assert new == old, "agent-card.json and agent.json differ"
        assert {i.url for i in new.supported_interfaces} == {mount}, f"interfaces {new.supported_interfaces}"
        assert any("cost-v1" in extension.uri for extension in new.capabilities.extensions), "no extensions"


async def ended_task(lane: Lane) -> None:
    """Where only the default agent is: its stream, read again, and canceled when it has ended."""
    client = await lane.client(streams=True)
    got = await frames(client.send_message(SendMessageRequest(message=text("hello"))))
    kinds = [frame.WhichOneof("payload") for frame in got]
    assert kinds[0] == "task", f"the first frame is {kinds[0]}"
    assert folded(got) == ("hello", COMPLETED), f"frames {got}"
    task = await get(client, got[0].task.id)
    assert artifact_text(task) == "hello", f"artifacts {task.artifacts}"
    request = CancelTaskRequest(id=task.id)
    again = SubscribeToTaskRequest(id=task.id)
    if lane.version == "1.0":
        await refused(TaskNotCancelableError, client.cancel_task(request))
        await refused(UnsupportedOperationError, frames(client.subscribe(again)))
    else:  # protoAgent's 0.3: a no-op, and what there was
        state_is(await client.cancel_task(request), COMPLETED)
        assert folded(await frames(client.subscribe(again))) == ("hello", COMPLETED)


MOUNTED = (
    mount_card, send_blocking, send_keeps_context, send_large, send_many, get_history, ended_task, unknown_task,
    webhooks, retried_send,
)  # fmt: skip
BOTH = (
    send_blocking, send_keeps_context, send_data, send_large, send_many, send_not_blocking, stream, get_history,
    cancel, cancel_again, subscribe, resubscribe, input_required, input_required_stream, auth_required, failed,
    rejected, file_round_trip, file_received, unknown_task, foreign_mount, terminal_task, mismatched_context,
    webhooks, retried_send,
)  # fmt: skip
ONLY_1_0 = (card, signed_card, list_pages, extended_card, tenant, unknown_version)


def strictly(data: dict[str, Any] | str | bytes, message: Any) -> Any:
    """Parse as the 1.x clients before 1.3 do, which refuse fields that are not in the proto."""
    return (json_format.ParseDict if isinstance(data, dict) else json_format.Parse)(data, message)


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario in every lane that has it, named `binding version/scenario`."""
    lanes = [
        Lane(base_url, binding, version) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON", "GRPC")
    ]
    everywhere = [
        (f"{lane.binding} {lane.version}/{scenario.__name__}", functools.partial(scenario, lane))
        for lane in lanes
        for scenario in (*BOTH, *(ONLY_1_0 if lane.version == "1.0" else ()))
    ]
    mounted = [
        (f"{lane.binding} {lane.version} at {lane.mount}/{scenario.__name__}", functools.partial(scenario, lane))
        for lane in [Lane(base_url, "JSONRPC", version, "/a2a") for version in ("1.0", "0.3")]
        for scenario in MOUNTED
    ]
    return [*everywhere, *mounted]


if __name__ == "__main__":
    jsonrpc.parse_lenient = rest.parse_lenient = strictly
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1].rstrip("/")), sys.argv[2:]))))
