"""Official Python SDK 0.3.26 against a server: `python sdk03.py BASE_URL [WORD …]`, over JSON-RPC, REST and gRPC.

This SDK tells errors over REST by their HTTP status alone, a refused stream only as some client error, and
encodes the bytes of a file twice over REST. Over gRPC it passes the status on, and does not read time stamps.
"""

import asyncio
import base64
import functools
import hashlib
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import A2ACardResolver, A2AClientError, A2AClientHTTPError, ClientConfig, ClientFactory
from a2a.client.base_client import BaseClient
from a2a.client.client import ClientEvent
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
    TransportProtocol,
)
from grpc import StatusCode
from grpc.aio import AioRpcError
from grpc_channel import channels
from report import Scenario, run, selected

TERMINAL = (TaskState.completed, TaskState.failed, TaskState.canceled, TaskState.rejected)


@dataclass(frozen=True)
class Refusal:
    """An error: its JSON-RPC code, the HTTP statuses that name it over REST (0.3 leaves some open), and gRPC's code."""

    code: int
    statuses: tuple[int, ...]
    grpc: StatusCode


NOT_FOUND = Refusal(-32001, (404,), StatusCode.NOT_FOUND)
NOT_CANCELABLE = Refusal(-32002, (400, 409), StatusCode.FAILED_PRECONDITION)
INVALID_PARAMS = Refusal(-32602, (400, 422), StatusCode.INVALID_ARGUMENT)


@dataclass(frozen=True)
class Lane:
    """One way to the server: a binding; `mount` is where, if not at each agent's own."""

    base_url: str
    binding: TransportProtocol
    mount: str = ""

    async def client(self, agent: str = "echo", *, streams: bool = False, polls: bool = False) -> BaseClient:
        """A client of the agent, from its card."""
        http = httpx.AsyncClient(timeout=60)
        by_metadata = agent if self.binding == TransportProtocol.grpc else ""  # only the root's card lists it
        mount = f"{self.base_url}/agents/{agent}" if agent and not by_metadata else self.base_url
        mount = self.base_url + self.mount if self.mount else mount
        card = await A2ACardResolver(http, mount).get_agent_card()
        config = ClientConfig(
            streaming=streams,
            polling=polls,
            httpx_client=http,
            supported_transports=[self.binding],
            grpc_channel_factory=channels(by_metadata),
            accepted_output_modes=["text/plain", "application/json", "application/octet-stream"],
        )
        client = ClientFactory(config).create(card)
        assert isinstance(client, BaseClient)
        return client


def text(*texts: str, **fields: Any) -> Message:
    """A user message with one text part for each text."""
    parts = fields.pop("parts", [Part(root=TextPart(text=t)) for t in texts])
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=parts, **fields)


def words(message: Message | None) -> str:
    parts = message.parts if message else []
    return "".join(part.root.text for part in parts if isinstance(part.root, TextPart))


async def send(client: BaseClient, message: Message) -> Task:
    """The task that the send answers with, in whatever state it is."""
    answers = [answer async for answer in client.send_message(message)]
    assert len(answers) == 1, f"one answer expected, got {answers}"
    assert isinstance(answers[0], tuple), f"a task expected, got {answers}"
    return answers[0][0]


async def get(client: BaseClient, task_id: str, history_length: int | None = None) -> Task:
    return await client.get_task(TaskQueryParams(id=task_id, history_length=history_length))


def parts_of(task: Task) -> list[Any]:
    return [part.root for artifact in task.artifacts or [] for part in artifact.parts]


def artifact_text(task: Task) -> str:
    return "".join(part.text for part in parts_of(task) if isinstance(part, TextPart))


def state_is(task: Task, state: TaskState) -> None:
    assert task.status.state == state, f"state {task.status.state}, expected {state}"


async def refused(error: Refusal, awaitable: Any) -> None:
    """The call fails with that JSON-RPC code, over REST with one of those HTTP statuses, over gRPC with its code."""
    try:
        answer = await awaitable
    except (A2AClientJSONRPCError, A2AClientHTTPError, AioRpcError) as failure:
        told = failure
    else:
        raise AssertionError(f"error {error.code} expected, got the answer {answer!r}")
    match told:
        case A2AClientJSONRPCError():
            assert told.error.code == error.code, f"code {told.error.code}, expected {error.code}"
        case A2AClientHTTPError():
            assert told.status_code in error.statuses, f"status {told.status_code}, expected one of {error.statuses}"
        case AioRpcError():
            assert told.code() == error.grpc, f"status {told.code()}, expected {error.grpc}"
            assert ": " in (told.details() or ""), f"no name in {told.details()!r}"


