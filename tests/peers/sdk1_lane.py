"""The official Python SDK 1.3.0 as a client: how a scenario gets to an agent and reads what it answers."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client
from a2a.types import (
    AgentInterface,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from grpc_channel import channels

COMPLETED = TaskState.TASK_STATE_COMPLETED
TERMINAL = (
    COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
)


@dataclass(frozen=True)
class Lane:
    """One way to the server: a binding and a protocol version; `mount` is where, if not at each agent's own."""

    base_url: str
    binding: str
    version: str
    mount: str = ""

    @property
    def encodes_twice(self) -> bool:
        """Whether the SDK applies base64 twice to the bytes of a file, and undoes both, as in 0.3 over HTTP+JSON."""
        return self.binding == "HTTP+JSON" and self.version == "0.3"

    async def client(self, agent: str = "echo", *, streams: bool = False, tenant: str = "", **changes: Any) -> Client:
        """A client of the agent, from its card, narrowed to this lane's interface; `changes` go to its capabilities.

        Over gRPC only the root's card lists 0.3, and the metadata names the agent. In 1.0 the tenant of the card does.
        """
        http = httpx.AsyncClient(timeout=60)
        by_metadata = agent if (self.binding, self.version) == ("GRPC", "0.3") else ""
        mount = f"{self.base_url}/agents/{agent}" if agent and not by_metadata else self.base_url
        mount = self.base_url + self.mount if self.mount else mount
        card = await A2ACardResolver(http, mount).get_agent_card()
        here = [i for i in card.supported_interfaces if i.protocol_binding == self.binding]
        assert here, f"the card of {agent!r} offers no {self.binding}"
        exact = [i for i in here if i.protocol_version == self.version] or [
            AgentInterface(url=here[0].url, protocol_binding=self.binding, protocol_version=self.version)
        ]
        del card.supported_interfaces[:]
        card.supported_interfaces.append(exact[0])
        if tenant:
            card.supported_interfaces[0].tenant = tenant
        for name, value in changes.items():
            setattr(card.capabilities, name, value)
        config = ClientConfig(
            streaming=streams,
            httpx_client=http,
            supported_protocol_bindings=[self.binding],
            grpc_channel_factory=channels(by_metadata),
        )
        return ClientFactory(config).create(card)


def text(*texts: str, **fields: Any) -> Message:
    """A user message with one text part for each text."""
    parts = fields.pop("parts", [Part(text=t) for t in texts])
    return Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=parts, **fields)


async def send(client: Client, message: Message, **configuration: Any) -> Task:
    """The task that the send answers with, in whatever state it is."""
    request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(**configuration))
    answers = [answer async for answer in client.send_message(request)]
    assert len(answers) == 1, f"one answer expected, got {answers}"
    assert answers[0].HasField("task"), f"a task expected, got {answers[0]}"
    return answers[0].task


async def get(client: Client, task_id: str, **fields: Any) -> Task:
    return await client.get_task(GetTaskRequest(id=task_id, **fields))


def artifact_text(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def state_is(task: Task, state: TaskState) -> None:
    got, wanted = TaskState.Name(task.status.state), TaskState.Name(state)
    assert got == wanted, f"state {got}, expected {wanted}"


async def refused(error: type[Exception], awaitable: Any) -> None:
    """The call fails with exactly that error of the SDK."""
    try:
        answer = await awaitable
    except error:
        return
    raise AssertionError(f"{error.__name__} expected, got the answer {answer!r}")


async def frames(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [frame async for frame in stream]


def folded(stream: list[StreamResponse]) -> tuple[str, TaskState]:
    """The text of all artifacts and the last state, as a reader of the frames has them."""
    artifacts: dict[str, str] = {}
    state = TaskState.TASK_STATE_UNSPECIFIED
    for frame in stream:
        match frame.WhichOneof("payload"):
            case "task":
                artifacts = {a.artifact_id: "".join(p.text for p in a.parts) for a in frame.task.artifacts}
                state = frame.task.status.state
            case "artifact_update":
                update = frame.artifact_update
                chunk = "".join(part.text for part in update.artifact.parts)
                known = artifacts.get(update.artifact.artifact_id)
                assert known is not None or not update.append, "a chunk is appended to an artifact never begun"
                artifacts[update.artifact.artifact_id] = (known or "") + chunk if update.append else chunk
            case "status_update":
                state = frame.status_update.status.state
            case other:
                raise AssertionError(f"unexpected frame {other}")
    return "".join(artifacts.values()), state


async def polled(client: Client, task_id: str) -> Task:
    """The task once it is terminal."""
    while True:
        task = await get(client, task_id)
        if task.status.state in TERMINAL:
            return task
        await asyncio.sleep(0.2)
