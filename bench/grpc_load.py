"""Calls an A2A server over gRPC as fast as it can, and prints how many answers or events that were.

Run by the Python of the bench environment: `grpc_load.py send PORT`. Requests are bytes that were made before, with a
message id of their own; every answer is read as a message of the official types, and checked, only in the warm-up:
after that the generator shall cost as little as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
from a2a.types import a2a_pb2 as pb

TEXT = "What is the weather in Lyon tomorrow?"
SERVICE = "/lf.a2a.v1.A2AService/"
METADATA = (("a2a-version", "1.0"),)
CHUNKS = 100
CHANNELS = 4
"""Connections; the calls are spread over them."""

Once = Callable[[], Awaitable[int]]


def sent(text: str, tenant: str) -> bytes:
    """A SendMessageRequest with a new message id."""
    message = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    request: bytes = pb.SendMessageRequest(message=message, tenant=tenant).SerializeToString()
    return request


def chunks_of(answers: list[bytes]) -> list[str]:
    """The texts of the chunks of a stream."""
    items = [pb.StreamResponse.FromString(answer) for answer in answers]
    return [item.artifact_update.artifact.parts[0].text for item in items if item.HasField("artifact_update")]


async def sends(channel: grpc.aio.Channel, check: bool) -> int:
    answer = await channel.unary_unary(SERVICE + "SendMessage")(sent(TEXT, "echo"), metadata=METADATA)
    if check and pb.SendMessageResponse.FromString(answer).task.artifacts[0].parts[0].text != TEXT:
        raise SystemExit("the answer is another text")
    return 1


async def gets(channel: grpc.aio.Channel, check: bool, request: bytes) -> int:
    answer = await channel.unary_unary(SERVICE + "GetTask")(request, metadata=METADATA)
    if check and pb.Task.FromString(answer).artifacts[0].parts[0].text != TEXT:
        raise SystemExit("the task has another text")
    return 1


async def events(channel: grpc.aio.Channel, check: bool, pace: str) -> int:
    """One stream, read to its end. Returns how many events it had: the chunks, and three that tell of the task."""
    call = channel.unary_stream(SERVICE + "SendStreamingMessage")(sent(f"{CHUNKS} {pace}", "chunks"), metadata=METADATA)
    seen: list[bytes] = []
    while (item := await call.read()) is not grpc.aio.EOF:
        seen.append(item)
    if len(seen) != CHUNKS + 3:
        raise SystemExit(f"{len(seen)} events of {CHUNKS + 3}")
    if check and chunks_of(seen) != [f"chunk {number:06d} " for number in range(CHUNKS)]:
        raise SystemExit("the chunks are not those that were asked for")
    return len(seen)


async def run(mode: str, port: int, callers: int, seconds: float, warmup: float) -> dict[str, float]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(CHANNELS)]
    answer = await channels[0].unary_unary(SERVICE + "SendMessage")(sent(TEXT, "echo"), metadata=METADATA)
    task = pb.SendMessageResponse.FromString(answer).task.id
    asked = pb.GetTaskRequest(id=task, tenant="echo").SerializeToString()
    kinds: dict[str, Callable[[grpc.aio.Channel, bool], Awaitable[int]]] = {
        "send": sends,
        "get": lambda channel, check: gets(channel, check, asked),
        "burst": lambda channel, check: events(channel, check, "burst"),
        "turns": lambda channel, check: events(channel, check, "turns"),
    }

    async def repeat(number: int, until: float, check: bool) -> int:
        count, channel = 0, channels[number % CHANNELS]
        while time.monotonic() < until:
            count += await kinds[mode](channel, check)
        return count

    async def all_of(seconds: float, check: bool) -> int:
        until = time.monotonic() + seconds
        return sum(await asyncio.gather(*(repeat(number, until, check) for number in range(callers))))

    await all_of(warmup, True)
    print("ready", flush=True)
    cpu, began = time.process_time(), time.monotonic()
    count = await all_of(seconds, False)
    took = time.monotonic() - began
    for channel in channels:
        await channel.close()
    return {"count": count, "seconds": took, "busy": (time.process_time() - cpu) / took}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("mode", choices=["send", "get", "burst", "turns"])
    options.add_argument("port", type=int)
    options.add_argument("--callers", type=int, default=32)
    options.add_argument("--seconds", type=float, default=2)
    options.add_argument("--warmup", type=float, default=0.5)
    given = options.parse_args()
    measured = run(given.mode, given.port, given.callers, given.seconds, given.warmup)
    print(json.dumps(asyncio.run(measured)))


if __name__ == "__main__":
    main()
