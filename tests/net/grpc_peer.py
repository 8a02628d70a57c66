"""gRPC servers on loopback: gRPC's own, with handlers that a test gives, and one that says any bytes over HTTP/2."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.net.lines import Lines, speaking

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1

PREFACE = 24
"""Bytes with which a client begins (RFC 9113 §3.4)."""

Context = Any
Unary = Callable[[bytes, Context], Awaitable[bytes]]
Streaming = Callable[[bytes, Context], AsyncIterator[bytes]]


class GrpcPeer(grpc.GenericRpcHandler):
    """Its procedures by method (`/s/Echo`), and the metadata of its calls. Other methods are unimplemented."""

    def __init__(self) -> None:
        self.unary: dict[str, Unary] = {}
        self.streams: dict[str, Streaming] = {}
        self.metadata: list[tuple[str, dict[str, str]]] = []
        self.port = 0

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.metadata]

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        self.metadata.append((method, dict(handler_call_details.invocation_metadata)))
        if (unary := self.unary.get(method)) is not None:
            return grpc.unary_unary_rpc_method_handler(unary)
        if (stream := self.streams.get(method)) is not None:
            return grpc.unary_stream_rpc_method_handler(stream)
        return None


async def echo(request: bytes, context: Context) -> bytes:
    """Answer with the request."""
    return request


@asynccontextmanager
async def serving_grpc(
    host: str = "127.0.0.1", *, port: int = 0, pem: Path | None = None, client_ca: Path | None = None
) -> AsyncIterator[GrpcPeer]:
    """A server whose method `/s/Echo` answers with the request; over TLS with the certificate and the key in `pem`."""
    peer = GrpcPeer()
    peer.unary["/s/Echo"] = echo
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((peer,))
    place = f"{host}:{port}"
    if pem is None:
        peer.port = server.add_insecure_port(place)
    else:
        pair = pem.read_bytes()
        authority = None if client_ca is None else client_ca.read_bytes()
        credentials = grpc.ssl_server_credentials([(pair, pair)], authority, client_ca is not None)
        peer.port = server.add_secure_port(place, credentials)
    await server.start()
    try:
        yield peer
    finally:
        await server.stop(None)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113 §4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def headers(stream: int, fields: Mapping[str, str], *, end: bool = False) -> bytes:
    """A HEADERS frame, whose fields are literals without an index (RFC 7541 §6.2.2)."""
    block = b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode("latin-1")
        for name, value in fields.items()
    )
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def message(data: bytes, *, compressed: bool = False) -> bytes:
    """A message with its prefix, as in a DATA frame."""
    return bytes([compressed]) + len(data).to_bytes(4, "big") + data


HEAD = {":status": "200", "content-type": "application/grpc"}
OK = {"grpc-status": "0"}

Answer = Callable[[int], bytes]
"""The bytes that answer a request on the stream of that number; empty: the connection is closed instead."""


@asynccontextmanager
async def speaking_http2(answer: Answer, *, hangs_up: bool = False) -> AsyncIterator[Lines]:
    """A server that answers each request with these bytes, whatever they are, and may then end the connection."""

    async def talk(line: Any) -> None:
        await line.says(frame(SETTINGS, 0, 0))
        await line.reader.readexactly(PREFACE)
        while True:
            head = await line.reader.readexactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            payload = await line.reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                await line.says(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                await line.says(frame(PING, ACK, 0, payload))
            elif kind == HEADERS:
                if not (said := answer(stream)):
                    return
                await line.says(said)
                if hangs_up:
                    return

    async with speaking(talk) as lines:
        yield lines


@pytest.fixture(scope="module", autouse=True)
async def loop_of_module() -> AsyncIterator[None]:
    """One event loop for the tests of a module that has this. gRPC reports what was canceled a moment later, to the
    loop of then, and its report may not meet a closed one. A last call comes after all reports.
    """
    yield
    async with serving_grpc() as peer, grpc.aio.insecure_channel(f"127.0.0.1:{peer.port}") as channel:
        call: Any = channel.unary_unary("/s/Echo")
        assert await call(b"last") == b"last"