async def events(stream: AsyncIterator[ClientEvent | Message]) -> list[ClientEvent]:
    got = [event async for event in stream]
    assert all(isinstance(event, tuple) for event in got), f"a message among the events {got}"
    return [event for event in got if isinstance(event, tuple)]


def ends(stream: list[ClientEvent], state: TaskState) -> None:
    """The stream ends with the only final status, in that state."""
    last = stream[-1][1]
    assert isinstance(last, TaskStatusUpdateEvent), f"the last event is {last}"
    assert (last.final, last.status.state) == (True, state), f"last event {last}"
    early = [update for _, update in stream[:-1] if isinstance(update, TaskStatusUpdateEvent) and update.final]
    assert not early, f"final before the end: {early}"


async def card(lane: Lane) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        for mount in (lane.base_url, f"{lane.base_url}/agents/echo"):
            new = await A2ACardResolver(http, mount).get_agent_card()
            old = await A2ACardResolver(http, mount).get_agent_card(relative_card_path="/.well-known/agent.json")
            assert new == old, "agent-card.json and agent.json differ"
            assert all((new.name, new.skills, new.url)), f"card {new}"
            assert new.capabilities.streaming, "the card does not offer streaming"
            assert new.capabilities.push_notifications, "the card does not offer push notifications"
            assert new.protocol_version.startswith("0.3"), f"protocolVersion {new.protocol_version}"
            offered = {new.preferred_transport, *(i.transport for i in new.additional_interfaces or [])}
            assert {"JSONRPC", "HTTP+JSON"} <= offered, f"transports {offered}"


async def send_blocking(lane: Lane) -> None:
    for agent in ("echo", ""):
        task = await send(await lane.client(agent), text("héllo 🌍"))
        state_is(task, TaskState.completed)
        assert artifact_text(task) == "héllo 🌍", f"artifacts {task.artifacts}"
        assert all((task.id, task.context_id)), "task or context has no id"
        assert task.status.timestamp or lane.binding != TransportProtocol.jsonrpc, (
            "no timestamp (only JSON-RPC keeps it)"
        )


async def send_keeps_context(lane: Lane) -> None:
    client, context_id = await lane.client(), str(uuid.uuid4())
    first = await send(client, text("one", context_id=context_id))
    second = await send(client, text("two", context_id=context_id))
    assert first.context_id == second.context_id == context_id, "the context id was not kept"
    assert first.id != second.id, "two messages in a context made one task"


async def send_data(lane: Lane) -> None:
    data = {"city": "Lyon", "days": 3, "nested": {"on": True, "list": [1, "two", None]}}
    task = await send(
        await lane.client(), text(parts=[Part(root=TextPart(text="see")), Part(root=DataPart(data=data))])
    )
    assert [part.data for part in parts_of(task) if isinstance(part, DataPart)] == [data], f"{parts_of(task)}"


async def send_not_blocking(lane: Lane) -> None:
    client = await lane.client("countdown", polls=True)
    task = await send(client, text("2"))
    assert task.status.state not in TERMINAL, f"state {task.status.state} at once"
    while task.status.state not in TERMINAL:
        await asyncio.sleep(0.2)
        task = await get(client, task.id)
    state_is(task, TaskState.completed)
    assert artifact_text(task), "no artifact"


async def stream(lane: Lane) -> None:
    client = await lane.client("countdown", streams=True)
    got = await events(client.send_message(text("2")))
    assert got[0][1] is None, f"the first event is {got[0][1]}, not the task"
    ends(got, TaskState.completed)
    appends = [bool(update.append) for _, update in got if isinstance(update, TaskArtifactUpdateEvent)]
    assert len(appends) >= 2, f"{len(appends)} chunks"
    assert appends == [False] + [True] * (len(appends) - 1), f"append of each chunk: {appends}"
    task = await get(client, got[0][0].id)
    state_is(task, TaskState.completed)
    assert artifact_text(task) == artifact_text(got[-1][0]), f"stream and task differ: {got[-1][0]} and {task}"


