"""A server with gRPC in the test's loop, and the stub of the official generated code that calls it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.rpc.status_pb2 import Status
from msgspec.structs import replace

from dragoman import Agent
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.server import serving
from tests.kit.agents import echoing
from tests.ports import kept_port

DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.2, cancel_grace_s=0.2)
V1 = (("a2a-version", "1.0"),)

QUIET_S = 0.1
"""How long C-core may have something to tell of calls that have ended; it takes milliseconds."""

UNREAD_S = 10.0
"""How long a closing connection waits for streams that nobody reads. Others end within milliseconds."""


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """One loop for all tests of a module that imports this.

    C-core goes on to tell of calls that were canceled, and asyncio's side of gRPC fails if their loop is closed then.
    """
    yield
    await asyncio.sleep(QUIET_S)


class GrpcCaller:
    """Calls one server. `url` is that of its HTTP side."""

    def __init__(self, url: str, port: int, channel: grpc.aio.Channel) -> None:
        self.url = url
        self.port = port
        self.channel = channel
        self.stub: Any = A2AServiceStub(channel)  # type: ignore[no-untyped-call]

    async def send(self, text: str = "hi", *metadata: tuple[str, str], **fields: Any) -> pb.Task:
        answer = await self.stub.SendMessage(message(text, **fields), metadata=(*V1, *metadata), timeout=DEADLINE_S)
        assert answer.HasField("task")
        task: pb.Task = answer.task
        return task

    async def get(self, task_id: str, *metadata: tuple[str, str], **fields: Any) -> pb.Task:
        request = pb.GetTaskRequest(id=task_id, **fields)
        task: pb.Task = await self.stub.GetTask(request, metadata=(*V1, *metadata), timeout=DEADLINE_S)
        return task

    def stream(self, text: str = "hi", *metadata: tuple[str, str], **fields: Any) -> Any:
        return self.stub.SendStreamingMessage(message(text, **fields), metadata=(*V1, *metadata))

    def subscribe(self, task_id: str, *metadata: tuple[str, str], **fields: Any) -> Any:
        request = pb.SubscribeToTaskRequest(id=task_id, **fields)
        return self.stub.SubscribeToTask(request, metadata=(*V1, *metadata))


def message(text: str, message_id: str = "m1", tenant: str = "", task_id: str = "", **configuration: Any) -> Any:
    return pb.SendMessageRequest(
        tenant=tenant,
        message=pb.Message(message_id=message_id, task_id=task_id, role=pb.ROLE_USER, parts=[pb.Part(text=text)]),
        configuration=pb.SendMessageConfiguration(**configuration),
    )


@asynccontextmanager
async def grpc_served(*agents: Runner, config: Config = CONFIG) -> AsyncIterator[GrpcCaller]:
    """A server of the agents, and who calls it.

    The server stops before the caller's connection is closed, and streams are still read to their end then: closing a
    connection cancels the reads that wait, and with them the test that awaits one.
    """
    port = kept_port()
    async with connected(port) as channel:
        async with serving(replace(config, grpc_port=port), agents) as url:
            yield GrpcCaller(url, port, channel)
        await channel.close(UNREAD_S)


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    """A connection of its own; others to the same port would share theirs."""
    arguments = {"grpc.use_local_subchannel_pool": 1, **options}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=tuple(arguments.items())) as channel:
        yield channel


def echo(name: str = "echo", **options: Any) -> Agent:
    """Says its name before the text."""
    return echoing(name, prefix=f"{name}: ", **options)


async def refusal(call: Any) -> tuple[grpc.StatusCode, Status]:
    """The status with which a call ends, and its details."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async with asyncio.timeout(DEADLINE_S):
            if hasattr(call, "read"):
                await drain(call)
            else:
                await call
    details = dict(refused.value.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    assert isinstance(details, bytes)
    status = Status.FromString(details)
    if details:
        assert (status.code, status.message) == (refused.value.code().value[0], refused.value.details())
    return refused.value.code(), status


async def drain(call: Any) -> list[pb.StreamResponse]:
    """All items of a stream."""
    items: list[pb.StreamResponse] = []
    async with asyncio.timeout(DEADLINE_S):
        while (item := await call.read()) is not grpc.aio.EOF:
            items.append(item)
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )
    return items


async def only_task(caller: GrpcCaller) -> pb.Task:
    """The one task there is, once there is one."""
    async with asyncio.timeout(DEADLINE_S):
        while not (listed := await caller.stub.ListTasks(pb.ListTasksRequest(), metadata=V1)).tasks:
            pass
    (task,) = listed.tasks
    assert isinstance(task, pb.Task)
    return task


def kinds(items: Sequence[pb.StreamResponse]) -> list[str]:
    """The kind of each item: `task`, `message`, the state of a status, or the text of a chunk."""
    return [_kind(item) for item in items]


def _kind(item: pb.StreamResponse) -> str:
    match item.WhichOneof("payload"):
        case "status_update":
            return pb.TaskState.Name(item.status_update.status.state).removeprefix("TASK_STATE_").lower()
        case "artifact_update":
            return "".join(part.text for part in item.artifact_update.artifact.parts)
        case other:
            return other or "nothing"
