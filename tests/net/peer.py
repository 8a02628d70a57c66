"""Another HTTP server, on loopback, that answers byte for byte what a test says: also nothing, half, or too much."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from tests.kit import loopback
from tests.kit.waiting import DEADLINE_S as DEADLINE_S
from tests.ports import kept_port


class Asked(Struct):
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """The next request on a connection. Raises IncompleteReadError if there is none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


Script = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """Its answers by `"METHOD /path"`, and the requests that came; anything else is 404."""

    def __init__(self) -> None:
        self.url = ""
        self.scripts: dict[str, Script] = {}
        self.asked: list[Asked] = []
        self.came = asyncio.Event()

    @property
    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await read_request(reader)
            self.asked.append(asked)
            self.came.set()
            await self.scripts.get(f"{asked.method} {asked.path}", status(404))(asked, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def says(content: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Script:
    """Answer with JSON, or with these very bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    more = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} X", "Connection: close", *(f"{name}: {value}" for name, value in more.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return script


def status(code: int) -> Script:
    """Answer with a status and nothing."""
    return says(b"", code)


def raw(piece: bytes, times: int = 1) -> Script:
    """Send bytes as they are, so often, and hang up."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            writer.write(piece)
            await writer.drain()

    return script


def hangs(before: bytes = b"") -> Script:
    """Take the request, send what is given, and then nothing until the caller leaves."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        await writer.drain()
        await writer.wait_closed()

    return script


def result(value: Any) -> Script:
    """A JSON-RPC result."""
    return says({"jsonrpc": "2.0", "id": 1, "result": value})


@asynccontextmanager
async def listening() -> AsyncIterator[Peer]:
    """A peer on a free port."""
    peer = Peer()
    async with loopback.listening(peer.serve) as port:
        peer.url = f"http://127.0.0.1:{port}"
        yield peer


async def nobody() -> str:
    """A URL on loopback where nobody listens."""
    return f"http://127.0.0.1:{kept_port()}"