async def get_history(lane: Lane) -> None:
    client = await lane.client()
    task = await send(client, text("remember"))
    history = (await get(client, task.id)).history or []
    assert [words(m) for m in history if m.role == Role.user] == ["remember"], f"history {history}"
    assert len((await get(client, task.id, 1)).history or []) == 1, "historyLength 1"


async def cancel(lane: Lane) -> None:
    client = await lane.client("countdown", polls=True)
    task = await send(client, text("30"))
    state_is(await client.cancel_task(TaskIdParams(id=task.id)), TaskState.canceled)
    state_is(await get(client, task.id), TaskState.canceled)


async def resubscribe(lane: Lane) -> None:
    client = await lane.client("countdown", streams=True)
    broken, task_id = client.send_message(text("50 every 0.1")), ""
    async for event in broken:
        if isinstance(event, tuple) and isinstance(event[1], TaskArtifactUpdateEvent):
            task_id = event[0].id
            break
    await broken.aclose()
    several = await asyncio.gather(*(events(client.resubscribe(TaskIdParams(id=task_id))) for _ in range(2)))
    whole = artifact_text(await get(client, task_id))
    for got in several:
        assert got[0][1] is None, f"the first event is {got[0][1]}, not the task"
        ends(got, TaskState.completed)
        assert artifact_text(got[-1][0]) == whole, f"{artifact_text(got[-1][0])!r}, the task has {whole!r}"


async def input_required(lane: Lane) -> None:
    client = await lane.client("trip")
    asked = await send(client, text("book a trip"))
    for question, answer in (("From where?", "Lyon"), ("To where?", "Oslo")):
        state_is(asked, TaskState.input_required)
        assert words(asked.status.message) == question, f"status {asked.status}"
        again = await send(client, text(answer, task_id=asked.id, context_id=asked.context_id))
        assert again.id == asked.id, "another task answers"
        asked = again
    state_is(asked, TaskState.completed)


async def input_required_stream(lane: Lane) -> None:
    client = await lane.client("trip", streams=True)
    first = await events(client.send_message(text("book a trip")))
    ends(first, TaskState.input_required)
    task = first[0][0]
    for answer, state in (("Lyon", TaskState.input_required), ("Oslo", TaskState.completed)):
        ends(await events(client.send_message(text(answer, task_id=task.id, context_id=task.context_id))), state)


async def auth_required(lane: Lane) -> None:
    client = await lane.client("login")
    task = await send(client, text("hello"))
    state_is(task, TaskState.auth_required)
    state_is(await send(client, text("here I am", task_id=task.id, context_id=task.context_id)), TaskState.completed)


async def failed(lane: Lane) -> None:
    state_is(await send(await lane.client("fail"), text("try")), TaskState.failed)


async def rejected(lane: Lane) -> None:
    state_is(await send(await lane.client("reject"), text("try")), TaskState.rejected)


async def file_round_trip(lane: Lane) -> None:
    content = b"%PDF" + bytes(range(256))
    encoded = base64.b64encode(content).decode()
    file = FilePart(file=FileWithBytes(bytes=encoded, name="report.pdf", mime_type="application/pdf"))
    task = await send(await lane.client("papers"), text(parts=[Part(root=TextPart(text="keep")), Part(root=file)]))
    state_is(task, TaskState.completed)
    back = [part.file for part in parts_of(task) if isinstance(part, FilePart)]
    assert [(f.bytes, f.name, f.mime_type) for f in back if isinstance(f, FileWithBytes)] == [
        (encoded, "report.pdf", "application/pdf")
    ], f"{parts_of(task)}"
    if lane.binding != TransportProtocol.http_json:
        facts = [part.data for part in parts_of(task) if isinstance(part, DataPart)]
        assert hashlib.sha256(content).hexdigest() in str(facts), f"no SHA-256 in {facts}"


async def file_received(lane: Lane) -> None:
    task = await send(await lane.client("papers"), text("any file"))
    files = [part.file for part in parts_of(task) if isinstance(part, FilePart)]
    assert any(isinstance(file, FileWithBytes) and file.bytes for file in files), f"no file in {parts_of(task)}"


