"""Calls an A2A agent with one client as fast as it can, and prints what that cost: its own processor time for a send
and for a streamed event.

Run by the Python of the environment that has the client: `calling.py dragoman URL`, `calling.py sdk URL`. An address
`grpc://host:port` is called over gRPC, also by `bare`: grpc.aio and the official generated code alone. Every answer is
checked: a send must give its text back, and of a stream each chunk must come once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

TEXT = "What is the weather in Lyon tomorrow?"
CHUNKS = 100
CHUNKS_LONG = 2_000
GRPC = "grpc://"


@dataclass(frozen=True)
class Client:
    """The part of a client that is measured: `send` gives the text of the answer, `stream` those of the chunks."""

    send: Callable[[str], Awaitable[str]]
    stream: Callable[[str], AsyncIterator[str]]


@asynccontextmanager
async def dragoman(url: str) -> AsyncIterator[Client]:
    from dragoman.client import connect
    from dragoman.model.task import Task
    from dragoman.model.updates import ArtifactUpdate

    async with connect(url, dialect="1.0" if url.startswith(GRPC) else None) as agent:

        async def send(text: str) -> str:
            task = await agent.send(text)
            assert isinstance(task, Task)
            return task.artifacts[0].parts[0].text or ""

        async def stream(text: str) -> AsyncIterator[str]:
            async for update in agent.stream(text):
                if isinstance(update, ArtifactUpdate):
                    yield update.artifact.parts[0].text or ""

        yield Client(send, stream)


@asynccontextmanager
async def sdk(url: str) -> AsyncIterator[Client]:
    """The official SDK's client; its pool is told to keep as many connections as are used."""
    import httpx
    from a2a.client import ClientConfig, create_client
    from a2a.helpers import new_text_message
    from a2a.types import Role, SendMessageRequest

    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(limits=limits, timeout=60) as http:
        agent: Any = url
        more: dict[str, Any] = {}
        if url.startswith(GRPC):
            agent, more = grpc_card(url), {"supported_protocol_bindings": ["GRPC"], "grpc_channel_factory": channel_to}
        one = await create_client(agent, client_config=ClientConfig(streaming=False, httpx_client=http, **more))
        many = await create_client(agent, client_config=ClientConfig(streaming=True, httpx_client=http, **more))

        def request(text: str) -> SendMessageRequest:
            return SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))

        async def send(text: str) -> str:
            async for answer in one.send_message(request(text)):
                return str(answer.task.artifacts[0].parts[0].text)
            return ""

        async def stream(text: str) -> AsyncIterator[str]:
            async for answer in many.send_message(request(text)):
                if answer.HasField("artifact_update"):
                    yield str(answer.artifact_update.artifact.parts[0].text)

        yield Client(send, stream)


@asynccontextmanager
async def bare(url: str) -> AsyncIterator[Client]:
    """grpc.aio and the generated code: what every client over gRPC in Python costs at least."""
    from a2a.types import a2a_pb2 as pb
    from a2a.types.a2a_pb2_grpc import A2AServiceStub

    async with channel_to(url.removeprefix(GRPC)) as channel:
        stub: Any = A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        version = (("a2a-version", "1.0"),)

        def request(text: str) -> pb.SendMessageRequest:
            message = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
            return pb.SendMessageRequest(message=message)

        async def send(text: str) -> str:
            answer = await stub.SendMessage(request(text), metadata=version, timeout=60)
            return str(answer.task.artifacts[0].parts[0].text)

        async def stream(text: str) -> AsyncIterator[str]:
            async for answer in stub.SendStreamingMessage(request(text), metadata=version):
                if answer.HasField("artifact_update"):
                    yield str(answer.artifact_update.artifact.parts[0].text)

        yield Client(send, stream)


def channel_to(target: str) -> Any:
    import grpc.aio

    return grpc.aio.insecure_channel(target)


def grpc_card(url: str) -> Any:
    """A card whose only interface is that address."""
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface

    place = AgentInterface(url=url.removeprefix(GRPC), protocol_binding="GRPC", protocol_version="1.0")
    return AgentCard(name="peer", supported_interfaces=[place], capabilities=AgentCapabilities(streaming=True))


CLIENTS = {"dragoman": dragoman, "sdk": sdk, "bare": bare}


async def sends(client: Client) -> int:
    if await client.send(TEXT) != TEXT:
        raise SystemExit("the answer is another text")
    return 1


async def events(client: Client, chunks: int, pace: str) -> int:
    """One stream, read to its end; how many events it had: the chunks, and three that tell of the task."""
    seen = 0
    async for text in client.stream(f"{chunks} {pace}"):
        if text != f"chunk {seen:06d} ":
            raise SystemExit(f"chunk {seen} was {text!r}")
        seen += 1
    if seen != chunks:
        raise SystemExit(f"{seen} chunks of {chunks}")
    return chunks + 3


async def cost_us(once: Callable[[], Awaitable[int]], callers: int, seconds: float) -> tuple[float, float]:
    """Processor time of this process for one of what `once` counts, and how many it did in a second."""

    async def repeat(until: float) -> int:
        count = 0
        while time.monotonic() < until:
            count += await once()
        return count

    async def all_of(seconds: float) -> int:
        until = time.monotonic() + seconds
        return sum(await asyncio.gather(*(repeat(until) for _ in range(callers))))

    await all_of(min(0.5, seconds))  # the connections are there, and all code has run
    cpu, began = time.process_time(), time.monotonic()
    count = await all_of(seconds)
    return (time.process_time() - cpu) / count * 1e6, count / (time.monotonic() - began)


async def measure(name: str, url: str, callers: int, seconds: float) -> dict[str, float]:
    async with CLIENTS[name](url) as client:
        send_us, rate = await cost_us(lambda: sends(client), callers, seconds)
        alone_us, _ = await cost_us(lambda: sends(client), 1, seconds / 2)
        event_us, per_s = await cost_us(lambda: events(client, CHUNKS, "burst"), callers, seconds)
        long_us, _ = await cost_us(lambda: events(client, CHUNKS_LONG, "burst"), 1, seconds / 2)
        turns_us, _ = await cost_us(lambda: events(client, CHUNKS, "turns"), callers, seconds / 2)
    return {
        "send_us": send_us,
        "send_alone_us": alone_us,
        "rate": rate,
        "event_us": event_us,
        "event_long_us": long_us,
        "event_in_turns_us": turns_us,
        "events": per_s,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("client", choices=sorted(CLIENTS))
    options.add_argument("url")
    options.add_argument("--callers", type=int, default=32)
    options.add_argument("--seconds", type=float, default=2)
    given = options.parse_args()
    print(json.dumps(asyncio.run(measure(given.client, given.url, given.callers, given.seconds))))


if __name__ == "__main__":
    main()
