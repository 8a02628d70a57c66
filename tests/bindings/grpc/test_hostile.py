"""Clients that mean harm, over gRPC: they end, or wait, and other callers are answered meanwhile."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from a2a.types import a2a_pb2 as pb

from dragoman import Agent, Context
from tests.grpc_callers import DEADLINE_S, V1, GrpcCaller, connected, grpc_served, message, refusal
from tests.kit.agents import echoing

pytestmark = pytest.mark.anyio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The connection preface of HTTP/2 (RFC 9113 §3.4), which a SETTINGS frame follows."""

HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame (RFC 9113 §4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header field that is not indexed, as HPACK writes it (RFC 7541 §6.2.2); both are short."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_headers(path: bytes = b"/lf.a2a.v1.A2AService/GetTask") -> bytes:
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"))
    return b"".join(
        literal(*field) for field in (*fields, (b"content-type", b"application/grpc"), (b"te", b"trailers"))
    )


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection that has said it speaks HTTP/2; what the server says is thrown away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def discard() -> None:
        with suppress(OSError):
            while await reader.read(65_536):
                pass

    discarding = asyncio.create_task(discard())
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    try:
        yield writer
    finally:
        discarding.cancel()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def flood(writer: asyncio.StreamWriter, frames: Iterator[bytes]) -> None:
    """Send frames until they are over, or the server has hung up."""
    with suppress(OSError):
        for each in frames:
            writer.write(each)
            await writer.drain()


def silent() -> Agent:
    agent = Agent("silent")

    @agent.skill
    async def wait(ctx: Context) -> None:
        """Say nothing."""
        await asyncio.Event().wait()

    return agent


async def answered(caller: GrpcCaller, count: int = 20) -> None:
    """Another caller, on a connection of its own, is answered so many times."""
    async with connected(caller.port) as channel:
        other = GrpcCaller(caller.url, caller.port, channel)
        for number in range(count):
            task = await other.send("hello", message_id=f"other-{number}", tenant="echo")
            assert task.artifacts[0].parts[0].text == "hello"


def resets() -> Iterator[bytes]:
    """Requests that are reset at once (CVE-2023-44487), a hundred in a write."""
    head = request_headers()
    for start in range(1, 8_001, 200):
        yield b"".join(
            frame(HEADERS, END_HEADERS, stream, head) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
            for stream in range(start, start + 200, 2)
        )


def settings() -> Iterator[bytes]:
    """SETTINGS that change the size of the header table to and fro; each wants to be acknowledged."""
    for number in range(100):
        yield b"".join(frame(SETTINGS, 0, 0, struct.pack(">HI", 1, (number + n) % 4096)) for n in range(200))


def pings() -> Iterator[bytes]:
    """PINGs, each of which wants an answer."""
    for _ in range(100):
        yield frame(PING, 0, 0, b"\0" * 8) * 200


def endless_head() -> Iterator[bytes]:
    """A head that never ends: CONTINUATION after CONTINUATION (CVE-2024-27316)."""
    yield frame(HEADERS, END_STREAM, 1, request_headers())
    for _ in range(500):
        yield frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 100) * 100)


def nonsense() -> Iterator[bytes]:
    """Bytes that are no frames."""
    for _ in range(50):
        yield b"\xff" * 4096


@pytest.mark.parametrize("frames", [resets, settings, pings, endless_head, nonsense])
async def test_a_flood_of_frames_leaves_others_alone(frames: Any) -> None:
    async with grpc_served(echoing()) as caller, raw(caller.port) as writer, asyncio.timeout(DEADLINE_S):
        flooding = asyncio.create_task(flood(writer, frames()))
        await answered(caller)
        await flooding
        await answered(caller, 3)


async def test_a_client_of_http_1_is_turned_away() -> None:
    async with grpc_served(echoing()) as caller, asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", caller.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        with suppress(OSError):
            while await reader.read(65_536):
                pass
        writer.close()
        await answered(caller, 3)


async def test_a_thousand_silent_streams_leave_others_alone() -> None:
    async with grpc_served(silent(), echoing()) as caller, AsyncExitStack() as stack:
        task = await caller.send(tenant="silent", return_immediately=True)
        callers = [
            GrpcCaller(caller.url, caller.port, await stack.enter_async_context(connected(caller.port)))
            for _ in range(4)
        ]
        streams = [callers[number % 4].subscribe(task.id, tenant="silent") for number in range(1000)]
        async with asyncio.timeout(DEADLINE_S):
            first = await asyncio.gather(*(stream.read() for stream in streams))
            assert all(item.task.id == task.id for item in first)
            await answered(caller)
            for stream in streams:
                stream.cancel()


async def test_a_request_that_never_ends_is_answered_after_its_first_message() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield message("hello").SerializeToString()

    async with grpc_served(echoing()) as caller, asyncio.timeout(DEADLINE_S):
        call: Any = caller.channel.stream_unary("/lf.a2a.v1.A2AService/SendMessage")
        answer = pb.SendMessageResponse.FromString(await call(endless(), metadata=V1))
        assert answer.task.artifacts[0].parts[0].text == "hello"
        await answered(caller, 3)


async def test_a_connection_that_says_nothing_leaves_others_alone() -> None:
    async with grpc_served(echoing()) as caller, AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", caller.port)
            stack.callback(writer.close)
        await answered(caller)


async def test_too_much_metadata_is_refused() -> None:
    async with grpc_served(echoing()) as caller:
        code, _ = await refusal(caller.send("hi", *((f"x-{n}", "y" * 1000) for n in range(20))))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await answered(caller, 3)