async def unknown_task(lane: Lane) -> None:
    client, unknown = await lane.client(), str(uuid.uuid4())
    await refused(NOT_FOUND, get(client, unknown))
    await refused(NOT_FOUND, client.cancel_task(TaskIdParams(id=unknown)))
    await refused(NOT_FOUND, send(client, text("to whom?", task_id=unknown)))
    streams = await lane.client(streams=True)
    try:
        got = await events(streams.resubscribe(TaskIdParams(id=unknown)))
    except (A2AClientError, AioRpcError):
        return
    raise AssertionError(f"an error expected, got {got}")


async def foreign_mount(lane: Lane) -> None:
    task = await send(await lane.client("echo"), text("mine"))
    await refused(NOT_FOUND, get(await lane.client("papers"), task.id))


async def terminal_task(lane: Lane) -> None:
    for agent in ("echo", "fail", "reject"):
        client = await lane.client(agent)
        task = await send(client, text("done"))
        await refused(NOT_CANCELABLE, client.cancel_task(TaskIdParams(id=task.id)))
        try:
            answer = await send(client, text("more", task_id=task.id, context_id=task.context_id))
        except (A2AClientError, AioRpcError):
            continue
        raise AssertionError(f"a terminal task took a message: {answer}")


async def webhooks(lane: Lane) -> None:
    """Registered and read; where they may not be, refused. Nobody listens at port 9."""
    client = await lane.client()
    task_id = (await send(client, text("push"))).id
    push = PushNotificationConfig(id="c", url="https://127.0.0.1:9/hook", token="mine")
    made = await client.set_task_callback(TaskPushNotificationConfig(task_id=task_id, push_notification_config=push))
    one = GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id="c")
    token = "" if lane.mount == "/a2a" else "mine"  # in protoAgent's dialect it is the credential of the calls
    for told in (made, await client.get_task_callback(one)):
        shown = told.push_notification_config
        assert (shown.id, shown.url, shown.token or "") == ("c", push.url, token), f"webhook {told}"
    hostile = PushNotificationConfig(id="c", url="http://127.0.0.2/hook")
    new = TaskPushNotificationConfig(task_id=task_id, push_notification_config=hostile)
    await refused(INVALID_PARAMS, client.set_task_callback(new))


async def mount_card(lane: Lane) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        mount = lane.base_url + lane.mount
        new = await A2ACardResolver(http, mount).get_agent_card()
        old = await A2ACardResolver(http, mount).get_agent_card(relative_card_path="/.well-known/agent.json")
        assert new == old, "agent-card.json and agent.json differ"
        assert new.url == mount, f"url {new.url}"
        assert any("cost-v1" in extension.uri for extension in new.capabilities.extensions or []), "no extensions"


async def ended_task(lane: Lane) -> None:
    """Where only the default agent is: its stream, read again, and canceled when it has ended."""
    client = await lane.client(streams=True)
    got = await events(client.send_message(text("hello")))
    assert got[0][1] is None, f"the first event is {got[0][1]}, not the task"
    ends(got, TaskState.completed)
    task = await get(client, got[0][0].id)
    assert artifact_text(task) == artifact_text(got[-1][0]) == "hello", f"stream and task differ: {got[-1][0]}, {task}"
    state_is(await client.cancel_task(TaskIdParams(id=task.id)), TaskState.completed)
    again = await events(client.resubscribe(TaskIdParams(id=task.id)))
    ends(again, TaskState.completed)
    assert artifact_text(again[-1][0]) == "hello", f"resubscribed {again}"


MOUNTED = (
    mount_card, send_blocking, send_keeps_context, get_history, ended_task, unknown_task, webhooks,
)  # fmt: skip
SCENARIOS = (
    card, send_blocking, send_keeps_context, send_data, send_not_blocking, stream, get_history, cancel, resubscribe,
    input_required, input_required_stream, auth_required, failed, rejected, file_round_trip, file_received,
    unknown_task, foreign_mount, terminal_task, webhooks,
)  # fmt: skip


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario in every lane, named `binding/scenario`."""
    lanes = [Lane(base_url, binding) for binding in TransportProtocol]
    mounted = Lane(base_url, TransportProtocol.jsonrpc, "/a2a")
    return [
        *(
            (f"{lane.binding.value}/{each.__name__}", functools.partial(each, lane))
            for lane in lanes
            for each in SCENARIOS
        ),
        *((f"JSONRPC at /a2a/{each.__name__}", functools.partial(each, mounted)) for each in MOUNTED),
    ]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1].rstrip("/")), sys.argv[2:]))))
